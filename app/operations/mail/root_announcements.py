"""Queueing the notice that root acted in an organization, once an hour per actor."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from app.config import current
from app.operations.directory.lookups import get_organization_by_id
from app.operations.store import rate_limits
from app.operations.store.outbox import enqueue
from app.rules.actor import Actor
from app.rules.errors import NotFound

KIND = "root_access"
_SETTING = "audit.notify_root_access"
_HOUR = timedelta(hours=1)


def announce_root(actor: Actor, event: Mapping[str, Any]) -> None:
    """The organization's administrators will be told that the actor of root did this in it; part of the unit that did.

    One notice per actor and hour. Do nothing for other actors, without a mail server, or if the organization's settings
    ``before`` the change turned these notices off.
    """
    is_root_elsewhere = actor.is_root and actor.organization_id != actor.home_organization_id
    if not is_root_elsewhere or actor.kind not in {"user", "client"} or current().mail_server is None:
        return
    if not _is_wanted(actor.organization_id, event["before"] or {}):
        return
    who = str(actor.user_id or actor.client_id)
    if not rate_limits.consume_quota(
        actor.organization_id, rate_limits.bucket_key("root access", who), 1, _HOUR
    ):
        return
    payload = {"by": actor.label, "action": event["action"], "address": actor.ip_address or ""}
    enqueue(actor.organization_id, KIND, payload, receiver="administrators")


def _is_wanted(organization_id: str, before: Mapping[str, Any]) -> bool:
    # Turning the notices off is itself reported.
    if _SETTING in before:
        return bool(before[_SETTING])
    try:
        settings = get_organization_by_id(organization_id, fresh=False).settings
    except NotFound:
        return False
    return bool(settings["audit"]["notify_root_access"])
