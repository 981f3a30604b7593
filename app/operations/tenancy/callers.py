"""Callers: what is known of a person who changes settings, so that they do not lock themselves out."""

from __future__ import annotations

from app.operations.passkeys.challenges import find_party
from app.operations.passkeys.records import has_passkey_that_signs_in, some_passkey_signs_in
from app.operations.people.rights import roles_of_user
from app.operations.people.users import get_user
from app.operations.second_factors.enrolled import methods_of
from app.operations.transaction import read
from app.rules.actor import Actor
from app.rules.tenancy.lock_out import Caller


@read
def caller_of(actor: Actor) -> Caller | None:
    """How the actor signs in, and the roles that bring them here; None for a client and for the service itself."""
    if actor.kind != "user" or actor.user_id is None:
        return None
    user = get_user(actor.home_organization_id, actor.user_id)
    return Caller(
        roles=roles_of_user(actor.organization_id, actor.home_organization_id, actor.user_id),
        # Root's people sign in at root, so nothing set here keeps them out.
        is_root=actor.home_organization_id != actor.organization_id,
        has_password=user.has_password,
        has_passkey=has_passkey_that_signs_in(actor.home_organization_id, actor.user_id),
        has_second_factor=bool(methods_of(actor.home_organization_id, actor.user_id)),
    )


@read
def somebody_has_passkey(organization_id: str) -> bool:
    """Whether anybody of the organization could sign in by a passkey alone, at the address that is configured."""
    return find_party() is not None and some_passkey_signs_in(organization_id)
