"""Claims of an app about a user beyond the standard ones: their groups, their roles in the app, and what is mapped.

A token without a scope or mapping that releases any costs no query.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any
from uuid import UUID

from sqlalchemy import bindparam, select, union

from app.fast_path.compiled_query import CompiledQuery
from app.models.base import is_same
from app.models.user import AppRoleAssignment, Group, GroupMember
from app.operations.clients.resources import get_catalog
from app.operations.directory.snapshots import ClientSnapshot
from app.operations.directory.users import UserSnapshot, get_user
from app.rules.clients.app_claims import (
    ACCESS_TOKEN,
    ATTRIBUTE_PREFIX,
    ID_TOKEN,
    nest_claims,
    role_keys,
    sources_of_claims,
    within_size,
)
from app.rules.directory.attributes import attributes_of, current_values
from app.rules.scopes import GROUPS, ROLES
from app.rules.tokens.claims import claims_for

_GROUPS = CompiledQuery(
    select(Group.name)
    .join(GroupMember, is_same(GroupMember.group_id, Group.id))
    .where(Group.organization_id == bindparam("organization_id"), GroupMember.user_id == bindparam("user_id"))
)
_OF_CLIENT = (
    AppRoleAssignment.organization_id == bindparam("organization_id"),
    AppRoleAssignment.client_id == bindparam("client_id"),
)
_ROLES = CompiledQuery(
    union(
        select(AppRoleAssignment.role).where(*_OF_CLIENT, AppRoleAssignment.user_id == bindparam("user_id")),
        select(AppRoleAssignment.role)
        .join(GroupMember, is_same(GroupMember.group_id, AppRoleAssignment.group_id))
        .where(*_OF_CLIENT, GroupMember.user_id == bindparam("user_id")),
    )
)


def load_app_claims(
    client: ClientSnapshot,
    user_id: UUID | None,
    scopes: Collection[str],
    target: str,
    user: UserSnapshot | None = None,
) -> dict[str, Any]:
    """Return the claims about the user that the scopes release to the client.

    ``user`` is the user if the caller has read it. ``target`` is where they go, one of
    ``rules/clients/app_claims.TARGETS``. In tokens, claims that are too large are left out. Groups and roles without a
    value are empty lists, others are left out.
    """
    if user_id is None:
        return {}
    attributes = attributes_of(client.organization.settings) if client.document.get("claim_mappings") else ()
    sources = sources_of_claims(client.document, attributes, _own_scopes(client, scopes), target)
    if not sources:
        return {}
    used = set(sources.values())
    values = {source: _read_list(client, user_id, source) for source in sorted(used & {GROUPS, ROLES})}
    if used - values.keys():
        user = user or get_user(client.organization.id, user_id)
        custom = current_values(attributes, user.attributes)
        values |= {f"{ATTRIBUTE_PREFIX}{key}": value for key, value in custom.items()}
        values |= claims_for(user.claims, (), used)
    claims = {name: values[source] for name, source in sources.items() if source in values}
    return nest_claims(within_size(claims) if target in (ID_TOKEN, ACCESS_TOKEN) else claims)


def _own_scopes(client: ClientSnapshot, scopes: Collection[str]) -> Collection[str]:
    """Return the scopes without those named ``groups`` and ``roles`` that belong to an API of an earlier release.

    Users allowed what the API says about them, which is something else.
    """
    named = {GROUPS, ROLES}.intersection(scopes)
    foreign = named.intersection(get_catalog(client.organization.id).owners) if named else named
    return [scope for scope in scopes if scope not in foreign] if foreign else scopes


def _read_list(client: ClientSnapshot, user_id: UUID, source: str) -> Any:
    organization_id = client.organization.id
    if source == GROUPS:
        return sorted(name for (name,) in _GROUPS.rows(organization_id=organization_id, user_id=user_id))
    declared = role_keys(client.document)
    if not declared:
        return []
    rows = _ROLES.rows(organization_id=organization_id, client_id=client.id, user_id=user_id)
    return sorted(role for (role,) in rows if role in declared)
