"""The pushed authorization request endpoint (RFC 9126)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.oauth import cors
from app.oauth.answer import Answer, answer, refusal_of
from app.oauth.authentication import authenticate
from app.oauth.call import Call
from app.oauth.dpop import offer_nonce, prove
from app.oauth.grants.authorization_code import AuthorizationCodeGrant
from app.oauth.server import server
from app.oauth.wire import WireRequest, read_form
from app.operations.authorization import pushed_requests
from app.operations.clients import client_usage
from app.operations.grants import grants
from app.rules.errors import DomainError

# They prove the client here and are no part of the request that it pushes.
_OF_THE_CLIENT = frozenset({"client_secret", "client_assertion", "client_assertion_type"})


def push(call: Call) -> Answer:
    """A ``request_uri`` for the checked request, or all that is wrong with it, told to the client itself."""
    try:
        given = answer(_push(call, read_form(call)), 201)
    except DomainError as error:
        given = refusal_of(error, call)
    return cors.allow_own_origins(offer_nonce(given, call), call, call.authenticated)


def _push(call: Call, sent: Mapping[str, str]) -> dict[str, Any]:
    authenticated = authenticate(call, sent)
    if call.proof is not None:
        authenticated = prove(call, authenticated)
    client = authenticated.client
    asked = {name: value for name, value in sent.items() if name not in _OF_THE_CLIENT}
    grant = AuthorizationCodeGrant(WireRequest(asked | {"client_id": client.client_id}, call), server)
    grant.is_pushed = True
    grant.validate_consent_request()
    pushed = pushed_requests.push_request(
        grants.client_actor(client, call.address, call.request_id), authenticated, grant.request.form
    )
    client_usage.record_client_use(authenticated, call.address)
    return {"request_uri": pushed.request_uri, "expires_in": pushed.expires_in}
