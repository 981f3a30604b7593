"""The ``sub`` by which a client knows a user (OpenID Connect Core section 8)."""

from __future__ import annotations

import hashlib
import hmac
from uuid import UUID

from app.operations import keyring
from app.operations.directory import ClientView
from app.rules.identifiers import encode_uuid, public_id
from app.rules.registration.sectors import PAIRWISE, sector_of


def subject_of(client: ClientView, user_id: UUID) -> str:
    """The same for ever, in ID tokens, userinfo, introspection and JWT access tokens of the client alike.

    A ``pairwise`` client shares it with the clients of its sector alone: another sector's cannot be told to be the
    same user's. It is keyed by the organization's data key, which outlives the master key that wraps it.
    """
    if client.document.get("subject_type") != PAIRWISE:
        return public_id("usr", user_id)
    key = keyring.derive_for(client.organization.id, "pairwise subjects")
    # Section 8.1: sector and user, and a secret; the NUL can stand in neither.
    text = f"{sector_of(client.document)}\0{user_id}".encode()
    made = hmac.digest(key, text, hashlib.sha256)
    return f"pws_{encode_uuid(UUID(bytes=made[:16]))}"
