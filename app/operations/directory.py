"""Organizations and clients as the protocol sees them: frozen views, cached by version.

A view that stands in the cache may be stale for a moment. Whoever decides something by it names its versions in the
statement that makes the decision durable; when that writes no row the view is read afresh, and the decision is taken
again. So a revoked secret or a changed setting counts on every worker at once,
and the common request costs no look-up at all.
"""

from __future__ import annotations

import functools
import itertools
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from sqlalchemy import bindparam, select, update

from app.config import current
from app.extensions import db
from app.models import client as client_model
from app.models import organization as organization_model
from app.models.client import Client
from app.models.credential import Credential
from app.models.organization import Organization
from app.operations import clock
from app.operations.statements import Statement
from app.rules.errors import NotFound
from app.rules.identifiers import client_id_of, is_routing_key, parse_client_id
from app.rules.tenancy import settings as settings_rule

K = TypeVar("K")
V = TypeVar("V")

# Organizations are also looked at where no version is checked after; clients never are.
_CACHED_SECONDS = 5.0
# A cached client is verified by the statement that decides; among thousands of organizations each one is rare.
_CLIENT_CACHED_SECONDS = 600.0
_MOST_CACHED = 5_000


_ORGANIZATION = (
    Organization.id, Organization.slug, Organization.name, Organization.status, Organization.is_root,
    Organization.version, Organization.settings, Organization.tokens_valid_from,
)  # fmt: skip
_CLIENT_COLUMNS = (
    Client.name, Client.type, Client.status, Client.trust, Client.version, Client.created_at, Client.created_by,
    Client.document, Client.source, Client.metadata_document_uri,
)  # fmt: skip
_BY_ID = Statement(select(*_ORGANIZATION).where(Organization.id == bindparam("organization_id")))
_BY_SLUG = Statement(select(*_ORGANIZATION).where(Organization.slug == bindparam("slug")))
_CLIENT = Statement(
    select(*_ORGANIZATION, *_CLIENT_COLUMNS)
    .select_from(Organization)
    .join(Client, Client.organization_id == Organization.id)
    .where(Client.organization_id == bindparam("organization_id"), Client.id == bindparam("client_id"))
)
_SECRETS = Statement(
    select(Credential.id, Credential.digest, Credential.expires_at).where(
        Credential.organization_id == bindparam("organization_id"),
        Credential.client_id == bindparam("client_id"),
        Credential.revoked_at.is_(None),
    )
)


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
class ClientView:
    """A client as the OAuth endpoints see it, with its organization and the secrets that live."""

    id: UUID
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
    source: str = client_model.PERSON
    metadata_document_uri: str | None = None

    @property
    def client_id(self) -> str:
        """The ``client_id`` on the wire: the one we gave it, or the address of its own metadata document."""
        return self.metadata_document_uri or client_id_of(self.organization.id, self.id)

    @property
    def is_active(self) -> bool:
        """It and its organization may act."""
        return self.status == client_model.ACTIVE and self.organization.is_active

    @property
    def is_public(self) -> bool:
        """It has no secret to keep (RFC 6749 section 2.1)."""
        return bool(self.document["token_endpoint_auth_method"] == "none")


_organizations: dict[tuple[str, str], tuple[float, OrganizationView]] = {}
_clients: dict[tuple[str, str, UUID], tuple[float, ClientView]] = {}
_slugs: dict[tuple[str, str], tuple[float, str]] = {}


def forget_cached() -> None:
    """Nothing is cached in this process."""
    _organizations.clear()
    _clients.clear()
    _slugs.clear()


def find_client(client_id: str, *, fresh: bool = False) -> ClientView | None:
    """The client of a ``client_id`` that we gave, whatever its state; None when no such client stands.

    A cached view is for whoever verifies its versions in the statement that decides. ``fresh`` reads the database:
    ask so before refusing anybody, and where nothing verifies.
    """
    parsed = parse_client_id(client_id)
    return None if parsed is None else client_of_row(*parsed, fresh=fresh)


def reread(client: ClientView) -> ClientView | None:
    """The client as the database has it now; None when it is gone."""
    return client_of_row(client.organization.id, client.id, fresh=True)


def client_of_row(organization_id: str, row_id: UUID, *, fresh: bool = False) -> ClientView | None:
    """The client of an organization's key and a row's id; the rest is as ``find_client`` has it."""
    key = (_database(), organization_id, row_id)
    cached = _clients.get(key)
    if cached is not None and not fresh and time.monotonic() - cached[0] < _CLIENT_CACHED_SECONDS:
        return cached[1]
    view = _read_client(organization_id, row_id)
    if view is None:
        _clients.pop(key, None)
        return None
    _remember(_clients, key, view)
    return view


def organization_by_slug(slug: str, *, fresh: bool = True) -> OrganizationView:
    """The organization of a path. Raises NotFound when none stands or it was deleted."""
    cached = None if fresh else _slugs.get((_database(), slug))
    if cached is not None and time.monotonic() - cached[0] < _CACHED_SECONDS:
        return organization_by_id(cached[1], fresh=False)
    view = _seen(_BY_SLUG.first(slug=slug))
    _remember(_slugs, (_database(), slug), view.id)
    return view


def organization_by_id(organization_id: str, *, fresh: bool = True) -> OrganizationView:
    """The organization of a routing key. Raises NotFound when none stands or it was deleted."""
    key = (_database(), organization_id)
    cached = _organizations.get(key)
    if cached is not None and not fresh and time.monotonic() - cached[0] < _CACHED_SECONDS:
        return cached[1]
    if not is_routing_key(organization_id):
        raise NotFound("There is no such organization.")
    return _seen(_BY_ID.first(organization_id=organization_id))


def root_organization() -> OrganizationView:
    """The organization made at set-up. Raises NotFound before."""
    row = _BY_SLUG.first(slug="root")
    if row is None:
        raise NotFound("This installation was not set up yet.")
    return _organization_view(row)


def touch_organization(organization_id: str) -> None:
    """Cached views of the organization are stale once the transaction under way has committed."""
    db.session.execute(
        update(Organization)
        .where(Organization.id == organization_id)
        .values(version=Organization.version + 1)
        .execution_options(synchronize_session=False)
    )


def _seen(row: Sequence[Any] | None) -> OrganizationView:
    view = None if row is None else _organization_view(row)
    if view is None or view.status in {organization_model.DELETED, organization_model.PURGED}:
        raise NotFound("There is no such organization.")
    _remember(_organizations, (_database(), view.id), view)
    return view


def _read_client(organization_id: str, row_id: UUID) -> ClientView | None:
    row = _CLIENT.first(organization_id=organization_id, client_id=row_id)
    if row is None:
        return None
    organization = _organization_view(row[: len(_ORGANIZATION)])
    name, kind, status, trust, version, created_at, created_by, document, source, uri = row[len(_ORGANIZATION) :]
    if status == client_model.DELETED:
        return None
    now = clock.now()
    # Read after the client: whatever ends a secret raises the client's version, so an older view is found out.
    secrets = [
        SecretView(*secret) for secret in _SECRETS.rows(organization_id=organization_id, client_id=row_id)
    ]
    return ClientView(
        id=row_id,
        organization=organization,
        name=name,
        type=kind,
        status=status,
        trust=trust,
        version=version,
        created_at=created_at,
        created_by=created_by,
        document=document,
        secrets=tuple(secret for secret in secrets if secret.expires_at is None or secret.expires_at > now),
        source=source,
        metadata_document_uri=uri,
    )


def _organization_view(row: Sequence[Any]) -> OrganizationView:
    key, slug, name, status, is_root, version, settings, tokens_valid_from = row
    return OrganizationView(
        id=key,
        slug=slug,
        name=name,
        status=status,
        is_root=is_root,
        version=version,
        base_url=current().base_url,
        settings=_effective(json.dumps(settings, sort_keys=True)),
        tokens_valid_from=tokens_valid_from,
    )


def _database() -> str:
    config = current()
    return config.database_url


def _remember(cache: dict[K, tuple[float, V]], key: K, value: V) -> None:
    """The value is the cache's youngest; past the bound the oldest tenth goes, never all at once."""
    cache.pop(key, None)
    if len(cache) >= _MOST_CACHED:
        for old in list(itertools.islice(cache, _MOST_CACHED // 10)):
            cache.pop(old, None)
    cache[key] = (time.monotonic(), value)


@functools.lru_cache(maxsize=1024)
def _effective(overrides: str) -> Mapping[str, Any]:
    # Most organizations change little, and thousands of them would hold as many copies of the same document.
    return settings_rule.effective(json.loads(overrides))
