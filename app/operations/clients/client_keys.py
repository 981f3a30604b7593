"""Public keys of clients: registered ones, and those that stand at a client's ``jwks_uri``.

What was fetched is kept in this process for minutes. A signature that no kept key explains has the keys read again,
so that a client can rotate without telling anybody, but only so often: strangers can send such signatures too. While
the address does not answer, what was read before counts for an hour (F22).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from app.operations.bounded import Kept
from app.operations.directory.lookups import ClientSnapshot
from app.operations.store import outgoing_http
from app.operations.store.outgoing_http import OutgoingRequestFailed
from app.rules.clients.client_assertions import ClientJwt, is_signed_by
from app.rules.clients.public_keys import usable_keys
from app.rules.errors import Unavailable
from app.rules.store.outgoing_http import OutgoingRequestBlocked
from app.rules.strict_json import InvalidJson, load_object

LIFE_SECONDS = 300.0
LONGEST_LIFE_SECONDS = 3600.0
RETRY_SECONDS = 30.0
# Somebody else in this process is fetching the same keys: this long is worth a wait.
WAIT_SECONDS = 1.0
_MOST_KEPT = 1_000

_Key = tuple[str, UUID, str]


class KeysUnavailable(Unavailable):
    """The client's keys stand at an address that gave none, and none are known from before."""

    def __init__(self) -> None:
        super().__init__("The keys at the client's jwks_uri cannot be read.", retry_after=int(RETRY_SECONDS))
        self.with_cause("client_keys_unavailable")


@dataclass(frozen=True, slots=True)
class _Fetched:
    """What an address gave. ``read_at`` is when, None while it never did; both times are monotonic seconds."""

    keys: Sequence[Mapping[str, Any]]
    read_at: float | None
    tried_at: float

    def is_due(self, tick: float, *, newer: bool) -> bool:
        failed = self.read_at != self.tried_at
        return tick - self.tried_at >= (RETRY_SECONDS if newer or failed else LIFE_SECONDS)


_kept: Kept[_Fetched] = Kept(_MOST_KEPT)
_under_way: set[_Key] = set()
_change = threading.Condition()


def has_signed(client: ClientSnapshot, jwt: ClientJwt) -> bool:
    """Whether a key of the client made the JWT's signature. Called outside of a unit of work: it may fetch.

    Raises KeysUnavailable when the keys must be fetched and cannot be.
    """
    uri = client.document.get("jwks_uri")
    registered = client.document.get("jwks")
    if registered is not None or uri is None:
        return is_signed_by(jwt, registered["keys"] if registered is not None else ())
    key = (client.organization.id, client.id, uri)
    return is_signed_by(jwt, _keys_at(key, newer=False)) or is_signed_by(jwt, _keys_at(key, newer=True))


def forget_kept() -> None:
    """Nothing is kept."""
    _kept.clear()


def _keys_at(key: _Key, *, newer: bool) -> Sequence[Mapping[str, Any]]:
    fetched = _kept.get(*key)
    if fetched is None or fetched.is_due(time.monotonic(), newer=newer):
        fetched = _fetch(key)
    if fetched is None or fetched.read_at is None:
        raise KeysUnavailable
    if time.monotonic() - fetched.read_at > LONGEST_LIFE_SECONDS:
        raise KeysUnavailable
    return fetched.keys


def _fetch(key: _Key) -> _Fetched | None:
    """What the address gives now, or what is known of it: one thread asks, the others wait a moment."""
    with _change:
        if key in _under_way:
            _change.wait_for(lambda: key not in _under_way, WAIT_SECONDS)
            return _kept.get(*key)
        _under_way.add(key)
    try:
        tick = time.monotonic()
        keys = _read(key[0], key[2])
        before = _kept.get(*key)
        if keys is not None:
            fetched = _Fetched(keys, tick, tick)
        else:
            fetched = _Fetched(before.keys, before.read_at, tick) if before else _Fetched((), None, tick)
        _kept.put(*key, value=fetched)
        return fetched
    finally:
        with _change:
            _under_way.discard(key)
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
