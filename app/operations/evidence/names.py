"""What the ids in the evidence are called: a log of ids alone says nothing to who reads it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import select

from app.extensions import db
from app.models.audit import AuditEvent
from app.models.client import Client
from app.models.credential import Credential
from app.models.grant import Grant
from app.models.resource import Resource
from app.models.user import DELETED, User
from app.models.webhook import Webhook
from app.operations.evidence.audit_events import AuditRecord
from app.operations.transaction import read
from app.rules.actor import Actor
from app.rules.identifiers import parse_client_id, parse_public_id

# Whose last event keeps the name that the row had.
_ENDINGS = ("client.deleted", "resource.deleted")


@dataclass(frozen=True, slots=True)
class Named:
    """What something is called, or was when it ended."""

    name: str
    is_deleted: bool = False


@read
def names_in_events(actor: Actor, events: Iterable[AuditRecord]) -> dict[UUID, Named]:
    """By the event's id, what it was done to is called: the client of a grant, the person of an administrator.

    What never had a name, or whose name was erased with it, is left out. A query for each kind of thing, however many
    events. Raises Forbidden.
    """
    actor.require("audit:read")
    ids = {event.id: found for event in events if (found := _target(event)) is not None}
    named = _names(actor.organization_id, set(ids.values()))
    return {event_id: named[found] for event_id, found in ids.items() if found in named}


@read
def names_of(actor: Actor, ids: Iterable[str]) -> dict[str, Named]:
    """By their ids, the names of things of the actor's organization, of clients and APIs that are gone as well.

    For ids that the actor was shown: it asks for no permission of its own.
    """
    return _names(actor.organization_id, set(ids))


def _target(event: AuditRecord) -> str | None:
    if event.target_type != "administrator":
        return event.target_id
    # The row of a role goes with it; the event says whose it was.
    found = (event.after or event.before or {}).get("user_id")
    return found if isinstance(found, str) else None


def _names(organization_id: str, ids: set[str]) -> dict[str, Named]:
    found: dict[str, Named] = {}
    for prefix, statement in _STATEMENTS.items():
        rows = {
            row_id: text for text in ids if (row_id := _row_id(organization_id, prefix, text)) is not None
        }
        if rows:
            wanted = statement(organization_id, list(rows))
            found |= {rows[row[0]]: Named(*row[1:]) for row in db.session.execute(wanted)}
    return found | _ended(organization_id, ids - set(found))


def _row_id(organization_id: str, prefix: str, text: str) -> UUID | None:
    if prefix != "cli":
        return parse_public_id(prefix, text)
    parsed = parse_client_id(text)
    return parsed[1] if parsed is not None and parsed[0] == organization_id else None


def _ended(organization_id: str, ids: set[str]) -> dict[str, Named]:
    """Of what was purged since, the name that its last event kept."""
    ids = {text for text in ids if text.startswith(("cli_", "res_"))}
    if not ids:
        return {}
    rows = db.session.execute(
        select(AuditEvent.target_id, AuditEvent.before).where(
            AuditEvent.organization_id == organization_id,
            AuditEvent.target_id.in_(ids),
            AuditEvent.action.in_(_ENDINGS),
        )
    )
    return {
        str(text): Named(str(before["name"]), True) for text, before in rows if before and "name" in before
    }


def _clients(organization_id: str, ids: list[UUID]) -> Any:
    return select(Client.id, Client.name, Client.deleted_at.is_not(None)).where(
        Client.organization_id == organization_id, Client.id.in_(ids)
    )


def _users(organization_id: str, ids: list[UUID]) -> Any:
    return select(User.id, User.email).where(
        User.organization_id == organization_id, User.id.in_(ids), User.status != DELETED
    )


def _secrets(organization_id: str, ids: list[UUID]) -> Any:
    return (
        select(Credential.id, Credential.name + " · " + Client.name)
        .join(
            Client,
            (Client.organization_id == Credential.organization_id) & (Client.id == Credential.client_id),
        )
        .where(Credential.organization_id == organization_id, Credential.id.in_(ids))
    )


def _grants(organization_id: str, ids: list[UUID]) -> Any:
    return (
        select(Grant.id, Client.name, Client.deleted_at.is_not(None))
        .join(Client, (Client.organization_id == Grant.organization_id) & (Client.id == Grant.client_id))
        .where(Grant.organization_id == organization_id, Grant.id.in_(ids))
    )


def _resources(organization_id: str, ids: list[UUID]) -> Any:
    return select(Resource.id, Resource.name).where(
        Resource.organization_id == organization_id, Resource.id.in_(ids)
    )


def _webhooks(organization_id: str, ids: list[UUID]) -> Any:
    return select(Webhook.id, Webhook.description, Webhook.deleted_at.is_not(None)).where(
        Webhook.organization_id == organization_id, Webhook.id.in_(ids), Webhook.description != ""
    )


_STATEMENTS = {
    "cli": _clients,
    "usr": _users,
    "sec": _secrets,
    "grt": _grants,
    "res": _resources,
    "whk": _webhooks,
}
