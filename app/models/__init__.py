"""The tables, one family a file. Importing this package declares all of them."""

from __future__ import annotations

from app.models import (
    audit,
    client,
    grant,
    identity_provider,
    organization,
    second_factor,
    session,
    token,
    user,
)
from app.models.base import Base

__all__ = [
    "Base",
    "audit",
    "client",
    "grant",
    "identity_provider",
    "organization",
    "second_factor",
    "session",
    "token",
    "user",
]
