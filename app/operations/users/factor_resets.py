"""Second factors of other users: what administrators see, and resetting them for a user who has lost them."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from msgspec import Struct
from sqlalchemy import exists

from app.models.base import is_of_user, is_same
from app.models.second_factor import AuthenticatorApp, Passkey
from app.models.user import ACTIVE, RoleAssignment, User
from app.operations.directory.users import get_user, hold_user, parse_user_id
from app.operations.mail.notices import notify_user
from app.operations.sign_in import known_browsers, passkeys, pending_sign_ins, second_factors
from app.operations.sign_in.actor_access import require_manageable_user
from app.operations.sign_in.reauthentication import require_fresh_user_sign_in
from app.operations.sign_in.second_factors import find_methods_of_user
from app.operations.sign_in.sessions import end_access_of_user
from app.operations.store import audit
from app.operations.store.rows import count_where
from app.operations.store.transactions import read, transaction
from app.rules.actor import Actor
from app.rules.directory.permissions import ADMIN
from app.rules.sign_in.second_factors import PASSKEY, TOTP


class FactorRecord(Struct, frozen=True):
    """A second factor of a user without its secrets. ``name`` distinguishes passkeys."""

    method: str
    name: str
    created_at: datetime
    last_used_at: datetime | None


class UserFactors(Struct, frozen=True):
    """All second factors of a user, and the number of unused recovery codes."""

    factors: tuple[FactorRecord, ...]
    codes_left: int


class FactorResetResult(Struct, frozen=True):
    """The methods that were removed, and how many sessions and grants ended."""

    methods: tuple[str, ...]
    sessions: int
    grants: int


@read
def list_user_factors(actor: Actor, user_id: str) -> UserFactors:
    """List the user's second factors. Raises Forbidden, NotFound."""
    actor.require("users:read")
    user = get_user(actor.organization_id, parse_user_id(user_id))
    app = second_factors.find_authenticator_app(user.organization_id, user.id)
    found = [] if app is None else [FactorRecord(TOTP, "", app.created_at, app.last_used_at)]
    found += [
        FactorRecord(PASSKEY, passkey.name, passkey.created_at, passkey.last_used_at)
        for passkey in passkeys.list_passkeys_of_user(user.organization_id, user.id)
    ]
    return UserFactors(tuple(found), second_factors.count_recovery_codes(user.organization_id, user.id))


@transaction
def reset_user_factors(actor: Actor, user_id: str) -> FactorResetResult:
    """Remove the user's second factors and recovery codes, and end their sessions and grants (SS-6).

    The password stays. The user is notified by email. A repeated call changes nothing. Raises Forbidden (also
    when the user has a role that the actor lacks), NotFound, FreshSignInRequired for a user who signed in too
    long ago. Audit: ``second_factors.reset``.
    """
    actor.require("users:write")
    user = require_manageable_user(actor, parse_user_id(user_id))
    require_fresh_user_sign_in(actor)
    organization_id = user.organization_id
    hold_user(organization_id, user.id)
    methods = remove_all_factors(organization_id, user.id)
    if not methods:
        return FactorResetResult((), 0, 0)
    ended = end_access_of_user(actor, user.id, reason="second_factors_reset")
    audit.record_user_event(
        actor, "second_factors.reset", user.id, before={"methods": list(methods)}, after=ended
    )
    notify_user(actor, user.id, "second_factors_reset")
    return FactorResetResult(methods, ended["ended_sessions"], ended["ended_grants"])


@transaction
def remove_all_factors(organization_id: str, user_id: UUID) -> tuple[str, ...]:
    """Remove the user's second factors and return their methods, in the transaction that audits it."""
    methods = find_methods_of_user(organization_id, user_id)
    second_factors.delete_authenticator_app(organization_id, user_id)
    passkeys.delete_passkeys_of_user(organization_id, user_id)
    second_factors.delete_recovery_codes(organization_id, user_id)
    pending_sign_ins.clear_code_failures(organization_id, user_id)
    known_browsers.clear_second_factors(organization_id, user_id)
    return methods


@read
def count_users_without_factor(organization_id: str, *, admins_only: bool = False) -> int:
    """Count the organization's active users without a second factor."""
    has_app = exists().where(is_same(AuthenticatorApp.user_id, User.id))
    has_passkey = exists().where(is_of_user(Passkey, User.organization_id, User.id))
    is_admin = exists().where(
        RoleAssignment.organization_id == organization_id,
        RoleAssignment.user_organization_id == organization_id,
        RoleAssignment.user_id == User.id,
        RoleAssignment.role == ADMIN,
    )
    wanted = (is_admin,) if admins_only else ()
    return count_where(
        User.organization_id == organization_id, User.status == ACTIVE, ~has_app, ~has_passkey, *wanted
    )
