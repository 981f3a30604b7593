"""Device codes: given to a device that waits until somebody has entered its user code (RFC 8628 section 3.2)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import func, insert, select
from sqlalchemy.exc import IntegrityError

from app.extensions import db
from app.models.device import PENDING, DeviceCode
from app.operations import clock, keyring
from app.operations.database_errors import is_duplicate_key
from app.operations.directory import ClientView
from app.operations.tokens import audiences
from app.operations.transaction import current_unit, transaction
from app.rules.actor import Actor
from app.rules.authorization import user_codes
from app.rules.errors import TooManyRequests
from app.rules.identifiers import new_id
from app.rules.oauth_errors import InvalidScope
from app.rules.people.networks import network_of
from app.rules.tokens import tokens

MOST_OPEN = 2_000
MOST_OPEN_PER_NETWORK = 100
"""Codes of one client that wait at a time: a device that asks again and again must not fill the table."""
_MOST_DRAWS = 5


@dataclass(frozen=True, slots=True)
class IssuedDeviceCode:
    """What the device is told (RFC 8628 section 3.2); times in seconds, both codes in clear here alone."""

    device_code: str
    user_code: str
    expires_in: int
    interval: int


def user_code_digest(organization_id: str, user_code: str) -> bytes:
    """What is stored of a user code: keyed, since all of them could be tried out."""
    return tokens.keyed_digest(keyring.derive("device user codes"), f"{organization_id}|{user_code}")


def issue_device_code(
    actor: Actor, client: ClientView, scopes: tuple[str, ...], *, resources: tuple[str, ...] = ()
) -> IssuedDeviceCode:
    """A device code and the user code that belongs to it, both open; ``actor`` is the client.

    ``resources`` are those asked for (RFC 8707); of the scopes those count that belong to them. Raises InvalidTarget,
    InvalidScope when none does, TooManyRequests when too many of the client's codes are open.
    """
    target = audiences.target_of(client, scopes, resources)
    if not target.scopes:
        raise InvalidScope("None of the scopes belongs to a resource that is offered.")
    return _issue(actor, client, target.scopes, resources)


@transaction
def _issue(
    actor: Actor, client: ClientView, scopes: tuple[str, ...], resources: tuple[str, ...]
) -> IssuedDeviceCode:
    _require_room(actor, client)
    unit = current_unit()
    settings = client.organization.settings["oauth"]
    lifetime, interval = settings["device_code_ttl_seconds"], settings["device_poll_interval_seconds"]
    device_code = unit.once(
        "device code", lambda: tokens.new_token(tokens.DEVICE_CODE, client.organization.id)
    )
    now = clock.now()
    values = {
        "organization_id": client.organization.id,
        "digest": tokens.digest(device_code),
        "client_id": client.id,
        "scope": " ".join(scopes),
        "resource": " ".join(resources),
        "address": actor.address,
        "network": network_of(actor.address),
        "created_at": now,
        "expires_at": now + timedelta(seconds=lifetime),
        "interval_seconds": interval,
        "next_poll_at": now,
        "state": PENDING,
        "grant_id": new_id(),
    }
    return IssuedDeviceCode(device_code, _insert(values), lifetime, interval)


def _require_room(actor: Actor, client: ClientView) -> None:
    living = (
        DeviceCode.organization_id == actor.organization_id,
        DeviceCode.client_id == client.id,
        DeviceCode.expires_at > clock.now(),
    )
    # Counted up to the bound alone, and within the index.
    near = DeviceCode.network == network_of(actor.address)
    for bound, conditions in ((MOST_OPEN_PER_NETWORK, (*living, near)), (MOST_OPEN, living)):
        some = select(DeviceCode.id).where(*conditions).limit(bound).subquery()
        if db.session.scalar(select(func.count()).select_from(some)) == bound:
            raise TooManyRequests(
                "Too many device codes of this client are open. Try again later.",
                retry_after=client.organization.settings["oauth"]["device_poll_interval_seconds"],
            ).because("device_too_many", expected=f"at most {bound} at a time")


def _insert(values: dict[str, Any]) -> str:
    for _ in range(_MOST_DRAWS):
        user_code = user_codes.new_user_code()
        drawn = {"id": new_id(), "user_code_digest": user_code_digest(values["organization_id"], user_code)}
        try:
            with db.session.begin_nested():
                db.session.execute(insert(DeviceCode).values(**values, **drawn))
        except IntegrityError as error:
            if not is_duplicate_key(error):
                raise
            continue
        return user_code
    raise TooManyRequests("No code is free at the moment. Try again.", retry_after=1)
