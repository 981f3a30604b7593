"""Tokens that expired long ago, so that the janitor deletes rows while faults are injected.

Beside them are tokens that expired a few hours ago: they must be kept for a day, so that a replay is recognized.
"""

from __future__ import annotations

import secrets
from datetime import timedelta

from sqlalchemy import func, insert, select

from app.extensions import db
from app.models.token import AccessToken
from app.operations.maintenance.purge_rules import RETENTION
from app.operations.store import clock
from app.operations.store.transactions import read, transaction
from app.rules.errors import Unavailable
from app.rules.identifiers import new_id, parse_client_id
from tests.factories import Factory
from tests.support import process

# More than a janitor deletes in the time between two faults.
BACKLOG = 40_000
_KEPT = 500
_STEP = 4_000
_LONG_AGO, _LATELY = timedelta(days=20), timedelta(hours=6)
# A janitor looks for expired rows about each minute; the lease of a killed one lasts as long.
_PATIENCE_SECONDS = 300


class ExpiredTokens:
    """Expired tokens of one client, in the database that ``make`` works on."""

    def __init__(self, make: Factory) -> None:
        self._app = make.app
        client = make.machine(make.organization())
        parsed = parse_client_id(client.client_id)
        assert parsed is not None
        self._organization_id, self._client_id = parsed
        self._added = 0
        with self._app.app_context():
            self._add(_KEPT, _LATELY)

    @property
    def deleted(self) -> int:
        """How many were deleted that had to be."""
        return self._added - self._count_due()

    def fill(self) -> None:
        """Add tokens until the janitor has enough to do. Raises TimeoutError if the database does not allow it."""
        process.wait_until(self._is_filled, "tokens that expired", seconds=_PATIENCE_SECONDS, pause=0.5)

    def wait_until_deleting(self) -> None:
        """Wait until a janitor deletes some of them. Raises TimeoutError if none does."""
        due = self._count_due()
        process.wait_until(
            lambda: due == 0 or self._is_below(due),
            "a janitor that deletes expired tokens",
            seconds=_PATIENCE_SECONDS,
            pause=0.5,
        )

    def find_problems(self) -> list[str]:
        """Return what is wrong: no janitor works any more, or one deleted tokens that must be kept."""
        problems = []
        try:
            self.wait_until_deleting()
        except TimeoutError as error:
            problems.append(str(error))
        if (kept := self._count(is_due=False)) != _KEPT:
            problems.append(f"{kept} tokens are left of {_KEPT} that expired less than a day ago")
        return problems

    def _is_filled(self) -> bool:
        try:
            missing = BACKLOG - self._count_due()
            with self._app.app_context():
                for first in range(0, missing, _STEP):
                    count = min(_STEP, missing - first)
                    self._add(count, _LONG_AGO)
                    self._added += count
        except Unavailable:
            return False
        return True

    def _is_below(self, due: int) -> bool:
        try:
            return self._count_due() < due
        except Unavailable:
            return False

    @transaction
    def _add(self, count: int, ago: timedelta) -> None:
        now = clock.now()
        rows = [
            {
                "organization_id": self._organization_id,
                "id": new_id(),
                "digest": secrets.token_bytes(32),
                "client_id": self._client_id,
                "scope": "clients:read",
                "audience": "http://127.0.0.1",
                "issued_at": now - ago - timedelta(hours=1),
                "expires_at": now - ago + timedelta(milliseconds=number),
            }
            for number in range(count)
        ]
        db.session.execute(insert(AccessToken), rows)

    def _count_due(self) -> int:
        return self._count(is_due=True)

    def _count(self, *, is_due: bool) -> int:
        with self._app.app_context():
            return self._read_count(is_due)

    @read
    def _read_count(self, is_due: bool) -> int:
        own = (
            AccessToken.organization_id == self._organization_id,
            AccessToken.client_id == self._client_id,
        )
        yesterday = clock.now() - RETENTION
        is_wanted = AccessToken.expires_at < yesterday if is_due else AccessToken.expires_at >= yesterday
        return db.session.scalars(select(func.count()).select_from(AccessToken).where(*own, is_wanted)).one()
