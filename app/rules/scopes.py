"""Scopes: their form (RFC 6749 section 3.3), how one narrows another, and which kinds there are."""

from __future__ import annotations

import re
from collections.abc import Iterable

MAX_SCOPE_LENGTH = 128
MAX_SCOPES = 100

# What a new organization starts with (OpenID Connect Core sections 5.4 and 11).
IDENTITY_SCOPES: tuple[str, ...] = ("openid", "profile", "email", "address", "phone", "offline_access")
DEFAULT_SCOPES: tuple[str, ...] = ("openid", "profile", "email")

_TOKEN = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")
_LIST = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+(?: [\x21\x23-\x5b\x5d-\x7e]+)*")


def is_scope(text: str) -> bool:
    """Whether the text is one scope: printable ASCII without space, quote and backslash, at most 128 long."""
    return len(text) <= MAX_SCOPE_LENGTH and _TOKEN.fullmatch(text) is not None


def parse_scope(text: str) -> tuple[str, ...] | None:
    """The scopes of a ``scope`` parameter in their order, each once; None when its form is wrong.

    An empty text is no scope at all, which the grammar does not know and clients send nevertheless.
    """
    if text == "":
        return ()
    if _LIST.fullmatch(text) is None:
        return None
    listed = tuple(dict.fromkeys(text.split(" ")))
    if len(listed) > MAX_SCOPES or any(len(scope) > MAX_SCOPE_LENGTH for scope in listed):
        return None
    return listed


def format_scope(scopes: Iterable[str]) -> str:
    """The ``scope`` parameter for the scopes, in their order."""
    return " ".join(scopes)


def restrict_scopes(asked: Iterable[str], allowed: Iterable[str]) -> tuple[str, ...]:
    """Those asked for that are allowed, in the order asked."""
    permitted = frozenset(allowed)
    return tuple(scope for scope in asked if scope in permitted)


def disallowed_scopes(asked: Iterable[str], allowed: Iterable[str]) -> tuple[str, ...]:
    """Those asked for that are not allowed: what an invalid_scope answer is about."""
    permitted = frozenset(allowed)
    return tuple(scope for scope in asked if scope not in permitted)


def is_subset(asked: Iterable[str], allowed: Iterable[str]) -> bool:
    """Whether nothing is asked for beyond what is allowed."""
    return not disallowed_scopes(asked, allowed)
