"""Polls: the device asks again and again, and gets tokens once somebody has allowed it (RFC 8628 section 3.4)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import bindparam, select, update

from app.extensions import db
from app.fast_path.compiled_query import CompiledQuery
from app.models import user as user_model
from app.models.token import ALLOWED, DENIED, PENDING, DeviceCode
from app.models.user import User
from app.operations.directory.lookups import AuthenticatedClient, ClientSnapshot
from app.operations.directory.snapshots import is_before_cutoff
from app.operations.grants import grants
from app.operations.store import clock
from app.operations.store.transactions import count_changed, current_unit_of_work, transaction
from app.operations.tokens.access_tokens import TokenAnswer
from app.rules import token_values
from app.rules.actor import Actor
from app.rules.oauth_errors import InvalidGrant, OAuthError
from app.rules.organizations.settings_effects import earliest_expiry
from app.rules.scopes import restrict_scopes

SLOWER_SECONDS = 5
SLOWEST_SECONDS = 120
"""Where slow_down stops to add: whoever polls like mad costs no write a poll."""

_FIND = CompiledQuery(
    select(
        DeviceCode.id, DeviceCode.client_id, DeviceCode.state, DeviceCode.used_at, DeviceCode.created_at,
        DeviceCode.expires_at, DeviceCode.interval_seconds, DeviceCode.next_poll_at,
    ).where(
        DeviceCode.organization_id == bindparam("organization_id"), DeviceCode.digest == bindparam("digest")
    )
)  # fmt: skip
# Of polls at the same moment one finds the time that it has read, and the others were too fast.
_NOTE_POLL = CompiledQuery(
    update(DeviceCode)
    .where(
        DeviceCode.organization_id == bindparam("organization_id"),
        DeviceCode.id == bindparam("device_code_id"),
        DeviceCode.next_poll_at == bindparam("seen"),
    )
    .values(interval_seconds=bindparam("interval"), next_poll_at=bindparam("following"))
)


@dataclass(frozen=True, slots=True)
class _Poll:
    id: UUID
    client_id: UUID
    state: str
    used_at: datetime | None
    created_at: datetime
    expires_at: datetime
    interval_seconds: int
    next_poll_at: datetime


def redeem_device_code(
    authenticated: AuthenticatedClient,
    device_code: str,
    resources: tuple[str, ...] = (),
    *,
    address: str | None,
    request_id: str | None,
) -> TokenAnswer:
    """Tokens for the device, once somebody has allowed it; the code is spent in the same commit.

    Raises OAuthError with the codes of RFC 8628 section 3.5 (``authorization_pending``, ``slow_down``,
    ``access_denied``, ``expired_token``), InvalidGrant when the code is not this client's, was used, or what it
    rests on has ended. Audit: ``grant.created``.
    """
    client = authenticated.client
    poll = _find(client, device_code)
    if poll.state == DENIED:
        raise OAuthError("The user refused.", code="access_denied").with_cause("device_refused")
    seconds = client.organization.settings["oauth"]["device_code_ttl_seconds"]
    ends = earliest_expiry(poll.expires_at, poll.created_at, seconds)
    if poll.used_at is None and ends <= clock.now():
        raise OAuthError("The device code has ended.", code="expired_token").with_cause(
            "device_code_expired", expected=f"{int((ends - poll.created_at).total_seconds())} s"
        )
    if poll.state == PENDING:
        raise _not_yet(client, poll)
    grants.ensure_signing_keys(client)
    actor = grants.client_actor(client, address, request_id)
    return _redeem(actor, authenticated, poll.id, resources)


@transaction
def _redeem(
    actor: Actor, authenticated: AuthenticatedClient, row_id: UUID, asked: tuple[str, ...]
) -> TokenAnswer:
    client = authenticated.client
    unit = current_unit_of_work()
    row = _allowed(client, row_id)
    if row.used_at is not None:
        answer: TokenAnswer | None = unit.values.get("answer") if row.attempt == unit.nonce else None
        if answer is None:
            raise InvalidGrant().with_cause("device_code_unknown", received="a device code that was used")
        return answer
    _require_standing(client, row)
    # Taken from the client since: it is not handed out any more.
    scopes = restrict_scopes(row.scope.split(), client.document["scopes"])
    if not scopes:
        raise InvalidGrant().with_cause("grant_ended", received="none of the scopes is the client's any more")
    claimed = count_changed(
        update(DeviceCode)
        .where(
            DeviceCode.organization_id == client.organization.id,
            DeviceCode.id == row.id,
            DeviceCode.state == ALLOWED,
            DeviceCode.used_at.is_(None),
            DeviceCode.expires_at > clock.now(),
        )
        .values(used_at=clock.now(), attempt=unit.nonce)
    )
    if claimed != 1:
        raise InvalidGrant().with_cause("device_code_unknown", received="a device code that was used")
    issued = unit.values["answer"] = grants.create_grant(
        actor,
        authenticated,
        grants.NewGrant(
            id=row.grant_id,
            user_id=row.user_id,
            # The device is another machine than the browser that allowed it: its tokens outlive that sign-in.
            session_id=None,
            scopes=scopes,
            auth_time=row.auth_time,
            amr=row.amr,
            allowed_at=row.decided_at,
            acr=row.acr,
            resources=tuple(row.resource.split()),
            requested_resources=asked,
            expires_at=row.grant_ends_at,
        ),
    )
    return issued


def _find(client: ClientSnapshot, device_code: str) -> _Poll:
    parsed = token_values.parse_token(device_code)
    unknown = InvalidGrant("The device code is not one of this client.").with_cause("device_code_unknown")
    if (
        parsed is None
        or parsed.kind != token_values.DEVICE_CODE
        or parsed.organization_id != client.organization.id
    ):
        raise unknown
    row = _FIND.first(organization_id=client.organization.id, digest=token_values.digest(device_code))
    if row is None:
        raise unknown
    poll = _Poll(*row)
    if poll.client_id != client.id:
        raise unknown
    return poll


def _not_yet(client: ClientSnapshot, poll: _Poll) -> OAuthError:
    """Nobody has decided: when to ask again, and for one who asked too early five seconds more from now on."""
    now = clock.now()
    too_fast = poll.next_poll_at > now
    interval = poll.interval_seconds + (SLOWER_SECONDS if too_fast else 0)
    if interval <= SLOWEST_SECONDS:
        noted = _NOTE_POLL.insert(
            organization_id=client.organization.id,
            device_code_id=poll.id,
            seen=poll.next_poll_at,
            interval=interval,
            following=now + timedelta(seconds=interval),
        )
        too_fast = too_fast or noted != 1
    if not too_fast:
        return OAuthError("Nobody has entered the code yet.", code="authorization_pending")
    return OAuthError("The device asks too often.", code="slow_down").with_cause(
        "device_too_fast", expected=f"{interval} s between two requests"
    )


def _allowed(client: ClientSnapshot, row_id: UUID) -> Any:
    row = db.session.execute(
        select(
            DeviceCode.__table__,
            User.status.label("user_status"),
            User.password_changed_at,
            User.tokens_not_before.label("user_not_before"),
        )
        .join(User, (User.organization_id == DeviceCode.organization_id) & (User.id == DeviceCode.user_id))
        .where(
            DeviceCode.organization_id == client.organization.id,
            DeviceCode.id == row_id,
            DeviceCode.client_id == client.id,
        )
    ).first()
    if row is None:
        raise InvalidGrant().with_cause("device_code_unknown")
    return row


def _require_standing(client: ClientSnapshot, row: Any) -> None:
    if client.invalidates(row.created_at) or row.user_status != user_model.ACTIVE:
        raise InvalidGrant().with_cause("grant_ended")
    if client.organization.invalidates_session(row.auth_time) or is_before_cutoff(
        row.decided_at, row.user_not_before
    ):
        raise InvalidGrant().with_cause("grant_ended", received="revoked with all that was issued before")
    if row.password_changed_at is not None and row.password_changed_at > row.decided_at:
        raise InvalidGrant().with_cause("grant_ended", received="the password was changed meanwhile")
