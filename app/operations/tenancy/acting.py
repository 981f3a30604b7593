"""Acting: in which organization a call works. It is the caller's own, unless root names another explicitly."""

from __future__ import annotations

from app.operations.directory import OrganizationView, organization_by_id, organization_by_slug
from app.operations.people.rights import rights_of_user
from app.operations.transaction import read
from app.rules.actor import Actor
from app.rules.errors import NotFound
from app.rules.people.permissions import cut_down


@read
def acting_in(actor: Actor, slug: str) -> tuple[Actor, OrganizationView]:
    """The actor as they act in the named organization, and that organization.

    Raises NotFound for every other organization than the actor's own, whether it exists or not, unless the actor
    is of root: an administrator of root is one everywhere, somebody of root with a role in the organization has
    that role, and a client of root needs ``organizations:read`` or ``organizations:write``. Audit events then show
    the home organization beside the one acted in.
    """
    if actor.kind == "system":
        view = organization_by_slug(slug)
        return actor.acting_in(view.id, actor.permissions), view
    own = organization_by_id(actor.organization_id)
    if own.slug == slug:
        return actor, own
    if not actor.is_root:
        raise _unknown()
    view = organization_by_slug(slug)
    if actor.user_id is not None:
        rights = rights_of_user(view, actor.home_organization_id, actor.user_id)
        if not rights:
            raise _unknown()
        return actor.acting_in(view.id, cut_down(actor.permissions, rights)), view
    if not actor.may("organizations:read") and not actor.may("organizations:write"):
        raise _unknown()
    return actor.acting_in(view.id, actor.permissions), view


def _unknown() -> NotFound:
    return NotFound("There is no such organization.")
