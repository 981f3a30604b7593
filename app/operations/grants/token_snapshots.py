"""Snapshots of active access tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from app.operations.directory.lookups import ClientSnapshot


@dataclass(frozen=True, slots=True)
class TokenSnapshot:
    """An active access token with its client, user and grant."""

    id: UUID
    client: ClientSnapshot
    grant_id: UUID | None
    user_id: UUID | None
    user_email: str | None
    scopes: tuple[str, ...]
    audience: tuple[str, ...]
    issued_at: datetime
    expires_at: datetime
    authenticated_at: datetime | None
    session_id: UUID | None
    dpop_jkt: str | None
    act: Mapping[str, Any] | None
    acr: str | None
    claims: Mapping[str, Any] | None
    parent: TokenSnapshot | None = None

    @property
    def origin(self) -> ClientSnapshot:
        """The client that the first token of a token exchange chain was issued to."""
        return self.client if self.parent is None else self.parent.origin

    @property
    def depth(self) -> int:
        """How many times the token was exchanged (RFC 8693)."""
        return 0 if self.parent is None else self.parent.depth + 1
