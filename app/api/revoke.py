"""``POST /api/v1/revoke``: the specification's own words, answer and envelope."""

from __future__ import annotations

from flask import Response, request

from app.api.blueprint import api_v1_only
from app.operations.protocol import client_authentication, grants
from app.operations.protocol.client_authentication import NONE, Presented
from app.operations.protocol.revoke_requests import revoke_by_request
from app.rules.actor import Actor
from app.rules.errors import Unauthenticated
from app.rules.protocol.oauth_errors import InvalidClient
from app.web.basic import read_basic
from app.web.bearer import caller
from app.web.json_api import envelope, read_object
from app.web.parameters import query_parameters
from app.web.request_log import request_id

REVOKED = "Token revoked"


@api_v1_only.post("/revoke")
def revoke() -> Response:
    """200 once the organization will never accept the string again."""
    actor, authenticated_itself = _caller()
    query_parameters(())
    revoke_by_request(actor, read_object(), authenticated_itself=authenticated_itself)
    return envelope(REVOKED)


def _caller() -> tuple[Actor, bool]:
    """Who holds a management token, or a client that proves itself by its own secret (RFC 7009 section 2.1)."""
    header = request.headers.get("Authorization", "")
    if not header.lower().startswith("basic "):
        return caller()[0], False
    try:
        authenticated = client_authentication.authenticate_client(_presented(header))
    except InvalidClient as refusal:
        raise Unauthenticated(
            "The client is unknown, or its secret is wrong.", code="invalid_client"
        ) from refusal
    return grants.client_actor(authenticated.client, request.remote_addr, request_id()), True


def _presented(header: str) -> Presented:
    pair = read_basic(header)
    if pair is None:
        raise InvalidClient
    client_id, secret = pair
    # A public client has no secret: it names itself alone (RV-7).
    return Presented("client_secret_basic", client_id, secret) if secret else Presented(NONE, client_id)
