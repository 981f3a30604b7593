"""Connect the parts that react to audit events; called once while the application is created."""

from __future__ import annotations

from app.operations.audit.webhook_publishing import publish_to_webhooks
from app.operations.mail.notices import announce_root
from app.operations.store import audit


def connect() -> None:
    """Send audit events to webhooks, and root's access to an organization to its administrators."""
    audit.subscribe(publish_to_webhooks)
    audit.subscribe(announce_root, only_from_root=True)
