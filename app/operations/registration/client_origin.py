"""Where a client comes from, and how many of them an organization has room for (scale.md rule 13)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import Select, func, select

from app.extensions import db
from app.models.client import PERSON, Client
from app.models.registration import ClientRegistration
from app.rules.errors import Conflict

# Deleted clients count until their rows are gone: making and deleting must not fill the table either.
MOST_CLIENTS = 50_000
MOST_SELF_REGISTERED = 10_000
# No client that registered itself ends sooner; the janitor looks at each one once in this time.
FIRST_IDLE_CHECK = timedelta(days=1)


class NoRoom(Conflict):
    """The organization has as many clients as it may have."""

    code = "too_many_clients"


@dataclass(frozen=True, slots=True)
class Origin:
    """Who registers a client; ``metadata_document_uri`` is its ``client_id`` on the wire where it has such a one."""

    source: str = PERSON
    metadata_document_uri: str | None = None


def require_room(organization_id: str, origin: Origin) -> None:
    """Raise NoRoom when one more client would be too many; two at the same moment may pass it by one."""
    if origin.source != PERSON and _reached(
        select(ClientRegistration.id).where(
            ClientRegistration.organization_id == organization_id,
            ClientRegistration.idle_check_at.is_not(None),
        ),
        MOST_SELF_REGISTERED,
    ):
        raise NoRoom("Too many clients have registered themselves here. Idle ones end by themselves.")
    if _reached(select(Client.id).where(Client.organization_id == organization_id), MOST_CLIENTS):
        raise NoRoom(f"An organization has at most {MOST_CLIENTS} clients. Delete some that nobody uses.")


def _reached(rows: Select[Any], most: int) -> bool:
    bounded = rows.limit(most).subquery()
    return int(db.session.scalar(select(func.count()).select_from(bounded)) or 0) >= most
