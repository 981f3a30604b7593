"""Clients that prove who they are by a signed assertion (RFC 7523): ``private_key_jwt``."""

from __future__ import annotations

from app.operations import clock
from app.operations.client_proof import client_keys, single_use
from app.operations.client_proof.client_failures import note_failure, require_room
from app.operations.client_proof.wire_clients import find_authenticating_client
from app.operations.directory import ClientView
from app.rules.client_proof.client_assertions import Judged, judge, read_assertion
from app.rules.client_proof.client_jwt import ClientJwt, is_signed_by
from app.rules.oauth_errors import InvalidClient
from app.rules.registration.client_types import PRIVATE_KEY_JWT
from app.rules.registration.demands import requires


def prove(
    assertion: str, client_id: str, *, organization_id: str | None, url: str, address: str | None, is_claimed: bool
) -> ClientView:  # fmt: skip
    """The client whose assertion counts; it counts once (CA-6).

    ``url`` is the endpoint that was called. ``is_claimed`` says that this very request has spent the assertion
    already, and is decided again by a fresh view of its client. Raises InvalidClient, alike for every cause,
    TooManyRequests, or KeysUnavailable.
    """
    jwt = read_assertion(assertion)
    try:
        client, judged = _judged(jwt, client_id, organization_id, url, address, fresh=False)
    except InvalidClient:
        require_room(organization_id, client_id, address)
        try:
            # A key registered a moment ago on another worker is not in the view that is cached here.
            client, judged = _judged(jwt, client_id, organization_id, url, address, fresh=True)
        except InvalidClient:
            note_failure(organization_id, client_id, address)
            raise
    if not is_claimed and not _is_first_use(client, judged):
        raise InvalidClient().because("client_assertion_replayed")
    return client


def _judged(
    jwt: ClientJwt, client_id: str, organization_id: str | None, url: str, address: str | None, *, fresh: bool
) -> tuple[ClientView, Judged]:
    client = find_authenticating_client(
        client_id, organization_id=organization_id, address=address, fresh=fresh
    )
    if client is None or not client.is_active:
        is_signed_by(jwt, ())  # The same work as for a client that is known.
        raise InvalidClient
    method = client.document["token_endpoint_auth_method"]
    if method != PRIVATE_KEY_JWT:
        is_signed_by(jwt, ())
        raise InvalidClient().because("auth_method_mismatch", received=PRIVATE_KEY_JWT, expected=method)
    if not client_keys.has_signed(client, jwt):
        raise InvalidClient().because(
            "client_assertion_signature", received=f"kid {jwt.key_id or 'missing'}"[:200]
        )
    document, issuer = client.document, client.organization.issuer
    demands = requires(document, client.organization.settings)
    chosen = document.get("token_endpoint_auth_signing_alg")
    return client, judge(
        jwt,
        client_id=client.client_id,
        issuer=issuer,
        endpoints=() if demands.issuer_audience else (f"{issuer}/oauth/token", url),
        algorithms=tuple(name for name in demands.algorithms if chosen in {None, name}),
        now=clock.now(),
    )


def _is_first_use(client: ClientView, judged: Judged) -> bool:
    return single_use.claim(
        client.organization.id, "client assertion", client.client_id, judged.jti, until=judged.until
    )
