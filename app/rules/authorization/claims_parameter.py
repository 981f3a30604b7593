"""The ``claims`` parameter: single claims asked for by name, and for which place (OpenID Connect Core 5.5).

What is understood is kept as JSON: ``{"id_token": {"acr": {"essential": true, "values": […]}}, "userinfo": {…}}``.
A claim that is only wished for stands with null. Names that are no claims of ours are ignored, as section 5.5 asks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from app.rules.errors import DomainError
from app.rules.oauth_errors import AuthorizationError
from app.rules.strict_json import load_object
from app.rules.tokens.claims import PROFILE_CLAIMS, SCOPE_OF_CLAIM

USERINFO, ID_TOKEN = "userinfo", "id_token"
PLACES = (USERINFO, ID_TOKEN)
# Of the sign-in: the ID token holds them in any case; what is asked of them is who signs in, and how.
_OF_SIGN_IN = ("sub", "acr", "auth_time", "amr")
MAX_BYTES = 8 * 1024
_MOST_VALUES = 20
_LONGEST_VALUE = 255


def parse_claims(text: str) -> dict[str, Any] | None:
    """What is understood of the parameter; None when that is nothing.

    Raises AuthorizationError (``invalid_request``) for what is no JSON object of the form of section 5.5.
    """
    if len(text.encode()) > MAX_BYTES:
        raise _malformed(f"is longer than {MAX_BYTES} bytes")
    try:
        sent = load_object(text.encode())
    except DomainError as error:
        raise _malformed("is not a JSON object") from error
    understood = {place: _claims(sent[place]) for place in PLACES if sent.get(place) is not None}
    return {place: claims for place, claims in understood.items() if claims} or None


def requested_names(claims: Mapping[str, Any] | None, place: str) -> tuple[str, ...]:
    """The claims asked for at the place: ``userinfo`` or ``id_token``."""
    return tuple((claims or {}).get(place) or ())


def required_scopes(claims: Mapping[str, Any] | None) -> tuple[str, ...]:
    """The scopes that release the claims too: whoever allows the claims allows what these scopes mean."""
    scopes = (
        SCOPE_OF_CLAIM[name]
        for place in PLACES
        for name in requested_names(claims, place)
        if name in SCOPE_OF_CLAIM
    )
    return tuple(dict.fromkeys(scope for scope in scopes if scope != "openid"))


def restrict_to_scopes(claims: Mapping[str, Any] | None, scopes: Collection[str]) -> dict[str, Any] | None:
    """The claims without those that only other scopes release: no way round what a client was registered for."""
    left = {
        place: {
            name: wish
            for name, wish in asked.items()
            if SCOPE_OF_CLAIM.get(name, "openid") in {"openid", *scopes}
        }
        for place, asked in (claims or {}).items()
    }
    return {place: asked for place, asked in left.items() if asked} or None


def requested_subject(claims: Mapping[str, Any] | None) -> str | None:
    """The one ``sub`` that the request is about (section 5.5.1), or None."""
    for place in (ID_TOKEN, USERINFO):
        values = _values(claims, place, "sub")
        if values:
            return values[0]
    return None


def requested_contexts(claims: Mapping[str, Any] | None) -> tuple[str, ...]:
    """The ``acr`` values that the ID token should hold one of, most wanted first; none when any will do."""
    return _values(claims, ID_TOKEN, "acr")


def are_contexts_essential(claims: Mapping[str, Any] | None) -> bool:
    """Whether the request has to fail when the sign-in reaches none of them (section 5.5.1.1)."""
    wish = ((claims or {}).get(ID_TOKEN) or {}).get("acr") or {}
    return bool(wish.get("essential"))


def _values(claims: Mapping[str, Any] | None, place: str, name: str) -> tuple[str, ...]:
    wish = ((claims or {}).get(place) or {}).get(name) or {}
    return tuple(wish.get("values") or ())


def _claims(sent: Any) -> dict[str, Any]:
    if not isinstance(sent, dict):
        raise _malformed("holds a member that is no object")
    return {
        name: _wish(name, wish)
        for name, wish in sent.items()
        if name in PROFILE_CLAIMS or name in _OF_SIGN_IN
    }


def _wish(name: str, sent: Any) -> dict[str, Any] | None:
    if sent is None:
        return None
    if not isinstance(sent, dict) or not isinstance(sent.get("essential", False), bool):
        raise _malformed("asks for a claim by something else than null or an object")
    values = sent.get("values", [])
    if not isinstance(values, list) or ("value" in sent and "values" in sent):
        raise _malformed("holds values that are no array, or value beside values")
    wish: dict[str, Any] = {"essential": True} if sent.get("essential") else {}
    # Of other claims the user has one value: it is told, whatever value was hoped for.
    if name in {"sub", "acr"}:
        wish["values"] = _texts([sent["value"]] if "value" in sent else values)
    return {key: value for key, value in wish.items() if value} or None


def _texts(values: Iterable[Any]) -> list[str]:
    texts = [value for value in values if isinstance(value, str) and 1 <= len(value) <= _LONGEST_VALUE]
    if len(texts) != len(list(values)) or len(texts) > _MOST_VALUES:
        raise _malformed("holds a sub or acr that is no short string, or too many of them")
    return texts


def _malformed(what: str) -> AuthorizationError:
    return AuthorizationError("invalid_request", f"The parameter claims {what}.")
