"""Client authentication (RFC 6749 section 2.3): secrets, assertions with the client's keys, and limits of failures."""

from __future__ import annotations

import hashlib
import hmac
import threading
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from msgspec import Struct

from app.config import current
from app.fast_path import cache
from app.fast_path.cache import BoundedCache
from app.operations.clients import metadata_documents
from app.operations.directory import lookups
from app.operations.directory.snapshots import AuthenticatedClient, ClientSnapshot, OrganizationSnapshot
from app.operations.store import clock, idempotency, outgoing_http
from app.operations.store.outgoing_http import OutgoingRequestFailed
from app.rules.clients.client_assertions import (
    ClientJwt,
    ValidAssertion,
    is_signed_by,
    read_assertion,
    validate_assertion,
)
from app.rules.clients.client_coherence import accepted_algorithms, is_fapi2
from app.rules.clients.client_types import NONE, PRIVATE_KEY_JWT, accepts_auth_method
from app.rules.clients.public_keys import usable_keys
from app.rules.errors import Cause, InvalidClient, NotFound, TooManyRequests, Unavailable
from app.rules.identifiers import CLIENT_SECRET, digest, parse_client_id, parse_token
from app.rules.languages.translation import lazy_gettext
from app.rules.organizations.organizations import ROOT_SLUG
from app.rules.sign_in.passwords import networks_of
from app.rules.store.outgoing_http import OutgoingRequestBlocked
from app.rules.strict_json import InvalidJson, load_object
from app.uptime import uptime

MAX_FAILURES = 30
WINDOW_SECONDS = 60.0
_MAX_CACHED = 20_000

_NO_ORGANIZATION = ""
_failures: BoundedCache[tuple[float, int]] = BoundedCache(_MAX_CACHED)
# A secret at an endpoint that does not distinguish client_secret_basic and client_secret_post.
ANY_SECRET = "client_secret"
_UNKNOWN_DIGEST = digest("no client has this secret")
CACHE_SECONDS = 300.0
MAX_CACHE_SECONDS = 3600.0
RETRY_SECONDS = 30.0
# How long to wait for another thread that is fetching the same keys.
WAIT_SECONDS = 1.0
_MAX_CACHED_KEY_SETS = 1_000
_Key = tuple[str, UUID, str]
_fetching: set[_Key] = set()
_change = threading.Condition()
_MAX_ENTRIES = 5_000
_clients_by_header: dict[bytes, AuthenticatedClient] = {}


def check_failure_limit(organization_id: str | None, client_id: str, ip_address: str | None) -> None:
    """Raise TooManyRequests after thirty failures in a minute for a client from one network.

    ``organization_id`` is that of the path; by default it is taken from the ``client_id``.
    """
    now = uptime()
    for network, times in networks_of(ip_address):
        began, count = _current_count(organization_id or _organization_in(client_id), client_id, network, now)
        if count >= MAX_FAILURES * times:
            raise TooManyRequests(
                "Client authentication failed too often from your network. Check the secret, then try again.",
                retry_after=max(1, int(WINDOW_SECONDS - (now - began))),
            )


def note_failure(organization_id: str | None, client_id: str, ip_address: str | None) -> None:
    """Count a failure; the arguments are those of ``check_failure_limit``."""
    organization_id = organization_id or _organization_in(client_id)
    for network, _ in networks_of(ip_address):
        began, count = _current_count(organization_id, client_id, network, uptime())
        _failures.put(organization_id, client_id[:64], network, value=(began, count + 1))


def _organization_in(client_id: str) -> str:
    parsed = parse_client_id(client_id)
    return parsed[0] if parsed is not None else _NO_ORGANIZATION


def _current_count(organization_id: str, client_id: str, network: str, now: float) -> tuple[float, int]:
    began, count = _failures.get(organization_id, client_id[:64], network) or (now, 0)
    return (now, 0) if now - began > WINDOW_SECONDS else (began, count)


def find_client_by_client_id(
    client_id: str, *, organization_id: str | None, ip_address: str | None = None, fresh: bool = False
) -> ClientSnapshot | None:
    """Return the client in any state if it belongs to the organization of the path (MX-3).

    ``address`` is the caller's; ``fresh`` is as in ``lookups.find_client``. Raises DocumentRefused if a client's
    metadata document cannot be read, and TooManyRequests. Call it outside of a transaction.
    """
    if client_id.startswith("https://"):
        return _find_document_client(client_id, organization_id, ip_address, fresh)
    client = lookups.find_client(client_id, fresh=fresh)
    if client is None or organization_id not in {None, client.organization.id}:
        return None
    # A client with a metadata document is known only by the URL of the document.
    return client if client.metadata_document_uri is None else None


def find_authenticating_client(
    client_id: str, *, organization_id: str | None, ip_address: str | None = None, fresh: bool = False
) -> ClientSnapshot | None:
    """As ``find_client_by_client_id``, but return None if a client's metadata document cannot be read (CA-3)."""
    try:
        return find_client_by_client_id(
            client_id, organization_id=organization_id, ip_address=ip_address, fresh=fresh
        )
    except metadata_documents.DocumentRefused:
        return None


def _find_document_client(
    client_id: str, organization_id: str | None, ip_address: str | None, fresh: bool
) -> ClientSnapshot | None:
    try:
        organization = _organization(organization_id)
    except NotFound:
        return None
    row_id = metadata_documents.find_document_client(organization, client_id, ip_address)
    client = None if row_id is None else lookups.find_client_by_id(organization.id, row_id, fresh=fresh)
    if row_id is None or client is not None:
        return client
    # The client was deleted after this process cached it, and may register again.
    metadata_documents.clear_document_cache()
    row_id = metadata_documents.find_document_client(organization, client_id, ip_address)
    return None if row_id is None else lookups.find_client_by_id(organization.id, row_id, fresh=True)


def _organization(organization_id: str | None) -> OrganizationSnapshot:
    if organization_id is None:
        return lookups.get_organization_by_slug(ROOT_SLUG, fresh=False)
    return lookups.get_organization_by_id(organization_id, fresh=False)


def authenticate_by_assertion(
    assertion: str, client_id: str, *, organization_id: str | None, url: str, ip_address: str | None, is_claimed: bool
) -> ClientSnapshot:  # fmt: skip
    """Authenticate a client by its assertion, which can be used once (CA-6).

    ``url`` is the endpoint that was called. ``is_claimed`` means that this very request has already spent the
    assertion and is retried with a fresh client. Raises InvalidClient, alike for every cause, TooManyRequests, or
    KeysUnavailable.
    """
    jwt = read_assertion(assertion)
    try:
        client, valid = _validated(jwt, client_id, organization_id, url, ip_address, fresh=False)
    except InvalidClient:
        check_failure_limit(organization_id, client_id, ip_address)
        try:
            # A key that another worker has just registered may be missing in the cached snapshot.
            client, valid = _validated(jwt, client_id, organization_id, url, ip_address, fresh=True)
        except InvalidClient:
            note_failure(organization_id, client_id, ip_address)
            raise
    if not is_claimed and not _is_first_use(client, valid):
        raise InvalidClient().with_cause("client_assertion_replayed")
    return client


def _validated(
    jwt: ClientJwt,
    client_id: str,
    organization_id: str | None,
    url: str,
    ip_address: str | None,
    *,
    fresh: bool,
) -> tuple[ClientSnapshot, ValidAssertion]:
    client = find_authenticating_client(
        client_id, organization_id=organization_id, ip_address=ip_address, fresh=fresh
    )
    if client is None or not client.is_active:
        is_signed_by(jwt, ())  # Takes the same time as for a known client.
        raise InvalidClient
    method = client.document["token_endpoint_auth_method"]
    if method != PRIVATE_KEY_JWT:
        is_signed_by(jwt, ())
        raise InvalidClient().with_cause("auth_method_mismatch", received=PRIVATE_KEY_JWT, expected=method)
    if not is_signed_by_client(client, jwt):
        raise InvalidClient().with_cause(
            "client_assertion_signature",
            received=f"alg {jwt.algorithm}, kid {jwt.key_id or 'missing'}"[:200],
            expected=_describe_keys(client),
        )
    document, issuer = client.document, client.organization.issuer
    return client, validate_assertion(
        jwt,
        client_id=client.client_id,
        issuer=issuer,
        endpoints=() if is_fapi2(document) else (f"{issuer}/oauth/token", url),
        algorithms=accepted_algorithms(document, document.get("token_endpoint_auth_signing_alg")),
        now=clock.now(),
    )


def _is_first_use(client: ClientSnapshot, valid: ValidAssertion) -> bool:
    # A restored backup does not know which assertions were used after it.
    return not client.organization.is_before_restore(valid.since) and idempotency.claim(
        client.organization.id, "client assertion", client.client_id, valid.jti, expires_at=valid.until
    )


class Presented(Struct, frozen=True):
    """The credentials in a request: the method, ``client_id``, and the secret or assertion.

    ``url`` is the endpoint that received an assertion. ``is_claimed``: this request has already used it up.
    """

    method: str
    client_id: str
    secret: str | None = None
    assertion: str | None = None
    url: str = ""
    is_claimed: bool = False


def authenticate_client(
    presented: Presented, *, organization_id: str | None = None, ip_address: str | None = None
) -> AuthenticatedClient:
    """Return the authenticated client. Raises InvalidClient or TooManyRequests.

    The error is identical for every cause (CA-3), except for the right secret sent by another method.

    Raises KeysUnavailable if the keys at a client's ``jwks_uri`` cannot be fetched. Call it outside of a transaction.

    ``organization_id`` is the organization of the path; clients of others are unknown there (MX-3).
    """
    if presented.assertion is not None:
        signer = authenticate_by_assertion(
            presented.assertion,
            presented.client_id,
            organization_id=organization_id,
            url=presented.url,
            ip_address=ip_address,
            is_claimed=presented.is_claimed,
        )
        return AuthenticatedClient(signer, None)
    authenticated = _authenticate(presented, organization_id, ip_address, fresh=False)
    if authenticated is not None:
        return authenticated
    # Before reading the database, so that a flood of wrong secrets costs little.
    check_failure_limit(organization_id, presented.client_id, ip_address)
    # A secret that another worker has just created may be missing in the cached snapshot.
    try:
        authenticated = _authenticate(presented, organization_id, ip_address, fresh=True)
        if authenticated is None:
            raise InvalidClient
    except InvalidClient:
        note_failure(organization_id, presented.client_id, ip_address)
        raise
    return authenticated


def _authenticate(
    presented: Presented, organization_id: str | None, ip_address: str | None, *, fresh: bool
) -> AuthenticatedClient | None:
    client = find_authenticating_client(
        presented.client_id, organization_id=organization_id, ip_address=ip_address, fresh=fresh
    )
    if presented.method == NONE:
        if client is None or not client.is_public or not client.is_active:
            return None
        return AuthenticatedClient(client, None)
    credential_id = _matching_secret(client, presented.secret or "")
    if client is None or credential_id is None or not client.is_active:
        return None
    document, settings = client.document, client.organization.settings
    if presented.method != ANY_SECRET and not accepts_auth_method(
        presented.method, document=document, settings=settings
    ):
        if not fresh:
            return None
        # The secret is right, so this reveals nothing to a stranger (CA-3).
        registered = str(document["token_endpoint_auth_method"])
        raise InvalidClient(
            f"The client is registered for {registered}, but used {presented.method}. Configure the one or the other."
        ).with_cause("auth_method_mismatch", received=presented.method, expected=registered)
    return AuthenticatedClient(client, credential_id)


def _matching_secret(client: ClientSnapshot | None, secret: str) -> UUID | None:
    parsed = parse_token(secret)
    sent = digest(secret) if parsed is not None and parsed.kind == CLIENT_SECRET else b""
    if client is None or not client.secrets:
        hmac.compare_digest(sent, _UNKNOWN_DIGEST)
        return None
    found = None
    for known in client.secrets:
        if hmac.compare_digest(sent, known.digest) and (
            known.expires_at is None or known.expires_at > clock.now()
        ):
            found = known.id
    return found


class KeysUnavailable(Unavailable):
    """The client's ``jwks_uri`` returned no keys, and none are cached."""

    default_description = lazy_gettext("The keys at the client's jwks_uri could not be read.")
    retry_after = int(RETRY_SECONDS)
    cause = Cause("client_keys_unavailable")


class _Fetched(Struct, frozen=True):
    """Keys fetched from a URL. ``read_at`` (None if never) and ``tried_at`` are values of ``uptime``, in seconds."""

    keys: Sequence[Mapping[str, Any]]
    read_at: float | None
    tried_at: float

    def is_due(self, tick: float, *, newer: bool) -> bool:
        failed = self.read_at != self.tried_at
        return tick - self.tried_at >= (RETRY_SECONDS if newer or failed else CACHE_SECONDS)


_cache: BoundedCache[_Fetched] = BoundedCache(_MAX_CACHED_KEY_SETS)


def is_signed_by_client(client: ClientSnapshot, jwt: ClientJwt) -> bool:
    """Return whether a key of the client made the JWT's signature.

    Call it outside transactions, because it may fetch keys. Raises KeysUnavailable if they cannot be fetched.
    """
    uri = client.document.get("jwks_uri")
    registered = client.document.get("jwks")
    if registered is not None or uri is None:
        return is_signed_by(jwt, registered["keys"] if registered is not None else ())
    key = (client.organization.id, client.id, uri)
    return is_signed_by(jwt, _get_keys(key, newer=False)) or is_signed_by(jwt, _get_keys(key, newer=True))


def _describe_keys(client: ClientSnapshot) -> list[str]:
    """Return the type and kid of each registered key, or where the keys are."""
    registered, uri = client.document.get("jwks"), client.document.get("jwks_uri")
    if registered is None:
        return [] if uri is None else [f"a key of {uri}"]
    return [f"a key of type {key.get('kty')}, kid {key.get('kid', 'missing')}" for key in registered["keys"]]


def _get_keys(key: _Key, *, newer: bool) -> Sequence[Mapping[str, Any]]:
    fetched = _cache.get(*key)
    if fetched is None or fetched.is_due(uptime(), newer=newer):
        fetched = _fetch(key)
    if fetched is None or fetched.read_at is None:
        raise KeysUnavailable
    if uptime() - fetched.read_at > MAX_CACHE_SECONDS:
        raise KeysUnavailable
    return fetched.keys


def _fetch(key: _Key) -> _Fetched | None:
    """Fetch the keys, or return the cached ones. One thread fetches while the others wait a moment."""
    with _change:
        if key in _fetching:
            _change.wait_for(lambda: key not in _fetching, WAIT_SECONDS)
            return _cache.get(*key)
        _fetching.add(key)
    try:
        tick = uptime()
        keys = _read(key[0], key[2])
        before = _cache.get(*key)
        if keys is not None:
            fetched = _Fetched(keys, tick, tick)
        else:
            fetched = _Fetched(before.keys, before.read_at, tick) if before else _Fetched((), None, tick)
        _cache.put(*key, value=fetched)
        return fetched
    finally:
        with _change:
            _fetching.discard(key)
            _change.notify_all()


def _read(organization_id: str, uri: str) -> list[dict[str, Any]] | None:
    try:
        reply = outgoing_http.get(
            uri, organization_id=organization_id, accept="application/jwk-set+json, application/json"
        )
        if reply.status != 200 or "json" not in reply.headers.get("content-type", ""):
            return None
        return usable_keys(load_object(reply.body))
    except (OutgoingRequestBlocked, OutgoingRequestFailed, InvalidJson):
        return None


def find(header: str, organization_id: str | None) -> AuthenticatedClient | None:
    """Return the client that authenticated with exactly this header, if it still would.

    ``organization_id`` is the organization in the path, if there is one (MX-3).
    """
    known = _clients_by_header.get(_digest(header))
    if known is None:
        return None
    client = known.client
    if organization_id not in {None, client.organization.id} or not client.is_active:
        return None
    if lookups.find_client(client.client_id) is not client:
        return None
    for secret in client.secrets:
        if secret.id is known.credential_id:
            return known if secret.expires_at is None or secret.expires_at > clock.now() else None
    return None


def put(header: str, authenticated: AuthenticatedClient) -> None:
    """Remember a client that has just authenticated with this header, by one of its secrets."""
    is_enabled = "authenticated-clients" not in current().disabled_fast_paths
    if authenticated.credential_id is not None and is_enabled:
        cache.put(_clients_by_header, _digest(header), authenticated, max_entries=_MAX_ENTRIES)


def _digest(header: str) -> bytes:
    return hashlib.sha256(header.encode("latin-1", "replace")).digest()
