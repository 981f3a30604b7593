"""Which users an actor may act upon."""

from __future__ import annotations

from uuid import UUID

from app.operations.directory.lookups import (
    OrganizationSnapshot,
    get_organization_by_id,
    get_organization_by_slug,
)
from app.operations.directory.permissions import (
    get_user_permissions,
    get_user_roles,
    get_user_roles_everywhere,
)
from app.operations.directory.users import UserSnapshot, get_user
from app.operations.sign_in.passkeys import (
    any_user_has_passwordless_passkey,
    find_relying_party,
    has_passwordless_passkey,
)
from app.operations.sign_in.second_factors import find_methods_of_user
from app.operations.store.transactions import read
from app.rules.actor import Actor
from app.rules.directory.permissions import intersect_permissions, missing_permissions, permissions_of_role
from app.rules.errors import Forbidden, NotFound
from app.rules.organizations.lockout_prevention import Caller


@read
def enter_organization(actor: Actor, slug: str) -> tuple[Actor, OrganizationSnapshot]:
    """The actor as they act in the named organization, and that organization.

    Raises NotFound for every other organization than the actor's own, whether it exists or not, unless the actor
    is of root: an administrator of root is one everywhere, somebody of root with a role in the organization has
    that role, and a client of root needs ``organizations:read`` or ``organizations:write``. Audit events then show
    the home organization beside the one acted in.
    """
    if actor.kind == "system":
        view = get_organization_by_slug(slug)
        return actor.acting_in(view.id, actor.permissions), view
    own = get_organization_by_id(actor.organization_id)
    if own.slug == slug:
        return actor, own
    if not actor.is_root:
        raise _unknown()
    view = get_organization_by_slug(slug)
    if actor.user_id is not None:
        rights = get_user_permissions(view, actor.home_organization_id, actor.user_id)
        if not rights:
            raise _unknown()
        return actor.acting_in(view.id, intersect_permissions(actor.permissions, rights)), view
    if not actor.has_permission("organizations:read") and not actor.has_permission("organizations:write"):
        raise _unknown()
    return actor.acting_in(view.id, actor.permissions), view


def _unknown() -> NotFound:
    return NotFound("There is no such organization.")


@read
def find_caller(actor: Actor) -> Caller | None:
    """How the actor signs in, and the roles that bring them here; None for a client and for the service itself."""
    if actor.kind != "user" or actor.user_id is None:
        return None
    user = get_user(actor.home_organization_id, actor.user_id)
    return Caller(
        roles=get_user_roles(actor.organization_id, actor.home_organization_id, actor.user_id),
        # Root's people sign in at root, so nothing set here keeps them out.
        is_root=actor.home_organization_id != actor.organization_id,
        has_password=user.has_password,
        has_passkey=has_passwordless_passkey(actor.home_organization_id, actor.user_id),
        has_second_factor=bool(find_methods_of_user(actor.home_organization_id, actor.user_id)),
    )


@read
def can_any_user_sign_in_with_passkey(organization_id: str) -> bool:
    """Whether anybody of the organization could sign in by a passkey alone, at the address that is configured."""
    return find_relying_party() is not None and any_user_has_passwordless_passkey(organization_id)


def require_manageable_user(actor: Actor, user_id: UUID) -> UserSnapshot:
    """The user, who the actor may act upon. Raises NotFound, Forbidden for a user who holds more than the actor.

    Wherever that is: whoever could choose the password of one of root's people would hold their roles elsewhere, too.
    """
    actor.require("users:write")
    user = get_user(actor.organization_id, user_id)
    for organization_id, role in get_user_roles_everywhere(user.organization_id, user_id):
        try:
            organization = get_organization_by_id(organization_id)
        except NotFound:
            continue  # It was deleted, and its roles with it.
        require_role_permissions(_as_known_in(organization, actor), organization, role)
    return user


def _as_known_in(organization: OrganizationSnapshot, actor: Actor) -> Actor:
    """The actor with what they may do in the organization."""
    try:
        return enter_organization(actor, organization.slug)[0]
    except NotFound:
        return actor.acting_in(organization.id, frozenset())


def require_role_permissions(actor: Actor, organization: OrganizationSnapshot, role: str) -> None:
    """The actor holds all that the role holds. Raises Forbidden naming the first permission that is lacking."""
    if actor.kind == "system":
        return
    missing = missing_permissions(
        actor.permissions, permissions_of_role(role, organization.settings, is_root=organization.is_root)
    )
    if missing:
        raise Forbidden(
            f"The role {role} holds {missing[0]}, which you do not: nobody grants or takes what they lack.",
            permission=missing[0],
        )
