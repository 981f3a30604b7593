"""User codes of the device flow: short, and without vowels so that they form no words (RFC 8628 section 6.1)."""

from __future__ import annotations

import secrets

ALPHABET = "BCDFGHJKLMNPQRSTVWXZ"
LENGTH = 8
# Characters that are accepted between and around the letters.
_SEPARATORS = dict.fromkeys(map(ord, " \t-\u2010\u2011\u2012\u2013\u2014_.·"))
_MAX_TYPED_LENGTH = 64


def generate_user_code() -> str:
    """Return a random code of eight letters out of twenty, one of 2.56e10 (DV-1)."""
    return "".join(secrets.choice(ALPHABET) for _ in range(LENGTH))


def format_user_code(user_code: str) -> str:
    """Return the code in two groups of four, for display."""
    return f"{user_code[:4]}-{user_code[4:]}"


def parse_user_code(typed: str) -> str | None:
    """Return the typed code without case, dashes and spaces, or None if it is not a code."""
    if len(typed) > _MAX_TYPED_LENGTH:
        return None
    letters = typed.translate(_SEPARATORS).upper()
    return letters if len(letters) == LENGTH and all(letter in ALPHABET for letter in letters) else None
