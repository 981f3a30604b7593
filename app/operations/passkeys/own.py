"""One's own passkeys: listed, renamed and removed."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import delete, select, update

from app.extensions import db
from app.models.passkey import Passkey
from app.operations import audit
from app.operations.passkeys.records import (
    PREFIX,
    PasskeyView,
    has_passkey_that_signs_in,
    passkeys_of,
    view_of,
)
from app.operations.people.freshness import require_fresh_sign_in
from app.operations.second_factors.enrolment import own_account_of
from app.operations.second_factors.removal import finish_removing
from app.operations.transaction import count_changed, read, transaction
from app.rules.actor import Actor
from app.rules.errors import Conflict, NotFound
from app.rules.identifiers import parse_public_id, public_id
from app.rules.people.passkeys import checked_name
from app.rules.people.second_factors import PASSKEY


class LastWayIn(Conflict):
    """Nobody signs in with a password here, and without this passkey its owner never would again."""

    code = "last_way_in"


@read
def list_passkeys(actor: Actor) -> tuple[PasskeyView, ...]:
    """The actor's own passkeys, the newest first. Raises Forbidden."""
    organization, user_id = own_account_of(actor)
    return passkeys_of(organization.id, user_id)


@read
def get_passkey(actor: Actor, passkey_id: str) -> PasskeyView:
    """The actor's own passkey ``pky_…``. Raises NotFound for anybody else's, Forbidden."""
    organization, user_id = own_account_of(actor)
    row = db.session.scalar(
        select(Passkey).where(
            Passkey.organization_id == organization.id,
            Passkey.id == _id_of(passkey_id),
            Passkey.user_id == user_id,
        )
    )
    if row is None:
        raise NotFound("There is no such passkey.")
    return view_of(row)


@transaction
def rename_passkey(actor: Actor, passkey_id: str, name: str) -> None:
    """The passkey is called so. Raises NotFound, InvalidInput naming ``name``. Audit: ``passkey.renamed``."""
    passkey = get_passkey(actor, passkey_id)
    chosen = checked_name(name)
    if chosen == passkey.name:
        return
    _changed_one(
        count_changed(
            update(Passkey)
            .where(Passkey.organization_id == actor.organization_id, Passkey.id == passkey.id)
            .values(name=chosen)
        )
    )
    audit.record(
        actor,
        "passkey.renamed",
        target_type="user",
        target_id=public_id("usr", passkey.user_id),
        before={"passkey": passkey.public_id, "name": passkey.name},
        after={"passkey": passkey.public_id, "name": chosen},
    )


@transaction
def remove_passkey(actor: Actor, passkey_id: str) -> str | None:
    """The passkey signs in nobody any more; other sign-ins and what apps hold have ended (SS-6).

    Returns the new value of this browser's cookie. Raises FreshSignInRequired, which asks for the second factor too,
    NotFound, FactorDemanded, LastWayIn. Audit: ``passkey.removed`` and ``second_factor.removed``.
    """
    organization, user_id = own_account_of(actor)
    require_fresh_sign_in(actor)
    passkey = get_passkey(actor, passkey_id)
    _changed_one(
        count_changed(
            delete(Passkey).where(Passkey.organization_id == actor.organization_id, Passkey.id == passkey.id)
        )
    )
    by_password = organization.settings["authentication"]["password"]["enabled"]
    if not by_password and not has_passkey_that_signs_in(organization.id, user_id):
        raise LastWayIn(
            "Nobody signs in with a password here, so this is your only way in. Register another passkey first."
        )
    audit.record(
        actor,
        "passkey.removed",
        target_type="user",
        target_id=public_id("usr", user_id),
        before={"passkey": passkey.public_id, "name": passkey.name},
    )
    return finish_removing(actor, organization, user_id, PASSKEY)


def _id_of(text: str) -> UUID:
    found = parse_public_id(PREFIX, text)
    if found is None:
        raise NotFound("There is no such passkey.")
    return found


def _changed_one(number: int) -> None:
    if number != 1:
        raise NotFound("There is no such passkey.")
