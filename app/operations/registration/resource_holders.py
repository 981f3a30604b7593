"""Clients that hold a resource's scopes or name it: found, and taken off what is no more."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from sqlalchemy import String, func, literal, or_, select

from app.extensions import db
from app.models.client import DELETED, Client
from app.operations import audit, clock
from app.operations.registration.client_records import change_row, still_changing
from app.rules.actor import Actor
from app.rules.errors import Conflict
from app.rules.identifiers import client_id_of

MOST_HOLDERS = 500
_MOST_RACES = 10
_LISTS = ("scopes", "optional_scopes", "approved_scopes", "resources")


class InUse(Conflict):
    """Clients hold what would be taken away; ``details`` say how many. Confirming takes it from them, too."""

    code = "in_use"

    def __init__(self, clients: int, is_many: bool) -> None:
        counted = f"{MOST_HOLDERS} clients or more" if is_many else f"{clients} client{'s' * (clients != 1)}"
        words = (
            "Disable the resource, and take it from them first."
            if is_many
            else "Confirm to take it from them."
        )
        super().__init__(f"This is held by {counted}. {words}", details={"clients": clients})


@dataclass(frozen=True, slots=True)
class Holder:
    """A client that holds some of it."""

    client_id: str
    name: str


def holders_of(actor: Actor, gone: Collection[str]) -> list[Holder]:
    """The clients that have any of the scopes or identifiers; one more than ``MOST_HOLDERS`` at most."""
    return [Holder(client_id_of(row.organization_id, row.id), row.name) for row in _holding(actor, gone)]


def take_from_clients(actor: Actor, gone: Collection[str], *, confirmed: bool) -> int:
    """No client has any of the scopes or identifiers; part of the transaction under way. Returns how many had.

    Raises InUse when some have and nobody ``confirmed``, or too many have. Audit: ``client.updated`` for each.
    """
    rows = _holding(actor, gone)
    if rows and (not confirmed or len(rows) > MOST_HOLDERS):
        raise InUse(min(len(rows), MOST_HOLDERS), len(rows) > MOST_HOLDERS)
    for row in rows:
        _take(actor, row, gone)
    return len(rows)


def _holding(actor: Actor, gone: Collection[str]) -> list[Client]:
    if not gone:
        return []
    # Registrations are documents: neither scopes nor identifiers hold a character that JSON would write otherwise.
    names = [func.instr(Client.document, literal(f'"{name}"', String())) > 0 for name in gone]
    rows = db.session.scalars(
        select(Client)
        .where(Client.organization_id == actor.organization_id, Client.status != DELETED, or_(*names))
        .order_by(Client.id)
        .limit(MOST_HOLDERS + 1)
        .execution_options(populate_existing=True)
    )
    return [row for row in rows if _without(row.document, gone)]


def _take(actor: Actor, row: Client, gone: Collection[str]) -> None:
    for _ in range(_MOST_RACES):
        changes = _without(row.document, gone)
        if not changes:
            return
        before = {name: row.document[name] for name in changes}
        document = {**row.document, **changes}
        if change_row(row, {"document": document, "updated_at": clock.now()}):
            client_id = client_id_of(row.organization_id, row.id)
            audit.record(
                actor,
                "client.updated",
                target_type="client",
                target_id=client_id,
                before=before,
                after=changes,
            )
            return
        db.session.refresh(row)
    raise still_changing()


def _without(document: dict[str, Any], gone: Collection[str]) -> dict[str, Any]:
    """The lists of the document that differ without what is gone."""
    kept = {name: [item for item in document.get(name) or () if item not in gone] for name in _LISTS}
    return {name: items for name, items in kept.items() if len(items) != len(document.get(name) or ())}
