"""Look up organizations and clients as cached, immutable snapshots.

A snapshot is used until anything in its organization changes. ``cache_invalidation`` notifies every worker
process of such a change, so a revoked secret or a changed setting takes effect everywhere at once, while most
requests need no database query at all.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, bindparam, exists, or_, select, true, update
from sqlalchemy.orm import aliased

from app.config import current
from app.extensions import db
from app.fast_path import cache_invalidation
from app.fast_path.cache import ValidatedCache, put
from app.fast_path.compiled_query import CompiledQuery
from app.models import client as client_model
from app.models import organization as organization_model
from app.models.base import has_key, is_same
from app.models.client import Client, ClientAccess, Credential, Resource
from app.models.organization import InstanceLimits, Organization
from app.models.user import RoleAssignment
from app.operations.directory.snapshots import (
    ClientSnapshot,
    OrganizationSnapshot,
    SecretCutoffs,
    SecretSnapshot,
)
from app.operations.store import clock
from app.operations.store.transactions import count_changed, read
from app.rules.clients.client_access import GRANTED, WITHDRAWN
from app.rules.clients.resource_indicators import ResourceAccess
from app.rules.directory.permissions import ADMIN, permissions_of_roles
from app.rules.errors import NotFound, OrganizationMoved, OrganizationMoving
from app.rules.identifiers import format_client_id, is_routing_key, parse_client_id
from app.rules.organizations import settings as settings_rule
from app.rules.organizations.instance_limits import Bounds

# Access tokens expire within this time, so cutoffs older than it no longer matter for them.
_MAX_ACCESS_TOKEN_LIFETIME = timedelta(days=1)
_MAX_CACHED_SLUGS = 20_000

_ORGANIZATION_COLUMNS = (
    Organization.id, Organization.slug, Organization.name, Organization.status, Organization.is_root,
    Organization.version, Organization.settings, Organization.tokens_valid_from, Organization.tokens_not_before,
    Organization.sessions_not_before, Organization.restored_at, Organization.secrets_not_before,
    Organization.passwords_not_before, Organization.moving_until, Organization.moved_to,
    # The table has one row at most. Effective settings depend on the instance limits, so both are read together.
    select(InstanceLimits.bounds).scalar_subquery().label("limits"),
)  # fmt: skip
_CLIENT_COLUMNS = (
    Client.name, Client.type, Client.status, Client.trust, Client.version, Client.created_at, Client.created_by,
    Client.document, Client.source, Client.metadata_document_uri, Client.tokens_not_before,
)  # fmt: skip
_SELECT_BY_ID = CompiledQuery(
    select(*_ORGANIZATION_COLUMNS).where(Organization.id == bindparam("organization_id"))
)
_SELECT_BY_SLUG = CompiledQuery(select(*_ORGANIZATION_COLUMNS).where(Organization.slug == bindparam("slug")))
_SELECT_CLIENT = CompiledQuery(
    select(*_ORGANIZATION_COLUMNS, *_CLIENT_COLUMNS)
    .select_from(Organization)
    .join(Client, Client.organization_id == Organization.id)
    .where(has_key(Client, bindparam("organization_id"), bindparam("client_id")))
)
_SELECT_SECRETS = CompiledQuery(
    select(
        Credential.id,
        Credential.digest,
        Credential.expires_at,
        Credential.revoked_at,
        Credential.tokens_revoked_at,
        Credential.tokens_not_before,
        Credential.takes_tokens,
        Credential.created_at,
        Credential.confirmed_at,
    ).where(
        Credential.organization_id == bindparam("organization_id"),
        Credential.client_id == bindparam("client_id"),
        or_(
            Credential.revoked_at.is_(None),
            Credential.revoked_at > bindparam("since", type_=Credential.revoked_at.type),
            # Refresh tokens can be valid for months, so these always apply.
            Credential.tokens_revoked_at.is_not(None),
            Credential.tokens_not_before.is_not(None),
            Credential.takes_tokens.is_(True),
        ),
    )
)

_SELECT_ACCESS = CompiledQuery(
    select(Resource.identifier, ClientAccess.status, ClientAccess.scopes, ClientAccess.decided_at)
    .join(Resource, is_same(Resource.id, ClientAccess.resource_id))
    .where(
        ClientAccess.organization_id == bindparam("organization_id"),
        ClientAccess.client_id == bindparam("client_id"),
        or_(ClientAccess.status == GRANTED, ClientAccess.status == WITHDRAWN),
    )
)

_organizations: ValidatedCache[OrganizationSnapshot] = ValidatedCache()
_clients: ValidatedCache[ClientSnapshot] = ValidatedCache()
# A slug is never reused for another organization, so these entries cannot become stale.
_ids_by_slug: dict[tuple[str, str], str] = {}
_SELECT_ROLES = CompiledQuery(
    select(RoleAssignment.role)
    .where(
        RoleAssignment.organization_id == bindparam("organization_id"),
        RoleAssignment.user_organization_id == bindparam("home"),
        RoleAssignment.user_id == bindparam("user_id"),
    )
    .order_by(RoleAssignment.role)
)
_SELECT_ROLES_EVERYWHERE = CompiledQuery(
    select(RoleAssignment.organization_id, RoleAssignment.role)
    .where(
        RoleAssignment.user_organization_id == bindparam("home"),
        RoleAssignment.user_id == bindparam("user_id"),
    )
    .order_by(RoleAssignment.organization_id, RoleAssignment.role)
)


def find_client(client_id: str, *, fresh: bool = False) -> ClientSnapshot | None:
    """Return the client with this ``client_id``, active or not, or None if it does not exist or was deleted.

    ``fresh`` bypasses the cache. Use it before rejecting a request, because another machine may have changed the
    client a moment ago.
    """
    parsed = parse_client_id(client_id)
    if parsed is None:
        return None
    client = None if fresh else _clients.get(parsed[0], client_id)
    return client if client is not None else find_client_by_id(*parsed, fresh=fresh)


def reload_client(client: ClientSnapshot) -> ClientSnapshot | None:
    """Read the client from the database again. Return None if it was deleted."""
    return find_client_by_id(client.organization.id, client.id, fresh=True)


def is_outdated(client: ClientSnapshot) -> bool:
    """Return whether the client or its organization has changed; reading it again refreshes the cache."""
    fresh = reload_client(client)
    return (
        fresh is None
        or fresh.version != client.version
        or fresh.organization.version != client.organization.version
    )


def is_current(client: ClientSnapshot) -> bool:
    """Return whether the snapshot is cached and still trusted."""
    organization_id = client.organization.id
    is_document = client.metadata_document_uri is not None
    key = format_client_id(organization_id, client.id) if is_document else client.client_id
    return _clients.get(organization_id, key) is client


def find_client_by_id(organization_id: str, row_id: UUID, *, fresh: bool = False) -> ClientSnapshot | None:
    """Return the client with this primary key. See ``find_client``."""
    # The cache key is text because hashing and comparing a UUID runs Python code at every request.
    client_id = format_client_id(organization_id, row_id)
    client = None if fresh else _clients.get(organization_id, client_id)
    if client is not None:
        return client
    return _clients.load(organization_id, client_id, load=lambda: _read_client(organization_id, row_id))


def get_organization_by_slug(slug: str, *, fresh: bool = True) -> OrganizationSnapshot:
    """Return the organization with this slug. Raises NotFound if it does not exist or was deleted."""
    key = (current().database_url, slug)
    organization_id = None if fresh else _ids_by_slug.get(key)
    if organization_id is not None:
        return get_organization_by_id(organization_id, fresh=False)
    organization = _unless_deleted(_SELECT_BY_SLUG.first(slug=slug))
    if organization is None:
        raise NotFound("There is no such organization.")
    put(_ids_by_slug, key, organization.id, max_entries=_MAX_CACHED_SLUGS)
    return organization


def get_organization_by_id(organization_id: str, *, fresh: bool = True) -> OrganizationSnapshot:
    """Return the organization with this id. Raises NotFound if it does not exist or was deleted."""
    organization = None if fresh else _organizations.get(organization_id)
    if organization is None and is_routing_key(organization_id):
        organization = _organizations.load(
            organization_id,
            load=lambda: _unless_deleted(_SELECT_BY_ID.first(organization_id=organization_id)),
        )
    if organization is None:
        raise NotFound("There is no such organization.")
    return organization


def get_unpurged_organization(organization_id: str) -> OrganizationSnapshot:
    """Read the organization from the database, even if it is deleted and can still be restored.

    Raises NotFound if it does not exist or was purged.
    """
    row = _SELECT_BY_ID.first(organization_id=organization_id) if is_routing_key(organization_id) else None
    organization = None if row is None else _organization_snapshot(row)
    if organization is None or organization.status == organization_model.PURGED:
        raise NotFound("There is no such organization.")
    return organization


def is_in_another_cell(organization_id: str) -> bool:
    """Return whether another cell serves the organization, or may do so when the pause of its move ends."""
    row = _SELECT_BY_ID.first(organization_id=organization_id) if is_routing_key(organization_id) else None
    if row is None:
        return False
    *_, moving_until, moved_to, _ = row
    return moved_to is not None or (moving_until is not None and clock.now() < moving_until)


def is_served_here(organization_id: Any) -> ColumnElement[bool]:
    """Return the SQL condition that no other cell serves the organization of a row, or is about to.

    Jobs that write rows ask it: neither the rows that a move has compared may change, nor those that it brings, whose
    organization is a tombstone until the end.
    """
    # Another name, because the statement may join the organization itself.
    owner = aliased(Organization)
    away = or_(
        owner.status == organization_model.PURGED,
        owner.moved_to.is_not(None),
        owner.moving_until > clock.now(),
    )
    return ~exists().where(owner.id == organization_id, away)


def get_root_organization() -> OrganizationSnapshot:
    """Return the root organization. Raises NotFound before the installation is set up."""
    row = _SELECT_BY_SLUG.first(slug="root")
    if row is None:
        raise NotFound("This instance hasn't been set up yet.")
    return _organization_snapshot(row)


@read
def current_limits() -> Bounds:
    """Return the instance limits by setting path, or an empty mapping if none were ever set."""
    return db.session.scalar(select(InstanceLimits.bounds)) or {}


def hold_organization(organization_id: str) -> OrganizationSnapshot:
    """Return the organization as it remains until the current transaction ends. Raises NotFound.

    Who changes it waits, while other transactions may hold it too. Call this before the transaction writes anything,
    because a change of the organization locks its row first as well.
    """
    _HOLD.first(organization_id=organization_id)
    return get_organization_by_id(organization_id)


_HOLD = CompiledQuery(
    select(Organization.id).where(Organization.id == bindparam("organization_id")).with_for_update(read=True)
)


def created_after_restore(created_at: Any, organization_id: str) -> ColumnElement[bool]:
    """Return the SQL condition that a row was created after the last restore of a backup, which may have revived it."""
    restored_at = get_unpurged_organization(organization_id).restored_at
    return true() if restored_at is None else created_at >= restored_at


def touch_organization(organization_id: str) -> None:
    """Raise the organization's version and invalidate its snapshots once the current transaction commits.

    Of several transactions that do so, each waits for the one before. Call this before the transaction writes anything
    else, so that none holds a row that one in front of it needs.
    """
    count_changed(
        update(Organization)
        .where(Organization.id == organization_id)
        .values(version=Organization.version + 1)
    )
    cache_invalidation.invalidate(organization_id)


def _unless_deleted(row: Sequence[Any] | None) -> OrganizationSnapshot | None:
    if row is None:
        return None
    organization = _served_here(row)
    return None if organization.is_deleted else organization


def _served_here(row: Sequence[Any]) -> OrganizationSnapshot:
    """Raise OrganizationMoving while the organization is being moved, and OrganizationMoved afterwards."""
    *_, moving_until, moved_to, _ = row
    if moved_to is not None:
        raise OrganizationMoved
    if moving_until is not None and clock.now() < moving_until:
        raise OrganizationMoving
    return _organization_snapshot(row)


def _read_client(organization_id: str, row_id: UUID) -> ClientSnapshot | None:
    row = _SELECT_CLIENT.first(organization_id=organization_id, client_id=row_id)
    if row is None:
        return None
    organization = _served_here(row[: len(_ORGANIZATION_COLUMNS)])
    client = row[len(_ORGANIZATION_COLUMNS) :]
    name, client_type, status, trust, version, created_at, created_by, document, source, uri, not_before = (
        client
    )
    if status == client_model.DELETED:
        return None
    now = clock.now()
    secrets = _SELECT_SECRETS.rows(
        organization_id=organization_id, client_id=row_id, since=now - _MAX_ACCESS_TOKEN_LIFETIME
    )
    return ClientSnapshot(
        id=row_id,
        client_id=uri or format_client_id(organization_id, row_id),
        organization=organization,
        name=name,
        type=client_type,
        status=status,
        trust=trust,
        version=version,
        created_at=created_at,
        created_by=created_by,
        document=document,
        secrets=tuple(
            SecretSnapshot(secret_id, digest, expires_at)
            for secret_id, digest, expires_at, revoked_at, *_, created, confirmed in secrets
            if revoked_at is None
            and (expires_at is None or expires_at > now)
            and not organization.blocks_secret(created, confirmed)
        ),
        secret_cutoffs={
            secret_id: SecretCutoffs(
                revoked_at, tokens_revoked_at is not None, not_before, expires_at if takes_tokens else None
            )
            for secret_id, _, expires_at, revoked_at, tokens_revoked_at, not_before, takes_tokens, *_ in secrets
            if takes_tokens or any(time is not None for time in (revoked_at, tokens_revoked_at, not_before))
        },
        source=source,
        metadata_document_uri=uri,
        tokens_not_before=not_before,
        access=_read_access(organization_id, row_id),
    )


def _read_access(organization_id: str, client_id: UUID) -> Mapping[str, ResourceAccess]:
    access: dict[str, ResourceAccess] = {}
    for identifier, status, scopes, decided_at in _SELECT_ACCESS.rows(
        organization_id=organization_id, client_id=client_id
    ):
        known = access.get(identifier, ResourceAccess(None))
        if status == GRANTED:
            access[identifier] = ResourceAccess(frozenset(scopes), known.not_before)
        else:
            access[identifier] = ResourceAccess(known.scopes, decided_at)
    return access


def _organization_snapshot(row: Sequence[Any]) -> OrganizationSnapshot:
    organization_id, slug, name, status, is_root, version, settings, *cutoffs, _, _, limits = row
    tokens_valid_from, tokens_not_before, sessions_not_before, restored_at, secrets, passwords = cutoffs
    return OrganizationSnapshot(
        id=organization_id,
        slug=slug,
        name=name,
        status=status,
        is_root=is_root,
        version=version,
        base_url=current().base_url,
        settings=_effective_settings(json.dumps(settings, sort_keys=True), json.dumps(limits or {})),
        tokens_valid_from=tokens_valid_from,
        tokens_not_before=tokens_not_before,
        sessions_not_before=sessions_not_before,
        restored_at=restored_at,
        secrets_not_before=secrets,
        passwords_not_before=passwords,
    )


@functools.lru_cache(maxsize=1024)
def _effective_settings(overrides: str, limits: str) -> Mapping[str, Any]:
    # Most organizations override few settings, so thousands of them share one copy of the effective document.
    return settings_rule.effective_settings(json.loads(overrides), json.loads(limits))


def get_user_roles(organization_id: str, home_organization_id: str, user_id: UUID) -> tuple[str, ...]:
    """Return the names of the roles that a user of the home organization has in an organization, sorted."""
    rows = _SELECT_ROLES.rows(organization_id=organization_id, home=home_organization_id, user_id=user_id)
    return tuple(role for (role,) in rows)


def get_user_roles_everywhere(home_organization_id: str, user_id: UUID) -> tuple[tuple[str, str], ...]:
    """Return (organization id, role name) for every role of a user.

    Users of the root organization can have roles in other organizations.
    """
    rows = _SELECT_ROLES_EVERYWHERE.rows(home=home_organization_id, user_id=user_id)
    return tuple((organization_id, role) for organization_id, role in rows)


@read
def get_user_permissions(
    organization: OrganizationSnapshot, home_organization_id: str, user_id: UUID
) -> frozenset[str]:
    """Return the permissions that a user has in an organization.

    A user of the root organization has the roles assigned to them there by name, and root administrators are
    administrators of every organization. Users of other organizations have no permissions.
    """
    roles = get_user_roles(organization.id, home_organization_id, user_id)
    if home_organization_id == organization.id:
        return permissions_of_roles(roles, organization.settings, is_root=organization.is_root)
    if not get_organization_by_id(home_organization_id, fresh=False).is_root:
        return frozenset()
    if ADMIN in get_user_roles(home_organization_id, home_organization_id, user_id):
        roles = (*roles, ADMIN)
    return permissions_of_roles(roles, organization.settings) if roles else frozenset()
