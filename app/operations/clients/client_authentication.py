"""Client authentication (RFC 6749 section 2.3) at every endpoint that asks for it."""

from __future__ import annotations

import hmac
import time
from dataclasses import dataclass
from uuid import UUID

from app.fast_path.cache import BoundedCache
from app.operations.clients import client_keys, metadata_documents
from app.operations.directory import lookups
from app.operations.directory.lookups import AuthenticatedClient, ClientSnapshot, OrganizationSnapshot
from app.operations.store import clock, single_use
from app.rules.clients.client_assertions import (
    ClientJwt,
    ValidAssertion,
    is_signed_by,
    read_assertion,
    validate_assertion,
)
from app.rules.clients.client_requirements import get_client_requirements
from app.rules.clients.client_types import PRIVATE_KEY_JWT
from app.rules.errors import NotFound, TooManyRequests
from app.rules.identifiers import parse_client_id
from app.rules.oauth_errors import InvalidClient
from app.rules.sign_in.lockout import networks_of
from app.rules.token_values import CLIENT_SECRET, digest, parse_token

MOST = 30
WINDOW_SECONDS = 60.0
_MOST_REMEMBERED = 20_000

_NOBODYS = ""
_failures: BoundedCache[tuple[float, int]] = BoundedCache(_MOST_REMEMBERED)


def require_room(organization_id: str | None, client_id: str, address: str | None) -> None:
    """Nothing. Raises TooManyRequests after thirty failures in a minute for a client from one network.

    ``organization_id`` is that of the path; without one the client names its own.
    """
    tick = time.monotonic()
    for network, times in networks_of(address):
        began, count = _counted(organization_id or _named_by(client_id), client_id, network, tick)
        if count >= MOST * times:
            raise TooManyRequests(
                "Client authentication failed too often from here. Check the secret, then try again.",
                retry_after=max(1, int(WINDOW_SECONDS - (tick - began))),
            )


def note_failure(organization_id: str | None, client_id: str, address: str | None) -> None:
    """One more failure is counted; the arguments are those of ``require_room``."""
    organization_id = organization_id or _named_by(client_id)
    for network, _ in networks_of(address):
        began, count = _counted(organization_id, client_id, network, time.monotonic())
        _failures.put(organization_id, client_id[:64], network, value=(began, count + 1))


def _named_by(client_id: str) -> str:
    parsed = parse_client_id(client_id)
    return parsed[0] if parsed is not None else _NOBODYS


def _counted(organization_id: str, client_id: str, network: str, tick: float) -> tuple[float, int]:
    began, count = _failures.get(organization_id, client_id[:64], network) or (tick, 0)
    return (tick, 0) if tick - began > WINDOW_SECONDS else (began, count)


def forget_failures() -> None:
    """Nothing is remembered."""
    _failures.clear()


_ROOT = "root"


def find_wire_client(
    client_id: str, *, organization_id: str | None, address: str | None = None, fresh: bool = False
) -> ClientSnapshot | None:
    """The client, whatever its state, if the organization of the path knows it, where there is one (MX-3).

    ``address`` is the caller's; ``fresh`` is as in ``directory.find_client``. Raises DocumentRefused when a client's
    metadata cannot be read at its address, TooManyRequests. Called outside of a unit of work.
    """
    if client_id.startswith("https://"):
        return _of_address(client_id, organization_id, address, fresh)
    client = lookups.find_client(client_id, fresh=fresh)
    if client is None or organization_id not in {None, client.organization.id}:
        return None
    # A client has one name on the wire.
    return client if client.metadata_document_uri is None else None


def find_authenticating_client(
    client_id: str, *, organization_id: str | None, address: str | None = None, fresh: bool = False
) -> ClientSnapshot | None:
    """As ``find_wire_client``, where a client whose metadata cannot be read is as unknown as any other (CA-3)."""
    try:
        return find_wire_client(client_id, organization_id=organization_id, address=address, fresh=fresh)
    except metadata_documents.DocumentRefused:
        return None


def _of_address(
    client_id: str, organization_id: str | None, address: str | None, fresh: bool
) -> ClientSnapshot | None:
    try:
        organization = _organization(organization_id)
    except NotFound:
        return None
    row_id = metadata_documents.find_document_client(organization, client_id, address)
    client = None if row_id is None else lookups.find_client_by_id(organization.id, row_id, fresh=fresh)
    if row_id is None or client is not None:
        return client
    # It ended since this process met it; who comes back after that is met anew.
    metadata_documents.clear_document_cache()
    row_id = metadata_documents.find_document_client(organization, client_id, address)
    return None if row_id is None else lookups.find_client_by_id(organization.id, row_id, fresh=True)


def _organization(organization_id: str | None) -> OrganizationSnapshot:
    if organization_id is None:
        return lookups.get_organization_by_slug(_ROOT, fresh=False)
    return lookups.get_organization_by_id(organization_id, fresh=False)


def authenticate_by_assertion(
    assertion: str, client_id: str, *, organization_id: str | None, url: str, address: str | None, is_claimed: bool
) -> ClientSnapshot:  # fmt: skip
    """Authenticate a client by its assertion, which can be used once (CA-6).

    ``url`` is the endpoint that was called. ``is_claimed`` means that this very request has already spent the
    assertion and is retried with a fresh client. Raises InvalidClient, alike for every cause, TooManyRequests, or
    KeysUnavailable.
    """
    jwt = read_assertion(assertion)
    try:
        client, valid = _validated(jwt, client_id, organization_id, url, address, fresh=False)
    except InvalidClient:
        require_room(organization_id, client_id, address)
        try:
            # A key registered a moment ago on another worker is not in the view that is cached here.
            client, valid = _validated(jwt, client_id, organization_id, url, address, fresh=True)
        except InvalidClient:
            note_failure(organization_id, client_id, address)
            raise
    if not is_claimed and not _is_first_use(client, valid):
        raise InvalidClient().with_cause("client_assertion_replayed")
    return client


def _validated(
    jwt: ClientJwt, client_id: str, organization_id: str | None, url: str, address: str | None, *, fresh: bool
) -> tuple[ClientSnapshot, ValidAssertion]:
    client = find_authenticating_client(
        client_id, organization_id=organization_id, address=address, fresh=fresh
    )
    if client is None or not client.is_active:
        is_signed_by(jwt, ())  # The same work as for a client that is known.
        raise InvalidClient
    method = client.document["token_endpoint_auth_method"]
    if method != PRIVATE_KEY_JWT:
        is_signed_by(jwt, ())
        raise InvalidClient().with_cause("auth_method_mismatch", received=PRIVATE_KEY_JWT, expected=method)
    if not client_keys.is_signed_by_client(client, jwt):
        raise InvalidClient().with_cause(
            "client_assertion_signature", received=f"kid {jwt.key_id or 'missing'}"[:200]
        )
    document, issuer = client.document, client.organization.issuer
    demands = get_client_requirements(document, client.organization.settings)
    chosen = document.get("token_endpoint_auth_signing_alg")
    return client, validate_assertion(
        jwt,
        client_id=client.client_id,
        issuer=issuer,
        endpoints=() if demands.issuer_audience else (f"{issuer}/oauth/token", url),
        algorithms=tuple(name for name in demands.algorithms if chosen in {None, name}),
        now=clock.now(),
    )


def _is_first_use(client: ClientSnapshot, valid: ValidAssertion) -> bool:
    return single_use.claim(
        client.organization.id, "client assertion", client.client_id, valid.jti, expires_at=valid.until
    )


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
        signer = authenticate_by_assertion(
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


def _matching_secret(client: ClientSnapshot | None, secret: str) -> UUID | None:
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
