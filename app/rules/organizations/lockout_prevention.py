"""Lock-out: changes of settings after which somebody could no longer get in, refused before they are stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from app.rules.directory.permissions import has_permission, permissions_of_roles
from app.rules.errors import Conflict, FieldError
from app.rules.sign_in.passkeys import is_passwordless_enabled


class WouldLockOut(Conflict):
    """The settings would leave nobody, or not the caller, able to come back and mend them."""

    code = "would_lock_out"


@dataclass(frozen=True, slots=True)
class Caller:
    """What is known of the person who changes the settings. None in place of it: a client or the service."""

    roles: tuple[str, ...]
    is_root: bool = False
    has_password: bool = True
    has_passkey: bool = False
    has_second_factor: bool = False


def require_no_lockout(
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    caller: Caller | None,
    *,
    somebody_has_passkey: bool = False,
) -> None:
    """Raise WouldLockOut when the effective settings ``after`` would lock people or the caller out.

    ``somebody_has_passkey``: one that signs in alone, of a person of the organization, at an address where they work.
    """
    standing = _dangers(before, caller, somebody_has_passkey)
    errors = [error for error in _dangers(after, caller, somebody_has_passkey) if error not in standing]
    if errors:
        raise WouldLockOut(errors[0].message, errors=errors)


def _dangers(
    settings: Mapping[str, Any], caller: Caller | None, somebody_has_passkey: bool
) -> list[FieldError]:
    found: list[FieldError] = []
    authentication = settings["authentication"]
    password = authentication["password"]["enabled"]
    # Passkeys are registered by who is signed in: with none about, nobody would come in to make the first.
    passkey = is_passwordless_enabled(settings) and somebody_has_passkey
    mfa = authentication["mfa"]
    if not password and not passkey:
        _add(found, "authentication.password.enabled", "No way to sign in would be left.")
    elif (
        caller is not None
        and not caller.is_root
        and not (password and caller.has_password)
        and not (passkey and caller.has_passkey)
    ):
        message = "You could not sign in again: you have no passkey that does it without a password."
        _add(found, "authentication.password.enabled", message)
    if mfa["policy"] in {"required", "required_for_admins"}:
        if not mfa["methods"]:
            _add(
                found,
                "authentication.mfa.methods",
                "A second factor would be required and none would be allowed.",
            )
        elif caller is not None and not caller.has_second_factor and mfa["grace_period_seconds"] == 0:
            _add(
                found,
                "authentication.mfa.policy",
                "You have no second factor yourself. Leave a grace period.",
            )
    if caller is not None and not caller.is_root:
        held = permissions_of_roles(caller.roles, settings)
        if not has_permission(held, "settings:write"):
            _add(found, "user_permissions.roles", "You would lose the permission settings:write yourself.")
    return found


def _add(found: list[FieldError], field: str, message: str) -> None:
    found.append(FieldError(field, "would_lock_out", message))
