"""Models keep: one table family a file. Importing this package knows every table."""

from __future__ import annotations

from app.models import (
    account_link,
    audit,
    client,
    credential,
    device,
    event,
    failed_request,
    grant,
    logo,
    organization,
    pushed_request,
    registration,
    resource,
    session,
    signing_key,
    token,
    user,
)
from app.models.base import Base

__all__ = [
    "Base",
    "account_link",
    "audit",
    "client",
    "credential",
    "device",
    "event",
    "failed_request",
    "grant",
    "logo",
    "organization",
    "pushed_request",
    "registration",
    "resource",
    "session",
    "signing_key",
    "token",
    "user",
]
