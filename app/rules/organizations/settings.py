"""Settings of an organization: the whole document as one table, and what may be stored in it.

Only what differs from the default is stored (the *overrides*); the *effective* document is the defaults with the
overrides laid over them. ``null`` in a request returns a field to its default. Integers of seconds end in
``_seconds``; 0 never means for ever, ``null`` does where a default is null.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from typing import Any

from app.rules.directory.permissions import ADMIN, BUILT_IN_ROLES, has_permission, is_app_permission
from app.rules.errors import FieldError, InvalidInput
from app.rules.fields import suggestion
from app.rules.organizations.instance_limits import ORDERED_PAIRS, Bounds, apply_bounds, bounds_problem
from app.rules.organizations.settings_table import ROLE_FIELDS, SETTINGS, Ours, wrong_type

ROLES_PATH = "user_permissions.roles"
MOST_ROLES = 50
_ROLE_KEY = re.compile(r"[a-z][a-z0-9_-]{0,39}")
# What a role that everybody gets may hold: reading what is no secret, and one's own things.
_HARMLESS = frozenset({"organization:read", "settings:read"})

Document = dict[str, Any]
NO_BOUNDS: Bounds = {}


def defaults() -> Document:
    """The document of an organization that changed nothing."""
    document: Document = {}
    for setting in SETTINGS.values():
        _put(document, setting.path, copy.deepcopy(setting.default))
    _put(
        document,
        ROLES_PATH,
        {
            key: {"name": role.name, "description": role.description, "permissions": list(role.permissions)}
            for key, role in BUILT_IN_ROLES.items()
            if key != ADMIN
        },
    )
    return document


def effective(overrides: Mapping[str, Any], bounds: Bounds = NO_BOUNDS) -> Document:
    """The defaults with the overrides laid over them, within the instance's ceilings.

    A stored path that this release does not know is passed by.
    """
    document = _within(overrides, bounds)
    for small, large in ORDERED_PAIRS if bounds else ():
        # Whose neighbour a ceiling raised goes up with it, and whose neighbour it lowered comes down: no floor of the
        # instance is left because the larger of two was chosen below it.
        least = bounds.get(small, {}).get("min")
        if least is not None:
            _put(document, large, max(value_at(document, large), least))
        _put(document, small, min(value_at(document, small), value_at(document, large)))
    return document


def _within(overrides: Mapping[str, Any], bounds: Bounds) -> Document:
    document = defaults()
    for path, value in _leaves(overrides):
        setting = SETTINGS.get(path)
        if setting is not None or path.startswith(f"{ROLES_PATH}."):
            _put(document, path, copy.deepcopy(value))
    for path in bounds:
        if path in SETTINGS:
            _put(document, path, copy.deepcopy(apply_bounds(path, value_at(document, path), bounds)))
    return document


def limited(overrides: Mapping[str, Any], bounds: Bounds) -> list[str]:
    """The paths at which a ceiling keeps the organization from what it, or the default, would have."""
    return changed_paths(effective(overrides), effective(overrides, bounds))


def overridden(overrides: Mapping[str, Any]) -> list[str]:
    """The paths that the organization set itself, in the document's order."""
    stored = {path for path, _ in _leaves(overrides)}
    return [path for path, _ in _leaves(effective(overrides)) if path in stored]


def merge(
    overrides: Mapping[str, Any],
    partial: Mapping[str, Any],
    bounds: Bounds = NO_BOUNDS,
    *,
    server_managed: frozenset[str] = frozenset(),
) -> Document:
    """The overrides after a request; raises InvalidInput naming every wrong field at once.

    Fields left out keep their value, ``null`` returns to the default (and removes a role of the organization's
    own), and a value that equals the default is not stored. What is sent back as a ceiling made it changes nothing.
    ``server_managed`` are the paths whose value is ours and was just made.
    """
    errors = list(_problems(partial)) or list(_made_elsewhere(overrides, partial, server_managed))
    if not errors:
        errors = [
            FieldError(path, "beyond_ceiling", reason)
            for path, value in _leaves(partial)
            if value is not None and (reason := bounds_problem(path, value, bounds)) is not None
        ]
    if errors:
        raise InvalidInput.of(errors)
    standard = dict(_leaves(defaults()))
    standing = dict(_leaves(effective(overrides, bounds))) if bounds else {}
    stored = dict(_leaves(overrides))
    for path, value in _leaves(partial):
        if path in bounds and value is not None and standing.get(path) == value:
            continue
        if path.startswith(f"{ROLES_PATH}.") and value is None:
            stored = {
                key: kept for key, kept in stored.items() if key != path and not key.startswith(f"{path}.")
            }
        elif value is None or (path in standard and standard[path] == value):
            stored.pop(path, None)
        else:
            stored[path] = copy.deepcopy(value)
    result: Document = {}
    for path, value in stored.items():
        _put(result, path, value)
    document = _within(result, bounds)
    errors = list(_contradictions(document, {path for path, _ in _leaves(partial)}))
    errors += _roles_without_permissions(partial, document)
    if errors:
        raise InvalidInput.of(errors)
    return result


def changed_paths(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """The paths at which two effective documents differ."""
    old, new = dict(_leaves(before)), dict(_leaves(after))
    return [path for path in dict.fromkeys([*new, *old]) if old.get(path) != new.get(path)]


def value_at(document: Mapping[str, Any], path: str) -> Any:
    """The value at a dotted path of an effective document."""
    node: Any = document
    for part in path.split("."):
        node = node[part]
    return node


def _problems(partial: Mapping[str, Any], head: str = "") -> Iterator[FieldError]:
    """Every field of a request that is unknown, of the wrong type or out of bounds."""
    for key, value in partial.items():
        path = f"{head}{key}"
        if "." in key:
            yield FieldError(path[:200], "unknown_field", "Settings are nested objects; no name holds a dot.")
        elif path == ROLES_PATH:
            yield from _role_problems(value)
        elif path in SETTINGS:
            if value is not None:
                yield from _value_problems(path, value)
        elif path in _SECTIONS:
            if isinstance(value, dict):
                yield from _problems(value, f"{path}.")
            elif value is not None:
                yield wrong_type(path, "an object", value)
            else:
                yield FieldError(
                    path, "wrong_type", "Must be an object. Set single fields to null for their defaults."
                )
        else:
            known = sorted(
                {name[len(head) :].split(".")[0] for name in [*SETTINGS, ROLES_PATH] if name.startswith(head)}
            )
            yield FieldError(
                path[:200], "unknown_field", f"There is no such setting.{suggestion(key, known)}"
            )


def _made_elsewhere(
    overrides: Mapping[str, Any], partial: Mapping[str, Any], server_managed: frozenset[str]
) -> Iterator[FieldError]:
    """Every value that only this service makes, where another is sent than stands."""
    stored = dict(_leaves(overrides))
    for path, value in _leaves(partial):
        kind = SETTINGS[path].kind if path in SETTINGS else None
        if isinstance(kind, Ours) and value not in (None, stored.get(path)) and path not in server_managed:
            yield kind.refusal(path)


def _value_problems(path: str, value: Any) -> Iterator[FieldError]:
    yield from SETTINGS[path].kind.check(path, value)


def _role_problems(roles: Any) -> Iterator[FieldError]:
    if not isinstance(roles, dict):
        yield wrong_type(ROLES_PATH, "an object", roles)
        return
    for key, entry in roles.items():
        path = f"{ROLES_PATH}.{key}"[:200]
        if _ROLE_KEY.fullmatch(key) is None:
            yield FieldError(
                path, "invalid_format", "Name roles in lower-case letters, digits, _ and -, at most 40."
            )
        elif key == ADMIN:
            yield FieldError(path, "not_allowed", "The admin role may everything and cannot be changed.")
        elif entry is None:
            continue
        elif not isinstance(entry, dict):
            yield wrong_type(path, "an object", entry)
        else:
            for name, value in entry.items():
                if name not in ROLE_FIELDS:
                    meant = suggestion(name, ROLE_FIELDS)
                    yield FieldError(
                        f"{path}.{name}"[:200], "unknown_field", f"A role has no such field.{meant}"
                    )
                elif value is not None:
                    yield from ROLE_FIELDS[name].check(f"{path}.{name}", value)


def _contradictions(document: Document, sent: set[str]) -> Iterator[FieldError]:
    """What no single field is to blame for: fields that exclude each other, named by the one that was sent."""
    for small, large in ORDERED_PAIRS:
        is_sent = small in sent or large in sent
        if is_sent and value_at(document, small) > value_at(document, large):
            blamed, other = (small, large) if small in sent or large not in sent else (large, small)
            relation = "at most" if blamed == small else "at least"
            yield FieldError(
                blamed, "contradiction", f"Must be {relation} {other}, {value_at(document, other)}."
            )
    roles = document["user_permissions"]["roles"]
    if len(roles) > MOST_ROLES:
        yield FieldError(ROLES_PATH, "too_many", f"At most {MOST_ROLES} roles.")
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
                        f"The built-in role {key} can be narrowed, not widened.",
                    )
    path = "authentication.registration.default_roles"
    for position, name in enumerate(value_at(document, path)):
        if name not in roles:
            yield FieldError(
                f"{path}[{position}]", "not_allowed", f"There is no such role.{suggestion(name, roles)}"
            )
        elif not all(_is_harmless(permission) for permission in roles[name].get("permissions", ())):
            yield FieldError(
                f"{path}[{position}]", "not_allowed", f"Too much for everybody who signs up: {name}."
            )


def _roles_without_permissions(partial: Mapping[str, Any], document: Document) -> list[FieldError]:
    """A new role that was sent as an empty object leaves no trace among the leaves, so it is looked for here."""
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
        "A role lists its permissions; an empty list is allowed.",
    )


def _is_harmless(permission: str) -> bool:
    return is_app_permission(permission) or permission in _HARMLESS or permission.endswith(":own")


def _leaves(document: Mapping[str, Any], head: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in document.items():
        if isinstance(value, dict) and (value or f"{head}{key}" != ROLES_PATH):
            yield from _leaves(value, f"{head}{key}.")
        elif not isinstance(value, dict):
            yield f"{head}{key}", value


def _put(document: Document, path: str, value: Any) -> None:
    *sections, last = path.split(".")
    node = document
    for part in sections:
        node = node.setdefault(part, {})
    node[last] = value


_SECTIONS = frozenset(
    ".".join(path.split(".")[:depth])
    for path in [*SETTINGS, ROLES_PATH]
    for depth in range(1, path.count(".") + 1)
)


def brought_in(foreign: Mapping[str, Any], bounds: Bounds = NO_BOUNDS) -> Document:
    """The overrides of an organization that comes from another installation, judged as if somebody sent them here.

    What this service makes itself may stand in them: it comes along. Raises InvalidInput naming every wrong field,
    also for what the instance's ceilings do not allow.
    """
    ours = frozenset(path for path, setting in SETTINGS.items() if isinstance(setting.kind, Ours))
    return merge({}, foreign, bounds, server_managed=ours)
