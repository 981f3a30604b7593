"""Security notices: emails to a user about changes to their account, limited per hour."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal
from uuid import UUID

from app.operations.directory.lookups import get_organization_by_id
from app.operations.directory.users import get_user
from app.operations.mail import letters
from app.operations.mail.languages import language_of
from app.operations.store import clock, rate_limits
from app.operations.store.transactions import transaction
from app.rules.actor import Actor
from app.rules.languages.catalogs import catalog_of
from app.rules.languages.sentences import translate

MAX_PER_HOUR = 10
"""Notices of one kind to one user: nobody can flood a mailbox, or suppress notices of another kind."""

Notice = Literal[
    "account_deleted",
    "address_confirmed",
    "client_request_approved",
    "client_request_declined",
    "email_changed",
    "email_changed_by_administrator",
    "new_browser",
    "passkey_refused",
    "password_changed",
    "password_was_reset",
    "recovery_code_used",
    "recovery_codes_renewed",
    "refresh_token_reused",
    "second_factor_added",
    "second_factor_removed",
    "second_factors_reset",
]


@transaction
def notify_user(actor: Actor, user_id: UUID, notice: Notice, *, to: str | None = None, **values: str) -> None:
    """Notify a user by email of what the actor did, within the same transaction; do nothing without a mail server.

    ``values`` are further values of the template. ``to`` replaces the user's email, for example by the previous one.
    """
    if not letters.is_possible():
        return
    organization = get_organization_by_id(actor.organization_id)
    bucket = rate_limits.bucket_key("notice", notice, str(user_id))
    if not rate_limits.consume_quota(organization.id, bucket, MAX_PER_HOUR, timedelta(hours=1)):
        return
    user = get_user(organization.id, user_id)
    # Chosen now, because the account or its email may have changed when the notice is sent.
    language = language_of(organization, user.profile)
    home = f"{organization.base_url}/organizations/{organization.slug}"
    all_values = {
        "email": user.email,
        "at": clock.now().isoformat(),
        "address": actor.ip_address or "",
        "link": f"{home}/forgot",
        "apps": f"{home}/account/apps",
        "security": f"{home}/account/security",
        **{name: translate(value, catalog_of(language).gettext) for name, value in values.items()},
    }
    letters.send(organization, to or user.email, notice, all_values, language=language)
