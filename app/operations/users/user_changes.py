"""Creating and changing users as an administrator. No administrator sets another user's password (PW-4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.models.session import Session
from app.models.user import DELETED, DISABLED, User
from app.operations.authorization import connected_apps
from app.operations.authorization.connected_apps import ConsentRecord
from app.operations.directory.lookups import get_organization_by_id
from app.operations.directory.users import (
    UserSnapshot,
    create_user,
    email_taken_error,
    get_user,
    hold_user,
    parse_user_id,
    update_user_row,
)
from app.operations.sign_in.actor_access import require_manageable_user
from app.operations.sign_in.reauthentication import require_fresh_user_sign_in
from app.operations.sign_in.sessions import (
    SessionSummary,
    active_session_condition,
    end_sessions_of_user,
    list_sessions_of_user,
)
from app.operations.store import audit
from app.operations.store.rows import Updated
from app.operations.store.transactions import OutdatedRead, read, savepoint, transaction
from app.operations.users.email_change import on_email_changed
from app.operations.users.password_resets import NewResetLink, issue_reset_link
from app.operations.users.users import UserRecord, disable_user, enable_user, load_user_record
from app.rules.actor import Actor
from app.rules.directory.attributes import attributes_of
from app.rules.errors import Busy, NotFound
from app.rules.identifiers import parse_public_id
from app.rules.mail.email_addresses import canonical_email
from app.rules.users.profile import validate_new_user, validate_user_change
from app.rules.versions import ExpectedVersion, require_version


@transaction
def add_user(actor: Actor, fields: Mapping[str, Any]) -> UserRecord:
    """Create a user without a password and with an unverified email.

    They can sign in after choosing a password by a link (``password_resets.issue_reset_link``). Raises
    Forbidden, InvalidInput naming every wrong field, Conflict if the email is taken. Audit: ``user.created``.
    """
    actor.require("users:write")
    definitions = attributes_of(get_organization_by_id(actor.organization_id).settings)
    checked = validate_new_user(fields, definitions)
    user_id = create_user(actor.organization_id, **checked)
    audit.record_user_event(actor, "user.created", user_id, after=checked)
    return load_user_record(actor, user_id)


@transaction
def update_user(
    actor: Actor, user_id: str, fields: Mapping[str, Any], *, expected_version: ExpectedVersion = None
) -> Updated[UserRecord]:
    """Update the fields given; ``profile`` and ``attributes`` are replaced as a whole.

    A new email is unverified, ends sessions and grants, and the old one is notified (SS-6). ``status``
    disables the user, which ends sessions and grants, or enables them again. Raises Forbidden (also when the
    user has a role that the actor lacks), NotFound, InvalidInput, Conflict, LastAdministrator,
    PreconditionFailed, and FreshSignInRequired for a new email if the actor signed in too long ago. Audit:
    ``user.updated`` with what differs, ``user.disabled``, ``user.enabled``.
    """
    actor.require("users:write")
    user = require_manageable_user(actor, parse_user_id(user_id))
    definitions = attributes_of(get_organization_by_id(actor.organization_id).settings)
    # The stored email may be one that could not be set now.
    sent = {name: value for name, value in fields.items() if name != "email" or value != user.email}
    checked = validate_user_change(sent, definitions)
    require_version(user.version, expected_version)
    status = checked.pop("status", user.status)
    changed = sorted(name for name, value in checked.items() if getattr(user, name) != value)
    if changed:
        after = {name: checked[name] for name in changed}
        is_new_email = "email" in after and canonical_email(after["email"]) != user.email_canonical
        if is_new_email:
            # A reset link sent to the new address would let its owner take over the account.
            require_fresh_user_sign_in(actor)
        _store(user, after)
        ended = {}
        if is_new_email:
            ended = on_email_changed(actor, user.id, old=user.email, new=after["email"])
        audit.record_user_event(
            actor,
            "user.updated",
            user.id,
            before={name: getattr(user, name) for name in changed},
            after=after | ended,
        )
    if status != user.status:
        (disable_user if status == DISABLED else enable_user)(actor, user.id)
        changed.append("status")
    return Updated(load_user_record(actor, user.id), changed)


@read
def list_user_sessions(actor: Actor, user_id: str) -> list[SessionSummary]:
    """List the user's active sessions by last use. Raises Forbidden, NotFound."""
    actor.require("users:read")
    user = get_user(actor.organization_id, parse_user_id(user_id))
    return list_sessions_of_user(
        get_organization_by_id(user.organization_id), user.id, current=actor.session_id
    )


@transaction
def end_user_sessions(actor: Actor, user_id: str) -> int:
    """End the user's sessions but not their grants, and return how many ended.

    Raises Forbidden (also when the user has a role that the actor lacks), NotFound. Audit:
    ``user.signed_out``.
    """
    actor.require("users:write")
    user = require_manageable_user(actor, parse_user_id(user_id))
    hold_user(user.organization_id, user.id)
    ended = end_sessions_of_user(user.organization_id, user.id)
    if ended:
        audit.record_user_event(actor, "user.signed_out", user.id, after={"ended_sessions": ended})
    return ended


@transaction
def end_user_session(actor: Actor, user_id: str, session_id: str) -> None:
    """End one session of the user. Raises Forbidden, and NotFound if it is not an active session of the user.

    Audit: ``session.ended``.
    """
    actor.require("users:write")
    user = require_manageable_user(actor, parse_user_id(user_id))
    row_id = parse_public_id("ses", session_id)
    hold_user(user.organization_id, user.id)
    is_active = active_session_condition(get_organization_by_id(user.organization_id))
    if not end_sessions_of_user(user.organization_id, user.id, is_active & (Session.id == row_id)):
        raise NotFound("There is no such session.")
    audit.record_user_event(actor, "session.ended", user.id, after={"session": session_id})


@read
def list_user_consents(actor: Actor, user_id: str) -> list[ConsentRecord]:
    """List the apps that may act for the user. Raises Forbidden, NotFound."""
    actor.require("consents:read")
    user = get_user(actor.organization_id, parse_user_id(user_id))
    owner = Actor("user", user.organization_id, user.organization_id, user_id=user.id)
    return connected_apps.list_consents(owner)


@transaction
def issue_user_reset_link(actor: Actor, user_id: str) -> NewResetLink:
    """Issue a password reset link for the id ``usr_…``. Raises and audits as ``issue_reset_link``."""
    actor.require("users:write")
    return issue_reset_link(actor, parse_user_id(user_id))


def _store(user: UserSnapshot, values: dict[str, Any]) -> None:
    columns = dict(values)
    if "email" in values:
        canonical = canonical_email(values["email"])
        columns["email_canonical"] = canonical
        columns["email_verified"] = user.email_verified and canonical == user.email_canonical
    with savepoint(on_duplicate=email_taken_error()):
        update_unchanged_user(user, **columns)


def update_unchanged_user(user: UserSnapshot, **columns: Any) -> None:
    """Update columns of the user's row. Raises OutdatedRead if it was changed or deleted since it was read."""
    is_unchanged = (User.version == user.version) & (User.status != DELETED)
    if not update_user_row(user.organization_id, user.id, is_unchanged, **columns):
        raise OutdatedRead(Busy("The user is being changed by others right now. Try again."))
