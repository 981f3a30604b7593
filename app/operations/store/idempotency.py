"""Idempotency keys: a POST with an Idempotency-Key is executed once, and a retry gets the first response (JS-9).

The key, the change and the response are stored in one transaction, so that a crash cannot leave a key without its
change. Of two concurrent requests, the second waits at the unique key until the first one commits.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct, field
from sqlalchemy import ColumnElement, bindparam, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from app.database_errors import is_duplicate_key
from app.extensions import db
from app.fast_path.compiled_query import CompiledQuery, insert_into
from app.models.audit import IdempotencyKey, UsedIdentifier
from app.operations.store import clock, keyring
from app.operations.store.audit import actor_public_id
from app.operations.store.transactions import count_changed, transaction
from app.rules.actor import Actor
from app.rules.errors import Conflict, Forbidden
from app.rules.identifiers import new_id

RETENTION = timedelta(hours=24)
_CLAIM = CompiledQuery(insert_into(UsedIdentifier))
_FIND_ATTEMPT = CompiledQuery(
    select(UsedIdentifier.attempt).where(
        UsedIdentifier.organization_id == bindparam("organization_id"),
        UsedIdentifier.digest == bindparam("digest"),
    )
)


class IdempotentResult(Struct, frozen=True):
    """Response of a POST. ``is_repeated`` says that it was executed before and its secrets are left out."""

    data: Any
    status: int = 200
    meta: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
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
    """Execute ``work`` once for this key, caller and route within 24 hours, and return its result.

    ``secret_fields`` are the names of response fields that hold secrets, which are not stored. Raises Conflict if the
    key was used with another body, and Forbidden if the caller had permissions that it lacks now. If ``work`` raises,
    the key is not stored.
    """
    caller = actor_public_id(actor) or actor.label
    key_digest = hashlib.sha256("\0".join((actor.home_organization_id, caller, route, key)).encode()).digest()
    body_digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).digest()
    if not _claim(actor.organization_id, key_digest, body_digest):
        return _repeat(actor, key_digest, body_digest)
    result = work()
    _store(actor, key_digest, result, secret_fields)
    return result


def _is_key(organization_id: str, key_digest: bytes) -> ColumnElement[bool]:
    return (IdempotencyKey.organization_id == organization_id) & (IdempotencyKey.key_digest == key_digest)


def _claim(organization_id: str, key_digest: bytes, body_digest: bytes) -> bool:
    now = clock.now()
    count_changed(
        delete(IdempotencyKey).where(_is_key(organization_id, key_digest), IdempotencyKey.expires_at <= now)
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


def _repeat(actor: Actor, key_digest: bytes, body_digest: bytes) -> IdempotentResult:
    organization_id = actor.organization_id
    row = db.session.execute(
        select(IdempotencyKey.body_digest, IdempotencyKey.response).where(
            _is_key(organization_id, key_digest)
        )
    ).first()
    if row is None or row.response is None:
        raise Conflict(
            "A request with this Idempotency-Key is still in progress. Try again in a moment.",
            code="idempotency_in_progress",
        )
    if row.body_digest != body_digest:
        raise Conflict(
            "This Idempotency-Key was already used with a different body. Use a new key.",
            code="idempotency_key_reused",
        )
    stored = json.loads(keyring.unseal(organization_id, row.response, _sealing_context(key_digest)))
    if not actor.permissions.issuperset(stored.get("permissions", ())):
        # The same user or client, with a narrower token or after a role was removed.
        raise Forbidden("You had more permissions when this Idempotency-Key was first used. Use a new key.")
    return IdempotentResult(
        stored["data"], stored["status"], stored["meta"], stored["headers"], is_repeated=True
    )


def _store(actor: Actor, key_digest: bytes, result: IdempotentResult, secret_fields: frozenset[str]) -> None:
    organization_id = actor.organization_id
    stored = {
        "permissions": sorted(actor.permissions),
        "status": result.status,
        "data": _without(result.data, secret_fields),
        "meta": dict(result.meta),
        "headers": dict(result.headers),
    }
    sealed = keyring.seal(organization_id, json.dumps(stored).encode(), _sealing_context(key_digest))
    count_changed(
        update(IdempotencyKey)
        .where(_is_key(organization_id, key_digest))
        .values(status=result.status, response=sealed)
    )


def _without(value: Any, secret_fields: frozenset[str]) -> Any:
    if isinstance(value, dict):
        return {
            name: _without(item, secret_fields) for name, item in value.items() if name not in secret_fields
        }
    return [_without(item, secret_fields) for item in value] if isinstance(value, list) else value


def _sealing_context(key_digest: bytes) -> str:
    return f"idempotency|{key_digest.hex()}"


def claim(organization_id: str, purpose: str, owner: str, value: str, *, expires_at: datetime) -> bool:
    """Return whether this is the first use of the value. Committed immediately, even if the request is then rejected.

    ``purpose`` and ``owner`` (a ``client_id`` or a key's thumbprint) separate values that two callers may choose alike.
    ``expires_at`` is when the value would be rejected because of its age. Call this outside a transaction.
    """
    attempt = new_id()
    digest = hashlib.sha256("\0".join((purpose, owner, value)).encode()).digest()
    written = _CLAIM.insert_if_new(
        organization_id=organization_id, digest=digest, attempt=attempt, expires_at=expires_at
    )
    if written:
        return True
    # The reply to an earlier attempt of this call may have been lost.
    row = _FIND_ATTEMPT.first(organization_id=organization_id, digest=digest)
    return row is not None and row[0] == attempt
