"""Immutable snapshots of organizations and clients, as ``lookups`` reads and caches them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from msgspec import Struct

from app.models import client as client_model
from app.models import organization as organization_model
from app.operations.store import clock
from app.rules.clients.client_coherence import required_code_protection
from app.rules.clients.client_types import ALLOWED, BLOCKED, PERSON, PRE_APPROVED, UNVERIFIED
from app.rules.clients.resource_indicators import ResourceAccess


def is_before_cutoff(issued_at: datetime, not_before: datetime | None) -> bool:
    """Return whether something was issued before the ``not_before`` cutoff, if there is one."""
    return not_before is not None and issued_at < not_before


@dataclass(frozen=True, slots=True)
class OrganizationSnapshot:
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
    restored_at: datetime | None = None
    secrets_not_before: datetime | None = None
    passwords_not_before: datetime | None = None

    @property
    def issuer(self) -> str:
        """The issuer identifier (RFC 8414 section 2); root's is the base URL itself."""
        return self.base_url if self.is_root else f"{self.base_url}/organizations/{self.slug}"

    @property
    def title(self) -> str:
        """The name that users see on their pages and in emails."""
        return self.settings["branding"]["display_name"] or self.name

    @property
    def is_active(self) -> bool:
        """Return whether it is neither suspended nor deleted."""
        return self.status == organization_model.ACTIVE

    @property
    def is_suspended(self) -> bool:
        """Return whether it is suspended, and not deleted."""
        return self.status == organization_model.SUSPENDED

    @property
    def is_deleted(self) -> bool:
        """Return whether it was deleted."""
        return self.status not in {organization_model.ACTIVE, organization_model.SUSPENDED}

    def invalidates(self, issued_at: datetime) -> bool:
        """Return whether tokens issued at this time are revoked by a cutoff (IT-3).

        A restore of the organization and a bulk revocation set separate cutoffs.
        """
        return is_before_cutoff(issued_at, self.tokens_valid_from) or is_before_cutoff(
            issued_at, self.tokens_not_before
        )

    def invalidates_session(self, issued_at: datetime) -> bool:
        """Return whether sessions created at this time are revoked by a cutoff."""
        return is_before_cutoff(issued_at, self.tokens_valid_from) or is_before_cutoff(
            issued_at, self.sessions_not_before
        )

    def is_before_restore(self, created_at: datetime) -> bool:
        """Return whether a link, code or request is older than the restore of a backup, which may have revived it."""
        return is_before_cutoff(created_at, self.restored_at)

    def blocks_secret(self, created_at: datetime, confirmed_at: datetime | None) -> bool:
        """Return whether a client secret has to be confirmed after a restore before it works again."""
        return is_before_cutoff(confirmed_at or created_at, self.secrets_not_before)

    def blocks_password(self, changed_at: datetime | None, created_at: datetime) -> bool:
        """Return whether a user's password has to be reset after a restore."""
        return is_before_cutoff(changed_at or created_at, self.passwords_not_before)


class SecretSnapshot(Struct, frozen=True):
    """One secret that can authenticate the client."""

    id: UUID
    digest: bytes
    expires_at: datetime | None


class SecretCutoffs(Struct, frozen=True):
    """When a secret stopped working, and which of the tokens issued with it are revoked.

    ``tokens_expire_at`` is set if the secret's tokens expire together with it.
    """

    revoked_at: datetime | None
    tokens_revoked: bool
    tokens_not_before: datetime | None = None
    tokens_expire_at: datetime | None = None

    @property
    def tokens_expired(self) -> bool:
        """Return whether the secret has expired together with its tokens."""
        return self.tokens_expire_at is not None and clock.now() >= self.tokens_expire_at

    def invalidates(self, issued_at: datetime) -> bool:
        """Return whether a token issued with the secret at this time is revoked.

        A worker may still issue a token in the moment before it learns of the revocation. Such a token is
        revoked, too.
        """
        if self.tokens_revoked or self.tokens_expired or is_before_cutoff(issued_at, self.tokens_not_before):
            return True
        return self.revoked_at is not None and issued_at > self.revoked_at


@dataclass(frozen=True, slots=True)
class ClientSnapshot:
    """A client as the OAuth endpoints use it, with its organization and active secrets."""

    id: UUID
    client_id: str
    organization: OrganizationSnapshot
    name: str
    type: str
    status: str
    trust: str
    version: int
    created_at: datetime
    created_by: str | None
    document: Mapping[str, Any] = field(repr=False)
    secrets: tuple[SecretSnapshot, ...] = field(repr=False)
    secret_cutoffs: Mapping[UUID, SecretCutoffs] = field(repr=False)
    source: str = PERSON
    metadata_document_uri: str | None = None
    tokens_not_before: datetime | None = None
    # By the identifier of the API.
    access: Mapping[str, ResourceAccess] = field(repr=False, default_factory=dict)
    # Values derived from this snapshot, discarded together with it.
    derived: dict[Hashable, Any] = field(repr=False, compare=False, default_factory=dict)

    @property
    def is_active(self) -> bool:
        """Return whether the client and its organization are active and the client is not blocked."""
        return self.status == client_model.ACTIVE and self.organization.is_active and not self.is_blocked

    @property
    def approval(self) -> str | None:
        """The administrators' decision about the client, one of ``rules/clients/client_types``, or None."""
        return self.document.get("approval")

    @property
    def is_blocked(self) -> bool:
        """Return whether administrators blocked the client. Users see a message that says so."""
        return self.approval == BLOCKED

    def invalidates(self, issued_at: datetime) -> bool:
        """Return whether tokens issued at this time are revoked by a cutoff.

        Cutoffs of the client and of its organization apply.
        """
        return self.organization.invalidates(issued_at) or is_before_cutoff(issued_at, self.tokens_not_before)

    def invalidates_grant(
        self, allowed_at: datetime, authenticated_at: datetime | None, credential_id: UUID | None
    ) -> bool:
        """Return whether a grant is revoked by a cutoff of its client, session or secret.

        A grant dates from the user's approval, and so does everything issued under it. Tokens that a thief
        obtained later with a stolen refresh token are therefore covered by the cutoff, too (RV-6).
        """
        if self.invalidates(allowed_at):
            return True
        if authenticated_at is not None and self.organization.invalidates_session(authenticated_at):
            return True
        cutoffs = self.secret_cutoffs.get(credential_id) if credential_id is not None else None
        if cutoffs is None:
            return False
        if cutoffs.tokens_revoked or cutoffs.tokens_expired:
            return True
        return is_before_cutoff(allowed_at, cutoffs.tokens_not_before)

    @property
    def is_unreviewed(self) -> bool:
        """Return whether the client registered itself and no administrator has verified it since."""
        return self.source != PERSON and self.trust == UNVERIFIED

    @property
    def is_unapproved(self) -> bool:
        """Return whether the client registered itself, and no administrator has verified or approved it since.

        Anyone can have such a client where the organization allows that, so no link on our host may lead to it at once
        (RFC 9700 section 4.11).
        """
        return self.is_unreviewed and self.approval not in (ALLOWED, PRE_APPROVED)

    @property
    def remembers_consent(self) -> bool:
        """Return whether consents to an unreviewed client are remembered, so that it can use prompt=none (DC-1)."""
        if not self.is_unreviewed:
            return True
        return not self.is_public and bool(
            self.organization.settings["oauth"]["consent"]["remember_self_registered"]
        )

    @property
    def code_protection(self) -> str:
        """The protection that the client's authorization codes need, one of CODE_PROTECTIONS."""
        return required_code_protection(self.document, self.organization.settings, self.source)

    @property
    def is_public(self) -> bool:
        """Return whether the client has no credentials (RFC 6749 section 2.1)."""
        return bool(self.document["token_endpoint_auth_method"] == "none")


class AuthenticatedClient(Struct, frozen=True):
    """A client that authenticated, and the secret it used.

    ``credential_id`` is None for a public client and for one that signs assertions. ``dpop_jkt`` is the thumbprint
    of the key of the request's DPoP proof. Issued tokens are bound to it. ``playground_uri`` is set for a request that
    the portal's playground sends for the client: the redirect URI of the only codes that it can redeem.
    """

    client: ClientSnapshot
    credential_id: UUID | None
    dpop_jkt: str | None = None
    playground_uri: str | None = None
