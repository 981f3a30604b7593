"""Fresh sign-ins: what shows a secret or ends things for good asks who is at the keyboard now (PO-4, SE-3)."""

from __future__ import annotations

from datetime import timedelta

from app.operations import clock
from app.operations.directory import organization_by_id
from app.operations.transaction import read
from app.rules.actor import Actor
from app.rules.errors import Forbidden


class FreshSignInRequired(Forbidden):
    """The person signed in too long ago; signing in again is the remedy."""

    code = "reauthentication_required"


@read
def require_fresh_sign_in(actor: Actor) -> None:
    """Raise FreshSignInRequired unless the person signed in within ``reauthentication_seconds``.

    The seconds are those of the organization acted in: its secrets, its rule.
    """
    sessions = organization_by_id(actor.organization_id).settings["authentication"]["sessions"]
    longest = timedelta(seconds=sessions["reauthentication_seconds"])
    if actor.authenticated_at is None or clock.now() - actor.authenticated_at > longest:
        raise FreshSignInRequired("Sign in again first: this is only for somebody who has just done so.")
