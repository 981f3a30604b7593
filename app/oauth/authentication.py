"""Client authentication as every endpoint of the wire asks for it."""

from __future__ import annotations

from collections.abc import Mapping

from flask import g, request

from app.oauth.wire import read_client
from app.operations import client_authentication
from app.operations.client_authentication import AuthenticatedClient


def authenticate(sent: Mapping[str, str]) -> AuthenticatedClient:
    """The client behind the request, known to the organization of the path. Raises InvalidClient."""
    proven = client_authentication.authenticate_client(
        read_client(sent), organization_id=g.get("organization_id"), address=request.remote_addr
    )
    g.authenticated_client = proven
    return proven
