"""Notices by email: to a user about their account, and to an organization's administrators.

All are queued within the transaction of the change, limited per hour, and dropped without a mail server.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Literal
from uuid import UUID

from sqlalchemy import select, true

from app.config import current
from app.extensions import db
from app.models.user import ACTIVE, RoleAssignment, User
from app.operations.directory.lookups import get_organization_by_id
from app.operations.directory.snapshots import OrganizationSnapshot
from app.operations.directory.users import get_user
from app.operations.mail import emails
from app.operations.mail.emails import language_of
from app.operations.store import clock, rate_limits
from app.operations.store.outbox import enqueue
from app.operations.store.transactions import transaction
from app.rules.actor import Actor
from app.rules.directory.permissions import ADMIN
from app.rules.errors import NotFound
from app.rules.languages.translation import catalog_of, translate_value
from app.rules.mail.email_addresses import canonical_email

MAX_USER_NOTICES_PER_HOUR = 10
"""Notices of one kind to one user: an attacker cannot flood a mailbox, or suppress notices of another kind."""

Notice = Literal[
    "access_declined",
    "access_granted",
    "access_requested",
    "access_withdrawn",
    "account_deleted",
    "address_confirmed",
    "client_request_approved",
    "client_request_declined",
    "email_changed",
    "email_changed_by_administrator",
    "identity_linked",
    "identity_unlinked",
    "new_browser",
    "owner_changed",
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
MAX_ADMINISTRATOR_NOTICES_PER_HOUR = 20
"""Notices of one kind in one organization: a program cannot flood mailboxes, or suppress notices of another kind."""
AdministratorNotice = Literal["administrator_added", "secret_ends", "secret_revealed"]
MAX_RECIPIENTS = 20
ROOT_NOTICE_KIND = "root_access"
_SETTING = "audit.notify_root_access"
_HOUR = timedelta(hours=1)


def notify_user(actor: Actor, user_id: UUID, notice: Notice, *, to: str | None = None, **values: str) -> None:
    """Notify a user by email of what the actor did, within the same transaction; do nothing without a mail server.

    ``values`` are further values of the template; of these, only messages with parameters and those of ``lazy_value``
    are translated. ``to`` replaces the user's email, for example by the previous one.
    """
    if emails.is_possible():
        _notify_user(actor, user_id, notice, to, values)


@transaction
def _notify_user(
    actor: Actor, user_id: UUID, notice: Notice, to: str | None, values: Mapping[str, str]
) -> None:
    organization = get_organization_by_id(actor.organization_id)
    # Of several users, one after the other may have had the same email.
    bucket = rate_limits.bucket_key("notice", notice, canonical_email(to or "") or str(user_id))
    if not rate_limits.consume_quota(organization.id, bucket, MAX_USER_NOTICES_PER_HOUR, timedelta(hours=1)):
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
        **{name: translate_value(value, catalog_of(language).gettext) for name, value in values.items()},
    }
    emails.send(organization, to or user.email, notice, all_values, language=language)


@transaction
def notify_administrators(
    actor: Actor, notice: AdministratorNotice, subject: str, values: Mapping[str, str], *, topic: str = ""
) -> bool:
    """Notify all administrators, also the actor, within the same transaction, and return whether that was possible.

    Nobody is notified without a mail server, and beyond twenty notices of one kind and ``topic`` in an hour. Notices
    about the same ``subject`` by the same actor are sent once an hour.
    """
    if not emails.is_possible():
        return False
    organization = get_organization_by_id(actor.organization_id)
    same = rate_limits.bucket_key("administrator notice", notice, actor.label, subject)
    if not rate_limits.consume_quota(organization.id, same, 1, _HOUR):
        return False
    of_kind = rate_limits.bucket_key("administrator notices", notice, topic)
    if not rate_limits.consume_quota(organization.id, of_kind, MAX_ADMINISTRATOR_NOTICES_PER_HOUR, _HOUR):
        return False
    all_values = {
        "by": actor.label,
        "at": clock.now().isoformat(),
        "address": actor.ip_address or "",
        "link": f"{organization.base_url}/portal/{organization.slug}/audit",
        **values,
    }
    for email in administrator_emails(organization.id):
        emails.send(organization, email, notice, all_values)
    return True


def email_administrators(
    organization: OrganizationSnapshot, template: str, values: Mapping[str, str]
) -> None:
    """Send an email to each administrator, twenty at most; do nothing without a mail server."""
    if not emails.is_possible():
        return
    for address in administrator_emails(organization.id):
        emails.send(organization, address, template, values)


def administrator_emails(organization_id: str, *, only_home_users: bool = False) -> list[str]:
    """Return the emails of the active administrators, in the order in which they got the role, twenty at most.

    Includes users of root with the role in this organization, unless ``only_home_users``.
    """
    home = RoleAssignment.user_organization_id == organization_id if only_home_users else true()
    rows = db.session.scalars(
        select(User.email)
        .join(
            RoleAssignment,
            (RoleAssignment.user_organization_id == User.organization_id)
            & (RoleAssignment.user_id == User.id),
        )
        .where(
            RoleAssignment.organization_id == organization_id,
            home,
            RoleAssignment.role == ADMIN,
            User.status == ACTIVE,
        )
        .order_by(RoleAssignment.id)
        .limit(MAX_RECIPIENTS)
    )
    return list(dict.fromkeys(rows))


def announce_root(actor: Actor, event: Mapping[str, Any]) -> None:
    """Queue a notice to the organization's administrators that the actor of root did this, in the same transaction.

    One notice per actor and hour. Do nothing without a mail server or an administrator, such as while root creates the
    organization, or if the organization's settings ``before`` the change turned these notices off.
    """
    if actor.kind not in {"user", "client"} or current().mail_server is None:
        return
    if not _is_enabled(actor.organization_id, event["before"] or {}):
        return
    bucket = rate_limits.bucket_key("root access", str(actor.user_id or actor.client_id))
    if rate_limits.count_uses(actor.organization_id, bucket, _HOUR):
        return
    if not administrator_emails(actor.organization_id, only_home_users=True):
        return
    if not rate_limits.consume_quota(actor.organization_id, bucket, 1, _HOUR):
        return
    payload = {"by": actor.label, "action": event["action"], "address": actor.ip_address or ""}
    enqueue(actor.organization_id, ROOT_NOTICE_KIND, payload, receiver="administrators")


def _is_enabled(organization_id: str, before: Mapping[str, Any]) -> bool:
    # Turning the notices off is itself reported.
    if _SETTING in before:
        return bool(before[_SETTING])
    try:
        settings = get_organization_by_id(organization_id, fresh=False).settings
    except NotFound:
        return False
    return bool(settings["audit"]["notify_root_access"])
