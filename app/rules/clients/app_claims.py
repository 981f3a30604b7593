"""Roles that a client declares for its users, and claims of its tokens beyond the standard ones."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import Annotated, Any

from app.rules.fields import FieldProblem
from app.rules.scopes import GROUPS, ROLES
from app.rules.shapes import Rule, Shape, Text, described

MAX_APP_ROLES = 50
MAX_ROLE_KEY_LENGTH = 64
ID_TOKEN, USERINFO, ACCESS_TOKEN, INTROSPECTION = "id_token", "userinfo", "access_token", "introspection"
TARGETS = (ID_TOKEN, USERINFO, ACCESS_TOKEN, INTROSPECTION)
# Tokens are sent in headers, and JWTs are accepted up to 8 KiB.
MAX_TOKEN_BYTES = 4096
_ROLE_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,63}")


def _role_key_problem(value: str) -> FieldProblem | None:
    if _ROLE_KEY.fullmatch(value):
        return None
    message = (
        "Use 1 to 64 letters, digits and the characters _ . : - as the key, and begin with a letter or digit."
    )
    return FieldProblem("invalid_key", message)


class AppRole(Shape):
    """A role that users and groups can have in an app."""

    key: Annotated[
        str,
        Rule(_role_key_problem, (("pattern", f"^{_ROLE_KEY.pattern}$"),)),
        described("The value in the `roles` claim."),
    ]
    name: Annotated[str, Text(100, min_length=0), described("Shown to administrators.")] = ""


def role_keys(document: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the keys of the roles that a client declares."""
    return tuple(role["key"] for role in document.get("app_roles") or ())


def sources_of_claims(document: Mapping[str, Any], scopes: Collection[str]) -> dict[str, str]:
    """Return the source of each claim that the scopes release, by the name of the claim."""
    return {name: name for name in (GROUPS, ROLES) if name in scopes}


def within_size(claims: Mapping[str, Any]) -> dict[str, Any]:
    """Return the claims that fit into a token together. Larger ones are only in userinfo and introspection."""
    left, fitting = MAX_TOKEN_BYTES, {}
    for name, value in claims.items():
        size = len(json.dumps({name: value}, ensure_ascii=False).encode())
        if size <= left:
            left -= size
            fitting[name] = value
    return fitting
