"""Interface: signing in and out, invitations, and the account pages of users."""

from __future__ import annotations

from flask import Flask

from app.account import (
    identity_providers,
    passwords,
    profile,
    second_step,
    security,
    sessions,
    sign_in,
    sign_up,
)
from app.account.context import account

__all__ = [
    "identity_providers",
    "passwords",
    "profile",
    "register",
    "second_step",
    "security",
    "sessions",
    "sign_in",
    "sign_up",
]


def register(app: Flask) -> None:
    """Register the pages under /login and /organizations/<organization>/."""
    app.register_blueprint(account)
