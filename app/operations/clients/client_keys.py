"""Public keys of clients: registered ones, and those published at a client's ``jwks_uri``.

Fetched keys are cached in this process for minutes. If no cached key verifies a signature, the keys are
fetched again, so that clients can rotate keys without notice. Since anyone can send such signatures, that
happens only so often. While the URL does not respond, cached keys are used for up to an hour.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from app.fast_path.cache import BoundedCache
from app.operations.directory.lookups import ClientSnapshot
from app.operations.store import outgoing_http
from app.operations.store.outgoing_http import OutgoingRequestFailed
from app.rules.clients.client_assertions import ClientJwt, is_signed_by
from app.rules.clients.public_keys import usable_keys
from app.rules.errors import Unavailable
from app.rules.store.outgoing_http import OutgoingRequestBlocked
from app.rules.strict_json import InvalidJson, load_object

CACHE_SECONDS = 300.0
MAX_CACHE_SECONDS = 3600.0
RETRY_SECONDS = 30.0
# How long to wait for another thread that is fetching the same keys.
WAIT_SECONDS = 1.0
_MAX_CACHED = 1_000

_Key = tuple[str, UUID, str]


class KeysUnavailable(Unavailable):
    """The client's ``jwks_uri`` returned no keys, and none are cached."""

    def __init__(self) -> None:
        super().__init__(
            "The keys at the client's jwks_uri could not be read.", retry_after=int(RETRY_SECONDS)
        )
        self.with_cause("client_keys_unavailable")


@dataclass(frozen=True, slots=True)
class _Fetched:
    """Keys fetched from a URL. ``read_at`` (None if never) and ``tried_at`` are monotonic seconds."""

    keys: Sequence[Mapping[str, Any]]
    read_at: float | None
    tried_at: float

    def is_due(self, tick: float, *, newer: bool) -> bool:
        failed = self.read_at != self.tried_at
        return tick - self.tried_at >= (RETRY_SECONDS if newer or failed else CACHE_SECONDS)


_cache: BoundedCache[_Fetched] = BoundedCache(_MAX_CACHED)
_fetching: set[_Key] = set()
_change = threading.Condition()


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


def clear_client_key_cache() -> None:
    """Drop all cached keys."""
    _cache.clear()


def _get_keys(key: _Key, *, newer: bool) -> Sequence[Mapping[str, Any]]:
    fetched = _cache.get(*key)
    if fetched is None or fetched.is_due(time.monotonic(), newer=newer):
        fetched = _fetch(key)
    if fetched is None or fetched.read_at is None:
        raise KeysUnavailable
    if time.monotonic() - fetched.read_at > MAX_CACHE_SECONDS:
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
        tick = time.monotonic()
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
