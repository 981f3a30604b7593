"""The resources of an organization as the protocol sees them, kept until something of the organization changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import bindparam, select

from app.models import resource as resource_model
from app.models.client import Scope
from app.models.resource import Resource
from app.operations.kept_views import KeptViews
from app.operations.statements import Statement
from app.rules.authorization.resource_indicators import Catalog, KnownResource

_CATALOG = Statement(
    select(
        Resource.identifier,
        Resource.status,
        Resource.access_token_format,
        Resource.access_token_ttl_seconds,
        Scope.name,
    )
    .outerjoin(
        Scope, (Scope.organization_id == Resource.organization_id) & (Scope.resource_id == Resource.id)
    )
    .where(Resource.organization_id == bindparam("organization_id"))
)
_catalogs: KeptViews[Catalog] = KeptViews()
_NOTHING = Catalog()


def catalog_of(organization_id: str) -> Catalog:
    """The organization's resources and whose its scopes are; the common request costs no query."""
    kept = _catalogs.get(organization_id)
    if kept is not None:
        return kept
    read = _catalogs.read(
        organization_id, read=lambda: _catalog(_CATALOG.rows(organization_id=organization_id))
    )
    return read or _NOTHING


def _catalog(rows: Sequence[Sequence[Any]]) -> Catalog:
    resources: dict[str, KnownResource] = {}
    owners: dict[str, str] = {}
    for identifier, status, chosen, seconds, scope in rows:
        resources[identifier] = KnownResource(identifier, status == resource_model.ACTIVE, chosen, seconds)
        if scope is not None:
            owners[scope] = identifier
    return Catalog(resources, owners)
