"""One step of a rotation: a key is next, then active, then retired, then gone (KY-1); or replaced at once (KY-5)."""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from joserfc.jwk import ECKey, OKPKey, RSAKey
from sqlalchemy import and_, delete, insert, or_, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import aliased

from app.extensions import db
from app.models import signing_key as key_model
from app.models.organization import ACTIVE, Organization
from app.models.signing_key import SigningKey
from app.operations import view_changes
from app.operations.directory import lookups
from app.operations.directory.lookups import current_limits
from app.operations.store import audit, clock, keyring, leases
from app.operations.store.transactions import count_changed, read, transaction
from app.rules.actor import Actor
from app.rules.errors import Conflict, DomainError
from app.rules.identifiers import new_id
from app.rules.organizations.instance_limits import Bounds
from app.rules.organizations.settings import effective
from app.rules.sealing import UnsealError
from app.tenant_fence import ACROSS

RSA_BITS = 3072
AnyKey = RSAKey | ECKey | OKPKey

_KINDS: dict[str, type[RSAKey] | type[ECKey] | type[OKPKey]] = {"RSA": RSAKey, "EC": ECKey, "OKP": OKPKey}
_making = tuple(threading.Lock() for _ in range(64))


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key pair that stands nowhere yet."""

    organization_id: str
    algorithm: str
    kid: str
    public_jwk: dict[str, Any]
    sealed_private_key: bytes = field(repr=False)


def stand(actor: Actor, algorithm: str, state: str) -> None:
    """A key of the algorithm is in the state, unless one was: of many workers at once one stores its own.

    Audit: ``signing_key.created``.
    """
    organization_id = actor.organization_id
    # One caller generates and the others of this process wait for its key: an RSA key costs a processor a second.
    with _making[hash((organization_id, algorithm)) % len(_making)]:
        if _is_taken(organization_id, algorithm, state):
            return
        try:
            _store_alone(actor, generate(organization_id, algorithm), state)
        except IntegrityError:
            if not _is_taken(organization_id, algorithm, state):
                raise


def generate(organization_id: str, algorithm: str) -> NewKey:
    """A fresh key pair, its private half sealed under the organization's data key (KY-3)."""
    key, private = _pair(algorithm)
    kid = key.thumbprint()
    public = {**key.as_dict(private=False), "kid": kid, "use": "sig", "alg": algorithm}
    sealed = keyring.seal(organization_id, private, _place(kid))
    return NewKey(organization_id, algorithm, kid, public, sealed)


def store(actor: Actor, key: NewKey, state: str) -> None:
    """The key stands in the state's slot; part of the transaction under way. Audit: ``signing_key.created``."""
    moment = clock.now()
    db.session.execute(
        insert(SigningKey).values(
            organization_id=key.organization_id,
            id=new_id(),
            kid=key.kid,
            algorithm=key.algorithm,
            state=state,
            slot=state,
            public_jwk=key.public_jwk,
            sealed_private_key=key.sealed_private_key,
            created_at=moment,
            activated_at=moment if state == key_model.ACTIVE else None,
        )
    )
    # Its public half is in the key set of every worker from the commit on.
    view_changes.mark(key.organization_id)
    after = {"algorithm": key.algorithm, "state": state}
    audit.record(actor, "signing_key.created", target_type="signing_key", target_id=key.kid, after=after)


def opened(row: SigningKey) -> AnyKey:
    """The private key of a row. Raises sealing.CannotOpen when the row was tampered with."""
    private = keyring.unseal(row.organization_id, row.sealed_private_key, _place(row.kid))
    return _KINDS[row.public_jwk["kty"]].import_key(private)


def find_in_slot(organization_id: str, algorithm: str, slot: str) -> SigningKey | None:
    """The one key of the algorithm that is next, or that is active; part of a unit of work."""
    return db.session.scalar(
        select(SigningKey).where(
            SigningKey.organization_id == organization_id,
            SigningKey.algorithm == algorithm,
            SigningKey.slot == slot,
        )
    )


@transaction
def _store_alone(actor: Actor, key: NewKey, state: str) -> None:
    store(actor, key, state)


@read
def _is_taken(organization_id: str, algorithm: str, state: str) -> bool:
    return find_in_slot(organization_id, algorithm, state) is not None


def _place(kid: str) -> str:
    return f"signing-key|{kid}"


def _pair(algorithm: str) -> tuple[AnyKey, bytes]:
    made: Any
    kind: type[RSAKey] | type[ECKey] | type[OKPKey]
    if algorithm in {"RS256", "PS256"}:
        made, kind = rsa.generate_private_key(public_exponent=65537, key_size=RSA_BITS), RSAKey
    elif algorithm == "ES256":
        made, kind = ec.generate_private_key(ec.SECP256R1()), ECKey
    else:
        made, kind = ed25519.Ed25519PrivateKey.generate(), OKPKey
    private = made.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return kind.import_key(private), private


# A key is published so long before it signs that every verifier has met it.
PUBLISHED_BEFORE = timedelta(days=1)
# The ceiling of an ID token's life, and of a JWT access token's; an hour more for clocks that differ and for a
# worker that signed with the old key in the very second of its retirement.
PUBLISHED_AFTER = timedelta(days=1, hours=1)


class _Overtaken(Exception):
    """Another worker made the same step first."""


def advance(actor: Actor, algorithm: str) -> str:
    """The successor of the active key is published; or, published for a day, it signs. Returns its ``kid``.

    What signed before stays published until nothing that it signed can still be valid. Asked again too early, or by
    many at once, nothing more happens. Audit: ``signing_key.created``, or ``.activated`` and ``.retired``.
    """
    stand(actor, algorithm, key_model.NEXT)
    try:
        return _step(actor, algorithm)
    except _Overtaken:
        return _active_kid(actor.organization_id, algorithm)


def replace_at_once(actor: Actor, algorithm: str) -> str:
    """A fresh key signs, and every other of the algorithm is gone, the next one too: they lay side by side (KY-5).

    What those had signed verifies no more, nowhere, as soon as verifiers ask for the keys again. Returns the new
    ``kid``. Raises Conflict when another replaced them at the same moment. Audit: ``signing_key.removed`` for each,
    ``signing_key.created``.
    """
    fresh = generate(actor.organization_id, algorithm)
    try:
        _replace(actor, fresh)
    except IntegrityError as error:
        raise Conflict("A key was made at the same moment. Look at the keys, and try again.") from error
    return fresh.kid


def note_removals(actor: Actor, ids: Sequence[UUID]) -> None:
    """These retired keys go: ``actor`` is the janitor, whose transaction it is. Audit: ``signing_key.removed``."""
    organization_id = actor.organization_id
    rows = db.session.execute(
        select(SigningKey.kid, SigningKey.algorithm).where(
            SigningKey.organization_id == organization_id, SigningKey.id.in_(ids)
        )
    ).all()
    view_changes.mark(organization_id)
    for kid, algorithm in rows:
        _note(actor, "removed", kid, algorithm)


@transaction
def _step(actor: Actor, algorithm: str) -> str:
    moment = clock.now()
    successor = find_in_slot(actor.organization_id, algorithm, key_model.NEXT)
    if successor is None:
        raise _Overtaken
    kid, row_id = successor.kid, successor.id
    if successor.created_at > moment - PUBLISHED_BEFORE:
        return kid
    retired = find_in_slot(actor.organization_id, algorithm, key_model.ACTIVE)
    if retired is not None:
        _move(
            retired.organization_id,
            retired.id,
            key_model.ACTIVE,
            state=key_model.RETIRED,
            slot=None,
            retired_at=moment,
            remove_at=moment + PUBLISHED_AFTER,
        )
    _move(
        actor.organization_id,
        row_id,
        key_model.NEXT,
        state=key_model.ACTIVE,
        slot=key_model.ACTIVE,
        activated_at=moment,
    )
    lookups.touch_organization(actor.organization_id)
    if retired is not None:
        _note(actor, "retired", retired.kid, algorithm)
    _note(actor, "activated", kid, algorithm)
    return kid


def _move(organization_id: str, row_id: UUID, out_of: str, **values: Any) -> None:
    # Two that make the same step read the same rows; the slot that a row still holds tells who was first.
    changed = count_changed(
        update(SigningKey)
        .where(
            SigningKey.organization_id == organization_id,
            SigningKey.id == row_id,
            SigningKey.slot == out_of,
        )
        .values(**values)
    )
    if changed != 1:
        raise _Overtaken


@transaction
def _active_kid(organization_id: str, algorithm: str) -> str:
    active = find_in_slot(organization_id, algorithm, key_model.ACTIVE)
    if active is None:
        raise Conflict("The keys were replaced at the same moment. Look at them, and try again.")
    return active.kid


@transaction
def _replace(actor: Actor, fresh: NewKey) -> None:
    mine = SigningKey.organization_id == actor.organization_id, SigningKey.algorithm == fresh.algorithm
    standing = db.session.execute(
        select(SigningKey.id, SigningKey.kid).where(*mine, _is_published(clock.now()))
    ).all()
    count_changed(delete(SigningKey).where(*mine))
    store(actor, fresh, key_model.ACTIVE)
    lookups.touch_organization(actor.organization_id)
    for _, kid in standing:
        _note(actor, "removed", kid, fresh.algorithm, emergency=True)


def _is_published(now: datetime) -> Any:
    return or_(SigningKey.remove_at.is_(None), SigningKey.remove_at > now)


def _note(actor: Actor, what: str, kid: str, algorithm: str, **more: Any) -> None:
    after = {"algorithm": algorithm, **more}
    audit.record(actor, f"signing_key.{what}", target_type="signing_key", target_id=kid, after=after)


LEASE = "key-rotation"
EVERY_SECONDS = 3600
_PAGE = 500
_log = logging.getLogger("gatehouse.keys")


@dataclass(frozen=True, slots=True)
class _Key:
    bounds: Bounds
    organization_id: str
    id: UUID
    algorithm: str
    activated_at: datetime
    settings: dict[str, Any]
    next_made_at: datetime | None

    def is_due(self, now: datetime) -> bool:
        """Whether its successor must be published, or was so for long enough to take over."""
        if self.next_made_at is not None:
            return self.next_made_at <= now - PUBLISHED_BEFORE
        seconds: int = effective(self.settings, self.bounds)["oauth"]["signing"]["rotation_seconds"]
        return now >= self.activated_at + timedelta(seconds=seconds) - PUBLISHED_BEFORE


def rotate_due_keys(actor: Actor) -> list[str]:
    """Every key that is due has its next step behind it; returns the ``kid`` of each successor.

    Asked of every worker and done by one, once an hour: by a lease that is kept. A key that could not be rotated is
    logged and keeps nobody else's waiting. Audit: as ``rotation.advance``.
    """
    actor.require("instance:write")
    if not leases.acquire(LEASE, secrets.token_hex(8), EVERY_SECONDS):
        return []
    now = clock.now()
    due = [key for key in _active_keys() if key.is_due(now)]
    return [kid for kid in map(_advance, due) if kid is not None]


def _advance(key: _Key) -> str | None:
    try:
        return advance(Actor.system(key.organization_id, "key rotation"), key.algorithm)
    except (DomainError, UnsealError):
        # An organization that was deleted just now, or a row of another master key.
        _log.warning("a signing key of %s was not rotated", key.organization_id, exc_info=True)
        return None


def _active_keys() -> Iterator[_Key]:
    page: list[_Key] = []
    while True:
        page = _page_after(page[-1] if page else None)
        yield from page
        if len(page) < _PAGE:
            return


@read
def _page_after(last: _Key | None) -> list[_Key]:
    successor = aliased(SigningKey)
    statement = (
        select(
            SigningKey.organization_id,
            SigningKey.id,
            SigningKey.algorithm,
            SigningKey.activated_at,
            Organization.settings,
            successor.created_at,
        )
        .join(Organization, Organization.id == SigningKey.organization_id)
        .outerjoin(
            successor,
            and_(
                successor.organization_id == SigningKey.organization_id,
                successor.algorithm == SigningKey.algorithm,
                successor.slot == key_model.NEXT,
            ),
        )
        .where(SigningKey.slot == key_model.ACTIVE, Organization.status == ACTIVE)
        .order_by(SigningKey.organization_id, SigningKey.id)
        .limit(_PAGE)
        .execution_options(**ACROSS)
    )
    if last is not None:
        same = and_(SigningKey.organization_id == last.organization_id, SigningKey.id > last.id)
        statement = statement.where(or_(SigningKey.organization_id > last.organization_id, same))
    bounds = current_limits()
    return [_Key(bounds, *row) for row in db.session.execute(statement)]
