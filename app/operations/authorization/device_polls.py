"""Device codes as their devices see them: polls, and the redemption of an allowed code (RFC 8628 section 3.4)."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from msgspec import Struct
from sqlalchemy import bindparam, select, update

from app.extensions import db
from app.fast_path.compiled_query import CompiledQuery
from app.models import user as user_model
from app.models.base import has_key, is_same
from app.models.grant import Consent
from app.models.token import ALLOWED, DENIED, PENDING, DeviceCode
from app.models.user import User
from app.operations.authorization import consents
from app.operations.directory.snapshots import AuthenticatedClient, ClientSnapshot, is_before_cutoff
from app.operations.directory.users import hold_user
from app.operations.grants import grants
from app.operations.store import clock
from app.operations.store.transactions import count_changed, current_unit_of_work
from app.operations.tokens import access_tokens
from app.rules import identifiers
from app.rules.errors import InvalidGrant
from app.rules.organizations.settings import earliest_expiry

SLOW_DOWN_SECONDS = 5
MAX_INTERVAL_SECONDS = 120
"""Beyond this interval a poll that is too early is not recorded any more, so that it costs no write."""
_FIND = CompiledQuery(
    select(
        DeviceCode.id, DeviceCode.client_id, DeviceCode.state, DeviceCode.used_at, DeviceCode.created_at,
        DeviceCode.expires_at, DeviceCode.interval_seconds, DeviceCode.next_poll_at,
    ).where(
        DeviceCode.organization_id == bindparam("organization_id"), DeviceCode.digest == bindparam("digest")
    )
)  # fmt: skip
# Of simultaneous polls, one finds the time that it read; the others came too early.
_NOTE_POLL = CompiledQuery(
    update(DeviceCode)
    .where(
        has_key(DeviceCode, bindparam("organization_id"), bindparam("device_code_id")),
        DeviceCode.next_poll_at == bindparam("seen"),
    )
    .values(interval_seconds=bindparam("interval"), next_poll_at=bindparam("following"))
)


class DevicePoll(Struct, frozen=True):
    """A device code as a poll of its client finds it."""

    id: UUID
    client_id: UUID
    state: str
    used_at: datetime | None
    created_at: datetime
    expires_at: datetime
    interval_seconds: int
    next_poll_at: datetime

    @property
    def is_allowed(self) -> bool | None:
        """Return whether the user allowed or denied the device; None while it is pending."""
        return None if self.state == PENDING else self.state == ALLOWED


def find_device_code(client: ClientSnapshot, device_code: str) -> DevicePoll:
    """Return the client's device code in any state. Raises InvalidGrant."""
    unknown = InvalidGrant("The device code was not issued to this client.").with_cause("device_code_unknown")
    if not identifiers.is_token_of(device_code, identifiers.DEVICE_CODE, client.organization.id):
        raise unknown
    row = _FIND.first(organization_id=client.organization.id, digest=identifiers.digest(device_code))
    if row is None:
        raise unknown
    poll = DevicePoll(*row)
    if poll.client_id != client.id or client.organization.is_before_restore(poll.created_at):
        raise unknown
    return poll


def lifetime_seconds(client: ClientSnapshot, poll: DevicePoll) -> int:
    """Return the lifetime of the code in seconds, under the organization's current settings."""
    return int((_expiry_of(client, poll) - poll.created_at).total_seconds())


def is_expired(client: ClientSnapshot, poll: DevicePoll) -> bool:
    """Return whether the code expired before the user denied it or the client used it."""
    return poll.state != DENIED and poll.used_at is None and _expiry_of(client, poll) <= clock.now()


def record_poll(client: ClientSnapshot, poll: DevicePoll) -> int | None:
    """Record a poll of a pending code; return the new interval in seconds if the device polls too often, else None.

    Each poll that is too early adds five seconds (RFC 8628 section 3.5). Part of the current transaction.
    """
    now = clock.now()
    is_too_early = poll.next_poll_at > now
    interval = poll.interval_seconds + (SLOW_DOWN_SECONDS if is_too_early else 0)
    if interval <= MAX_INTERVAL_SECONDS:
        changed = _NOTE_POLL.write(
            organization_id=client.organization.id,
            device_code_id=poll.id,
            seen=poll.next_poll_at,
            interval=interval,
            following=now + timedelta(seconds=interval),
        )
        is_too_early = is_too_early or changed != 1
    return interval if is_too_early else None


def claim_device_code(
    authenticated: AuthenticatedClient, poll: DevicePoll, resources: tuple[str, ...]
) -> grants.ClaimedGrant:
    """Claim an allowed device code for the current transaction, which must also store the tokens.

    Raises InvalidGrant if the code was used or anything that it depends on was revoked.
    """
    client = authenticated.client
    unit_of_work = current_unit_of_work()
    row = _allowed(client, poll.id)
    if row.used_at is not None:
        if row.attempt != unit_of_work.nonce:
            raise InvalidGrant().with_cause("device_code_unknown", received="a device code that was used")
        # An earlier attempt of this very transaction claimed it, and the response to its COMMIT was lost.
        return grants.ClaimedGrant(_grant_of(client, row, resources), is_stored=True)
    _require_valid(client, row)
    grant = _grant_of(client, row, resources)
    if not grant.scopes:
        raise InvalidGrant().with_cause("grant_ended", received="the client no longer has any of the scopes")
    if consents.is_consent_withdrawn(client, grant, row.consented):
        raise InvalidGrant().with_cause("grant_ended", received="the consent was withdrawn meanwhile")
    hold_user(client.organization.id, row.user_id)
    claimed = count_changed(
        update(DeviceCode)
        .where(
            has_key(DeviceCode, client.organization.id, row.id),
            DeviceCode.state == ALLOWED,
            DeviceCode.used_at.is_(None),
            DeviceCode.expires_at > clock.now(),
        )
        # It expires at once: limits count the codes of a client that have not expired as pending.
        .values(used_at=clock.now(), expires_at=clock.now(), attempt=unit_of_work.nonce)
    )
    if claimed != 1:
        raise InvalidGrant().with_cause("device_code_unknown", received="a device code that was used")
    return grants.ClaimedGrant(grant)


def _grant_of(client: ClientSnapshot, row: Any, resources: tuple[str, ...]) -> grants.NewGrant:
    return grants.NewGrant(
        id=row.grant_id,
        user_id=row.user_id,
        # The device is not the browser that allowed it: its tokens stay valid when that browser signs out.
        session_id=None,
        scopes=access_tokens.remaining_scopes(client, row.scope, row.decided_at),
        auth_time=row.auth_time,
        amr=row.amr,
        allowed_at=row.decided_at,
        acr=row.acr,
        resources=tuple(row.resource.split()),
        requested_resources=resources,
        expires_at=row.grant_ends_at,
    )


def _expiry_of(client: ClientSnapshot, poll: DevicePoll) -> datetime:
    seconds = client.organization.settings["oauth"]["device_code_ttl_seconds"]
    return earliest_expiry(poll.expires_at, poll.created_at, seconds)


def _allowed(client: ClientSnapshot, row_id: UUID) -> Any:
    row = db.session.execute(
        select(
            DeviceCode.__table__,
            User.status.label("user_status"),
            User.password_changed_at,
            User.tokens_not_before.label("user_not_before"),
            Consent.scope.label("consented"),
        )
        .join(User, is_same(User.id, DeviceCode.user_id))
        .outerjoin(
            Consent,
            is_same(Consent.user_id, DeviceCode.user_id) & (Consent.client_id == DeviceCode.client_id),
        )
        .where(has_key(DeviceCode, client.organization.id, row_id), DeviceCode.client_id == client.id)
    ).first()
    if row is None:
        raise InvalidGrant().with_cause("device_code_unknown")
    return row


def _require_valid(client: ClientSnapshot, row: Any) -> None:
    if client.invalidates(row.created_at) or row.user_status != user_model.ACTIVE:
        raise InvalidGrant().with_cause("grant_ended")
    if row.grant_ends_at is not None and row.grant_ends_at <= clock.now():
        raise InvalidGrant().with_cause("grant_ended", received="the consent has expired")
    if client.organization.invalidates_session(row.auth_time) or is_before_cutoff(
        row.decided_at, row.user_not_before
    ):
        raise InvalidGrant().with_cause(
            "grant_ended", received="revoked with its secret, client, user or organization"
        )
    if row.password_changed_at is not None and row.password_changed_at > row.decided_at:
        raise InvalidGrant().with_cause("grant_ended", received="the password was changed meanwhile")
