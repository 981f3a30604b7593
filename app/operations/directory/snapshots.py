"""What operations and faces see of organizations and clients: frozen values, read by ``directory``."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from app.models import client as client_model
from app.models import organization as organization_model
from app.operations.store import clock
from app.rules.clients.client_types import BLOCKED


def is_before(made_at: datetime, not_before: datetime | None) -> bool:
    """Whether it was made before a moment from which on alone something counts."""
    return not_before is not None and made_at < not_before


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
    tokens_not_before: datetime | None = None
    sessions_not_before: datetime | None = None

    @property
    def issuer(self) -> str:
        """The issuer identifier (RFC 8414 section 2); root's is the base URL itself."""
        return self.base_url if self.is_root else f"{self.base_url}/organizations/{self.slug}"

    @property
    def is_active(self) -> bool:
        """Neither suspended nor deleted."""
        return self.status == organization_model.ACTIVE

    @property
    def is_standing(self) -> bool:
        """Not deleted."""
        return self.status in {organization_model.ACTIVE, organization_model.SUSPENDED}

    def forgot(self, made_at: datetime) -> bool:
        """Whether it was restored, or revoked what was made before: each moment counts for itself (IT-3)."""
        return is_before(made_at, self.tokens_valid_from) or is_before(made_at, self.tokens_not_before)

    def forgot_sign_in(self, made_at: datetime) -> bool:
        """Whether sign-ins from that moment are over, whatever their own rows say."""
        return is_before(made_at, self.tokens_valid_from) or is_before(made_at, self.sessions_not_before)


@dataclass(frozen=True, slots=True)
class SecretView:
    """One secret that may authenticate the client."""

    id: UUID
    digest: bytes
    expires_at: datetime | None


@dataclass(frozen=True, slots=True)
class EndedSecret:
    """When a secret ended in the last day, whether what it minted ended with it, or what it minted before a moment."""

    revoked_at: datetime | None
    took_tokens: bool
    tokens_not_before: datetime | None = None
    takes_tokens_at: datetime | None = None

    @property
    def is_over_with_tokens(self) -> bool:
        """Whether its end has come, and what it minted was to end then."""
        return self.takes_tokens_at is not None and clock.now() >= self.takes_tokens_at

    def took(self, minted_at: datetime) -> bool:
        """Whether a token that it minted then is dead.

        What a worker minted in the moment before it heard of the secret's end is dead on arrival.
        """
        if self.took_tokens or self.is_over_with_tokens or is_before(minted_at, self.tokens_not_before):
            return True
        return self.revoked_at is not None and minted_at > self.revoked_at


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
    tokens_not_before: datetime | None = None
    # What was worked out from this view; gone with it when something changes.
    derived: dict[Hashable, Any] = field(repr=False, compare=False, default_factory=dict)

    @property
    def is_active(self) -> bool:
        """It and its organization may act, and nobody blocked it."""
        return self.status == client_model.ACTIVE and self.organization.is_active and not self.is_blocked

    @property
    def approval(self) -> str | None:
        """What administrators decided about it for everybody: one of ``rules/clients/client_types``, or nothing."""
        return self.document.get("approval")

    @property
    def is_blocked(self) -> bool:
        """Administrators blocked it: nothing of it is accepted, and people are told so."""
        return self.approval == BLOCKED

    def forgot(self, made_at: datetime) -> bool:
        """Whether it or its organization revoked what was made before."""
        return self.organization.forgot(made_at) or is_before(made_at, self.tokens_not_before)

    def forgot_grant(
        self, allowed_at: datetime, authenticated_at: datetime | None, credential_id: UUID | None
    ) -> bool:
        """Whether a grant is dead by a moment: its client's, its sign-in's, or of the secret that redeemed it.

        A grant counts as issued when the user allowed it, and all that hangs from it goes with it: what a thief made
        of an old refresh token since is no younger than that (RV-6).
        """
        if self.forgot(allowed_at):
            return True
        if authenticated_at is not None and self.organization.forgot_sign_in(authenticated_at):
            return True
        ended = self.ended_secrets.get(credential_id) if credential_id is not None else None
        if ended is None:
            return False
        return ended.is_over_with_tokens or is_before(allowed_at, ended.tokens_not_before)

    @property
    def is_unreviewed(self) -> bool:
        """It came here by itself, and nobody vouched for it since."""
        return self.source != client_model.PERSON and self.trust == "unverified"

    @property
    def is_public(self) -> bool:
        """It has no secret to keep (RFC 6749 section 2.1)."""
        return bool(self.document["token_endpoint_auth_method"] == "none")
