"""Settings of an organization: the effective document, and validation of what may be stored.

Only values that differ from the default are stored (the *overrides*). The *effective* document is the defaults with the
overrides applied. ``null`` in a request resets a field to its default. Durations end in ``_seconds``. 0 never means
unlimited; ``null`` does where the default is null.
"""

from __future__ import annotations

import copy
import functools
import json
import re
from collections.abc import Iterator, Mapping, Set
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from app.rules.authorization.consents import consent_expiry, max_consent_seconds
from app.rules.directory.permissions import ADMIN, BUILT_IN_ROLES, has_permission, is_app_permission
from app.rules.errors import MAX_ERRORS, FieldError, InvalidInput
from app.rules.fields import suggestion, wrong_type
from app.rules.languages.translation import lazy_gettext
from app.rules.organizations.instance_limits import ORDERED_PAIRS, Bounds, apply_bounds, bounds_problem
from app.rules.organizations.settings_table import (
    ROLE_KEY_PATTERN,
    SETTINGS,
    RoleChange,
    ServerManaged,
    shape_problems,
)

ROLES_PATH = "user_permissions.roles"
MAX_ROLES = 50
# Permissions of a role that every new user may get: reading public data, and the user's own objects.
_DEFAULT_ROLE_PERMISSIONS = frozenset({"organization:read", "settings:read"})

Document = dict[str, Any]
NO_BOUNDS: Bounds = {}
_SECTIONS = frozenset(
    ".".join(path.split(".")[:depth])
    for path in [*SETTINGS, ROLES_PATH]
    for depth in range(1, path.count(".") + 1)
)


def default_settings() -> Document:
    """Return the document of an organization that changed nothing."""
    document: Document = json.loads(_default_document())
    return document


@functools.cache
def _default_document() -> str:
    """Return it as JSON, which is the fastest to copy: some pages need it four times."""
    document: Document = {}
    for setting in SETTINGS.values():
        put_at(document, setting.path, setting.default)
    put_at(
        document,
        ROLES_PATH,
        {
            key: {"name": role.name, "description": role.description, "permissions": list(role.permissions)}
            for key, role in BUILT_IN_ROLES.items()
            if key != ADMIN
        },
    )
    return json.dumps(document)


def effective_settings(overrides: Mapping[str, Any], bounds: Bounds = NO_BOUNDS) -> Document:
    """Return the defaults with the overrides applied, within the instance limits.

    Stored paths that this release does not know are ignored.
    """
    document = _apply_overrides(overrides, bounds)
    for small, large in ORDERED_PAIRS if bounds else ():
        # A limit may have raised the smaller value above the larger one or lowered the larger one. Raise the larger
        # value to the minimum first, then cap the smaller one, so that the order holds and no minimum is violated.
        minimum = bounds.get(small, {}).get("min")
        if minimum is not None:
            put_at(document, large, max(value_at(document, large), minimum))
        put_at(document, small, min(value_at(document, small), value_at(document, large)))
    return document


def _apply_overrides(overrides: Mapping[str, Any], bounds: Bounds) -> Document:
    document = default_settings()
    for path, value in _leaves(overrides):
        setting = SETTINGS.get(path)
        if setting is not None or path.startswith(f"{ROLES_PATH}."):
            put_at(document, path, copy.deepcopy(value))
    for path in bounds:
        if path in SETTINGS:
            put_at(document, path, copy.deepcopy(apply_bounds(path, value_at(document, path), bounds)))
    return document


def limited_paths(overrides: Mapping[str, Any], bounds: Bounds) -> list[str]:
    """Return the paths at which an instance limit changes the value of the organization."""
    return changed_paths(effective_settings(overrides), effective_settings(overrides, bounds))


def _limited_values(overrides: Mapping[str, Any], bounds: Bounds) -> dict[str, Any]:
    """Return the values that instance limits produce in place of the organization's own, by path."""
    if not bounds:
        return {}
    document = effective_settings(overrides, bounds)
    return {path: value_at(document, path) for path in limited_paths(overrides, bounds)}


def overridden_paths(overrides: Mapping[str, Any]) -> list[str]:
    """Return the paths that the organization set itself, in the order of the document."""
    stored = {path for path, _ in _leaves(overrides)}
    return [path for path, _ in _leaves(effective_settings(overrides)) if path in stored]


def merge_settings(
    overrides: Mapping[str, Any],
    partial: Mapping[str, Any],
    bounds: Bounds = NO_BOUNDS,
    *,
    server_managed: frozenset[str] = frozenset(),
) -> Document:
    """Return the overrides after a request. Raises InvalidInput naming every invalid field at once.

    Fields that are left out keep their value, ``null`` resets to the default (and deletes a custom role), and a value
    equal to the default is not stored. Sending back a value that an instance limit produced changes nothing.
    ``server_managed`` are the paths whose value this service has just generated.
    """
    errors = list(islice(_problems(partial), MAX_ERRORS)) or list(
        _server_managed_problems(overrides, partial, server_managed)
    )
    if not errors:
        errors = [
            FieldError(path, "exceeds_instance_limit", reason)
            for path, value in _leaves(partial)
            if value is not None and (reason := bounds_problem(path, value, bounds)) is not None
        ]
    if errors:
        raise InvalidInput.of(errors)
    defaults = dict(_leaves(default_settings()))
    produced = _limited_values(overrides, bounds)
    sent = {
        path: value for path, value in _leaves(partial) if path not in produced or produced[path] != value
    }
    stored = dict(_leaves(overrides))
    for path, value in sent.items():
        if path.startswith(f"{ROLES_PATH}.") and value is None:
            stored = {
                key: kept for key, kept in stored.items() if key != path and not key.startswith(f"{path}.")
            }
        elif value is None or (path in defaults and defaults[path] == value):
            stored.pop(path, None)
        else:
            stored[path] = copy.deepcopy(value)
    result: Document = {}
    for path, value in stored.items():
        put_at(result, path, value)
    document = _apply_overrides(result, bounds)
    errors = list(_contradictions(document, sent.keys()))
    errors += _roles_without_permissions(partial, document)
    if errors:
        raise InvalidInput.of(errors)
    return result


def changed_paths(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return the paths at which two effective documents differ."""
    old, new = dict(_leaves(before)), dict(_leaves(after))
    return [path for path in dict.fromkeys([*new, *old]) if old.get(path) != new.get(path)]


def value_at(document: Mapping[str, Any], path: str) -> Any:
    """Return the value at a dotted path of an effective document."""
    node: Any = document
    for part in path.split("."):
        node = node[part]
    return node


def _problems(partial: Mapping[str, Any], head: str = "") -> Iterator[FieldError]:
    """Find every field of a request that is unknown, of the wrong type or out of range."""
    for key, value in partial.items():
        path = f"{head}{key}"
        if "." in key:
            yield FieldError(
                path[:200], "unknown_field", "Send settings as nested objects. Names contain no dots."
            )
        elif path == ROLES_PATH:
            yield from _role_problems(value)
        elif path in SETTINGS:
            if value is not None:
                yield from SETTINGS[path].kind.check(path, value)
        elif path in _SECTIONS:
            if isinstance(value, dict):
                yield from _problems(value, f"{path}.")
            elif value is not None:
                yield wrong_type("an object", value).at(path)
            else:
                yield FieldError(
                    path, "wrong_type", "This must be an object. Set single fields to null to reset them."
                )
        else:
            known = sorted(
                {name[len(head) :].split(".")[0] for name in [*SETTINGS, ROLES_PATH] if name.startswith(head)}
            )
            yield FieldError(
                path[:200], "unknown_field", f"There is no such setting.{suggestion(key, known)}"
            )


def _server_managed_problems(
    overrides: Mapping[str, Any], partial: Mapping[str, Any], server_managed: frozenset[str]
) -> Iterator[FieldError]:
    """Find every server-managed value that the request tries to change."""
    stored = dict(_leaves(overrides))
    for path, value in _leaves(partial):
        kind = SETTINGS[path].kind if path in SETTINGS else None
        if (
            isinstance(kind, ServerManaged)
            and value not in (None, stored.get(path))
            and path not in server_managed
        ):
            yield kind.error(path)


def _role_problems(roles: Any) -> Iterator[FieldError]:
    if not isinstance(roles, dict):
        yield wrong_type("an object", roles).at(ROLES_PATH)
        return
    for key, entry in roles.items():
        path = f"{ROLES_PATH}.{key}"[:200]
        if re.fullmatch(ROLE_KEY_PATTERN, key) is None:
            yield FieldError(
                path,
                "invalid_format",
                "Use at most 40 lowercase letters, digits, _ and - for the ID of a role.",
            )
        elif key == ADMIN:
            yield FieldError(
                path, "not_allowed", "The admin role has every permission and cannot be changed."
            )
        elif entry is None:
            continue
        elif not isinstance(entry, dict):
            yield wrong_type("an object", entry).at(path)
        else:
            yield from shape_problems(path, RoleChange, entry)


def _contradictions(document: Document, sent: Set[str]) -> Iterator[FieldError]:
    """Find fields that contradict each other, and blame the one that was sent."""
    for small, large in ORDERED_PAIRS:
        is_sent = small in sent or large in sent
        if is_sent and value_at(document, small) > value_at(document, large):
            field, other = (small, large) if small in sent or large not in sent else (large, small)
            relation = "at most" if field == small else "at least"
            yield FieldError(
                field, "contradiction", f"This must be {relation} {other}, {value_at(document, other)}."
            )
    roles = document["user_permissions"]["roles"]
    if len(roles) > MAX_ROLES:
        yield FieldError(ROLES_PATH, "too_many", lazy_gettext("At most %(max)s roles.", max=MAX_ROLES))
    for key, entry in roles.items():
        path = f"{ROLES_PATH}.{key}.permissions"
        if "permissions" not in entry:
            yield _permissions_required(key)
        elif key in BUILT_IN_ROLES:
            for position, name in enumerate(entry["permissions"]):
                if not is_app_permission(name) and not has_permission(BUILT_IN_ROLES[key].permissions, name):
                    yield FieldError(
                        f"{path}[{position}]",
                        "not_allowed",
                        lazy_gettext(
                            "The built-in role %(key)s can be restricted but not extended.", key=key
                        ),
                    )
    path = "authentication.registration.default_roles"
    for position, name in enumerate(value_at(document, path)):
        if name not in roles:
            yield FieldError(
                f"{path}[{position}]", "not_allowed", f"There is no such role.{suggestion(name, roles)}"
            )
        elif not all(
            _is_allowed_for_new_users(permission) for permission in roles[name].get("permissions", ())
        ):
            yield FieldError(
                f"{path}[{position}]",
                "not_allowed",
                lazy_gettext(
                    "The role %(name)s has too many permissions for everyone who signs up.", name=name
                ),
            )


def _roles_without_permissions(partial: Mapping[str, Any], document: Document) -> list[FieldError]:
    """Find new roles that were sent as an empty object, which has no leaves."""
    sent = partial.get("user_permissions", {}).get("roles", {})
    return [
        _permissions_required(key)
        for key, entry in sent.items()
        if entry is not None and key not in document["user_permissions"]["roles"]
    ]


def _permissions_required(key: str) -> FieldError:
    return FieldError(
        f"{ROLES_PATH}.{key}.permissions",
        "required",
        "List the permissions of the role. The list may be empty.",
    )


def _is_allowed_for_new_users(permission: str) -> bool:
    return (
        is_app_permission(permission)
        or permission in _DEFAULT_ROLE_PERMISSIONS
        or permission.endswith(":own")
    )


def _leaves(document: Mapping[str, Any], head: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in document.items():
        if isinstance(value, dict) and (value or f"{head}{key}" != ROLES_PATH):
            yield from _leaves(value, f"{head}{key}.")
        elif not isinstance(value, dict):
            yield f"{head}{key}", value


def put_at(document: Document, path: str, value: Any) -> None:
    """Set the value at a dotted path of a document."""
    *sections, last = path.split(".")
    node = document
    for part in sections:
        node = node.setdefault(part, {})
    node[last] = value


def validate_imported_settings(foreign: Mapping[str, Any], bounds: Bounds = NO_BOUNDS) -> Document:
    """Validate the overrides of an organization imported from another installation, as if they were sent here.

    Server-managed values are accepted, because they are imported too. Raises InvalidInput naming every invalid field,
    including values that the instance limits do not allow.
    """
    paths = frozenset(path for path, setting in SETTINGS.items() if isinstance(setting.kind, ServerManaged))
    return merge_settings({}, foreign, bounds, server_managed=paths)


def earliest_expiry(stored: datetime, started_at: datetime, seconds: int) -> datetime:
    """Return the stored expiry or ``seconds`` after the start, whichever is earlier."""
    return min(stored, started_at + timedelta(seconds=seconds))


def grant_expiry(
    settings: Mapping[str, Any], *, expires_at: datetime, allowed_at: datetime, is_consented: bool
) -> datetime:
    """Return when a grant expires: as stored, or at the maximum consent lifetime after it was allowed.

    A user cannot have meant to allow access for longer than a consent may last.
    """
    seconds = max_consent_seconds(settings) if is_consented else None
    return consent_expiry(allowed_at, expires_at, seconds) or expires_at


def refresh_token_expiry(
    settings: Mapping[str, Any],
    *,
    created_at: datetime,
    expires_at: datetime,
    refreshed_at: datetime | None,
    idle_expires_at: datetime,
    allowed_at: datetime,
    is_consented: bool,
) -> datetime:
    """Return when the refresh tokens of a grant expire if they are not used before.

    ``settings`` are the whole document of the organization. ``refreshed_at`` is the last use, or None if it is unknown.
    ``is_consented`` says that the grant depends on a consent, whose maximum lifetime then applies too.
    """
    limits = settings["oauth"]["refresh_token"]
    idle_expiry = idle_expires_at
    if refreshed_at is not None:
        idle_expiry = earliest_expiry(idle_expiry, refreshed_at, limits["idle_ttl_seconds"])
    stored = grant_expiry(settings, expires_at=expires_at, allowed_at=allowed_at, is_consented=is_consented)
    return min(idle_expiry, earliest_expiry(stored, created_at, limits["ttl_seconds"]))
