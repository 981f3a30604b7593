"""An independent authenticator app: another implementation of RFC 6238 computes its codes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

import pyotp
from flask import Flask, has_app_context
from msgspec.structs import replace
from sqlalchemy import update

from app.extensions import db
from app.models.second_factor import AuthenticatorApp
from app.operations.sign_in import factor_enrollment
from app.operations.store import clock
from app.operations.store.transactions import transaction
from app.rules.actor import Actor
from tests.factories import MadeUser


@dataclass
class Authenticator:
    """A user's authenticator app and the recovery codes that came with it."""

    app: Flask
    user: MadeUser
    secret: str
    codes: tuple[str, ...] = field(default=())

    def shown(self) -> str:
        """Return the current code."""
        return str(self._in_context(lambda: pyotp.TOTP(self.secret).at(clock.now())))

    def code(self) -> str:
        """Return the current code and forget that it was used, as if half a minute had passed."""
        self._in_context(lambda: _rewind(self.user))
        return self.shown()

    def _in_context(self, act: Callable[[], Any]) -> Any:
        if has_app_context():
            return act()
        with self.app.app_context():
            return act()


def signed_in_actor(user: MadeUser, *, amr: tuple[str, ...] = ("pwd",), ago_seconds: int = 1) -> Actor:
    """Return the user as just signed in by these methods; needs an application context."""
    return Actor(
        "user",
        user.organization.id,
        user.organization.id,
        user_id=user.id,
        label=user.email,
        ip_address="192.0.2.7",
        authenticated_at=clock.now() - timedelta(seconds=ago_seconds),
        amr=amr,
    )


def secret_in(address: str) -> str:
    """Return the secret of an ``otpauth`` URL."""
    return parse_qs(urlsplit(address).query)["secret"][0]


def with_app(app: Flask, user: MadeUser, *, session_id: UUID | None = None) -> Authenticator:
    """Set up an authenticator app for the user, within the session of ``session_id`` if one must survive."""

    def act() -> Authenticator:
        who = replace(signed_in_actor(user), session_id=session_id)
        new = factor_enrollment.begin_authenticator_app(who)
        made = Authenticator(app, user, secret_in(new.otpauth_uri))
        made.codes = factor_enrollment.add_authenticator_app(who, new.sealed, made.shown()).codes
        return made

    if has_app_context():
        return act()
    with app.app_context():
        return act()


@transaction
def set_rows(model: Any, **values: Any) -> None:
    """Set the values on every row of the model; needs an application context."""
    db.session.execute(update(model).values(**values))


@transaction
def _rewind(user: MadeUser) -> None:
    db.session.execute(
        update(AuthenticatorApp)
        .where(AuthenticatorApp.organization_id == user.organization.id, AuthenticatorApp.user_id == user.id)
        .values(last_step=0)
    )
