"""Initial access tokens (RFC 7591 section 3), which let others register clients."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import ColumnElement, select, update

from app.extensions import db
from app.models.base import has_key
from app.models.client import RegistrationToken
from app.operations.directory.lookups import created_after_restore
from app.operations.store import audit, clock
from app.operations.store.rows import Page, PageRequest, count_rows, get_row, make_record, read_page
from app.operations.store.transactions import count_changed, current_unit_of_work, read, transaction
from app.rules.actor import Actor
from app.rules.clients.credentials import validate_registration_terms
from app.rules.errors import Conflict, NotFound, Unauthenticated
from app.rules.identifiers import (
    INITIAL_ACCESS,
    HasPublicId,
    digest,
    hint,
    is_token_of,
    new_id,
    new_token,
    parse_public_id,
)
from app.rules.languages.translation import lazy_gettext
from app.rules.versions import ExpectedVersion, compute_version, require_version

MAX_ACTIVE_TOKENS = 100
LIVE, EXPIRED, REVOKED, USED_UP = "live", "expired", "revoked", "used_up"
_HAS_USES_LEFT = RegistrationToken.max_uses.is_(None) | (RegistrationToken.uses < RegistrationToken.max_uses)


class RegistrationTokenRecord(HasPublicId, Struct, frozen=True):
    """An initial access token without its value. ``status`` is live, expired, revoked or used_up."""

    id_prefix = "ria"
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
    def version(self) -> int:
        """A number that changes with the status or expiry. Uses of a usable token do not change it."""
        return compute_version(self.id, self.status, self.expires_at)


class NewRegistrationToken(Struct, frozen=True):
    """A new token. ``token`` is its value, returned only once."""

    record: RegistrationTokenRecord
    token: str


@transaction
def create_registration_token(actor: Actor, fields: Mapping[str, Any]) -> NewRegistrationToken:
    """Create a token that allows its holder to register clients. Returns it in clear, this once.

    ``fields``: name, expires_at (RFC 3339) or expires_in_days (30), max_uses (None for no limit). Raises
    InvalidInput naming every wrong field, Forbidden, Conflict if there are a hundred active tokens. Audit:
    ``registration_token.created``.
    """
    actor.require("clients:write")
    now = clock.now()
    terms = validate_registration_terms(now, fields)
    active = select(RegistrationToken.id).where(
        *_not_revoked(actor.organization_id), RegistrationToken.expires_at > now, _HAS_USES_LEFT
    )
    if count_rows(active, MAX_ACTIVE_TOKENS) == MAX_ACTIVE_TOKENS:
        raise Conflict(
            lazy_gettext(
                "At most %(max)s active tokens are allowed. Revoke some first.", max=MAX_ACTIVE_TOKENS
            ),
            code="too_many_tokens",
        )
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
        created_by=actor.author,
        expires_at=terms.expires_at,
    )
    db.session.add(row)
    record = _record(row, now)
    after = {"name": terms.name, "expires_at": terms.expires_at.isoformat(), "max_uses": terms.max_uses}
    _record_event(actor, "registration_token.created", record, after=after)
    return NewRegistrationToken(record, token)


@read
def list_registration_tokens(
    actor: Actor, page_request: PageRequest = PageRequest()
) -> Page[RegistrationTokenRecord]:
    """List the organization's tokens, newest first. Raises Forbidden.

    Revoked tokens are not listed, nor those from before a restore. Expired and used up tokens are listed for a month.
    """
    actor.require("clients:read")
    statement = select(RegistrationToken).where(*_not_revoked(actor.organization_id))
    now = clock.now()
    return read_page(statement, (RegistrationToken.id,), page_request).map(lambda row: _record(row, now))


@read
def get_registration_token(actor: Actor, token_id: str) -> RegistrationTokenRecord:
    """Return the token without its value. Raises NotFound, also for a revoked token, and Forbidden."""
    actor.require("clients:read")
    return _record(_get_row(actor, token_id), clock.now())


@transaction
def revoke_registration_token(
    actor: Actor, token_id: str, *, expected_version: ExpectedVersion = None
) -> RegistrationTokenRecord:
    """Revoke the token. Clients registered with it remain.

    Raises NotFound, also for a revoked token, Forbidden, PreconditionFailed. Audit:
    ``registration_token.revoked``.
    """
    actor.require("clients:write")
    now = clock.now()
    record = _record(_get_row(actor, token_id), now)
    require_version(record.version, expected_version)
    changed = count_changed(
        update(RegistrationToken)
        .where(
            has_key(RegistrationToken, actor.organization_id, record.id),
            RegistrationToken.revoked_at.is_(None),
        )
        .values(revoked_at=now)
    )
    if changed != 1:
        raise NotFound("There is no such registration token.")
    _record_event(
        actor, "registration_token.revoked", record, before={"name": record.name, "uses": record.uses}
    )
    return replace(record, status=REVOKED, revoked_at=now)


@read
def require_usable_token(organization_id: str, token: str) -> None:
    """Raise Unauthenticated if the token cannot register a client now.

    ``spend_token`` decides finally.
    """
    found = None
    if is_token_of(token, INITIAL_ACCESS, organization_id):
        found = db.session.scalar(
            select(RegistrationToken.id).where(
                *_not_revoked(organization_id),
                RegistrationToken.digest == digest(token),
                RegistrationToken.expires_at > clock.now(),
            )
        )
    if found is None:
        raise _rejected_error()


def spend_token(organization_id: str, token: str) -> UUID:
    """Use the token once, in the transaction that registers the client. Return the token's id.

    Raises Unauthenticated without a distinction of causes. Concurrent calls cannot exceed the allowed uses.
    """
    if is_token_of(token, INITIAL_ACCESS, organization_id):
        now = clock.now()
        same_token = (
            RegistrationToken.organization_id == organization_id,
            RegistrationToken.digest == digest(token),
        )
        changed = count_changed(
            update(RegistrationToken)
            .where(
                *same_token,
                *_not_revoked(organization_id),
                RegistrationToken.expires_at > now,
                _HAS_USES_LEFT,
            )
            .values(uses=RegistrationToken.uses + 1, last_used_at=now)
        )
        if changed == 1:
            return db.session.scalars(select(RegistrationToken.id).where(*same_token)).one()
    raise _rejected_error()


def _not_revoked(organization_id: str) -> tuple[ColumnElement[bool], ...]:
    return (
        RegistrationToken.organization_id == organization_id,
        RegistrationToken.revoked_at.is_(None),
        created_after_restore(RegistrationToken.created_at, organization_id),
    )


def _rejected_error() -> Unauthenticated:
    return Unauthenticated("Registration needs a valid initial access token, sent as a Bearer token.")


def _get_row(actor: Actor, token_id: str) -> RegistrationToken:
    key = has_key(RegistrationToken, actor.organization_id, parse_public_id("ria", token_id))
    statement = select(RegistrationToken).where(key, *_not_revoked(actor.organization_id))
    row: RegistrationToken = get_row(statement, "There is no such registration token.")
    return row


def _record(row: RegistrationToken, now: datetime) -> RegistrationTokenRecord:
    status = LIVE
    if row.expires_at <= now:
        status = EXPIRED
    elif row.max_uses is not None and row.uses >= row.max_uses:
        status = USED_UP
    return make_record(RegistrationTokenRecord, row, status=status)


def _record_event(actor: Actor, action: str, record: RegistrationTokenRecord, **values: Any) -> None:
    audit.record(actor, action, "registration_token", record.public_id, **values)
