"""What settings do in this release: whoever changes one that nothing follows from is told so.

The document is whole from the start, so that programs written for it need no change later.
"""

from __future__ import annotations

from collections.abc import Iterable

WITHOUT_EFFECT = "Stored, and without effect in this release."

# Paths that nothing reads. Whoever makes one count takes it out; a test knows when one was forgotten.
WITHOUT_EFFECT_YET: frozenset[str] = frozenset()


def warnings_for(changed: Iterable[str]) -> tuple[str, ...]:
    """One sentence for each changed path that nothing follows from."""
    return tuple(f"{path}: {WITHOUT_EFFECT}" for path in changed if path in WITHOUT_EFFECT_YET)


def reason_of(path: str, why: str) -> str:
    """Why the setting is there, and that it has no effect yet where that is so."""
    return f"{why} {WITHOUT_EFFECT}" if path in WITHOUT_EFFECT_YET else why
