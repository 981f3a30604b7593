"""Deleting a user: what hung from them ends, what was known of them is erased, their ``sub`` is nobody else's."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import delete, update

from app.extensions import db
from app.models.grant import Consent
from app.models.user import DELETED, Invitation, RoleAssignment, User
from app.operations import audit, clock
from app.operations.consents import client_requests
from app.operations.people import account_links
from app.operations.people.freshness import require_fresh_person
from app.operations.people.role_assignments import require_no_last_administrator
from app.operations.people.sessions import end_sessions_of_user
from app.operations.people.user_status import require_reach
from app.operations.people.users import UserView
from app.operations.second_factors.administration import remove_every_factor
from app.operations.sign_in_safety.known_browsers import forget_browsers_of_user
from app.operations.tokens import revocation
from app.operations.transaction import count_changed, transaction
from app.operations.user_administration.changes import require_version
from app.operations.user_administration.records import user_id_of
from app.rules.actor import Actor
from app.rules.errors import Conflict
from app.tenant_fence import ACROSS


@dataclass(frozen=True, slots=True)
class EndedWithUser:
    """How much ended with a user."""

    sessions: int
    grants: int
    consents: int
    roles: int


@transaction
def delete_user(actor: Actor, user_id: str, *, expected_version: int | None = None) -> EndedWithUser:
    """The user is gone at once, with sign-ins, grants, consents and roles; the address is free again.

    The row stays without anything personal, so that the id in tokens (``sub``) never means another person (OI-1).
    What the audit log holds of them goes with its retention. Raises Forbidden (also when the user holds a role that
    the actor lacks), NotFound, FreshSignInRequired for a person who signed in too long ago, LastAdministrator,
    PreconditionFailed. Audit: ``user.deleted``.
    """
    actor.require("users:write")
    user = require_reach(actor, user_id_of(user_id))
    require_version(user, expected_version)
    require_fresh_person(actor)
    return end_user(actor, user)


def end_user(actor: Actor, user: UserView) -> EndedWithUser:
    """What every deletion of a user does; part of the unit that has decided that it may be done."""
    here = user.organization_id
    require_no_last_administrator(here, user.id)
    # The row first: a sign-in under way waits at it, and finds nobody.
    _erase(user)
    ended = EndedWithUser(
        sessions=end_sessions_of_user(here, user.id),
        grants=revocation.revoke_grants_of_user(actor, user.id, reason="user_deleted"),
        consents=count_changed(
            delete(Consent).where(Consent.organization_id == here, Consent.user_id == user.id)
        ),
        roles=count_changed(
            # In every organization: root's people hold roles elsewhere.
            delete(RoleAssignment)
            .where(RoleAssignment.user_organization_id == here, RoleAssignment.user_id == user.id)
            .execution_options(**ACROSS)
        ),
    )
    account_links.end_links(here, user.id)
    client_requests.forget_requests_of(actor, user.id)
    remove_every_factor(here, user.id)
    forget_browsers_of_user(here, user.id)
    count_changed(
        delete(Invitation).where(
            Invitation.organization_id == here, Invitation.email_canonical == user.email_canonical
        )
    )
    audit.record(
        actor,
        "user.deleted",
        target_type="user",
        target_id=user.public_id,
        after={
            "ended_sessions": ended.sessions,
            "ended_grants": ended.grants,
            "ended_consents": ended.consents,
            "ended_roles": ended.roles,
        },
    )
    return ended


def _erase(user: UserView) -> None:
    erased = count_changed(
        update(User)
        .where(
            User.organization_id == user.organization_id,
            User.id == user.id,
            User.version == user.version,
            User.status != DELETED,
        )
        .values(
            status=DELETED,
            email="",
            # No address has a space: nobody can ask for this one.
            email_canonical=f"deleted {user.public_id}",
            email_verified=False,
            name="",
            profile={},
            password_hash=None,
            password_scheme=None,
            password_changed_at=None,
            last_sign_in_at=None,
            updated_at=clock.now(),
            version=user.version + 1,
        )
    )
    if erased != 1:
        raise Conflict("The user was changed at the same moment. Read them again.", code="busy")
    db.session.expire_all()
