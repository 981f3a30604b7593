"""The endpoints at which clients authenticate, as Flask's routes, the fast path and the playground call them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from app import metrics
from app.oauth import device, introspection, par, token
from app.oauth.client_log import record_success
from app.oauth.protocol_request import ProtocolRequest, handle
from app.oauth.protocol_response import ProtocolResponse
from app.operations.clients import client_usage

HANDLERS: Mapping[str, Callable[[ProtocolRequest], ProtocolResponse]] = {
    "token": token.issue,
    "introspect": introspection.introspect,
    "revoke": introspection.revoke,
    "par": par.push,
    "device_authorization": device.authorize_device,
}


def respond(request: ProtocolRequest) -> ProtocolResponse:
    """Return the response of the endpoint in the path, after its commit, and count the client's request."""
    endpoint = request.endpoint
    response = handle(HANDLERS[endpoint], request)
    grant_type = request.parameters["grant_type"] if endpoint == "token" and response.status == 200 else None
    if grant_type is not None:
        request.environ[metrics.OUTCOME] = (metrics.TOKENS.name, grant_type)
    authenticated = request.authenticated
    if authenticated is None:
        return response
    if grant_type is not None and request.user_id is not None:
        client_usage.count_active_user(authenticated.client, request.user_id)
    client_usage.record_client_use(
        authenticated,
        request.ip_address,
        endpoint,
        request.cause is not None or response.status >= 500,
        grant_type,
        None if grant_type is None else request.used_pkce,
    )
    if response.status < 400 and request.cause is None:
        record_success(request, authenticated.client, response.status)
    return response
