"""Idempotency: a POST under an Idempotency-Key happens once, and who repeats it gets the first answer (JS-9).

The key's row, the change and the answer are one transaction: there is no moment in which a crash would leave a claimed
key without its change. Of two that come together the second waits for the first one's commit at the unique key.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from app.extensions import db
from app.models.event import IdempotencyKey
from app.operations.store import clock, keyring
from app.operations.store.audit import actor_public_id
from app.operations.store.transactions import is_duplicate_key, transaction
from app.rules.actor import Actor
from app.rules.errors import Conflict

RETENTION = timedelta(hours=24)


@dataclass(frozen=True, slots=True)
class IdempotentResult:
    """What a POST answers; ``is_repeated`` says that it happened before and its secrets are not in it."""

    status: int
    data: Any
    meta: Mapping[str, Any]
    headers: Mapping[str, str]
    is_repeated: bool = False


@transaction
def run_once(
    actor: Actor,
    work: Callable[[], IdempotentResult],
    *,
    key: str,
    route: str,
    body: Mapping[str, Any],
    secret_fields: frozenset[str],
) -> IdempotentResult:
    """The outcome of ``work``, done once for the key, the caller and the route within 24 hours.

    ``secret_fields`` are the fields of the answer that hold secrets: they are not kept. Raises Conflict when the key was
    used with another body. Whatever ``work`` raises leaves no trace of the key.
    """
    who = actor_public_id(actor) or actor.label
    key_digest = hashlib.sha256("\0".join((actor.home_organization_id, who, route, key)).encode()).digest()
    body_digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).digest()
    if not _claim(actor.organization_id, key_digest, body_digest):
        return _repeat(actor.organization_id, key_digest, body_digest)
    outcome = work()
    _keep(actor.organization_id, key_digest, outcome, secret_fields)
    return outcome


def _claim(organization_id: str, key_digest: bytes, body_digest: bytes) -> bool:
    now = clock.now()
    db.session.execute(
        delete(IdempotencyKey)
        .where(
            IdempotencyKey.organization_id == organization_id,
            IdempotencyKey.key_digest == key_digest,
            IdempotencyKey.expires_at <= now,
        )
        .execution_options(synchronize_session=False)
    )
    values = {
        "organization_id": organization_id,
        "key_digest": key_digest,
        "body_digest": body_digest,
        "created_at": now,
        "expires_at": now + RETENTION,
    }
    try:
        with db.session.begin_nested():
            db.session.execute(insert(IdempotencyKey).values(**values))
    except IntegrityError as error:
        if not is_duplicate_key(error):
            raise
        return False
    return True


def _repeat(organization_id: str, key_digest: bytes, body_digest: bytes) -> IdempotentResult:
    row = db.session.execute(
        select(IdempotencyKey.body_digest, IdempotencyKey.response).where(
            IdempotencyKey.organization_id == organization_id, IdempotencyKey.key_digest == key_digest
        )
    ).first()
    if row is None or row.response is None:
        raise Conflict("A request with this Idempotency-Key is under way.", code="idempotency_in_progress")
    if row.body_digest != body_digest:
        raise Conflict("This Idempotency-Key was used with another body.", code="idempotency_key_reused")
    kept = json.loads(keyring.unseal(organization_id, row.response, _place(key_digest)))
    return IdempotentResult(kept["status"], kept["data"], kept["meta"], kept["headers"], is_repeated=True)


def _keep(
    organization_id: str, key_digest: bytes, outcome: IdempotentResult, secret_fields: frozenset[str]
) -> None:
    kept = {
        "status": outcome.status,
        "data": _without(outcome.data, secret_fields),
        "meta": dict(outcome.meta),
        "headers": dict(outcome.headers),
    }
    sealed = keyring.seal(organization_id, json.dumps(kept).encode(), _place(key_digest))
    db.session.execute(
        update(IdempotencyKey)
        .where(IdempotencyKey.organization_id == organization_id, IdempotencyKey.key_digest == key_digest)
        .values(status=outcome.status, response=sealed)
        .execution_options(synchronize_session=False)
    )


def _without(value: Any, secret_fields: frozenset[str]) -> Any:
    if isinstance(value, dict):
        return {
            name: _without(item, secret_fields) for name, item in value.items() if name not in secret_fields
        }
    return [_without(item, secret_fields) for item in value] if isinstance(value, list) else value


def _place(key_digest: bytes) -> str:
    return f"idempotency|{key_digest.hex()}"
