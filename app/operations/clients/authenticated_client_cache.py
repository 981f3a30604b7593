"""A cache of authenticated clients: the same Authorization header authenticates the same client until it changes.

Only the digest of the header is stored. An entry is valid only while the cached client that it was verified against is
current, so a revoked secret is not accepted from here either.
"""

from __future__ import annotations

import hashlib

from app.config import current
from app.fast_path import cache
from app.operations.directory import lookups
from app.operations.directory.lookups import AuthenticatedClient
from app.operations.store import clock

_MAX_ENTRIES = 5_000
_clients_by_header: dict[bytes, AuthenticatedClient] = {}


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
