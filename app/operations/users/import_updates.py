"""An existing user who is in an imported file."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any
from uuid import UUID

from app.operations.directory.lookups import get_organization_by_id, get_user_roles
from app.operations.directory.snapshots import OrganizationSnapshot
from app.operations.directory.users import UserSnapshot, hold_user
from app.operations.sign_in.actor_access import require_manageable_user
from app.operations.store.transactions import transaction
from app.operations.users.groups import MAX_GROUPS_PER_USER, find_groups_of_user, join_group
from app.operations.users.role_assignments import announce_role, assign_role
from app.operations.users.user_changes import update_user
from app.rules.actor import Actor
from app.rules.directory.attributes import attributes_of, current_values
from app.rules.directory.permissions import MEMBER
from app.rules.errors import Conflict
from app.rules.languages.translation import lazy_gettext
from app.rules.users.user_import import ImportedUser


@transaction
def update_existing_user(
    actor: Actor, user_id: UUID, imported: ImportedUser, groups: Collection[UUID] = (), *, is_dry_run: bool
) -> bool:
    """Apply a row to an existing user, and return whether anything changes.

    Sets name, status and claims given in the row and adds its roles and ``groups``. An import never replaces a
    password, an email or its verification (PW-4, TN-12). Raises Forbidden when the user has a role that the actor
    lacks, Conflict for roles and groups of a user with an unverified email and for too many groups, LastAdministrator.
    Audit: as ``update_user``, ``assign_role`` and ``join_group``.
    """
    if not is_dry_run:
        # No membership may outlive the user, and a change of theirs must not repeat the rows before.
        hold_user(actor.organization_id, user_id)
    user = require_manageable_user(actor, user_id)
    fields = differing_fields(user, imported, get_organization_by_id(actor.organization_id))
    current_roles = get_user_roles(actor.organization_id, actor.organization_id, user_id)
    missing = [role for role in imported.roles if role not in current_roles]
    if not user.email_verified and any(role != MEMBER for role in missing):
        # Someone who registered with another person's email must not get the roles meant for its owner.
        raise Conflict(
            lazy_gettext(
                "The user with this email address has not verified it. If you know that the mailbox is theirs, assign"
                " the roles to the user %(user_id)s directly.",
                user_id=user.public_id,
            ),
            field="roles",
            code="email_unverified",
        )
    current_groups = find_groups_of_user(actor, user_id) if groups else set()
    joined = [group_id for group_id in groups if group_id not in current_groups]
    if not user.email_verified and joined:
        raise Conflict(
            lazy_gettext(
                "The user with this email address has not verified it. If you know that the mailbox is theirs, add the"
                " user %(user_id)s to the groups directly.",
                user_id=user.public_id,
            ),
            field="groups",
            code="email_unverified",
        )
    if joined and len(current_groups) + len(joined) > MAX_GROUPS_PER_USER:
        message = lazy_gettext("A user can be in at most %(max)s groups.", max=MAX_GROUPS_PER_USER)
        raise Conflict(message, field="groups", code="too_many")
    if is_dry_run:
        return bool(fields or missing or joined)
    if fields:
        update_user(actor, user.public_id, fields)
    for role in missing:
        assign_role(actor, actor.organization_id, actor.organization_id, user_id, role)
        announce_role(actor, get_organization_by_id(actor.organization_id), user_id, user.email, role)
    for group_id in joined:
        join_group(actor, group_id, user)
    return bool(fields or missing or joined)


def differing_fields(
    user: UserSnapshot, imported: ImportedUser, organization: OrganizationSnapshot
) -> dict[str, Any]:
    """Return the fields of the user that the row changes, with their new values."""
    fields: dict[str, Any] = {
        name: getattr(imported, name) for name in ("name", "status") if name in imported.given
    }
    if imported.profile:
        fields["profile"] = {**user.profile, **imported.profile}
    if imported.attributes:
        definitions = attributes_of(organization.settings)
        fields["attributes"] = {**current_values(definitions, user.attributes), **imported.attributes}
    return {name: value for name, value in fields.items() if getattr(user, name) != value}
