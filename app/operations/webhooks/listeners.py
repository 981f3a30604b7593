"""Who listens: the enabled webhooks of an organization, kept in this process until something of it changes.

Every audited change asks, inside its transaction. That costs nothing but a look into memory while nothing changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import bindparam, select

from app.models.webhook import ENABLED, Webhook
from app.operations import view_changes
from app.operations.bounded import Kept
from app.operations.statements import Statement
from app.operations.transaction import current_unit
from app.operations.view_changes import Seen
from app.rules.evidence.event_types import is_chosen

_MOST_KEPT = 5_000
_CHANGED = "webhooks changed"
_LISTENING = Statement(
    select(Webhook.id, Webhook.event_types).where(
        Webhook.organization_id == bindparam("organization_id"),
        Webhook.deleted_at.is_(None),
        Webhook.status == ENABLED,
    )
)


@dataclass(frozen=True, slots=True)
class Listener:
    """An enabled webhook, and what was chosen for it."""

    id: UUID
    chosen: frozenset[str]

    def hears(self, event_type: str) -> bool:
        """Whether the event type was chosen."""
        return is_chosen(event_type, self.chosen)


_kept: Kept[tuple[tuple[Listener, ...], Seen]] = Kept(_MOST_KEPT)


def forget_listeners() -> None:
    """Nothing is kept in this process."""
    _kept.clear()


def listeners_of(organization_id: str) -> tuple[Listener, ...]:
    """The organization's listeners; asked inside the unit of work whose event they are to hear."""
    kept = _kept.get(organization_id)
    if kept is not None and kept[1].is_current:
        return kept[0]
    # The moment comes first: what changes during the reading makes the view stale, never the other way round.
    seen = Seen(organization_id)
    rows = _LISTENING.rows(organization_id=organization_id)
    found = tuple(Listener(row.id, frozenset(row.event_types)) for row in rows)
    # What a unit changed itself and may yet roll back is nobody else's view.
    if f"{_CHANGED} {organization_id}" not in current_unit().values:
        _kept.put(organization_id, value=(found, seen))
    return found


def note_change(organization_id: str) -> None:
    """The unit under way changes the organization's webhooks: every worker reads them afresh once it has committed."""
    current_unit().values[f"{_CHANGED} {organization_id}"] = True
    _kept.forget(organization_id)
    view_changes.mark(organization_id)
