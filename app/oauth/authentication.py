"""Client authentication as every endpoint of the wire asks for it."""

from __future__ import annotations

from collections.abc import Mapping

from app.oauth.call import Call
from app.oauth.wire import read_client
from app.operations.protocol import client_authentication
from app.operations.protocol.authenticated_client import AuthenticatedClient


def authenticate(call: Call, sent: Mapping[str, str]) -> AuthenticatedClient:
    """The client behind the request, known to the organization of the path. Raises InvalidClient."""
    presented = call.presented = read_client(call, sent)
    proven = client_authentication.authenticate_client(
        presented, organization_id=call.organization_id, address=call.address
    )
    call.authenticated = proven
    if presented.assertion is not None:
        call.has_claimed_assertion = True
    return proven
