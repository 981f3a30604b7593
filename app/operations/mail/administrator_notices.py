"""Notices to an organization's administrators about what one of them did, limited per hour."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Literal

from app.operations.directory.lookups import get_organization_by_id
from app.operations.mail import letters
from app.operations.mail.to_administrators import addresses_of_administrators
from app.operations.store import clock, rate_limits
from app.operations.store.transactions import transaction
from app.rules.actor import Actor

MAX_PER_HOUR = 20
"""Notices of all kinds in one organization, so that a program cannot flood mailboxes."""
_HOUR = timedelta(hours=1)

AdministratorNotice = Literal["administrator_added", "secret_ends", "secret_revealed"]


@transaction
def notify_administrators(
    actor: Actor, notice: AdministratorNotice, subject: str, values: Mapping[str, str]
) -> None:
    """Notify all administrators, also the actor, within the same transaction; do nothing without a mail server.

    Notices about the same ``subject`` by the same actor are sent once an hour.
    """
    if not letters.is_possible():
        return
    organization = get_organization_by_id(actor.organization_id)
    same = rate_limits.bucket_key("administrator notice", notice, actor.label, subject)
    if not rate_limits.consume_quota(organization.id, same, 1, _HOUR):
        return
    if not rate_limits.consume_quota(
        organization.id, rate_limits.bucket_key("administrator notices"), MAX_PER_HOUR, _HOUR
    ):
        return
    all_values = {
        "by": actor.label,
        "at": clock.now().isoformat(),
        "address": actor.ip_address or "",
        "link": f"{organization.base_url}/portal/{organization.slug}/audit",
        **values,
    }
    for email in addresses_of_administrators(organization.id):
        letters.send(organization, email, notice, all_values)
