"""The ``claims`` parameter: claims requested by name for the ID token or userinfo (OpenID Connect Core 5.5).

The known part is stored as JSON: ``{"id_token": {"acr": {"essential": true, "values": […]}}, "userinfo": {…}}``.
A voluntary claim has the value null. Unknown claims are ignored, as section 5.5 requires.
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
# Claims about the sign-in. They are always in the ID token; requesting them sets conditions for the sign-in.
_SIGN_IN_CLAIMS = ("sub", "acr", "auth_time", "amr")
MAX_BYTES = 8 * 1024
_MAX_VALUES = 20
_MAX_VALUE_LENGTH = 255


def parse_claims(text: str) -> dict[str, Any] | None:
    """Return the known claims of the parameter, or None if there are none.

    Raises AuthorizationError (``invalid_request``) unless it is a JSON object as in section 5.5.
    """
    if len(text.encode()) > MAX_BYTES:
        raise _malformed(f"is longer than {MAX_BYTES} bytes")
    try:
        sent = load_object(text.encode())
    except DomainError as error:
        raise _malformed("is not a JSON object") from error
    known = {place: _claims(sent[place]) for place in PLACES if sent.get(place) is not None}
    return {place: claims for place, claims in known.items() if claims} or None


def requested_names(claims: Mapping[str, Any] | None, place: str) -> tuple[str, ...]:
    """Return the claims requested for ``userinfo`` or ``id_token``."""
    return tuple((claims or {}).get(place) or ())


def required_scopes(claims: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Return the scopes that release the requested claims, which the user must allow."""
    scopes = (
        SCOPE_OF_CLAIM[name]
        for place in PLACES
        for name in requested_names(claims, place)
        if name in SCOPE_OF_CLAIM
    )
    return tuple(dict.fromkeys(scope for scope in scopes if scope != "openid"))


def restrict_to_scopes(claims: Mapping[str, Any] | None, scopes: Collection[str]) -> dict[str, Any] | None:
    """Return the claims that the scopes release, so that a client cannot get others than it registered for."""
    allowed = {
        place: {
            name: request
            for name, request in requested.items()
            if SCOPE_OF_CLAIM.get(name, "openid") in {"openid", *scopes}
        }
        for place, requested in (claims or {}).items()
    }
    return {place: requested for place, requested in allowed.items() if requested} or None


def requested_subject(claims: Mapping[str, Any] | None) -> str | None:
    """Return the requested ``sub`` (section 5.5.1), or None."""
    for place in (ID_TOKEN, USERINFO):
        values = _values(claims, place, "sub")
        if values:
            return values[0]
    return None


def requested_contexts(claims: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Return the requested ``acr`` values, most preferred first; empty for any."""
    return _values(claims, ID_TOKEN, "acr")


def are_contexts_essential(claims: Mapping[str, Any] | None) -> bool:
    """Return whether the request must fail if the sign-in reaches none of them (section 5.5.1.1)."""
    request = ((claims or {}).get(ID_TOKEN) or {}).get("acr") or {}
    return bool(request.get("essential"))


def _values(claims: Mapping[str, Any] | None, place: str, name: str) -> tuple[str, ...]:
    request = ((claims or {}).get(place) or {}).get(name) or {}
    return tuple(request.get("values") or ())


def _claims(sent: Any) -> dict[str, Any]:
    if not isinstance(sent, dict):
        raise _malformed("contains a member that is not an object")
    return {
        name: _claim_request(name, request)
        for name, request in sent.items()
        if name in PROFILE_CLAIMS or name in _SIGN_IN_CLAIMS
    }


def _claim_request(name: str, sent: Any) -> dict[str, Any] | None:
    if sent is None:
        return None
    if not isinstance(sent, dict) or not isinstance(sent.get("essential", False), bool):
        raise _malformed("contains a claim that is neither null nor an object")
    values = sent.get("values", [])
    if not isinstance(values, list) or ("value" in sent and "values" in sent):
        raise _malformed("contains values that are not an array, or both value and values")
    request: dict[str, Any] = {"essential": True} if sent.get("essential") else {}
    # Other claims have one value, which is released whatever value was requested.
    if name in {"sub", "acr"}:
        request["values"] = _texts([sent["value"]] if "value" in sent else values)
    return {key: value for key, value in request.items() if value} or None


def _texts(values: Iterable[Any]) -> list[str]:
    texts = [value for value in values if isinstance(value, str) and 1 <= len(value) <= _MAX_VALUE_LENGTH]
    if len(texts) != len(list(values)) or len(texts) > _MAX_VALUES:
        raise _malformed("contains too many values of sub or acr, or one that is not a short string")
    return texts


def _malformed(what: str) -> AuthorizationError:
    return AuthorizationError("invalid_request", f"The parameter claims {what}.")
