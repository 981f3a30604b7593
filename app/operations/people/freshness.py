"""Fresh sign-ins: what shows a secret or ends things for good asks who is at the keyboard now (PO-4, SE-3)."""

from __future__ import annotations

from datetime import timedelta

from app.operations import clock
from app.operations.directory import organization_by_id
from app.operations.transaction import read
from app.rules.actor import Actor
from app.rules.errors import DomainError


class FreshSignInRequired(DomainError):
    """The person signed in too long ago; signing in again, within ``max_age`` seconds, is the remedy (RFC 9470)."""

    status = 401
    code = "insufficient_user_authentication"

    def __init__(self, max_age: int) -> None:
        super().__init__("Sign in again first: this is only for somebody who has just done so.")
        self.max_age = max_age


def require_fresh_person(actor: Actor) -> None:
    """Raise FreshSignInRequired when a person acts, in a browser or by an app's token, who signed in too long ago.

    A client that acts for itself has no sign-in to be fresh.
    """
    if actor.user_id is not None:
        require_fresh_sign_in(actor)


@read
def require_fresh_sign_in(actor: Actor) -> None:
    """Raise FreshSignInRequired unless the person signed in within ``reauthentication_seconds``.

    The seconds are those of the organization acted in: its secrets, its rule.
    """
    sessions = organization_by_id(actor.organization_id).settings["authentication"]["sessions"]
    longest: int = sessions["reauthentication_seconds"]
    if actor.authenticated_at is None or clock.now() - actor.authenticated_at > timedelta(seconds=longest):
        raise FreshSignInRequired(longest)
