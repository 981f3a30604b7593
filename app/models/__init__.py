"""Models keep: one table family a file. Importing this package knows every table."""

from __future__ import annotations

from app.models import (
    audit,
    client,
    credential,
    event,
    grant,
    organization,
    resource,
    second_factor,
    session,
    signing_key,
    token,
    user,
    webhook,
)
from app.models import audit as failed_request
from app.models import client as client_request
from app.models import client as logo
from app.models import client as registration
from app.models import event as revocation_receipt
from app.models import second_factor as passkey
from app.models import token as device
from app.models import token as pushed_request
from app.models import user as account_link
from app.models import user as user_import
from app.models.base import Base

__all__ = [
    "Base",
    "account_link",
    "audit",
    "client",
    "client_request",
    "credential",
    "device",
    "event",
    "failed_request",
    "grant",
    "logo",
    "organization",
    "passkey",
    "pushed_request",
    "registration",
    "resource",
    "revocation_receipt",
    "second_factor",
    "session",
    "signing_key",
    "token",
    "user",
    "user_import",
    "webhook",
]
