"""Permissions of an actor in an organization and over its users."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from uuid import UUID

from app.operations.directory.lookups import (
    find_client,
    get_organization_by_id,
    get_organization_by_slug,
    get_root_organization,
    get_unpurged_organization,
    get_user_permissions,
    get_user_roles,
    get_user_roles_everywhere,
)
from app.operations.directory.snapshots import ClientSnapshot, OrganizationSnapshot
from app.operations.directory.users import UserSnapshot, get_user
from app.operations.sign_in.passkeys import (
    any_user_has_passwordless_passkey,
    find_relying_party,
    has_passwordless_passkey,
)
from app.operations.sign_in.second_factors import find_methods_of_user
from app.operations.sign_in.usable_identities import has_usable_identity
from app.operations.store.transactions import read
from app.rules.actor import Actor
from app.rules.directory.permissions import (
    MEMBER,
    intersect_permissions,
    missing_permissions,
    permissions_of_role,
)
from app.rules.errors import Forbidden, NotFound
from app.rules.identifiers import parse_public_id
from app.rules.languages.translation import lazy_gettext
from app.rules.organizations.lockout_prevention import Caller

_LET_CLIENTS_ENTER = frozenset({"organizations:read", "organizations:write"})
"""Permissions in root, of which a client needs one to act in another organization."""


@read
def enter_organization(
    actor: Actor, slug: str, permission: str | None = None
) -> tuple[Actor, OrganizationSnapshot]:
    """Return the actor with their permissions in the organization named by ``slug``, and that organization.

    Raises Forbidden if they lack the ``permission`` there, and NotFound for any organization other than the actor's
    own, whether or not it exists, unless the actor belongs to root. Root's administrators have full access everywhere,
    other root users have the roles assigned to them in the organization, and root's clients need
    ``organizations:read`` or ``organizations:write``. Audit events show the actor's home organization beside the one
    acted in.
    """
    inside, organization = _enter(actor, slug)
    if permission is not None:
        inside.require(permission)
    return inside, organization


def _enter(actor: Actor, slug: str) -> tuple[Actor, OrganizationSnapshot]:
    if actor.kind == "system":
        view = get_organization_by_slug(slug)
        return actor.acting_in(view.id, actor.permissions), view
    own = get_organization_by_id(actor.organization_id)
    if own.slug == slug:
        return actor, own
    if not actor.is_root:
        raise _organization_not_found()
    view = get_organization_by_slug(slug)
    held = _find_permissions_from_root(actor, view)
    if held is None:
        raise _organization_not_found()
    return actor.acting_in(view.id, held), view


def _find_permissions_from_root(actor: Actor, organization: OrganizationSnapshot) -> frozenset[str] | None:
    """Return the permissions of root's user or client in another organization, or None if they can't enter it."""
    if actor.user_id is not None:
        rights = get_user_permissions(organization, actor.home_organization_id, actor.user_id)
        return intersect_permissions(actor.permissions, rights) if rights else None
    return None if actor.permissions.isdisjoint(_LET_CLIENTS_ENTER) else actor.permissions


@read
def find_current_permissions(organization: OrganizationSnapshot, actor_id: str) -> frozenset[str]:
    """Return the permissions that somebody who acted before has in the organization now, none if they are not active.

    ``actor_id`` is the public id of a user of the organization or of root, or of a client that acts for itself.
    """
    user_id = parse_public_id("usr", actor_id)
    if user_id is None:
        return permissions_of_client(organization, find_client(actor_id, fresh=True))
    for is_of_root in (False, True):
        with suppress(NotFound):
            home = get_root_organization().id if is_of_root else organization.id
            is_active = get_user(home, user_id).is_active
            return get_user_permissions(organization, home, user_id) if is_active else frozenset()
    return frozenset()


def permissions_of_client(
    organization: OrganizationSnapshot, client: ClientSnapshot | None
) -> frozenset[str]:
    """Return the permissions that a client which acts for itself has in the organization now, at most its scopes."""
    scopes = frozenset(client.document["scopes"] if client is not None and client.is_active else ())
    if client is None or client.organization.id == organization.id:
        return scopes
    may_enter = client.organization.is_root and not scopes.isdisjoint(_LET_CLIENTS_ENTER)
    return scopes if may_enter else frozenset()


@read
def find_caller(actor: Actor) -> Caller | None:
    """Return how the actor signs in and which roles they have here, or None for clients and the system."""
    if actor.kind != "user" or actor.user_id is None:
        return None
    user = get_user(actor.home_organization_id, actor.user_id)
    return Caller(
        roles=get_user_roles(actor.organization_id, actor.home_organization_id, actor.user_id),
        # Root's users sign in at root, so this organization's settings cannot lock them out.
        is_root=actor.home_organization_id != actor.organization_id,
        has_password=user.has_password,
        has_passkey=has_passwordless_passkey(actor.home_organization_id, actor.user_id),
        has_identity=has_usable_identity(actor.home_organization_id, actor.user_id),
        has_second_factor=bool(find_methods_of_user(actor.home_organization_id, actor.user_id)),
    )


@read
def can_any_user_sign_in_with_passkey(organization_id: str) -> bool:
    """Return whether any user can sign in to the organization with a passkey alone at the configured URL."""
    return find_relying_party() is not None and any_user_has_passwordless_passkey(organization_id)


def require_manageable_user(actor: Actor, user_id: UUID) -> UserSnapshot:
    """Return the user if the actor may manage them.

    Raises NotFound, or Forbidden for a user who has more permissions than the actor in any organization.
    Otherwise an actor could take over a root user's roles elsewhere by choosing that user's password.
    """
    actor.require("users:write")
    user = get_user(actor.organization_id, user_id)
    require_may_manage(actor, user)
    return user


@read
def require_may_manage(actor: Actor, user: UserSnapshot) -> None:
    """Require what ``require_manageable_user`` does, of a user whom the caller has read. Raises Forbidden."""
    actor.require("users:write")
    for organization, role in _list_roles_everywhere(user.organization_id, user.id):
        require_role_permissions(_actor_in(actor, organization), organization, role)


def may_manage(actor: Actor, user: UserSnapshot) -> bool:
    """Return whether the actor may manage the user."""
    try:
        require_may_manage(actor, user)
    except Forbidden:
        return False
    return True


def has_special_role(user: UserSnapshot) -> bool:
    """Return whether a role gives the user permissions that not every member has, in any organization."""
    for organization, role in _list_roles_everywhere(user.organization_id, user.id):
        held, of_member = (
            permissions_of_role(name, organization.settings, is_root=organization.is_root)
            for name in (role, MEMBER)
        )
        if held - of_member:
            return True
    return False


def list_permissions_everywhere(home_organization_id: str, user_id: UUID) -> frozenset[tuple[str, str]]:
    """Return (organization id, permission) for all that a user's roles permit, in any organization."""
    return frozenset(
        (organization.id, permission)
        for organization, role in _list_roles_everywhere(home_organization_id, user_id)
        for permission in permissions_of_role(role, organization.settings, is_root=organization.is_root)
    )


def _list_roles_everywhere(
    home_organization_id: str, user_id: UUID
) -> Iterator[tuple[OrganizationSnapshot, str]]:
    """Yield the roles of a user in every organization, also in a deleted one, which can be restored."""
    for organization_id, role in get_user_roles_everywhere(home_organization_id, user_id):
        with suppress(NotFound):
            yield get_unpurged_organization(organization_id), role


def require_role_permissions(
    actor: Actor, organization: OrganizationSnapshot, role: str, *, field: str | None = None
) -> None:
    """Require that the actor has all permissions of the role, which is the value of ``field``, if any.

    Raises Forbidden with the first missing permission.
    """
    missing = _missing_permissions(actor, organization, role)
    if missing:
        raise Forbidden(
            lazy_gettext(
                "You can't manage the role %(role)s because you don't have its permission %(permission)s.",
                role=role,
                permission=missing[0],
            ),
            permission=missing[0],
            field=field,
        )


def can_manage_role(actor: Actor, organization: OrganizationSnapshot, role: str) -> bool:
    """Return whether the actor has all permissions of the role, as ``require_role_permissions`` requires."""
    return not _missing_permissions(actor, organization, role)


def _missing_permissions(actor: Actor, organization: OrganizationSnapshot, role: str) -> Sequence[str]:
    if actor.kind == "system":
        return ()
    granted = permissions_of_role(role, organization.settings, is_root=organization.is_root)
    return missing_permissions(actor.permissions, granted)


def _organization_not_found() -> NotFound:
    return NotFound("There is no such organization.")


def _actor_in(actor: Actor, organization: OrganizationSnapshot) -> Actor:
    """Return the actor with their permissions in the organization, which may be deleted."""
    if actor.kind == "system" or organization.id == actor.organization_id:
        return actor
    held = _find_permissions_from_root(actor, organization) if actor.is_root else None
    return actor.acting_in(organization.id, held or frozenset())
