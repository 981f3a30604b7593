"""``POST /api/v1/revoke``: the specification's own words, answer and envelope."""

from __future__ import annotations

from flask import Response, request

from app.api.blueprint import api_v1_only
from app.operations.clients.client_authentication import ANY_SECRET, NONE, Presented, authenticate_client
from app.operations.directory.lookups import ClientSnapshot
from app.operations.grants import grants
from app.operations.tokens.revocation import revoke_by_request
from app.rules.errors import Unauthenticated
from app.rules.oauth_errors import InvalidClient
from app.web.basic import read_basic
from app.web.bearer import caller
from app.web.json_api import envelope, read_object
from app.web.parameters import query_parameters
from app.web.request_log import request_id

REVOKED = "Token revoked"


@api_v1_only.post("/revoke")
def revoke() -> Response:
    """200 once the organization will never accept the string again."""
    query_parameters(())
    header = request.headers.get("Authorization", "")
    if header.lower().startswith("basic "):
        _revoke_as_client(_presented(header))
    else:
        actor = caller()[0]
        revoke_by_request(actor, read_object(), client=None)
    return envelope(REVOKED)


def _revoke_as_client(presented: Presented) -> None:
    """A client proves itself by its own secret and revokes what is its own (RFC 7009 section 2.1)."""
    client = _authenticated(presented)
    actor = grants.client_actor(client, request.remote_addr, request_id())
    revoke_by_request(actor, read_object(), client=client)


def _authenticated(presented: Presented) -> ClientSnapshot:
    try:
        return authenticate_client(presented, address=request.remote_addr).client
    except InvalidClient as refusal:
        raise _unauthenticated() from refusal


def _presented(header: str) -> Presented:
    pair = read_basic(header)
    if pair is None:
        raise _unauthenticated()
    client_id, secret = pair
    # A public client has no secret: it names itself alone (RV-7).
    return Presented(ANY_SECRET, client_id, secret) if secret else Presented(NONE, client_id)


def _unauthenticated() -> Unauthenticated:
    return Unauthenticated("The client is unknown, or its secret is wrong.", code="invalid_client")
