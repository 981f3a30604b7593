"""User codes of the device flow: short enough to type, without vowels so that they spell nothing (RFC 8628, 6.1)."""

from __future__ import annotations

import secrets

ALPHABET = "BCDFGHJKLMNPQRSTVWXZ"
LENGTH = 8
# What a person may type between and around the letters.
_SEPARATORS = dict.fromkeys(map(ord, " \t-\u2010\u2011\u2012\u2013\u2014_.·"))
_LONGEST_TYPED = 64


def generate_user_code() -> str:
    """A fresh code of eight letters out of twenty: 2.56e10 of them (DV-1)."""
    return "".join(secrets.choice(ALPHABET) for _ in range(LENGTH))


def format_user_code(user_code: str) -> str:
    """The code as people read it: two groups of four."""
    return f"{user_code[:4]}-{user_code[4:]}"


def parse_user_code(typed: str) -> str | None:
    """The code that was typed, whatever its case, dashes and spaces; None when it cannot be one."""
    if len(typed) > _LONGEST_TYPED:
        return None
    letters = typed.translate(_SEPARATORS).upper()
    return letters if len(letters) == LENGTH and all(letter in ALPHABET for letter in letters) else None
