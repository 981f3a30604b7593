"""Connect the parts that react to audit events and sign-ins; called once while the application is created."""

from __future__ import annotations

from app.operations.audit.webhook_publishing import publish_to_webhooks
from app.operations.grants.revocation import subscribe_to_replaced_sessions
from app.operations.mail.notices import announce_root
from app.operations.store import audit
from app.operations.users.import_runner import move_imports


def connect() -> None:
    """Send audit events to webhooks, and root's access to an organization to its administrators.

    Imports go on with the session that replaces the one that started them.
    """
    audit.subscribe(publish_to_webhooks)
    audit.subscribe(announce_root, only_from_root=True)
    subscribe_to_replaced_sessions(move_imports)
