"""What settings do in this release: demands that nothing could enforce are refused, and wishes without effect told.

The document is whole from the start, so that programs written for it need no change later. But somebody who demands
security must not be told that all is well when nothing follows from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

WITHOUT_EFFECT = "Stored, and without effect in this release."

# Values that would be demands, with what is said to whoever makes one.
NOT_OFFERED: Mapping[str, tuple[tuple[Any, ...], str]] = {
    "authentication.mfa.policy": (
        ("required_for_admins", "required"),
        "Second factors are not offered yet, so they cannot be required.",
    ),
}

# Paths that nothing reads. Whoever makes one count takes it out; a test knows when one was forgotten.
WITHOUT_EFFECT_YET = frozenset(
    {
        *NOT_OFFERED,
        "authentication.mfa.methods",
        "authentication.mfa.grace_period_seconds",
        "authentication.mfa.recovery_codes",
        "authentication.passkeys.enabled",
        "authentication.passkeys.passwordless",
        "branding.logo",
        "localization.default_locale",
    }
)


def not_offered(path: str, value: Any) -> str | None:
    """Why this value of the setting cannot be had yet, or None."""
    values, reason = NOT_OFFERED.get(path, ((), ""))
    return reason if value in values else None


def warnings_for(changed: Iterable[str]) -> tuple[str, ...]:
    """One sentence for each changed path that nothing follows from."""
    return tuple(f"{path}: {WITHOUT_EFFECT}" for path in changed if path in WITHOUT_EFFECT_YET)


def reason_of(path: str, why: str) -> str:
    """Why the setting is there, and that it has no effect yet where that is so."""
    return f"{why} {WITHOUT_EFFECT}" if path in WITHOUT_EFFECT_YET else why
