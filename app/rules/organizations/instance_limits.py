"""Ceilings: bounds that the instance sets to what organizations may choose, by path of a setting.

A number may have a ``min`` and a ``max``; a choice, a switch or a list of choices has ``allowed`` values, of which the
first is what an organization has whose own is not among them. What an organization chose before stays stored, and
counts again once the ceiling is lifted.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from app.rules.errors import FieldError, InvalidInput
from app.rules.fields import suggestion, type_name
from app.rules.organizations.settings_table import SETTINGS, Choice, Flag, Kind, Listing, Number

Bounds = Mapping[str, Mapping[str, Any]]

# Who wants to bound these would lock organizations out that have nothing else, or would have to wipe at one stroke
# what all of them keep.
_NEVER = frozenset(
    {
        "authentication.password.enabled",
        "authentication.mfa.methods",
        "authentication.passkeys.enabled",
        "authentication.passkeys.passwordless",
        "oauth.clients.secret_display",
        "branding.theme",
        # Nobody silences root's own footsteps for every organization at once.
        "audit.notify_root_access",
    }
)


def _is_boundable(kind: Kind) -> bool:
    return isinstance(kind, Number | Choice | Flag) or (
        isinstance(kind, Listing) and isinstance(kind.item, Choice)
    )


BOUNDABLE = tuple(
    path for path, setting in SETTINGS.items() if path not in _NEVER and _is_boundable(setting.kind)
)
# The first is never larger than the second.
ORDERED_PAIRS = (
    ("authentication.lockout.delay_seconds", "authentication.lockout.max_delay_seconds"),
    ("authentication.sessions.idle_timeout_seconds", "authentication.sessions.absolute_timeout_seconds"),
    ("oauth.refresh_token.idle_ttl_seconds", "oauth.refresh_token.ttl_seconds"),
)


def allowed_values(path: str) -> tuple[Any, ...]:
    """Every value that the choice, the switch, or one entry of the list may have; none for a number."""
    kind = SETTINGS[path].kind
    if isinstance(kind, Flag):
        return (True, False)
    item = kind.item if isinstance(kind, Listing) else kind
    return item.words if isinstance(item, Choice) else ()


def merge_bounds(stored: Bounds, partial: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The bounds after a request: those sent replace what stood, ``null`` takes one away.

    Raises InvalidInput naming every wrong field.
    """
    errors = [error for path, bound in partial.items() for error in _problems(path, bound)]
    if errors:
        raise InvalidInput.of(errors)
    merged = {path: dict(bound) for path, bound in stored.items()}
    for path, bound in partial.items():
        if bound is None:
            merged.pop(path, None)
        else:
            merged[path] = copy.deepcopy(bound)
    for small, large in ORDERED_PAIRS:
        least, most = merged.get(small, {}).get("min"), merged.get(large, {}).get("max")
        if least is not None and most is not None and least > most:
            blamed = small if small in partial else large
            errors.append(
                FieldError(
                    blamed, "contradiction", f"{small} is at least {least} and {large} at most {most}."
                )
            )
    if errors:
        raise InvalidInput.of(errors)
    return {path: merged[path] for path in BOUNDABLE if path in merged}


def apply_bounds(path: str, value: Any, bounds: Bounds) -> Any:
    """The value, or what the ceiling makes of it."""
    bound = bounds.get(path)
    if bound is None or path not in SETTINGS:
        return value
    if "allowed" in bound:
        allowed = bound["allowed"]
        if isinstance(value, list):
            kept = [entry for entry in value if entry in allowed]
            return kept if kept or not value else [allowed[0]]
        return value if value in allowed else allowed[0]
    most, least = bound.get("max"), bound.get("min")
    if value is None:
        # Nothing means "no bound" or "never": the ceiling is one.
        return most
    if most is not None and value > most:
        return most
    return least if least is not None and value < least else value


def effective_value(overrides: Mapping[str, Any], path: str, bounds: Bounds) -> Any:
    """What one setting is for an organization that stored these overrides; nothing else of them is looked at."""
    node: Any = overrides
    for part in path.split("."):
        if not isinstance(node, Mapping) or part not in node:
            return apply_bounds(path, SETTINGS[path].default, bounds)
        node = node[part]
    return apply_bounds(path, node, bounds)


def bounds_problem(path: str, value: Any, bounds: Bounds) -> str | None:
    """Why the instance does not allow the value, naming its ceiling; None when it does."""
    if apply_bounds(path, value, bounds) == value:
        return None
    bound = bounds[path]
    if "allowed" in bound:
        words = ", ".join(str(word).lower() if isinstance(word, bool) else word for word in bound["allowed"])
        return f"The administrators of this installation allow only: {words}."
    parts = [
        f"{relation} {bound[name]}"
        for name, relation in (("min", "at least"), ("max", "at most"))
        if name in bound
    ]
    return f"The administrators of this installation allow {' and '.join(parts)}."


def setting_limits(bounds: Bounds) -> dict[str, dict[str, Any]]:
    """What each number, and each choice that is bounded, may be: its own bounds, drawn tighter by the ceilings."""
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
    place = path[:200]
    if path not in SETTINGS:
        yield FieldError(
            place, "unknown_field", f"There is no such setting.{suggestion(path, list(BOUNDABLE))}"
        )
    elif path not in BOUNDABLE:
        yield FieldError(place, "not_allowed", "This setting is each organization's own.")
    elif bound is not None and not isinstance(bound, dict):
        yield FieldError(place, "wrong_type", f"This must be an object or null, not {type_name(bound)}.")
    elif bound is not None:
        kind = SETTINGS[path].kind
        yield from (
            _range_problems(path, kind, bound) if isinstance(kind, Number) else _word_problems(path, bound)
        )


def _range_problems(path: str, kind: Number, bound: Mapping[str, Any]) -> Iterator[FieldError]:
    for name in bound:
        if name not in {"min", "max"}:
            yield FieldError(f"{path}.{name}"[:200], "unknown_field", "A number is bounded by min and max.")
    sent = {name: bound[name] for name in ("min", "max") if name in bound}
    if not sent:
        yield FieldError(path, "required", "Send min, max or both; null takes the ceiling away.")
    wrong = [error for name, value in sent.items() for error in kind.check(f"{path}.{name}", value)]
    yield from wrong
    if not wrong and len(sent) == 2 and sent["min"] > sent["max"]:
        yield FieldError(f"{path}.min", "contradiction", f"Must be at most max, {sent['max']}.")


def _word_problems(path: str, bound: Mapping[str, Any]) -> Iterator[FieldError]:
    for name in bound:
        if name != "allowed":
            yield FieldError(f"{path}.{name}"[:200], "unknown_field", "This is bounded by a list: allowed.")
    allowed = bound.get("allowed")
    words = allowed_values(path)
    if not isinstance(allowed, list) or not allowed:
        yield FieldError(f"{path}.allowed", "required", "List the values that organizations may choose.")
        return
    for position, word in enumerate(allowed):
        if not any(word == known and type(word) is type(known) for known in words):
            shown = ", ".join(str(known).lower() if isinstance(known, bool) else known for known in words)
            yield FieldError(f"{path}.allowed[{position}]", "not_allowed", f"Must be one of: {shown}.")
        elif word in allowed[:position]:
            yield FieldError(f"{path}.allowed[{position}]", "duplicate", "Is in the list already.")
