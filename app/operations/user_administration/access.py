"""Where a user is signed in and which apps act for them, as an administrator sees it."""

from __future__ import annotations

from app.models.session import Session
from app.operations import audit
from app.operations.consents import connected_apps
from app.operations.consents.connected_apps import ConsentRecord
from app.operations.directory import organization_by_id
from app.operations.people.living_sessions import living
from app.operations.people.own_sessions import SignIn, sign_ins_of
from app.operations.people.password_resets import NewResetLink, issue_reset_link
from app.operations.people.sessions import end_sessions, end_sessions_of_user
from app.operations.people.user_status import require_reach
from app.operations.people.users import get_user
from app.operations.transaction import read, transaction
from app.operations.user_administration.records import user_id_of
from app.rules.actor import Actor
from app.rules.errors import NotFound
from app.rules.identifiers import parse_public_id


@read
def list_user_sessions(actor: Actor, user_id: str) -> list[SignIn]:
    """The user's living sign-ins, by last use. Raises Forbidden, NotFound."""
    actor.require("users:read")
    user = get_user(actor.organization_id, user_id_of(user_id))
    return sign_ins_of(organization_by_id(user.organization_id), user.id, current=actor.session_id)


@transaction
def end_user_sessions(actor: Actor, user_id: str) -> int:
    """The user is signed in nowhere; what apps may refresh without them stays. Returns how many sign-ins ended.

    Raises Forbidden (also when the user holds a role that the actor lacks), NotFound. Audit: ``user.signed_out``.
    """
    actor.require("users:write")
    user = require_reach(actor, user_id_of(user_id))
    ended = end_sessions_of_user(user.organization_id, user.id)
    if ended:
        audit.record(
            actor,
            "user.signed_out",
            target_type="user",
            target_id=user.public_id,
            after={"ended_sessions": ended},
        )
    return ended


@transaction
def end_user_session(actor: Actor, user_id: str, session_id: str) -> None:
    """The user's one sign-in is over. Raises as above, and NotFound for one that is over or somebody else's.

    Audit: ``session.ended``.
    """
    actor.require("users:write")
    user = require_reach(actor, user_id_of(user_id))
    row_id = parse_public_id("ses", session_id)
    lives = living(organization_by_id(user.organization_id)) & (Session.user_id == user.id)
    if not end_sessions(user.organization_id, lives & (Session.id == row_id)):
        raise NotFound("There is no such sign-in.")
    audit.record(
        actor, "session.ended", target_type="session", target_id=session_id, after={"user": user.public_id}
    )


@read
def list_user_consents(actor: Actor, user_id: str) -> list[ConsentRecord]:
    """The apps that may act for the user, as they see them. Raises Forbidden, NotFound."""
    actor.require("consents:read")
    user = get_user(actor.organization_id, user_id_of(user_id))
    owner = Actor("user", user.organization_id, user.organization_id, user_id=user.id)
    return connected_apps.list_consents(owner)


@transaction
def reset_user(actor: Actor, user_id: str) -> NewResetLink:
    """As ``issue_reset_link``, for the id ``usr_…``."""
    actor.require("users:write")
    return issue_reset_link(actor, user_id_of(user_id))
