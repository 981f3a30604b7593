"""Face: signing in and out, invitations, and the pages of one's own account."""

from __future__ import annotations

from flask import Flask

from app.account import (
    activity,
    apps,
    chooser,
    confirm,
    delete,
    email,
    forgot,
    invitation,
    passkey_sign_in,
    passkeys,
    password,
    profile,
    reset,
    second_step,
    security,
    sessions,
    sign_in,
    sign_out,
    sign_up,
)
from app.account.blueprint import account

__all__ = [
    "activity",
    "apps",
    "chooser",
    "confirm",
    "delete",
    "email",
    "forgot",
    "invitation",
    "passkey_sign_in",
    "passkeys",
    "password",
    "profile",
    "register",
    "reset",
    "second_step",
    "security",
    "sessions",
    "sign_in",
    "sign_out",
    "sign_up",
]


def register(app: Flask) -> None:
    """/login and /organizations/<organization>/login, logout, invite and account answer."""
    app.register_blueprint(account)
