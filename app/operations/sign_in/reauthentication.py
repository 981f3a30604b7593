"""Requiring a fresh sign-in before secrets are shown, something is deleted or permissions are given (PO-4, PO-5, SE-3).

Users who have a second factor must have used it for that sign-in. A password alone is not enough for them.
"""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import update

from app.models.base import has_key
from app.models.session import Session
from app.operations.directory.lookups import get_organization_by_id
from app.operations.sign_in.second_factors import find_methods_of_user
from app.operations.store import clock
from app.operations.store.transactions import count_changed, read, transaction
from app.rules.actor import Actor
from app.rules.authorization.interaction import MULTI_FACTOR
from app.rules.errors import DomainError
from app.rules.languages.translation import lazy_gettext
from app.rules.sign_in.second_factors import is_mfa_offered, used_second_factor


class FreshSignInRequired(DomainError):
    """The user signed in too long ago, or without their second factor.

    The remedy is to sign in again within ``max_age`` seconds, with the context class ``acr_values`` if it is
    set (RFC 9470).
    """

    status = 401
    code = "insufficient_user_authentication"

    def __init__(self, max_age: int, acr_values: str | None = None) -> None:
        plain = lazy_gettext("Sign in again to continue. This page requires a recent sign-in.")
        twice = lazy_gettext(
            "Sign in again with two-step verification to continue. This page requires a recent sign-in."
        )
        super().__init__(twice if acr_values else plain)
        self.max_age = max_age
        self.acr_values = acr_values


def require_fresh_user_sign_in(actor: Actor) -> None:
    """Require a fresh sign-in when a user acts, in a browser or through an app's token.

    A client that acts for itself has no sign-in. Raises FreshSignInRequired.
    """
    if actor.user_id is not None:
        require_fresh_sign_in(actor)


def is_sign_in_fresh(actor: Actor) -> bool:
    """Return whether ``require_fresh_user_sign_in`` would raise nothing."""
    try:
        require_fresh_user_sign_in(actor)
    except FreshSignInRequired:
        return False
    return True


@read
def require_fresh_sign_in(actor: Actor) -> None:
    """Require that the user signed in recently, with a second factor if they have one.

    The limit ``reauthentication_seconds`` is that of the organization acted in, because it owns the secrets.
    The second factor is that of the user's home organization. Raises FreshSignInRequired.
    """
    sessions = get_organization_by_id(actor.organization_id).settings["authentication"]["sessions"]
    max_age: int = sessions["reauthentication_seconds"]
    acr_values = MULTI_FACTOR if _must_use_second_factor(actor) else None
    is_late = actor.authenticated_at is None or clock.now() - actor.authenticated_at > timedelta(
        seconds=max_age
    )
    if is_late or acr_values is not None:
        raise FreshSignInRequired(max_age, acr_values)


@transaction
def require_active_session(actor: Actor) -> None:
    """Require that the actor's session has not ended; actors without one are accepted.

    Call it last in a transaction that changes an account's protection. Its writes have waited for whichever
    transaction held the user's row, and a password reset that committed first has ended the session. The row
    count decides, because an earlier read could be outdated. Raises FreshSignInRequired.
    """
    if actor.session_id is None:
        return
    updated = count_changed(
        update(Session)
        .where(has_key(Session, actor.home_organization_id, actor.session_id))
        .values(digest=Session.digest)
    )
    if updated != 1:
        sessions = get_organization_by_id(actor.organization_id).settings["authentication"]["sessions"]
        raise FreshSignInRequired(sessions["reauthentication_seconds"])


def _must_use_second_factor(actor: Actor) -> bool:
    if actor.user_id is None or used_second_factor(actor.amr):
        return False
    home = get_organization_by_id(actor.home_organization_id)
    return is_mfa_offered(home.settings) and bool(find_methods_of_user(home.id, actor.user_id))
