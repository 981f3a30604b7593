"""The ``sub`` by which a client knows a user (OpenID Connect Core section 8)."""

from __future__ import annotations

from uuid import UUID

from app.operations.directory import ClientView
from app.rules.identifiers import public_id


def subject_of(client: ClientView, user_id: UUID) -> str:
    """The same for ever, in ID tokens, userinfo, introspection and JWT access tokens of the client alike."""
    return public_id("usr", user_id)
