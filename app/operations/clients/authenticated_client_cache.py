"""Clients that proved themselves a moment ago: the same words prove the same client while nothing has changed.

What is kept is the digest of the words, never they themselves. It counts only while the view of the client that they
were judged by is the one that counts now, so a secret that was revoked is forgotten with it.
"""

from __future__ import annotations

import hashlib

from app.config import current
from app.fast_path.cache import put
from app.operations.directory import lookups
from app.operations.directory.lookups import AuthenticatedClient
from app.operations.store import clock

_MAX_ENTRIES = 5_000
_proven: dict[bytes, AuthenticatedClient] = {}


def recall(shown: str, organization_id: str | None) -> AuthenticatedClient | None:
    """The client that proved itself by exactly these words, if they would still prove it.

    ``organization_id`` is the organization of the path where there is one (MX-3).
    """
    known = _proven.get(_digest(shown))
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


def remember(shown: str, proven: AuthenticatedClient) -> None:
    """The words proved the client just now, by one of its secrets."""
    is_enabled = "authenticated-clients" not in current().disabled_fast_paths
    if proven.credential_id is not None and is_enabled:
        put(_proven, _digest(shown), proven, max_entries=_MAX_ENTRIES)


def _digest(shown: str) -> bytes:
    return hashlib.sha256(shown.encode("latin-1", "replace")).digest()
