"""Lockout prevention: reject settings after which users could no longer sign in, before they are stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from app.rules.directory.permissions import has_permission, permissions_of_roles
from app.rules.errors import Conflict, FieldError
from app.rules.sign_in.passkeys import is_passwordless_enabled


class WouldLockOut(Conflict):
    """With these settings no user, or not the caller, could sign in again to undo them."""

    code = "would_lock_out"


class Caller(Struct, frozen=True):
    """The sign-in methods of the user who changes the settings. A client or the service itself has no Caller."""

    roles: tuple[str, ...]
    is_root: bool = False
    has_password: bool = True
    has_passkey: bool = False
    has_identity: bool = False
    has_second_factor: bool = False


def require_no_lockout(
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    caller: Caller | None,
    *,
    any_user_has_passkey: bool = False,
    any_user_has_identity: bool = False,
) -> None:
    """Raise WouldLockOut if the effective settings ``after`` would lock out all users or the caller.

    ``any_user_has_passkey``: a user of the organization has a passkey that signs in alone and works at this address.
    ``any_user_has_identity``: a user has linked an account of an enabled identity provider.
    """
    existing = _problems(before, caller, any_user_has_passkey, any_user_has_identity)
    problems = _problems(after, caller, any_user_has_passkey, any_user_has_identity)
    errors = [error for error in problems if error not in existing]
    if errors:
        raise WouldLockOut(errors[0].message, errors=errors)


def _problems(
    settings: Mapping[str, Any],
    caller: Caller | None,
    any_user_has_passkey: bool,
    any_user_has_identity: bool,
) -> list[FieldError]:
    found: list[FieldError] = []
    authentication = settings["authentication"]
    password = authentication["password"]["enabled"]
    # Only signed-in users can register passkeys. Without an existing one, no user could sign in to create the first.
    passkey = is_passwordless_enabled(settings) and any_user_has_passkey
    mfa = authentication["mfa"]
    if not password and not passkey and not any_user_has_identity:
        _add(
            found,
            "authentication.password.enabled",
            "Users would have no way to sign in. Allow passwords or passkeys.",
        )
    elif (
        caller is not None
        and not caller.is_root
        and not (password and caller.has_password)
        and not (passkey and caller.has_passkey)
        and not caller.has_identity
    ):
        message = "You couldn't sign in again. Add a passkey that works without a password first."
        _add(found, "authentication.password.enabled", message)
    if mfa["policy"] in {"required", "required_for_admins"}:
        if not mfa["methods"]:
            _add(
                found,
                "authentication.mfa.methods",
                "Two-step verification would be required, but no method would be allowed.",
            )
        elif caller is not None and not caller.has_second_factor and mfa["grace_period_seconds"] == 0:
            _add(
                found,
                "authentication.mfa.policy",
                "You use no two-step verification yourself. Set it up first, or allow a grace period.",
            )
    if caller is not None and not caller.is_root:
        held = permissions_of_roles(caller.roles, settings)
        if not has_permission(held, "settings:write"):
            _add(
                found,
                "user_permissions.roles",
                "You would lose the permission settings:write yourself. Keep it in one of your roles.",
            )
    return found


def _add(found: list[FieldError], field: str, message: str) -> None:
    found.append(FieldError(field, "would_lock_out", message))
