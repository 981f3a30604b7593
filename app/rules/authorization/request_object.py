"""Request objects (RFC 9101): an authorization request as a JWT that its client signed."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Any

from app.rules.authorization.authorization_request import NAMES
from app.rules.clients import client_assertions
from app.rules.clients.client_assertions import ClientJwt, MalformedJwt
from app.rules.errors import AuthorizationError
from app.rules.languages.translation import lazy_gettext as _

MAX_LENGTH = 24 * 1024
# The maximum age of nbf and distance of exp (FAPI 2.0 Message Signing section 5.3.1).
MAX_LIFETIME = timedelta(minutes=60)
_TYPES = (None, "jwt", "oauth-authz-req+jwt")
# Claims about the JWT itself. All others are parameters.
_JWT_CLAIMS = frozenset({"iss", "aud", "exp", "nbf", "iat", "jti"})
_REFERENCES = ("request", "request_uri")
_CODE = "invalid_request_object"


class InvalidRequestObject(AuthorizationError):
    """The request object is not one that this client signed for this server (RFC 9101 section 7)."""

    def __init__(self, description: str) -> None:
        super().__init__(_CODE, description)


def read_request_object(text: str, *, must_be_signed: bool) -> ClientJwt:
    """Return the unverified parts of a request object; ``must_be_signed`` if the client registered that.

    Raises InvalidRequestObject, and AuthorizationError with ``request_not_supported`` (OpenID Connect Core section
    3.1.2.6) for an encrypted one, and for an unsigned one of a client that may send these.
    """
    if text.count(".") == 4:
        raise AuthorizationError("request_not_supported", _("Encrypted request objects are not supported."))
    if not must_be_signed and len(text) <= MAX_LENGTH and client_assertions.is_unsigned(text):
        raise AuthorizationError("request_not_supported", _("Unsigned request objects are not supported."))
    try:
        jwt = client_assertions.read(text, longest=MAX_LENGTH)
    except MalformedJwt as malformed:
        raise _unreadable(malformed) from None
    if jwt.type not in _TYPES:
        raise InvalidRequestObject(_("The typ of the request object must be oauth-authz-req+jwt."))
    return jwt


def validate_request_object(
    jwt: ClientJwt,
    *,
    client_id: str,
    issuer: str,
    algorithms: Collection[str],
    is_bounded: bool,
    now: datetime,
) -> dict[str, str]:
    """Return the parameters in the object as strings; the caller verifies its signature.

    ``is_bounded`` requires ``nbf`` and ``exp``, at most an hour from now. Raises InvalidRequestObject.
    """
    claims = jwt.claims
    if jwt.algorithm not in algorithms:
        raise InvalidRequestObject(
            _("The request object must be signed by: %(algorithms)s.", algorithms=", ".join(algorithms))
        )
    if claims.get("iss") != client_id or claims.get("client_id") != client_id:
        raise InvalidRequestObject(_("In the request object, iss and client_id must be the client_id."))
    audience = claims.get("aud")
    if issuer not in (audience if isinstance(audience, list) else [audience]):
        raise InvalidRequestObject(_("The aud of the request object must be the issuer."))
    _require_time(claims, now, is_bounded=is_bounded)
    if any(name in claims for name in _REFERENCES):
        raise InvalidRequestObject(_("A request object must not contain another one (RFC 9101 section 4)."))
    parameters = {name: _parameter(name, value) for name, value in claims.items() if name not in _JWT_CLAIMS}
    return {name: value for name, value in parameters.items() if value}


def _unreadable(malformed: MalformedJwt) -> InvalidRequestObject:
    return InvalidRequestObject(_("The request object cannot be read. %(reason)s", reason=str(malformed)))


def _require_time(claims: Mapping[str, Any], now: datetime, *, is_bounded: bool) -> None:
    try:
        time_error = client_assertions.time_claims_error(
            claims, now, longest=MAX_LIFETIME if is_bounded else None
        )
        begins = client_assertions.time_of(claims, "nbf")
    except MalformedJwt as malformed:
        raise _unreadable(malformed) from None
    if time_error is None and is_bounded:
        if begins is None:
            time_error = "nbf is missing"
        elif begins < now.timestamp() - MAX_LIFETIME.total_seconds():
            time_error = f"nbf was {now.timestamp() - begins:.0f} s ago"
    if time_error is not None:
        raise InvalidRequestObject(
            _("The request object is not valid at this time: %(reason)s.", reason=time_error)
        )


def _parameter(name: str, value: Any) -> str:
    """Return the value as a form parameter: objects as JSON, resources separated by spaces (RFC 9101 section 4)."""
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if name == "resource" and isinstance(value, list) and all(isinstance(item, str) for item in value):
        return " ".join(value)
    if value is None or name not in NAMES:
        return ""
    raise InvalidRequestObject(_("In the request object, %(name)s must be a string.", name=name))
