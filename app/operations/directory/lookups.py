"""Organizations and clients as the protocol sees them: frozen views, kept until something changes.

A view counts until something of its organization changes, which ``view_changes`` tells every worker. So a revoked
secret or a changed setting counts everywhere at once, and the common request costs no look-up at all.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import bindparam, or_, select, update

from app.config import current
from app.extensions import db
from app.models import client as client_model
from app.models import organization as organization_model
from app.models.client import Client
from app.models.credential import Credential
from app.models.organization import Organization, SettingsCeilings
from app.operations import view_changes
from app.operations.bounded import remember
from app.operations.directory.snapshots import ClientView, EndedSecret, OrganizationView, SecretView
from app.operations.kept_views import KeptViews
from app.operations.statements import Statement
from app.operations.store import clock
from app.operations.store.transactions import read
from app.rules.errors import NotFound
from app.rules.identifiers import client_id_of, is_routing_key, parse_client_id
from app.rules.organizations import settings as settings_rule
from app.rules.organizations.instance_limits import Bounds

# No access token lives longer, so what ended a secret before has nothing left to end.
_LONGEST_ACCESS = timedelta(days=1)


_ORGANIZATION = (
    Organization.id, Organization.slug, Organization.name, Organization.status, Organization.is_root,
    Organization.version, Organization.settings, Organization.tokens_valid_from, Organization.tokens_not_before,
    Organization.sessions_not_before,
    # Of one row at most: whoever reads an organization reads its settings as the instance's ceilings make them.
    select(SettingsCeilings.bounds).scalar_subquery().label("ceilings"),
)  # fmt: skip
_CLIENT_COLUMNS = (
    Client.name, Client.type, Client.status, Client.trust, Client.version, Client.created_at, Client.created_by,
    Client.document, Client.source, Client.metadata_document_uri, Client.tokens_not_before,
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
    select(
        Credential.id,
        Credential.digest,
        Credential.expires_at,
        Credential.revoked_at,
        Credential.tokens_revoked_at,
        Credential.tokens_not_before,
        Credential.takes_tokens,
    ).where(
        Credential.organization_id == bindparam("organization_id"),
        Credential.client_id == bindparam("client_id"),
        or_(
            Credential.revoked_at.is_(None),
            Credential.revoked_at > bindparam("since", type_=Credential.revoked_at.type),
            Credential.tokens_revoked_at > bindparam("since", type_=Credential.revoked_at.type),
            # Refresh tokens live on for weeks: this moment is never forgotten.
            Credential.tokens_not_before.is_not(None),
            Credential.takes_tokens.is_(True),
        ),
    )
)


__all__ = [
    "ClientView",
    "EndedSecret",
    "OrganizationView",
    "SecretView",
    "client_of_row",
    "find_client",
    "forget_cached",
    "organization_by_id",
    "organization_by_slug",
    "organization_until_purged",
    "reread",
    "root_organization",
    "touch_organization",
]

_organizations: KeptViews[OrganizationView] = KeptViews()
_clients: KeptViews[ClientView] = KeptViews()
# A slug is never given to another organization: what it names never changes.
_keys_of_slugs: dict[tuple[str, str], str] = {}
_MOST_SLUGS = 20_000


def forget_cached() -> None:
    """Nothing is cached in this process."""
    _organizations.clear()
    _clients.clear()
    _keys_of_slugs.clear()


def find_client(client_id: str, *, fresh: bool = False) -> ClientView | None:
    """The client of a ``client_id`` that we gave, whatever its state; None when no such client stands.

    ``fresh`` reads the database: ask so before refusing anybody for what another machine may have changed just now.
    """
    parsed = parse_client_id(client_id)
    if parsed is None:
        return None
    view = None if fresh else _clients.get(parsed[0], client_id)
    return view if view is not None else client_of_row(*parsed, fresh=fresh)


def reread(client: ClientView) -> ClientView | None:
    """The client as the database has it now; None when it is gone."""
    return client_of_row(client.organization.id, client.id, fresh=True)


def client_of_row(organization_id: str, row_id: UUID, *, fresh: bool = False) -> ClientView | None:
    """The client of an organization's key and a row's id; the rest is as ``find_client`` has it."""
    # The id as text: a UUID as a key would be hashed and compared by Python's own code at each request.
    client_id = client_id_of(organization_id, row_id)
    view = None if fresh else _clients.get(organization_id, client_id)
    if view is not None:
        return view
    return _clients.read(organization_id, client_id, read=lambda: _read_client(organization_id, row_id))


def organization_by_slug(slug: str, *, fresh: bool = True) -> OrganizationView:
    """The organization of a path. Raises NotFound when none stands or it was deleted."""
    key = (current().database_url, slug)
    known = None if fresh else _keys_of_slugs.get(key)
    if known is not None:
        return organization_by_id(known, fresh=False)
    view = _standing(_BY_SLUG.first(slug=slug))
    if view is None:
        raise NotFound("There is no such organization.")
    remember(_keys_of_slugs, key, view.id, most=_MOST_SLUGS)
    return view


def organization_by_id(organization_id: str, *, fresh: bool = True) -> OrganizationView:
    """The organization of a routing key. Raises NotFound when none stands or it was deleted."""
    view = None if fresh else _organizations.get(organization_id)
    if view is None and is_routing_key(organization_id):
        view = _organizations.read(
            organization_id, read=lambda: _standing(_BY_ID.first(organization_id=organization_id))
        )
    if view is None:
        raise NotFound("There is no such organization.")
    return view


def organization_until_purged(organization_id: str) -> OrganizationView:
    """As ``organization_by_id``, read now, and also while it is deleted and root may restore it."""
    row = _BY_ID.first(organization_id=organization_id) if is_routing_key(organization_id) else None
    view = None if row is None else _organization_view(row)
    if view is None or view.status == organization_model.PURGED:
        raise NotFound("There is no such organization.")
    return view


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
    view_changes.mark(organization_id)


def _standing(row: Sequence[Any] | None) -> OrganizationView | None:
    view = None if row is None else _organization_view(row)
    gone = {organization_model.DELETED, organization_model.PURGED}
    return None if view is None or view.status in gone else view


def _read_client(organization_id: str, row_id: UUID) -> ClientView | None:
    row = _CLIENT.first(organization_id=organization_id, client_id=row_id)
    if row is None:
        return None
    organization = _organization_view(row[: len(_ORGANIZATION)])
    name, kind, status, trust, version, created_at, created_by, document, source, uri, not_before = row[
        len(_ORGANIZATION) :
    ]
    if status == client_model.DELETED:
        return None
    now = clock.now()
    secrets = _SECRETS.rows(organization_id=organization_id, client_id=row_id, since=now - _LONGEST_ACCESS)
    return ClientView(
        id=row_id,
        client_id=uri or client_id_of(organization_id, row_id),
        organization=organization,
        name=name,
        type=kind,
        status=status,
        trust=trust,
        version=version,
        created_at=created_at,
        created_by=created_by,
        document=document,
        secrets=tuple(
            SecretView(secret_id, digest, expires_at)
            for secret_id, digest, expires_at, revoked_at, *_ in secrets
            if revoked_at is None and (expires_at is None or expires_at > now)
        ),
        ended_secrets={
            secret_id: EndedSecret(
                revoked_at, tokens_revoked_at is not None, minted_before, expires_at if takes else None
            )
            for secret_id, _, expires_at, revoked_at, tokens_revoked_at, minted_before, takes in secrets
            if takes or any(moment is not None for moment in (revoked_at, tokens_revoked_at, minted_before))
        },
        source=source,
        metadata_document_uri=uri,
        tokens_not_before=not_before,
    )


def _organization_view(row: Sequence[Any]) -> OrganizationView:
    key, slug, name, status, is_root, version, settings, *moments, ceilings = row
    tokens_valid_from, tokens_not_before, sessions_not_before = moments
    return OrganizationView(
        id=key,
        slug=slug,
        name=name,
        status=status,
        is_root=is_root,
        version=version,
        base_url=current().base_url,
        settings=_effective(json.dumps(settings, sort_keys=True), json.dumps(ceilings or {})),
        tokens_valid_from=tokens_valid_from,
        tokens_not_before=tokens_not_before,
        sessions_not_before=sessions_not_before,
    )


@functools.lru_cache(maxsize=1024)
def _effective(overrides: str, ceilings: str) -> Mapping[str, Any]:
    # Most organizations change little, and thousands of them would hold as many copies of the same document.
    return settings_rule.effective(json.loads(overrides), json.loads(ceilings))


@dataclass(frozen=True, slots=True)
class AuthenticatedClient:
    """The client, and the secret that proved it (None for a public client and for one that signs assertions).

    ``dpop_jkt`` is the thumbprint of the key that a DPoP proof of this request showed: what is issued is bound to it.
    """

    client: ClientView
    credential_id: UUID | None
    dpop_jkt: str | None = None


@read
def standing_bounds() -> Bounds:
    """The ceilings by path of a setting; none where nothing was ever bounded."""
    found = db.session.scalar(select(SettingsCeilings.bounds))
    return found or {}
