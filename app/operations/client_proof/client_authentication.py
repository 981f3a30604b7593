"""Client authentication (RFC 6749 section 2.3) at every endpoint that asks for it."""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from uuid import UUID

from app.operations import clock
from app.operations.client_proof import client_assertions
from app.operations.client_proof.authenticated_client import AuthenticatedClient
from app.operations.client_proof.client_failures import note_failure, require_room
from app.operations.client_proof.wire_clients import find_authenticating_client
from app.operations.directory import ClientView
from app.rules.oauth_errors import InvalidClient
from app.rules.tokens.tokens import CLIENT_SECRET, digest, parse_token

NONE = "none"
# A secret at an endpoint that takes it in one way, whichever of the two ways the client registered for the wire.
ANY_SECRET = "client_secret"
_NOBODY = digest("nobody has this secret")


@dataclass(frozen=True, slots=True)
class Presented:
    """What a client showed: one method, its ``client_id``, and the secret or assertion where the method has one.

    ``url`` is the endpoint to which an assertion was sent. ``is_claimed``: this request has spent it already.
    """

    method: str
    client_id: str
    secret: str | None = None
    assertion: str | None = None
    url: str = ""
    is_claimed: bool = False


def authenticate_client(
    presented: Presented, *, organization_id: str | None = None, address: str | None = None
) -> AuthenticatedClient:
    """The client that is who it says. Raises InvalidClient, alike for every cause (CA-3), or TooManyRequests.

    Raises KeysUnavailable too, for a client whose keys stand at an address of its own. Called outside of a unit.

    ``organization_id`` is the organization of the path where there is one: another's client is unknown there
    (MX-3). The client may be one that must not act; whoever issues something looks at that.
    """
    if presented.assertion is not None:
        signer = client_assertions.prove(
            presented.assertion,
            presented.client_id,
            organization_id=organization_id,
            url=presented.url,
            address=address,
            is_claimed=presented.is_claimed,
        )
        return AuthenticatedClient(signer, None)
    proven = _proven(presented, organization_id, address, fresh=False)
    if proven is not None:
        return proven
    # Asked before the database is: a flood of wrong secrets costs a look at a dictionary each.
    require_room(organization_id, presented.client_id, address)
    # A secret made a moment ago on another worker is not in the view that is cached here.
    proven = _proven(presented, organization_id, address, fresh=True)
    if proven is None:
        note_failure(organization_id, presented.client_id, address)
        raise InvalidClient
    return proven


def _proven(
    presented: Presented, organization_id: str | None, address: str | None, *, fresh: bool
) -> AuthenticatedClient | None:
    client = find_authenticating_client(
        presented.client_id, organization_id=organization_id, address=address, fresh=fresh
    )
    if presented.method == NONE:
        if client is None or not client.is_public or not client.is_active:
            return None
        return AuthenticatedClient(client, None)
    credential_id = _matching_secret(client, presented.secret or "")
    if client is None or credential_id is None or not client.is_active:
        return None
    if presented.method not in {ANY_SECRET, client.document["token_endpoint_auth_method"]}:
        return None
    return AuthenticatedClient(client, credential_id)


def _matching_secret(client: ClientView | None, secret: str) -> UUID | None:
    parsed = parse_token(secret)
    sent = digest(secret) if parsed is not None and parsed.kind == CLIENT_SECRET else b""
    if client is None or not client.secrets:
        hmac.compare_digest(sent, _NOBODY)
        return None
    found = None
    for known in client.secrets:
        if hmac.compare_digest(sent, known.digest) and (
            known.expires_at is None or known.expires_at > clock.now()
        ):
            found = known.id
    return found
