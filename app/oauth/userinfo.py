"""Userinfo (OpenID Connect Core section 5.3)."""

from __future__ import annotations

from flask import Response, g, request

from app.oauth import cors
from app.oauth.server import REALM, answer, refusal_of
from app.oauth.wire import FORM, read_form, require_secure
from app.operations import userinfo as operation
from app.rules.errors import DomainError, Forbidden, Unauthenticated
from app.rules.oauth_errors import OAuthRefusal


def userinfo() -> Response:
    """The claims that the token's scopes release; the token in the header, or in a form body."""
    try:
        found = operation.claims_of(_bearer(), organization_id=g.get("organization_id"))
    except (Unauthenticated, Forbidden) as error:
        response = refusal_of(error)
        # Without a token there is no error code to tell (RFC 6750 section 3.1).
        detail = "" if error.description == _MISSING else f', error="{error.code}"'
        response.headers["WWW-Authenticate"] = f'Bearer realm="{REALM}"{detail}'
        return cors.allow_own_origins(response, None)
    except DomainError as error:
        return cors.allow_own_origins(refusal_of(error), None)
    return cors.allow_own_origins(answer(found.claims), found.client)


_MISSING = "An access token is needed."


def _bearer() -> str:
    require_secure()
    header = request.headers.get("Authorization")
    if header is not None:
        scheme, _, token = header.partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise Unauthenticated(_MISSING)
        if request.method == "POST" and request.mimetype == FORM and "access_token" in read_form():
            raise OAuthRefusal("The token was sent twice.")
        return token.strip()
    if request.method == "POST" and request.mimetype == FORM:
        token = read_form().get("access_token", "")
        if token:
            return token
    raise Unauthenticated(_MISSING)
