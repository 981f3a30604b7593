"""Scopes: their syntax (RFC 6749 section 3.3), how one list restricts another, and those of every organization."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

MAX_SCOPE_LENGTH = 128
MAX_SCOPES = 100
# Last parts of scope names by which APIs let clients change data, for example orders:write.
_CHANGING = frozenset({"write", "delete", "manage", "admin"})

OPENID_SCOPES: tuple[str, ...] = ("openid", "profile", "email", "address", "phone", "offline_access")
"""OpenID Connect Core sections 5.4 and 11."""
# These release the claims of the same names (RFC 9068 section 2.2.3.1).
GROUPS, ROLES = "groups", "roles"
# The scopes of a new organization.
IDENTITY_SCOPES: tuple[str, ...] = (*OPENID_SCOPES, GROUPS, ROLES)
CLAIMS_OF_SCOPE: Mapping[str, tuple[str, ...]] = {
    "openid": ("sub",),
    "profile": (
        "name",
        "family_name",
        "given_name",
        "middle_name",
        "nickname",
        "preferred_username",
        "profile",
        "picture",
        "website",
        "gender",
        "birthdate",
        "zoneinfo",
        "locale",
        "updated_at",
    ),
    "email": ("email", "email_verified"),
    "address": ("address",),
    "phone": ("phone_number", "phone_number_verified"),
}
"""OpenID Connect Core 5.4, in the order of the standard."""

SCOPE_OF_CLAIM: Mapping[str, str] = {
    name: scope for scope, names in CLAIMS_OF_SCOPE.items() for name in names
}

DEFAULT_SCOPES: tuple[str, ...] = ("openid", "profile", "email")

_TOKEN = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")
_LIST = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+(?: [\x21\x23-\x5b\x5d-\x7e]+)*")


def is_scope(text: str) -> bool:
    """Return whether the text is one scope: printable ASCII without space, quote or backslash, at most 128 long."""
    return len(text) <= MAX_SCOPE_LENGTH and _TOKEN.fullmatch(text) is not None


def parse_scope(text: str) -> tuple[str, ...] | None:
    """Parse a ``scope`` parameter into its scopes in order and without duplicates, or return None if it is malformed.

    An empty text has no scopes. The grammar does not allow it, but clients send it.
    """
    if text == "":
        return ()
    if _LIST.fullmatch(text) is None:
        return None
    scopes = tuple(dict.fromkeys(text.split(" ")))
    if len(scopes) > MAX_SCOPES or any(len(scope) > MAX_SCOPE_LENGTH for scope in scopes):
        return None
    return scopes


def format_scope(scopes: Iterable[str]) -> str:
    """Format scopes as a ``scope`` parameter, in their order."""
    return " ".join(scopes)


def restrict_scopes(requested: Iterable[str], allowed: Iterable[str]) -> tuple[str, ...]:
    """Return the requested scopes that are allowed, in the requested order."""
    permitted = frozenset(allowed)
    return tuple(scope for scope in requested if scope in permitted)


def disallowed_scopes(requested: Iterable[str], allowed: Iterable[str]) -> tuple[str, ...]:
    """Return the requested scopes that are not allowed."""
    permitted = frozenset(allowed)
    return tuple(scope for scope in requested if scope not in permitted)


def is_subset(requested: Iterable[str], allowed: Iterable[str]) -> bool:
    """Return whether every requested scope is allowed."""
    return not disallowed_scopes(requested, allowed)


def is_sensitive_scope(name: str) -> bool:
    """Return whether the consent page highlights a scope.

    These are access while the user is away, and scopes whose names say that they change data.
    """
    return name == "offline_access" or re.split(r"[:./]", name)[-1] in _CHANGING
