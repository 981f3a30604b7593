"""Fresh sign-ins: what shows a secret or ends things for good asks who is at the keyboard now (PO-4, SE-3).

Whoever has a second factor must have used it for that sign-in: a password alone is then not enough.
"""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import update

from app.models.session import Session
from app.operations.directory.lookups import get_organization_by_id
from app.operations.sign_in.second_factors import find_methods_of_user
from app.operations.store import clock
from app.operations.store.transactions import count_changed, read, transaction
from app.rules.actor import Actor
from app.rules.authorization.interaction import MULTI_FACTOR
from app.rules.errors import DomainError
from app.rules.languages.sentences import sentence
from app.rules.sign_in.second_factors import is_mfa_offered, used_second_factor


class FreshSignInRequired(DomainError):
    """The person signed in too long ago, or without the second factor that they have.

    Signing in again, within ``max_age`` seconds and in the context class ``acr_values`` where one is named, is the
    remedy (RFC 9470).
    """

    status = 401
    code = "insufficient_user_authentication"

    def __init__(self, max_age: int, acr_values: str | None = None) -> None:
        plain = sentence("Sign in again first: this is only for somebody who has just done so.")
        twice = sentence(
            "Sign in again with your second factor first: this is only for somebody who has just done so."
        )
        super().__init__(twice if acr_values else plain)
        self.max_age = max_age
        self.acr_values = acr_values


def require_fresh_user_sign_in(actor: Actor) -> None:
    """Raise FreshSignInRequired when a person acts, in a browser or by an app's token, who signed in too long ago.

    A client that acts for itself has no sign-in to be fresh.
    """
    if actor.user_id is not None:
        require_fresh_sign_in(actor)


@read
def require_fresh_sign_in(actor: Actor) -> None:
    """Raise FreshSignInRequired unless the person signed in within ``reauthentication_seconds``, as well as they can.

    The seconds are those of the organization acted in: its secrets, its rule. The second factor is one of the
    organization that the person belongs to.
    """
    sessions = get_organization_by_id(actor.organization_id).settings["authentication"]["sessions"]
    longest: int = sessions["reauthentication_seconds"]
    wanted = MULTI_FACTOR if _owes_second_factor(actor) else None
    is_late = actor.authenticated_at is None or clock.now() - actor.authenticated_at > timedelta(
        seconds=longest
    )
    if is_late or wanted is not None:
        raise FreshSignInRequired(longest, wanted)


@transaction
def require_active_session(actor: Actor) -> None:
    """Raise FreshSignInRequired unless the actor's own sign-in still stands; where there is none, nothing is asked.

    Asked last in a unit that changes what protects an account: its writes have waited for whoever had the user's row,
    and a reset by mail that came before them has ended the sign-in. The row count says so, not an earlier look.
    """
    if actor.session_id is None:
        return
    standing = count_changed(
        update(Session)
        .where(Session.organization_id == actor.home_organization_id, Session.id == actor.session_id)
        .values(digest=Session.digest)
    )
    if standing != 1:
        sessions = get_organization_by_id(actor.organization_id).settings["authentication"]["sessions"]
        raise FreshSignInRequired(sessions["reauthentication_seconds"])


def _owes_second_factor(actor: Actor) -> bool:
    if actor.user_id is None or used_second_factor(actor.amr):
        return False
    home = get_organization_by_id(actor.home_organization_id)
    return is_mfa_offered(home.settings) and bool(find_methods_of_user(home.id, actor.user_id))
