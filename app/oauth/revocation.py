"""Token revocation (RFC 7009); the JSON form of it is the management API's."""

from __future__ import annotations

from flask import Response, request

from app.oauth import cors
from app.oauth.authentication import authenticate
from app.oauth.server import answer, refusal_of
from app.oauth.wire import read_form
from app.operations import grants, revocation
from app.rules.errors import DomainError, InvalidInput
from app.rules.oauth_errors import InvalidGrant, OAuthRefusal
from app.web.request_log import request_id


def revoke() -> Response:
    """200 once the token is dead, and for every string that was none (RFC 7009 section 2.2)."""
    authenticated = None
    try:
        sent = read_form()
        authenticated = authenticate(sent)
        if "token" not in sent:
            raise OAuthRefusal("The parameter token is missing.")
        actor = grants.client_actor(authenticated.client, request.remote_addr, request_id())
        # The hint only says where to look first, and the token says that itself (RV-3).
        revocation.revoke_token(actor, sent["token"])
        response = answer({})
    except InvalidInput as error:
        response = refusal_of(InvalidGrant(error.description))
    except DomainError as error:
        response = refusal_of(error)
    return cors.allow_own_origins(response, authenticated)
