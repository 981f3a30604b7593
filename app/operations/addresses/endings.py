"""What ends with an address: whoever has it changed, the person or an administrator."""

from __future__ import annotations

from uuid import UUID

from app.operations.mail.notices import Notice, notify_user
from app.operations.people import account_links
from app.operations.people.sessions import end_sessions_of_user
from app.operations.tokens import revocation
from app.rules.actor import Actor


def end_with_address(
    actor: Actor, user_id: UUID, *, old: str, new: str, keep: UUID | None = None
) -> dict[str, int]:
    """Every sign-in but ``keep`` and what apps could refresh have ended (SS-6), and the old address is told.

    Part of the change that audits it; returns the counts for its event.
    """
    # The old address may be somebody else's by now, and a link that was sent there must not choose the password.
    account_links.end_links(actor.organization_id, user_id)
    ended = end_sessions_of_user(actor.organization_id, user_id, keep=keep)
    grants = revocation.revoke_grants_of_user(actor, user_id, reason="email_changed")
    by_themselves = actor.user_id == user_id
    notice: Notice = "email_changed" if by_themselves else "email_changed_by_administrator"
    notify_user(actor, user_id, notice, to=old, new=new)
    return {"ended_sessions": ended, "ended_grants": grants}
