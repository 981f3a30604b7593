"""Key rotation under load (KY-1): relying parties verify with cached keys, and no verification fails.

The relying party here is stricter than libraries are: it reads the key set when its copy expires, and never because
of an unknown ``kid``. Its copy is valid for half a second instead of the five minutes of ``Cache-Control``, and the day
for which the next key is published beforehand is shortened in proportion, to three seconds.

To run it alone, with a thousand verifications a second for a minute: ``python -m tests.races.test_key_rotation``.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import threading
import time
import urllib.request
from base64 import urlsafe_b64decode
from collections import Counter, deque
from datetime import timedelta
from pathlib import Path

import pytest
from joserfc import jwt
from joserfc.jwk import KeySet

from app.operations.directory.lookups import get_organization_by_id
from app.operations.grants.key_rotation import PUBLISHED_BEFORE_USE, advance_rotation
from app.operations.grants.signing_keys import get_active_key
from tests.factories import Factory, MadeClient
from tests.support.concurrent_requests import Post, send
from tests.support.databases import MariaDBDatabase
from tests.support.mariadb import MariaDB
from tests.support.servers import LiveServer

pytestmark = [pytest.mark.mariadb, pytest.mark.live, pytest.mark.race]
KEPT_SECONDS = 0.5
PUBLISHED_SECONDS = 3.0
FAST = {"oauth": {"signing": {"algorithm": "ES256"}, "access_token": {"format": "jwt"}}}


class RelyingParty:
    """An API that verifies JWT access tokens itself."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._read_at = float("-inf")
        self._keys = KeySet([])

    def verify(self, token: str) -> None:
        """Verify the token. Raises JoseError if no cached key verifies it."""
        if time.monotonic() - self._read_at > KEPT_SECONDS:
            with urllib.request.urlopen(self.address, timeout=10) as answer:
                self._keys = KeySet.import_key_set(json.load(answer))
            self._read_at = time.monotonic()
        jwt.decode(token, self._keys, algorithms=["ES256"])


class Traffic:
    """One client that requests tokens and many relying parties that verify the newest and the oldest of them."""

    def __init__(self, server: LiveServer, client: MadeClient, *, parties: int, pause: float) -> None:
        self.server, self.client, self.parties, self.pause = server, client, parties, pause
        self.tokens: deque[str] = deque()
        self.verified: Counter[str] = Counter()
        self.failures: list[str] = []
        self._done = threading.Event()
        self._threads = [threading.Thread(target=self._fetch)]
        self._threads += [threading.Thread(target=self._check) for _ in range(parties)]

    def __enter__(self) -> Traffic:
        self._fetch_one()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        for thread in self._threads:
            thread.join(30)

    def _fetch(self) -> None:
        while not self._done.is_set():
            self._fetch_one()
            time.sleep(0.02)

    def _fetch_one(self) -> None:
        post = Post("/oauth/token", {"grant_type": "client_credentials"}, self.client.basic)
        self.tokens.append(send(self.server.url, post).json["access_token"])

    def _check(self) -> None:
        party = RelyingParty(f"{self.server.url}/organizations/{self.client.organization.slug}/oauth/jwks")
        while not self._done.is_set():
            # The newest token, signed by any key and worker, or any token issued since the start.
            token = self.tokens[-1] if random.random() < 0.5 else random.choice(tuple(self.tokens))
            try:
                party.verify(token)
            except Exception as error:  # noqa: BLE001 - whatever it is, it must not happen
                self.failures.append(repr(error))
            else:
                self.verified[json.loads(_header(token))["kid"]] += 1
            time.sleep(self.pause)


def _header(token: str) -> bytes:
    return urlsafe_b64decode(token.split(".")[0] + "==")


def rotate_under_load(
    server: LiveServer, make: Factory, *, rounds: int, parties: int, pause: float = 0.0
) -> Traffic:
    """Results of the traffic during this number of rotations; each party pauses after a verification."""
    organization = make.organization(settings=FAST)
    client = make.machine(organization, "clients:read")
    kids = []
    with Traffic(server, client, parties=parties, pause=pause) as traffic:
        for _ in range(rounds):
            time.sleep(KEPT_SECONDS)
            with server.app.app_context():
                system = make.system(organization)
                advance_rotation(system, "ES256")
                time.sleep(PUBLISHED_SECONDS)
                _grow_older(server, organization.id)
                kids.append(advance_rotation(system, "ES256"))
                assert get_active_key(get_organization_by_id(organization.id), "ES256").kid == kids[-1]
        time.sleep(2 * KEPT_SECONDS)
    assert set(kids) <= set(traffic.verified), "every key has signed something that was verified"
    return traffic


def _grow_older(server: LiveServer, organization_id: str) -> None:
    """Wait until the next key has been published for as long as required."""
    microseconds = int((PUBLISHED_BEFORE_USE + timedelta(seconds=1)).total_seconds() * 1_000_000)
    server.database.query(
        "UPDATE signing_keys SET created_at = created_at - INTERVAL %s MICROSECOND "
        "WHERE organization_id = %s AND slot = 'next'",
        microseconds,
        organization_id.encode(),
    )


def test_key_rotation_breaks_no_verification(live_server: LiveServer, live_make: Factory) -> None:
    """KY-1: no verification fails under load, whichever worker signed the token and served the keys."""
    traffic = rotate_under_load(live_server, live_make, rounds=2, parties=6, pause=0.02)
    assert traffic.failures == []
    assert sum(traffic.verified.values()) > 500
    assert len(traffic.verified) == 3


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "instance").mkdir(mode=0o700)
        database = MariaDB(folder / "mariadb").start()
        live = LiveServer(MariaDBDatabase(database, "gatehouse"), folder / "instance", folder / "log")
        try:
            live.start()
            Factory(live.app).root()
            started = time.monotonic()
            met = rotate_under_load(live, Factory(live.app), rounds=14, parties=8)
            count = sum(met.verified.values())
            seconds = time.monotonic() - started
            sys.stdout.write(
                f"{count} verifications, {count / seconds:.0f} a second, {len(met.failures)} failed, "
                f"by {len(met.verified)} keys\n"
            )
        finally:
            live.stop()
            database.stop()
    sys.exit(1 if met.failures else 0)
