"""Initial access tokens (RFC 7591 section 3): made by people here, so that others may register clients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import func, select, update

from app.extensions import db
from app.models.client import RegistrationToken
from app.operations.store import audit, clock
from app.operations.store.pagination import DEFAULT_LIMIT, MAX_LIMIT, CursorKey, Page, paginate
from app.operations.store.transactions import count_changed, current_unit_of_work, read, transaction
from app.rules.actor import Actor
from app.rules.clients.credentials import validate_registration_terms as check_terms
from app.rules.errors import Conflict, NotFound, PreconditionFailed, Unauthenticated
from app.rules.identifiers import encode_uuid, new_id, parse_public_id, public_id
from app.rules.token_values import INITIAL_ACCESS, digest, hint, new_token, parse_token
from app.rules.versions import compute_version

MOST_LIVE = 100
LIVE, EXPIRED, REVOKED, USED_UP = "live", "expired", "revoked", "used_up"


@dataclass(frozen=True, slots=True)
class RegistrationTokenRecord:
    """An initial access token without its value; ``status`` is live, expired, revoked or used_up."""

    id: UUID
    name: str
    hint: str
    status: str
    max_uses: int | None
    uses: int
    created_at: datetime
    created_by: str | None
    expires_at: datetime
    last_used_at: datetime | None
    revoked_at: datetime | None

    @property
    def public_id(self) -> str:
        """``ria_…``."""
        return public_id("ria", self.id)

    @property
    def version(self) -> int:
        """Another number once its state is another; uses that leave it alive are no change."""
        return compute_version(self.id, self.status, self.expires_at)


@dataclass(frozen=True, slots=True)
class NewRegistrationToken:
    """A token just made; ``token`` is its value, here and never again."""

    record: RegistrationTokenRecord
    token: str


@transaction
def create_registration_token(actor: Actor, fields: Mapping[str, Any]) -> NewRegistrationToken:
    """Whoever holds the token may register clients until it ends. Returns it in clear, this once.

    ``fields``: name, expires_at (RFC 3339) or expires_in_days (30), max_uses (None: no bound of its own). Raises
    InvalidInput naming every wrong field, Forbidden, Conflict when a hundred live. Audit:
    ``registration_token.created``.
    """
    actor.require("clients:write")
    now = clock.now()
    terms = check_terms(now, fields)
    living = select(RegistrationToken.id).where(
        RegistrationToken.organization_id == actor.organization_id,
        RegistrationToken.revoked_at.is_(None),
        RegistrationToken.expires_at > now,
    )
    if db.session.scalar(select(func.count()).select_from(living.limit(MOST_LIVE).subquery())) == MOST_LIVE:
        raise Conflict(f"At most {MOST_LIVE} of these may live. Revoke some first.", code="too_many_tokens")
    token = current_unit_of_work().stable_value(
        "initial access", lambda: new_token(INITIAL_ACCESS, actor.organization_id)
    )
    row = RegistrationToken(
        organization_id=actor.organization_id,
        id=current_unit_of_work().stable_value("initial access id", new_id),
        digest=digest(token),
        name=terms.name,
        hint=hint(token),
        max_uses=terms.max_uses,
        uses=0,
        created_at=now,
        created_by=actor.label[:200] or None,
        expires_at=terms.expires_at,
    )
    db.session.add(row)
    record = _record(row, now)
    after = {"name": terms.name, "expires_at": terms.expires_at.isoformat(), "max_uses": terms.max_uses}
    _audit(actor, "registration_token.created", record, after=after)
    return NewRegistrationToken(record, token)


@read
def list_registration_tokens(
    actor: Actor, *, limit: int = DEFAULT_LIMIT, after: CursorKey | None = None
) -> Page[RegistrationTokenRecord]:
    """A page of the organization's tokens, the newest first. Raises Forbidden.

    Those that were revoked are not among them; those that ended by themselves are, for a month.
    """
    actor.require("clients:read")
    statement = select(RegistrationToken).where(
        RegistrationToken.organization_id == actor.organization_id, RegistrationToken.revoked_at.is_(None)
    )
    limit = min(limit, MAX_LIMIT)
    rows = db.session.scalars(paginate(statement, (RegistrationToken.id,), after).limit(limit + 1)).all()
    now = clock.now()
    items = tuple(_record(row, now) for row in rows[:limit])
    return Page(items, (encode_uuid(items[-1].id),) if len(rows) > limit else None)


@read
def get_registration_token(actor: Actor, token_id: str) -> RegistrationTokenRecord:
    """The token, without its value. Raises NotFound, for one that was revoked too, and Forbidden."""
    actor.require("clients:read")
    return _record(_row(actor, token_id), clock.now())


@transaction
def revoke_registration_token(
    actor: Actor, token_id: str, *, expected_version: int | None = None
) -> RegistrationTokenRecord:
    """Nobody registers by the token any more; what was registered by it stays.

    Raises NotFound, for one that was revoked too, Forbidden, PreconditionFailed. Audit:
    ``registration_token.revoked``.
    """
    actor.require("clients:write")
    now = clock.now()
    record = _record(_row(actor, token_id), now)
    if expected_version is not None and record.version != expected_version:
        raise PreconditionFailed("The token was changed since you read it. Read it again.")
    changed = count_changed(
        update(RegistrationToken)
        .where(
            RegistrationToken.organization_id == actor.organization_id,
            RegistrationToken.id == record.id,
            RegistrationToken.revoked_at.is_(None),
        )
        .values(revoked_at=now)
    )
    if changed != 1:
        raise _unknown()
    _audit(actor, "registration_token.revoked", record, before={"name": record.name, "uses": record.uses})
    return replace(record, status=REVOKED, revoked_at=now)


@read
def require_alive(organization_id: str, token: str) -> None:
    """Raise Unauthenticated for a token that registers nothing now; whether it does is decided when it is spent."""
    found = None
    if _is_of(organization_id, token):
        found = db.session.scalar(
            select(RegistrationToken.id).where(
                RegistrationToken.organization_id == organization_id,
                RegistrationToken.digest == digest(token),
                RegistrationToken.revoked_at.is_(None),
                RegistrationToken.expires_at > clock.now(),
            )
        )
    if found is None:
        raise _refused()


def spend(organization_id: str, token: str) -> UUID:
    """One use of the token is counted, in the transaction that registers the client; returns the token's id.

    Raises Unauthenticated, alike for every cause. Of many at once as many pass as it has uses left.
    """
    if _is_of(organization_id, token):
        now = clock.now()
        mine = (
            RegistrationToken.organization_id == organization_id,
            RegistrationToken.digest == digest(token),
        )
        spent = count_changed(
            update(RegistrationToken)
            .where(
                *mine,
                RegistrationToken.revoked_at.is_(None),
                RegistrationToken.expires_at > now,
                RegistrationToken.max_uses.is_(None) | (RegistrationToken.uses < RegistrationToken.max_uses),
            )
            .values(uses=RegistrationToken.uses + 1, last_used_at=now)
        )
        if spent == 1:
            return db.session.scalars(select(RegistrationToken.id).where(*mine)).one()
    raise _refused()


def _is_of(organization_id: str, token: str) -> bool:
    parsed = parse_token(token)
    return parsed is not None and parsed.kind == INITIAL_ACCESS and parsed.organization_id == organization_id


def _refused() -> Unauthenticated:
    return Unauthenticated("Registration needs an initial access token that is alive, as a Bearer token.")


def _row(actor: Actor, token_id: str) -> RegistrationToken:
    row_id = parse_public_id("ria", token_id)
    row = None
    if row_id is not None:
        row = db.session.get(RegistrationToken, (actor.organization_id, row_id), populate_existing=True)
    if row is None or row.revoked_at is not None:
        raise _unknown()
    return row


def _unknown() -> NotFound:
    return NotFound("There is no such registration token.")


def _record(row: RegistrationToken, now: datetime) -> RegistrationTokenRecord:
    status = LIVE
    if row.expires_at <= now:
        status = EXPIRED
    elif row.max_uses is not None and row.uses >= row.max_uses:
        status = USED_UP
    return RegistrationTokenRecord(
        id=row.id,
        name=row.name,
        hint=row.hint,
        status=status,
        max_uses=row.max_uses,
        uses=row.uses,
        created_at=row.created_at,
        created_by=row.created_by,
        expires_at=row.expires_at,
        last_used_at=row.last_used_at,
        revoked_at=row.revoked_at,
    )


def _audit(actor: Actor, action: str, record: RegistrationTokenRecord, **facts: Any) -> None:
    audit.record(actor, action, target_type="registration_token", target_id=record.public_id, **facts)
