"""Sample traffic of many clients over weeks, written to the counters as if it had happened."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from app.operations.store.usage_counters import (
    ACTIVE_USER,
    FAILED,
    REQUESTS,
    SIGN_INS,
    TOKENS,
    Fact,
    add_past,
)
from app.rules.identifiers import new_id

_GRANTS = ("authorization_code", "refresh_token", "client_credentials")
_CAUSES = ("redirect_uri_not_registered", "code_expired", "secret_unknown", "verifier_mismatch")


def fill_counters(
    organization_id: str, clients: Sequence[UUID], now: datetime, *, days: int, users: int = 100
) -> None:
    """Fill the counters of the last days: each client has tokens in most hours and fails in some."""
    choose = random.Random(len(clients))
    people, secrets = [new_id() for _ in range(users)], {client: new_id() for client in clients}
    for day in range(days):
        add_past(_day(organization_id, clients, now - timedelta(days=day), choose, people, secrets))


def _day(
    organization_id: str,
    clients: Sequence[UUID],
    now: datetime,
    choose: random.Random,
    people: Sequence[UUID],
    secrets: dict[UUID, UUID],
) -> Iterator[tuple[datetime, Fact, int]]:
    for hour in range(24):
        at = now - timedelta(hours=hour)
        busy = 1 + math.cos((at.hour - 14) / 24 * math.tau)
        for client in clients:
            for grant in _GRANTS:
                if count := int(choose.expovariate(1 / 20) * busy):
                    issued = ((REQUESTS, "token:succeeded"), (TOKENS, grant))
                    yield at, (organization_id, issued, client, secrets[client]), count
            if choose.random() < 0.2:
                cause = choose.choice(_CAUSES)
                failed = ((REQUESTS, "token:failed"), (FAILED, cause))
                yield at, (organization_id, failed, client, secrets[client]), 1
        for person in choose.sample(people, k=len(people) // 20):
            yield at, (organization_id, ((SIGN_INS, "pwd"),), None, None), 1
            yield at, (organization_id, ACTIVE_USER, None, person), 1
