"""Members of groups as identity providers say: a user's groups there decide about those here that name them."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from uuid import UUID

from sqlalchemy import select

from app.extensions import db
from app.models.user import Group
from app.operations.directory.users import UserSnapshot
from app.operations.sign_in.identity_providers import IdentityProviderRecord
from app.operations.store.transactions import read, transaction
from app.operations.users.groups import MAX_GROUPS_PER_USER, find_groups_of_user, join_group, leave_group
from app.rules.actor import Actor

_log = logging.getLogger("gatehouse.sign_in")
ProviderGroups = Mapping[UUID, Collection[str]]
"""The groups of an organization that name groups at a provider, with the values of those."""


@read
def needs_groups(provider: IdentityProviderRecord) -> bool:
    """Return whether any group names groups at the provider."""
    return bool(_find(provider))


@transaction
def hold_provider_groups(provider: IdentityProviderRecord) -> ProviderGroups:
    """Return the groups that name groups at the provider. They stay as they are until the transaction ends.

    Call it before a user is held.
    """
    return _find(provider, hold=True)


@transaction
def apply_provider_groups(
    actor: Actor, user: UserSnapshot, groups: ProviderGroups, values: Collection[str]
) -> None:
    """Make the user a member of exactly those ``groups`` that name one of the ``values``.

    The caller holds the groups and the user. ``actor`` is the system in the provider's name. A user stays out of groups
    beyond the limit. Audit: ``group.member_added``, ``group.member_removed``.
    """
    held = find_groups_of_user(actor, user.id)
    wanted = {group_id for group_id, names in groups.items() if not set(names).isdisjoint(values)}
    for group_id in sorted(held & (groups.keys() - wanted)):
        leave_group(actor, group_id, user.id)
        held.remove(group_id)
    joined = sorted(wanted - held)
    allowed = MAX_GROUPS_PER_USER - len(held)
    for group_id in joined[:allowed]:
        join_group(actor, group_id, user)
    if len(joined) > allowed:
        _log.warning("user %s has the maximum number of groups", user.public_id)


def _find(provider: IdentityProviderRecord, *, hold: bool = False) -> ProviderGroups:
    statement = (
        select(Group.id, Group.provider_groups)
        .where(Group.organization_id == provider.organization_id, Group.provider_groups.is_not(None))
        .order_by(Group.id)
    )
    rows = db.session.execute(statement.with_for_update(read=True) if hold else statement)
    found = {
        group_id: [each["value"] for each in named or () if each["provider_id"] == provider.public_id]
        for group_id, named in rows
    }
    return {group_id: values for group_id, values in found.items() if values}
