"""Whether a client may use a grant type (RFC 6749 section 1.3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.rules.clients.client_types import TOKEN_EXCHANGE

# Grants that rely on the client's own identity, which a public client cannot authenticate (CC-1).
_FOR_CONFIDENTIAL_CLIENTS = frozenset({"client_credentials", TOKEN_EXCHANGE})


def can_use_grant(
    grant_type: str, *, document: Mapping[str, Any], settings: Mapping[str, Any], is_public: bool
) -> bool:
    """Return whether client and organization allow the grant type and it suits the client."""
    if is_public and grant_type in _FOR_CONFIDENTIAL_CLIENTS:
        return False
    return grant_type in document["grant_types"] and grant_type in settings["oauth"]["grant_types"]
