"""What the token endpoint answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from app.operations.tokens.access_tokens import BEARER


@dataclass(frozen=True, slots=True)
class TokenAnswer:
    """What the token endpoint answers (RFC 6749 section 5.1); ``expires_in`` in seconds."""

    access_token: str
    expires_in: int
    scope: str
    refresh_token: str | None = None
    id_token: str | None = None
    token_type: str = BEARER

    def as_document(self) -> dict[str, Any]:
        """The JSON object of the answer; ``scope`` holds at least one name, or is left out (RFC 6749 section 3.3)."""
        document = {
            "access_token": self.access_token,
            "token_type": self.token_type,
            "expires_in": self.expires_in,
            "scope": self.scope or None,
            "refresh_token": self.refresh_token,
            "id_token": self.id_token,
        }
        return {name: value for name, value in document.items() if value is not None}
