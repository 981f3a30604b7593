"""An MCP server whose tools need an access token of a Gatehouse organization: the example of docs/guides/mcp-server.md.

    pip install "mcp>=2.3"
    ISSUER=https://id.example.com/organizations/acme RESOURCE=https://notes.example.com/mcp \
    CLIENT_ID=cli_… CLIENT_SECRET=gth_cs_… python mcp_server.py

``RESOURCE`` is the address that agents are given, and the identifier of an API of the organization with the scope
``notes:read``. The client is a machine client of the same organization that has this resource, so that it may ask
what a token is.
"""

from __future__ import annotations

import os
from urllib.parse import urlsplit

import httpx2
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import AccessToken, TokenVerifier
from mcp.server.auth.settings import AuthSettings
from mcp.server.mcpserver import MCPServer
from pydantic import AnyHttpUrl

ISSUER = os.environ["ISSUER"]
RESOURCE = os.environ["RESOURCE"]
CLIENT = (os.environ["CLIENT_ID"], os.environ["CLIENT_SECRET"])
SCOPE = "notes:read"


class Introspection(TokenVerifier):
    """Introspects each token at the organization (RFC 7662), so that a revoked one is rejected at once."""

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return the token if it is active and was issued for this server."""
        async with httpx2.AsyncClient(timeout=5) as http:
            answer = await http.post(f"{ISSUER}/oauth/introspect", data={"token": token}, auth=CLIENT)
        answer.raise_for_status()
        told = answer.json()
        audience = told.get("aud", [])
        # A token for another server, replayed here by that server, is none (RFC 8707, RFC 9700 section 4.10).
        if not told["active"] or RESOURCE not in ([audience] if isinstance(audience, str) else audience):
            return None
        # A token that is bound to a key is valid only with a proof, which the SDK does not verify (RFC 9449).
        if "cnf" in told:
            return None
        return AccessToken(
            token=token,
            client_id=told["client_id"],
            scopes=told.get("scope", "").split(),
            expires_at=told["exp"],
            resource=RESOURCE,
            subject=told["sub"],
            claims={"iss": ISSUER},
        )


# The SDK serves the protected-resource metadata (RFC 9728) that leads agents from here to the organization.
server = MCPServer(
    "Field notes",
    token_verifier=Introspection(),
    auth=AuthSettings(
        issuer_url=AnyHttpUrl(ISSUER),
        resource_server_url=AnyHttpUrl(RESOURCE),
        required_scopes=[SCOPE],
        validate_token_resource=True,
    ),
)


@server.tool()
def read_note(number: int) -> str:
    """Return the field note of this number to the signed-in user."""
    token = get_access_token()
    whose = token.subject if token is not None else "an unknown user"
    return f"Note {number} of {whose}: herons by the weir."


if __name__ == "__main__":
    place = urlsplit(RESOURCE)
    server.run(
        "streamable-http",
        host=os.environ.get("HOST", "127.0.0.1"),
        port=int(os.environ.get("PORT", place.port or 8000)),
        streamable_http_path=place.path,
    )
