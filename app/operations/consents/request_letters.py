"""Letters about requests for clients, to those who decide."""

from __future__ import annotations

from datetime import timedelta

from app.operations.directory import ClientView, organization_by_id
from app.operations.mail.to_administrators import write_to_administrators
from app.operations.people import attempts
from app.rules.actor import Actor

MOST_AN_HOUR = 20
"""To one organization's administrators: past that the queue itself says what waits."""


def tell_administrators(actor: Actor, client: ClientView, reason: str) -> None:
    """The administrators hear that somebody asks for the client; part of the unit under way."""
    organization = organization_by_id(actor.organization_id)
    bucket = attempts.bucket_of("client request letters")
    if not attempts.is_within(organization.id, bucket, MOST_AN_HOUR, timedelta(hours=1)):
        return
    values = {
        "who": actor.label,
        "client": client.name,
        "reason": reason,
        "link": f"{organization.base_url}/portal/{organization.slug}/client-requests",
    }
    write_to_administrators(organization, "client_requested", values)
