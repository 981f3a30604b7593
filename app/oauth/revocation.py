"""Token revocation (RFC 7009); the JSON form of it is the management API's."""

from __future__ import annotations

from collections.abc import Mapping

from flask import Response, request

from app.oauth import cors
from app.oauth.authentication import authenticate
from app.oauth.server import answer, refusal_of
from app.oauth.wire import read_form
from app.operations import directory, grants, revocation
from app.operations.client_authentication import AuthenticatedClient
from app.rules.errors import DomainError, InvalidInput, Unavailable
from app.rules.oauth_errors import InvalidGrant, OAuthRefusal, StaleView
from app.web.request_log import request_id

MOST_VIEWS = 3


def revoke() -> Response:
    """200 once the token is dead, and for every string that was none (RFC 7009 section 2.2)."""
    authenticated = None
    try:
        sent = read_form()
        authenticated = _revoke(sent)
        response = answer({})
    except InvalidInput as error:
        response = refusal_of(InvalidGrant(error.description))
    except DomainError as error:
        response = refusal_of(error)
    return cors.allow_own_origins(response, authenticated)


def _revoke(sent: Mapping[str, str]) -> AuthenticatedClient:
    for _ in range(MOST_VIEWS):
        authenticated = authenticate(sent)
        client = authenticated.client
        if "token" not in sent:
            raise OAuthRefusal("The parameter token is missing.")
        actor = grants.client_actor(client, request.remote_addr, request_id())
        try:
            # The hint only says where to look first, and the token says that itself (RV-3).
            revocation.revoke_own_token(actor, client, sent["token"])
            return authenticated
        except StaleView:
            directory.find_client(client.client_id, fresh=True)
    raise Unavailable
