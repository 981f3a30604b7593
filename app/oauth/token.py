"""The token endpoint (RFC 6749 section 3.2)."""

from __future__ import annotations

from typing import Any

from app.oauth.client_authentication import authenticate, confirm_authentication, retry_with_fresh_client
from app.oauth.protocol_request import ProtocolRequest
from app.oauth.protocol_response import ProtocolResponse, error_response, with_cors, with_dpop_nonce
from app.oauth.request_parsing import parse_form
from app.oauth.server import GRANT_TYPES, checked_response, server
from app.operations.store.transactions import transaction
from app.operations.tokens import issuance
from app.rules.clients.client_types import AUTHORIZATION_CODE, DEVICE_CODE, REFRESH_TOKEN
from app.rules.errors import DomainError

# These read, claim and store in one transaction. The others commit a single statement or operation.
_IN_TRANSACTION = frozenset({AUTHORIZATION_CODE, REFRESH_TOKEN, DEVICE_CODE})


def issue(request: ProtocolRequest) -> ProtocolResponse:
    """Return tokens, after the commit, or an error."""
    try:
        parse_form(request)
        response = retry_with_fresh_client(request, lambda: _issue(request))
        if request.authenticated is not None and response.status == 200:
            confirm_authentication(request.authenticated)
    except DomainError as error:
        response = error_response(error, request)
    authenticated = request.authenticated
    if authenticated is not None:
        client = authenticated.client
        request.add_log_fields(organization=client.organization.slug, client=client.client_id)
    return with_cors(with_dpop_nonce(response, request), request, authenticated)


def _issue(request: ProtocolRequest) -> Any:
    grant_type = request.parameters.get("grant_type")
    if grant_type not in GRANT_TYPES:
        return checked_response(server.create_token_response(request))
    client = authenticate(request)
    if grant_type not in _IN_TRANSACTION:
        return checked_response(server.create_token_response(request))
    # Before the transaction: generating an RSA key takes a second.
    issuance.ensure_signing_keys(client.view)
    return checked_response(_create_token_response(request))


@transaction
def _create_token_response(request: ProtocolRequest) -> Any:
    return server.create_token_response(request)
