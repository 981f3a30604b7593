"""Instance limits: bounds on the settings that organizations may choose, by path of the setting.

A number may have a ``min`` and a ``max``. A choice, a boolean or a list of choices has ``allowed`` values; the first of
them is used for an organization whose own value is not allowed. The value that an organization chose stays stored and
applies again when the limit is removed.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from app.rules.errors import MAX_ERRORS, FieldError, InvalidInput
from app.rules.fields import suggestion, wrong_type
from app.rules.languages.translation import lazy_gettext
from app.rules.organizations.settings_table import SETTINGS, Boolean, Choice, Number, SettingKind, StringList

Bounds = Mapping[str, Mapping[str, Any]]

# Limits on these settings would lock out organizations that depend on them, or delete secrets of all organizations.
_UNBOUNDABLE = frozenset(
    {
        "authentication.password.enabled",
        "authentication.mfa.methods",
        "authentication.passkeys.enabled",
        "authentication.passkeys.passwordless",
        "oauth.clients.secret_display",
        "branding.theme",
        # Root must not be able to hide its own access from every organization.
        "audit.notify_root_access",
    }
)

# In each pair, the first value must not exceed the second.
ORDERED_PAIRS = (
    ("authentication.lockout.delay_seconds", "authentication.lockout.max_delay_seconds"),
    ("authentication.sessions.idle_timeout_seconds", "authentication.sessions.absolute_timeout_seconds"),
    ("oauth.refresh_token.idle_ttl_seconds", "oauth.refresh_token.ttl_seconds"),
)


def _is_boundable(kind: SettingKind) -> bool:
    return isinstance(kind, Number | Choice | Boolean) or (
        isinstance(kind, StringList) and isinstance(kind.item, Choice)
    )


BOUNDABLE = tuple(
    path for path, setting in SETTINGS.items() if path not in _UNBOUNDABLE and _is_boundable(setting.kind)
)


def allowed_values(path: str) -> tuple[Any, ...]:
    """Return every value that the choice, the boolean or a list entry may have, and nothing for a number."""
    kind = SETTINGS[path].kind
    if isinstance(kind, Boolean):
        return (True, False)
    item = kind.item if isinstance(kind, StringList) else kind
    return tuple(item.choices) if isinstance(item, Choice) else ()


def merge_bounds(stored: Bounds, partial: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the bounds after a request. Bounds that are sent replace existing ones, ``null`` removes one.

    Stored bounds of settings that only the next release knows are kept. Raises InvalidInput naming every invalid field.
    """
    found = (error for path, bound in partial.items() for error in _problems(path, bound))
    errors = list(islice(found, MAX_ERRORS))
    if errors:
        raise InvalidInput.of(errors)
    merged = {path: dict(bound) for path, bound in stored.items()}
    for path, bound in partial.items():
        if bound is None:
            merged.pop(path, None)
        else:
            merged[path] = copy.deepcopy(bound)
    for small, large in ORDERED_PAIRS:
        minimum, maximum = merged.get(small, {}).get("min"), merged.get(large, {}).get("max")
        if minimum is not None and maximum is not None and minimum > maximum:
            field = small if small in partial else large
            errors.append(
                FieldError(
                    field,
                    "contradiction",
                    f"{small} is at least {minimum}, but {large} is at most {maximum}.",
                )
            )
    if errors:
        raise InvalidInput.of(errors)
    in_order = [*BOUNDABLE, *(path for path in merged if path not in SETTINGS)]
    return {path: merged[path] for path in in_order if path in merged}


def apply_bounds(path: str, value: Any, bounds: Bounds) -> Any:
    """Return the value, or the nearest one that the limits allow."""
    bound = bounds.get(path)
    if bound is None or path not in SETTINGS:
        return value
    if "allowed" in bound:
        allowed = bound["allowed"]
        if isinstance(value, list):
            kept = [entry for entry in value if entry in allowed]
            return kept if kept or not value else [allowed[0]]
        return value if value in allowed else allowed[0]
    maximum, minimum = bound.get("max"), bound.get("min")
    if value is None:
        # None means "unlimited" or "never", so the maximum applies.
        return maximum
    if maximum is not None and value > maximum:
        return maximum
    return minimum if minimum is not None and value < minimum else value


def effective_value(overrides: Mapping[str, Any], path: str, bounds: Bounds) -> Any:
    """Return the effective value of one setting for an organization with these overrides."""
    node: Any = overrides
    for part in path.split("."):
        if not isinstance(node, Mapping) or part not in node:
            return apply_bounds(path, SETTINGS[path].default, bounds)
        node = node[part]
    return apply_bounds(path, node, bounds)


def bounds_problem(path: str, value: Any, bounds: Bounds) -> str | None:
    """Return why the instance limits do not allow the value, or None if they do."""
    if apply_bounds(path, value, bounds) == value:
        return None
    bound = bounds[path]
    if "allowed" in bound:
        words = ", ".join(str(word).lower() if isinstance(word, bool) else word for word in bound["allowed"])
        return lazy_gettext("The administrators of this instance allow only: %(words)s.", words=words)
    parts = [
        f"{relation} {bound[name]}"
        for name, relation in (("min", "at least"), ("max", "at most"))
        if name in bound
    ]
    return f"The administrators of this instance allow {' and '.join(parts)}."


def setting_limits(bounds: Bounds) -> dict[str, dict[str, Any]]:
    """Return the allowed range of each number and each limited choice, narrowed by the instance limits."""
    found: dict[str, dict[str, Any]] = {}
    for path, setting in SETTINGS.items():
        bound = bounds.get(path, {})
        if isinstance(setting.kind, Number):
            found[path] = {
                "min": bound.get("min", setting.kind.minimum),
                "max": bound.get("max", setting.kind.maximum),
            }
        elif "allowed" in bound:
            found[path] = {"allowed": list(bound["allowed"])}
    return found


def _problems(path: str, bound: Any) -> Iterator[FieldError]:
    field = path[:200]
    if path not in SETTINGS:
        yield FieldError(
            field, "unknown_field", f"There is no such setting.{suggestion(path, list(BOUNDABLE))}"
        )
    elif path not in BOUNDABLE:
        yield FieldError(field, "not_allowed", "This setting cannot be limited for the whole instance.")
    elif bound is not None and not isinstance(bound, dict):
        yield wrong_type("an object or null", bound).at(field)
    elif bound is not None:
        kind = SETTINGS[path].kind
        yield from (
            _range_problems(path, kind, bound) if isinstance(kind, Number) else _allowed_problems(path, bound)
        )


def _range_problems(path: str, kind: Number, bound: Mapping[str, Any]) -> Iterator[FieldError]:
    for name in bound:
        if name not in {"min", "max"}:
            yield FieldError(
                f"{path}.{name}"[:200], "unknown_field", "The limit of a number has only min and max."
            )
    sent = {name: bound[name] for name in ("min", "max") if name in bound}
    if not sent:
        yield FieldError(path, "required", "Send min, max or both. Send null to remove the limit.")
    errors = [error for name, value in sent.items() for error in kind.check(f"{path}.{name}", value)]
    yield from errors
    if not errors and len(sent) == 2 and sent["min"] > sent["max"]:
        yield FieldError(
            f"{path}.min",
            "contradiction",
            lazy_gettext("This must be at most max, %(max)s.", max=sent["max"]),
        )


def _allowed_problems(path: str, bound: Mapping[str, Any]) -> Iterator[FieldError]:
    for name in bound:
        if name != "allowed":
            yield FieldError(
                f"{path}.{name}"[:200],
                "unknown_field",
                "The limit of this setting has only the list allowed.",
            )
    allowed = bound.get("allowed")
    words = allowed_values(path)
    if not isinstance(allowed, list) or not allowed:
        yield FieldError(f"{path}.allowed", "required", "List the values that organizations may choose.")
        return
    for position, word in enumerate(allowed):
        if not any(word == known and type(word) is type(known) for known in words):
            shown = ", ".join(str(known).lower() if isinstance(known, bool) else known for known in words)
            yield FieldError(
                f"{path}.allowed[{position}]",
                "not_allowed",
                lazy_gettext("This must be one of: %(choices)s.", choices=shown),
            )
        elif word in allowed[:position]:
            yield FieldError(f"{path}.allowed[{position}]", "duplicate", "Duplicate entry.")
