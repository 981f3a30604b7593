"""Roles that a client declares for its users, and claims of its tokens beyond the standard ones.

A claim is released only if the token has the scope that covers its source: ``groups``, ``roles``, the scope of a
standard claim, or the scope that the organization chose for an attribute.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Annotated, Any

from app.rules.clients.client_types import MINIMAL
from app.rules.directory.attributes import Attribute
from app.rules.fields import FieldProblem, ValidationErrors, suggestion
from app.rules.scopes import GROUPS, ROLES, SCOPE_OF_CLAIM
from app.rules.shapes import Items, OneOf, Rule, Shape, Text, described

MAX_APP_ROLES, MAX_MAPPINGS = 50, 50
MAX_ROLE_KEY_LENGTH = 64
ID_TOKEN, USERINFO, ACCESS_TOKEN, INTROSPECTION = "id_token", "userinfo", "access_token", "introspection"
TARGETS = (ID_TOKEN, USERINFO, ACCESS_TOKEN, INTROSPECTION)
# Tokens are sent in headers, and JWTs are accepted up to 8 KiB.
MAX_TOKEN_BYTES = 4096
ATTRIBUTE_PREFIX = "attributes."
STANDARD_SOURCES = tuple(name for name in SCOPE_OF_CLAIM if name != "sub")
# Claims of the protocol in ID tokens, JWT access tokens, introspection and logout tokens.
RESERVED_CLAIMS = frozenset(
    (
        "iss", "sub", "aud", "exp", "nbf", "iat", "jti", "nonce", "auth_time", "acr", "amr", "azp", "at_hash", "c_hash",
        "s_hash", "sid", "scope", "scp", "client_id", "cnf", "act", "may_act", "active", "token_type", "token_use",
        "username", "organization_id", "events", "txn", "sub_id", "sub_jwk", "entitlements", "authorization_details",
        "token_introspection", "error", "error_description", "unstored",
    )
)  # fmt: skip
# Apps trust these as verified, so each has only the sources named here.
_FIXED_SOURCES: Mapping[str, tuple[str, ...]] = {
    **{name: (name,) for name in ("email", "email_verified", "phone_number", "phone_number_verified")},
    **{name: (name,) for name in ("address", "updated_at")},
    GROUPS: (GROUPS, ROLES),
    ROLES: (GROUPS, ROLES),
}
_ROLE_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,63}")
_CLAIM = re.compile(r"[A-Za-z][A-Za-z0-9_.:/#-]{0,99}")


def _role_key_problem(value: str) -> FieldProblem | None:
    if _ROLE_KEY.fullmatch(value):
        return None
    message = (
        "Use 1 to 64 letters, digits and the characters _ . : - as the key, and begin with a letter or digit."
    )
    return FieldProblem("invalid_key", message)


def claim_path(name: str) -> tuple[str, ...]:
    """Return the names of the objects that the claim is in, from the outermost, and its own.

    ``realm_access.roles`` is ``roles`` in the object ``realm_access``. The name of a namespaced claim, such as
    ``https://acme.example/roles``, is literal.
    """
    return (name,) if any(mark in name for mark in ":/#") else tuple(name.split("."))


def nest_claims(claims: Mapping[str, Any]) -> dict[str, Any]:
    """Return the claims with each one in the objects that its name says."""
    nested: dict[str, Any] = {}
    for name, value in claims.items():
        *outer, last = claim_path(name)
        place = nested
        for part in outer:
            place = place.setdefault(part, {})
        place[last] = value
    return nested


def _claim_problem(value: str) -> FieldProblem | None:
    outermost, *inner = claim_path(value)
    if outermost in RESERVED_CLAIMS:
        return FieldProblem(
            "reserved", f"The claim {outermost} is reserved for the protocol. Choose another name."
        )
    if inner and outermost in (GROUPS, ROLES, *STANDARD_SOURCES):
        message = (
            f"The claim {outermost} has a value of its own and cannot contain others. Choose another name."
        )
        return FieldProblem("reserved", message)
    if not all((outermost, *inner)) or _CLAIM.fullmatch(value) is None:
        message = "Use 1 to 100 letters, digits and the characters _ . : / # - and begin with a letter."
        return FieldProblem("invalid_claim", message)
    return None


class AppRole(Shape):
    """A role that users and groups can have in an app."""

    key: Annotated[
        str,
        Rule(_role_key_problem, (("pattern", f"^{_ROLE_KEY.pattern}$"),)),
        described("The value in the `roles` claim."),
    ]
    name: Annotated[str, Text(100, min_length=0), described("Shown to administrators.")] = ""


class ClaimMapping(Shape):
    """A claim that an app receives, and where it comes from."""

    claim: Annotated[
        str,
        Rule(_claim_problem, (("pattern", f"^{_CLAIM.pattern}$"),)),
        described(
            "The name of the claim. Those of the protocol are reserved. Dots lead into objects, as in "
            "`realm_access.roles`, unless the name contains `:`, `/` or `#`."
        ),
    ]
    source: Annotated[
        str,
        Text(60),
        described(
            "`attributes.` and the key of a custom attribute, `groups`, `roles`, or a standard claim such as `email`. "
            "It is released only with the scope that covers it."
        ),
    ]
    targets: Annotated[
        tuple[Annotated[str, OneOf(TARGETS)], ...],
        Items(len(TARGETS), min_items=1),
        described("Where the claim is sent. Of access tokens, only JWTs contain it."),
    ] = TARGETS


def check_mappings(errors: ValidationErrors, sent: Collection[Any], attributes: Iterable[Attribute]) -> None:
    """Add what is wrong with new mappings together and their sources. ``attributes`` are the organization's."""
    names = [entry.get("claim") if isinstance(entry, Mapping) else None for entry in sent]
    paths = {claim_path(name) for name in names if isinstance(name, str)}
    for position, name in enumerate(names):
        path = claim_path(name) if isinstance(name, str) else ()
        outer = next((path[:size] for size in range(1, len(path)) if path[:size] in paths), None)
        if outer:
            message = f"The claim {'.'.join(outer)} has a value of its own. Rename one of the two."
            errors.add(f"claim_mappings[{position}].claim", "duplicate", message)
    known = (GROUPS, ROLES, *STANDARD_SOURCES, *(f"{ATTRIBUTE_PREFIX}{each.key}" for each in attributes))
    for position, entry in enumerate(sent):
        claim, source = (
            (entry.get("claim"), entry.get("source")) if isinstance(entry, Mapping) else (None, None)
        )
        if not isinstance(source, str):
            continue
        field = f"claim_mappings[{position}].source"
        fixed = _FIXED_SOURCES.get(claim) if isinstance(claim, str) else None
        if source not in known:
            message = f"There is no such source.{suggestion(source, known)}"
            errors.add(field, "unknown_source", message)
        elif fixed is not None and source not in fixed:
            message = f"The claim {claim} can only come from {' or '.join(fixed)}, because apps trust it."
            errors.add(field, "not_allowed", message)


def role_keys(document: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the keys of the roles that a client declares."""
    return tuple(role["key"] for role in document.get("app_roles") or ())


def sources_of_claims(
    document: Mapping[str, Any], attributes: Iterable[Attribute], scopes: Collection[str], target: str
) -> dict[str, str]:
    """Return the source of each claim that the scopes release to the target, by the name of the claim.

    ``document`` is the client's, ``attributes`` are the organization's.
    """
    is_minimal = target == ID_TOKEN and document.get("id_token_claims") == MINIMAL
    sources = {} if is_minimal else {name: name for name in (GROUPS, ROLES) if name in scopes}
    mappings = document.get("claim_mappings")
    if not mappings:
        return sources
    covering = {f"{ATTRIBUTE_PREFIX}{each.key}": each.scope for each in attributes}
    covering |= {GROUPS: GROUPS, ROLES: ROLES, **SCOPE_OF_CLAIM}
    for mapping in mappings:
        if target in mapping["targets"] and covering.get(mapping["source"]) in scopes:
            sources[mapping["claim"]] = mapping["source"]
    return sources


def within_size(claims: Mapping[str, Any]) -> dict[str, Any]:
    """Return the claims that fit into a token together. Larger ones are only in userinfo and introspection."""
    left, fitting = MAX_TOKEN_BYTES, {}
    for name, value in claims.items():
        size = len(json.dumps({name: value}, ensure_ascii=False).encode())
        if size <= left:
            left -= size
            fitting[name] = value
    return fitting
