"""Public keys of clients: a JWK set (RFC 7517) that may be registered."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from app.rules.fields import FieldProblem, type_name
from app.rules.languages.translation import lazy_gettext

MAX_KEYS = 10
_PRIVATE_MEMBERS = ("d", "p", "q", "dp", "dq", "qi", "oth", "k")
# The length of each coordinate in base64url, by key type and curve.
_BASE64URL = re.compile(r"[A-Za-z0-9_-]+")
_CURVES = {"EC": {"P-256": 43, "P-384": 64, "P-521": 88}, "OKP": {"Ed25519": 43}}


def jwks_problem(value: Any) -> FieldProblem | None:
    """Return why the value cannot be a client's key set, or None. Private and symmetric keys are rejected."""
    if not isinstance(value, dict):
        return FieldProblem(
            "wrong_type",
            lazy_gettext('This must be an object {"keys": […]}, not %(value)s.', value=type_name(value)),
        )
    keys = value.get("keys")
    if not isinstance(keys, list) or set(value) != {"keys"}:
        return FieldProblem("invalid_jwks", 'A key set is an object with one member "keys", an array.')
    if not 1 <= len(keys) <= MAX_KEYS:
        return FieldProblem(
            "invalid_jwks", lazy_gettext("A key set must contain 1 to %(max_keys)s keys.", max_keys=MAX_KEYS)
        )
    kids = [key["kid"] for key in keys if isinstance(key, dict) and "kid" in key]
    if len(kids) != len({str(kid) for kid in kids}):
        return FieldProblem("invalid_jwks", "Two keys have the same kid.")
    for position, key in enumerate(keys, 1):
        message = _key_message(key)
        if message is not None:
            return FieldProblem(
                "invalid_jwks",
                lazy_gettext("Key %(position)s: %(message)s", position=position, message=message),
            )
    return None


def usable_keys(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the keys of a fetched key set that can verify the client's signatures.

    Such a set may contain other keys, which are ignored. At most ``MAX_KEYS`` are returned.
    """
    keys = document.get("keys")
    found = [key for key in keys if _key_message(key) is None] if isinstance(keys, list) else []
    return found[:MAX_KEYS]


def _key_message(key: Any) -> str | None:
    if not isinstance(key, dict):
        return "this is not an object."
    if any(member in key for member in _PRIVATE_MEMBERS):
        return "this is a private or symmetric key. Replace it, because you disclosed it, and register the public key."
    for member in ("kty", "kid", "use", "alg", "crv", "x", "y", "n", "e"):
        if member in key and not (isinstance(key[member], str) and len(key[member]) <= 2000):
            return f"{member} must be a string."
    if key.get("use", "sig") != "sig":
        return 'use must be "sig".'
    kind = key.get("kty")
    if kind == "RSA":
        return _rsa_message(key)
    if kind in _CURVES:
        return _curve_message(kind, key)
    return "kty must be RSA, EC or OKP."


def _rsa_message(key: dict[str, Any]) -> str | None:
    modulus, exponent = key.get("n", ""), key.get("e", "")
    if not _BASE64URL.fullmatch(modulus) or not _BASE64URL.fullmatch(exponent):
        return "n and e must be base64url."
    if not 342 <= len(modulus) <= 1366:
        return "an RSA key has 2048 to 8192 bits."
    # A long exponent would make every verification slow.
    return None if 2 <= len(exponent) <= 6 else "e has at most four bytes."


def _curve_message(kind: str, key: dict[str, Any]) -> str | None:
    lengths = _CURVES[kind]
    curve = key.get("crv")
    if curve not in lengths:
        return f"crv must be {' or '.join(lengths)}."
    members = ("x", "y") if kind == "EC" else ("x",)
    for member in members:
        text = key.get(member, "")
        if not _BASE64URL.fullmatch(text) or len(text) != lengths[curve]:
            return f"{member} is not a coordinate on {curve}."
    return None
