"""People of an import who have an account already: found by address, and changed where the import is asked to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import select

from app.extensions import db
from app.models.user import User
from app.operations.people.rights import roles_of_user
from app.operations.people.role_assignments import assign_role
from app.operations.people.user_status import require_reach
from app.operations.transaction import read, transaction
from app.operations.user_administration.changes import update_user
from app.rules.actor import Actor
from app.rules.errors import Conflict
from app.rules.people.permissions import MEMBER
from app.rules.people.user_import import ImportedPerson


@read
def find(organization_id: str, addresses: Sequence[str]) -> Mapping[str, UUID]:
    """The users of the organization who have one of the addresses, by address."""
    if not addresses:
        return {}
    rows = db.session.execute(
        select(User.email_canonical, User.id).where(
            User.organization_id == organization_id, User.email_canonical.in_(addresses)
        )
    )
    return {row.email_canonical: row.id for row in rows}


@transaction
def update_existing(actor: Actor, user_id: UUID, person: ImportedPerson, *, is_dry_run: bool) -> bool:
    """Name, status and claims that the row gives are the user's, and they hold its roles too; whether that is new.

    A password, an address and whether it is verified are the person's own: no import replaces them (PW-4, TN-12).
    Raises Forbidden when the user holds a role that the actor lacks, Conflict for roles of somebody who has not
    confirmed the address, LastAdministrator. Audit: as ``update_user`` and ``assign_role``.
    """
    user = require_reach(actor, user_id)
    fields: dict[str, Any] = {
        name: getattr(person, name) for name in ("name", "status") if name in person.given
    }
    if person.profile:
        fields["profile"] = {**user.profile, **person.profile}
    held = roles_of_user(actor.organization_id, actor.organization_id, user_id)
    missing = [role for role in person.roles if role not in held]
    if not user.email_verified and any(role != MEMBER for role in missing):
        # Whoever signed up with somebody's address must not get the roles meant for its owner.
        raise Conflict(
            "The user with this address has not confirmed it. If you know that it is theirs, give them the roles by "
            f"their id: {user.public_id}.",
            field="roles",
            code="email_unverified",
        )
    differing = [name for name, value in fields.items() if getattr(user, name) != value]
    if is_dry_run:
        return bool(differing or missing)
    if differing:
        update_user(actor, user.public_id, fields)
    for role in missing:
        assign_role(actor, actor.organization_id, actor.organization_id, user_id, role)
    return bool(differing or missing)
