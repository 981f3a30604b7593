"""Events of organizations: what happened to one stands in its own log, and in root's where root must know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.models.organization import ACTIVE, DELETED
from app.operations import audit
from app.operations.directory import root_organization
from app.rules.actor import Actor
from app.rules.errors import NotFound

DELETION = "organization.deleted"


def action_of(old_status: str, changed: Mapping[str, Any]) -> str:
    """The name of a change of the fields ``changed`` to an organization that had ``old_status``."""
    if "status" not in changed:
        return "organization.updated"
    if changed["status"] != ACTIVE:
        return "organization.suspended"
    return "organization.restored" if old_status == DELETED else "organization.resumed"


def record_event(
    actor: Actor, slug: str, action: str, before: Mapping[str, Any], after: Mapping[str, Any]
) -> None:
    """The event is part of the transaction under way: in the organization's log, and in root's.

    Root's log has what root's people and clients did, and each deletion, whoever did it: the organization's own log
    goes with its data. Both rows are of one transaction, so that neither is there without the other and the change.
    """
    logs = [actor]
    if actor.home_organization_id != actor.organization_id or action == DELETION:
        root = _root_id()
        if root is not None and root != actor.organization_id:
            # The same person, who may nothing there: the row says whose administrator it was.
            logs.insert(0, actor.acting_in(root, frozenset()))
    for log in logs:
        audit.record(
            log, action, target_type="organization", target_id=slug, before=dict(before), after=dict(after)
        )


def _root_id() -> str | None:
    try:
        return root_organization().id
    except NotFound:
        return None
