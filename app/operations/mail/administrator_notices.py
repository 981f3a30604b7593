"""Notices to an organization's administrators: what one of them did that the others should know of, bounded."""

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

MOST_AN_HOUR = 20
"""Notices in one organization, of all kinds: a program that does a thing all day must not fill mailboxes."""
_HOUR = timedelta(hours=1)

AdministratorNotice = Literal["administrator_added", "secret_ends", "secret_revealed"]


@transaction
def notify_administrators(
    actor: Actor, notice: AdministratorNotice, about: str, told: Mapping[str, str]
) -> None:
    """The organization's administrators hear of what the actor did, the actor too; part of the unit that did it.

    Of the same thing ``about`` by the same actor they hear once an hour. Nothing happens where there is no mail server.
    """
    if not letters.is_possible():
        return
    organization = get_organization_by_id(actor.organization_id)
    same = rate_limits.bucket_key("administrator notice", notice, actor.label, about)
    if not rate_limits.consume_quota(organization.id, same, 1, _HOUR):
        return
    if not rate_limits.consume_quota(
        organization.id, rate_limits.bucket_key("administrator notices"), MOST_AN_HOUR, _HOUR
    ):
        return
    values = {
        "by": actor.label,
        "at": clock.now().isoformat(),
        "address": actor.ip_address or "",
        "link": f"{organization.base_url}/portal/{organization.slug}/audit",
        **told,
    }
    for email in addresses_of_administrators(organization.id):
        letters.send(organization, email, notice, values)
