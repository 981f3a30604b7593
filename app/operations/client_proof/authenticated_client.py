"""What client authentication proves, as every operation of the token endpoint takes it."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from app.operations.directory import ClientView


@dataclass(frozen=True, slots=True)
class AuthenticatedClient:
    """The client, and the secret that proved it (None for a public client and for one that signs assertions).

    ``dpop_jkt`` is the thumbprint of the key that a DPoP proof of this request showed: what is issued is bound to it.
    """

    client: ClientView
    credential_id: UUID | None
    dpop_jkt: str | None = None
