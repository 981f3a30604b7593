"""Authenticator apps: their secrets are sealed, and each of their codes counts once."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import ColumnElement, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from app.extensions import db
from app.models.second_factor import AuthenticatorApp
from app.operations import clock, keyring
from app.operations.transaction import count_changed, read, transaction
from app.rules import sealing
from app.rules.errors import Conflict
from app.rules.people import one_time_codes


@dataclass(frozen=True, slots=True)
class AppView:
    """The authenticator app of a user, without its secret."""

    created_at: datetime
    last_used_at: datetime | None


@read
def find_app(organization_id: str, user_id: UUID) -> AppView | None:
    """The user's app, or None."""
    row = db.session.execute(
        select(AuthenticatorApp.created_at, AuthenticatorApp.last_used_at).where(
            *_of(organization_id, user_id)
        )
    ).first()
    return None if row is None else AppView(*row)


@transaction
def add_app(organization_id: str, user_id: UUID, secret: bytes, step: int) -> None:
    """The user has the app, whose code of the time step was its proof and counts no more. Raises Conflict."""
    sealed = seal_secret(organization_id, user_id, "app", secret)
    try:
        with db.session.begin_nested():
            db.session.execute(
                insert(AuthenticatorApp).values(
                    organization_id=organization_id,
                    user_id=user_id,
                    sealed_secret=sealed,
                    last_step=step,
                    created_at=clock.now(),
                )
            )
    except IntegrityError:
        raise Conflict("You have an authenticator app already. Remove it first.", code="app_exists") from None


@transaction
def accept_code(organization_id: str, user_id: UUID, typed: str) -> bool:
    """Whether it is a code of the user's app that counts now, and was not used before: never twice (MF-1)."""
    sealed = db.session.scalar(select(AuthenticatorApp.sealed_secret).where(*_of(organization_id, user_id)))
    if sealed is None:
        return False
    now = clock.now()
    step = one_time_codes.matching_step(open_secret(organization_id, user_id, "app", sealed), typed, now)
    if step is None:
        return False
    used = count_changed(
        update(AuthenticatorApp)
        .where(*_of(organization_id, user_id), AuthenticatorApp.last_step < step)
        .values(last_step=step, last_used_at=now)
    )
    return used == 1


@transaction
def remove_app(organization_id: str, user_id: UUID) -> bool:
    """Whether the user had an app until now; its codes are worth nothing any more."""
    return count_changed(delete(AuthenticatorApp).where(*_of(organization_id, user_id))) == 1


def seal_secret(organization_id: str, user_id: UUID, place: str, secret: bytes) -> bytes:
    """Sealed under the organization's key for second factors; it opens for this user, at this place alone (MF-2)."""
    return sealing.seal(_key(organization_id), secret, _bound(organization_id, user_id, place))


def open_secret(organization_id: str, user_id: UUID, place: str, sealed: bytes) -> bytes:
    """What was sealed. Raises sealing.CannotOpen when it is another's, or was changed."""
    return sealing.unseal(_key(organization_id), sealed, _bound(organization_id, user_id, place))


def _key(organization_id: str) -> bytes:
    return keyring.derive_for(organization_id, "second factors")


def _bound(organization_id: str, user_id: UUID, place: str) -> bytes:
    return f"1|{organization_id}|{user_id}|totp {place}".encode()


def _of(organization_id: str, user_id: UUID) -> tuple[ColumnElement[bool], ...]:
    return AuthenticatorApp.organization_id == organization_id, AuthenticatorApp.user_id == user_id
