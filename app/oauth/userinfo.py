"""Userinfo (OpenID Connect Core section 5.3)."""

from __future__ import annotations

from app.oauth import cors
from app.oauth.call import REALM, Answer, Call, answer, refusal_of
from app.oauth.wire import FORM, read_form, require_secure
from app.operations.protocol import userinfo as operation
from app.rules.errors import DomainError, Forbidden, Unauthenticated
from app.rules.protocol.oauth_errors import OAuthRefusal


def userinfo(call: Call) -> Answer:
    """The claims that the token's scopes release; the token in the header, or in a form body."""
    try:
        found = operation.claims_of(_bearer(call), organization_id=call.organization_id)
    except (Unauthenticated, Forbidden) as error:
        refused = refusal_of(error, call)
        # Without a token there is no error code to tell (RFC 6750 section 3.1).
        detail = "" if error.description == _MISSING else f', error="{error.code}"'
        refused.headers.append(("WWW-Authenticate", f'Bearer realm="{REALM}"{detail}'))
        return cors.allow_own_origins(refused, call, None)
    except DomainError as error:
        return cors.allow_own_origins(refusal_of(error, call), call, None)
    return cors.allow_own_origins(answer(found.claims), call, found.client)


_MISSING = "An access token is needed."


def _bearer(call: Call) -> str:
    require_secure(call)
    header = call.authorization
    if header is not None:
        scheme, _, token = header.partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise Unauthenticated(_MISSING)
        if call.method == "POST" and call.content_type == FORM and "access_token" in read_form(call):
            raise OAuthRefusal("The token was sent twice.")
        return token.strip()
    if call.method == "POST" and call.content_type == FORM:
        token = read_form(call).get("access_token", "")
        if token:
            return token
    raise Unauthenticated(_MISSING)
