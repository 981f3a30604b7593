"""Users made and changed by who administers them. Nobody sets another's password (PW-4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import update
from sqlalchemy.exc import IntegrityError

from app.extensions import db
from app.models.session import Session
from app.models.user import DELETED, DISABLED, User
from app.operations.authorization import connected_apps
from app.operations.authorization.connected_apps import ConsentRecord
from app.operations.directory.lookups import get_organization_by_id
from app.operations.directory.users import UserSnapshot, create_user, email_taken_error, get_user
from app.operations.sign_in.actor_access import require_manageable_user
from app.operations.sign_in.sessions import (
    SessionSummary,
    active_session_condition,
    end_sessions,
    end_sessions_of_user,
    list_sessions_of_user,
)
from app.operations.store import audit, clock
from app.operations.store.transactions import count_changed, is_duplicate_key, read, transaction
from app.operations.users.email_change import on_email_changed
from app.operations.users.password_resets import NewResetLink, issue_reset_link
from app.operations.users.user_status import disable_user, enable_user
from app.operations.users.users import UserDetailRecord, record_of, user_id_of
from app.rules.actor import Actor
from app.rules.errors import Conflict, NotFound, PreconditionFailed
from app.rules.identifiers import parse_public_id, public_id
from app.rules.mail.email_addresses import canonical_email
from app.rules.users.profile import new_user, user_change


@dataclass(frozen=True, slots=True)
class UpdatedUser:
    """``changed`` names the fields that differ now."""

    record: UserDetailRecord
    changed: list[str]


@transaction
def add_user(actor: Actor, fields: Mapping[str, Any]) -> UserDetailRecord:
    """A new user without a password and with an address that nobody has confirmed.

    They sign in once they chose a password by a link (``password_resets.issue_reset_link``). Raises Forbidden,
    InvalidInput naming every wrong field, Conflict for an address that is taken. Audit: ``user.created``.
    """
    actor.require("users:write")
    checked = new_user(fields)
    user_id = create_user(actor.organization_id, **checked)
    audit.record(
        actor, "user.created", target_type="user", target_id=public_id("usr", user_id), after=checked
    )
    return record_of(actor, user_id)


@transaction
def update_user(
    actor: Actor, user_id: str, fields: Mapping[str, Any], *, expected_version: int | None = None
) -> UpdatedUser:
    """The fields sent are the user's from now on; ``profile`` is replaced whole.

    Another address is one that nobody has confirmed: sign-ins and grants end with the old one, which is told (SS-6).
    ``status`` disables the user, which ends sign-ins and grants, or
    lets them in again. Raises Forbidden (also when the user holds a role that the actor lacks), NotFound,
    InvalidInput, Conflict, LastAdministrator, PreconditionFailed. Audit: ``user.updated`` with what differs,
    ``user.disabled``, ``user.enabled``.
    """
    actor.require("users:write")
    user = require_manageable_user(actor, user_id_of(user_id))
    checked = user_change(fields)
    require_version(user, expected_version)
    status = checked.pop("status", user.status)
    changed = sorted(name for name, value in checked.items() if getattr(user, name) != value)
    if changed:
        after = {name: checked[name] for name in changed}
        _store(user, after)
        ended = {}
        if "email" in after and canonical_email(after["email"]) != user.email_canonical:
            ended = on_email_changed(actor, user.id, old=user.email, new=after["email"])
        audit.record(
            actor,
            "user.updated",
            target_type="user",
            target_id=user.public_id,
            before={name: getattr(user, name) for name in changed},
            after=after | ended,
        )
    if status != user.status:
        (disable_user if status == DISABLED else enable_user)(actor, user.id)
        changed.append("status")
    return UpdatedUser(record_of(actor, user.id), changed)


def require_version(user: UserSnapshot, expected: int | None) -> None:
    """Raise PreconditionFailed unless the user is at the version that the caller read."""
    if expected is not None and user.version != expected:
        raise PreconditionFailed("The user was changed since you read them. Read them again.")


def _store(user: UserSnapshot, values: dict[str, Any]) -> None:
    columns = dict(values)
    if "email" in values:
        canonical = canonical_email(values["email"])
        columns["email_canonical"] = canonical
        columns["email_verified"] = user.email_verified and canonical == user.email_canonical
    try:
        with db.session.begin_nested():
            stored = count_changed(
                update(User)
                .where(
                    User.organization_id == user.organization_id,
                    User.id == user.id,
                    User.version == user.version,
                    User.status != DELETED,
                )
                .values(**columns, updated_at=clock.now(), version=user.version + 1)
            )
    except IntegrityError as error:
        if not is_duplicate_key(error):
            raise
        raise email_taken_error() from error
    if stored != 1:
        raise Conflict("The user was changed at the same moment. Read them again.", code="busy")
    db.session.expire_all()


@read
def list_user_sessions(actor: Actor, user_id: str) -> list[SessionSummary]:
    """The user's living sign-ins, by last use. Raises Forbidden, NotFound."""
    actor.require("users:read")
    user = get_user(actor.organization_id, user_id_of(user_id))
    return list_sessions_of_user(
        get_organization_by_id(user.organization_id), user.id, current=actor.session_id
    )


@transaction
def end_user_sessions(actor: Actor, user_id: str) -> int:
    """The user is signed in nowhere; what apps may refresh without them stays. Returns how many sign-ins ended.

    Raises Forbidden (also when the user holds a role that the actor lacks), NotFound. Audit: ``user.signed_out``.
    """
    actor.require("users:write")
    user = require_manageable_user(actor, user_id_of(user_id))
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
    user = require_manageable_user(actor, user_id_of(user_id))
    row_id = parse_public_id("ses", session_id)
    lives = active_session_condition(get_organization_by_id(user.organization_id)) & (
        Session.user_id == user.id
    )
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
