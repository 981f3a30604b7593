"""What operations and faces see of organizations and clients: frozen values, read by ``directory``."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from app.models import client as client_model
from app.models import organization as organization_model


@dataclass(frozen=True, slots=True)
class OrganizationView:
    """An organization with its effective settings."""

    id: str
    slug: str
    name: str
    status: str
    is_root: bool
    version: int
    base_url: str
    settings: Mapping[str, Any] = field(repr=False)
    tokens_valid_from: datetime | None = None

    @property
    def issuer(self) -> str:
        """The issuer identifier (RFC 8414 section 2); root's is the base URL itself."""
        return self.base_url if self.is_root else f"{self.base_url}/organizations/{self.slug}"

    @property
    def is_active(self) -> bool:
        """Neither suspended nor deleted."""
        return self.status == organization_model.ACTIVE

    def forgot(self, made_at: datetime) -> bool:
        """Whether it was deleted and restored since: what was made before does not come back to life."""
        return self.tokens_valid_from is not None and made_at < self.tokens_valid_from


@dataclass(frozen=True, slots=True)
class SecretView:
    """One secret that may authenticate the client."""

    id: UUID
    digest: bytes
    expires_at: datetime | None


@dataclass(frozen=True, slots=True)
class EndedSecret:
    """When a secret ended in the last day, and whether what it minted ended with it."""

    revoked_at: datetime
    took_tokens: bool


@dataclass(frozen=True, slots=True)
class ClientView:
    """A client as the OAuth endpoints see it, with its organization and the secrets that live."""

    id: UUID
    client_id: str
    organization: OrganizationView
    name: str
    type: str
    status: str
    trust: str
    version: int
    created_at: datetime
    created_by: str | None
    document: Mapping[str, Any] = field(repr=False)
    secrets: tuple[SecretView, ...] = field(repr=False)
    ended_secrets: Mapping[UUID, EndedSecret] = field(repr=False)
    source: str = client_model.PERSON
    metadata_document_uri: str | None = None
    # What was worked out from this view; gone with it when something changes.
    derived: dict[Hashable, Any] = field(repr=False, compare=False, default_factory=dict)

    @property
    def is_active(self) -> bool:
        """It and its organization may act."""
        return self.status == client_model.ACTIVE and self.organization.is_active

    @property
    def is_unreviewed(self) -> bool:
        """It came here by itself, and nobody vouched for it since."""
        return self.source != client_model.PERSON and self.trust == "unverified"

    @property
    def is_public(self) -> bool:
        """It has no secret to keep (RFC 6749 section 2.1)."""
        return bool(self.document["token_endpoint_auth_method"] == "none")
