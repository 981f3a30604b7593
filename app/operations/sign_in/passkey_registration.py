"""Registering a passkey: by somebody who has just signed in, or whose sign-in waits for a second factor."""

from __future__ import annotations

import os
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from app.extensions import db
from app.models.second_factor import Passkey, PasskeyHandle
from app.operations.directory.lookups import OrganizationSnapshot
from app.operations.directory.users import get_user
from app.operations.sign_in.factor_enrollment import (
    AddedFactor,
    EnrollmentAtSignIn,
    complete_enrollment,
    complete_enrollment_at_sign_in,
    complete_factor_removal,
    get_own_account,
    get_pending_enrollment,
    require_method_allowed,
)
from app.operations.sign_in.passkeys import (
    PUBLIC_ID_PREFIX,
    REGISTER,
    CreatedPasskey,
    PasskeyRecord,
    challenge_in_response,
    consume_challenge,
    count_passkeys_of_users,
    find_relying_party,
    get_relying_party,
    has_passwordless_passkey,
    issue_challenge,
    list_descriptors,
    list_passkeys_of_user,
    passkey_record,
    validate_challenge,
    verify_registration,
)
from app.operations.sign_in.reauthentication import require_fresh_sign_in
from app.operations.sign_in.sign_in import Browser
from app.operations.store import audit, clock
from app.operations.store.transactions import count_changed, current_unit_of_work, read, transaction
from app.rules.actor import Actor
from app.rules.errors import Conflict, NotFound
from app.rules.identifiers import new_id, parse_public_id, public_id
from app.rules.sign_in.browser_names import browser_name
from app.rules.sign_in.passkeys import (
    MAX_PASSKEYS_PER_USER,
    RegistrationResponse,
    creation_options,
    is_passkey_registration_enabled,
    normalize_passkey_name,
    parse_registration_response,
    passkey_amr,
)
from app.rules.sign_in.second_factors import PASSKEY, allowed_methods


@dataclass(frozen=True, slots=True)
class VerifiedPasskey:
    """A passkey that may be stored, under the name that it shall have."""

    made: CreatedPasskey
    answer: RegistrationResponse
    name: str
    user_agent: str

    @property
    def proved(self) -> tuple[str, ...]:
        return passkey_amr(may_sync=self.made.may_sync, alone=False)


@read
def can_register_passkey(actor: Actor) -> bool:
    """Whether the actor may have one more passkey, at this address. Raises Forbidden."""
    organization, user_id = get_own_account(actor)
    return find_relying_party() is not None and _why_not(organization, user_id) is None


def begin_registration(actor: Actor, browser: Browser) -> Mapping[str, Any]:
    """What the browser is asked, as JSON (PublicKeyCredentialCreationOptions), for a passkey of the actor's own.

    Raises FreshSignInRequired, Conflict where there may be no more, Forbidden.
    """
    organization, user_id = get_own_account(actor)
    require_fresh_sign_in(actor)
    _require_room(organization, user_id)
    return _options(organization, user_id, browser)


def finish_registration(actor: Actor, text: str, name: str, browser: Browser) -> AddedFactor:
    """The actor has the passkey of the browser's answer; other sign-ins and what apps hold have ended (SS-6).

    Without a ``name`` it is called after the browser. Raises FreshSignInRequired, BadAnswer, NotVerified,
    ChallengeEnded, InvalidInput naming ``name``, Conflict when it is registered already. Audit:
    ``passkey.registered`` and ``second_factor.added``.
    """
    organization, user_id = get_own_account(actor)
    require_fresh_sign_in(actor)
    _require_room(organization, user_id)
    verified = verify_new_passkey(organization, REGISTER, str(user_id), text, name, browser)
    return _add(actor, organization, user_id, verified, browser.known)


def begin_registration_at_sign_in(
    organization: OrganizationSnapshot, token: str, browser: Browser
) -> Mapping[str, Any] | None:
    """As ``begin_registration``, for somebody whose sign-in waits for a second factor; None where passkeys are none.

    Raises SignInEnded.
    """
    user_id = get_pending_enrollment(organization, token, browser.id).pending.user_id
    is_taken = PASSKEY in allowed_methods(organization.settings)
    if not is_taken or find_relying_party() is None or _why_not(organization, user_id) is not None:
        return None
    return _options(organization, user_id, browser)


def finish_registration_at_sign_in(
    actor: Actor, organization: OrganizationSnapshot, token: str, text: str, name: str, browser: Browser
) -> EnrollmentAtSignIn:
    """As ``finish_registration``, for a sign-in that waits for it, which goes on. Raises SignInEnded too."""
    waiting = get_pending_enrollment(organization, token, browser.id)
    require_method_allowed(organization, PASSKEY)
    user_id = waiting.pending.user_id
    _require_room(organization, user_id)
    verified = verify_new_passkey(organization, REGISTER, str(user_id), text, name, browser)
    return _add_at_sign_in(actor, organization, token, verified, browser)


@transaction
def _add(
    actor: Actor, organization: OrganizationSnapshot, user_id: UUID, verified: VerifiedPasskey, known: str
) -> AddedFactor:
    store_passkey(actor, organization, user_id, verified)
    return complete_enrollment(actor, organization, user_id, PASSKEY, proved=verified.proved, known=known)


@transaction
def _add_at_sign_in(
    actor: Actor, organization: OrganizationSnapshot, token: str, verified: VerifiedPasskey, browser: Browser
) -> EnrollmentAtSignIn:
    # Asked again within the unit, before anything is stored: a sign-in goes on once.
    waiting = get_pending_enrollment(organization, token, browser.id)
    person = waiting.pending.person(actor)
    store_passkey(person, organization, waiting.pending.user_id, verified)
    return complete_enrollment_at_sign_in(actor, waiting, PASSKEY, proved=verified.proved, browser=browser)


def verify_new_passkey(
    organization: OrganizationSnapshot, purpose: str, whose: str, text: str, name: str, browser: Browser
) -> VerifiedPasskey:
    """The answer is right and its challenge, made for the purpose and for ``whose``, is used.

    Not in a unit of work, for it takes time and counts once. Raises as ``finish_registration``.
    """
    party = get_relying_party()
    chosen = normalize_passkey_name(name if name.strip() else browser_name(browser.user_agent))
    answer = parse_registration_response(text)
    challenge = challenge_in_response(answer)
    validate_challenge(organization, purpose, browser.id, challenge, whose)
    made = verify_registration(party, answer, challenge)
    consume_challenge(organization, challenge)
    return VerifiedPasskey(made, answer, chosen, browser.user_agent)


@transaction
def store_passkey(
    actor: Actor, organization: OrganizationSnapshot, user_id: UUID, verified: VerifiedPasskey
) -> None:
    """The user has the passkey. Raises Conflict when it is registered already. Audit: ``passkey.registered``."""
    made, passkey_id = verified.made, current_unit_of_work().stable_value("passkey", new_id)
    printable = "".join(char for char in verified.user_agent if char.isprintable())
    try:
        with db.session.begin_nested():
            db.session.execute(
                insert(Passkey).values(
                    organization_id=organization.id,
                    id=passkey_id,
                    user_id=user_id,
                    credential_id=made.credential_id,
                    public_key=made.public_key,
                    sign_count=made.sign_count,
                    transports=" ".join(verified.answer.transports),
                    aaguid=made.aaguid,
                    name=verified.name,
                    may_sync=made.may_sync,
                    is_synced=made.is_synced,
                    signs_in_alone=verified.answer.is_discoverable and made.was_verified,
                    user_agent=printable[:255],
                    created_at=clock.now(),
                )
            )
    except IntegrityError:
        raise Conflict("This passkey is registered already.", code="passkey_exists") from None
    audit.record(
        actor,
        "passkey.registered",
        target_type="user",
        target_id=public_id("usr", user_id),
        after={
            "passkey": public_id(PUBLIC_ID_PREFIX, passkey_id),
            "name": verified.name,
            "synced": made.is_synced,
        },
    )


def _options(organization: OrganizationSnapshot, user_id: UUID, browser: Browser) -> Mapping[str, Any]:
    party = get_relying_party()
    user = get_user(organization.id, user_id)
    return creation_options(
        party,
        issue_challenge(organization, REGISTER, browser.id, str(user_id)),
        title=organization.settings["branding"]["display_name"] or organization.name,
        handle=_handle_of(organization.id, user_id),
        email=user.email,
        name=user.name,
        known=list_descriptors(organization.id, user_id),
    )


def _require_room(organization: OrganizationSnapshot, user_id: UUID) -> None:
    why_not = _why_not(organization, user_id)
    if why_not is not None:
        raise why_not


@read
def _why_not(organization: OrganizationSnapshot, user_id: UUID) -> Conflict | None:
    """Why no passkey may be registered. Those who come at one moment may be a few more than the bound."""
    if not is_passkey_registration_enabled(organization.settings):
        return Conflict("This organization does not let people register passkeys.", code="passkeys_off")
    if count_passkeys_of_users(organization.id, [user_id]).get(user_id, 0) >= MAX_PASSKEYS_PER_USER:
        return Conflict(
            f"You have {MAX_PASSKEYS_PER_USER} passkeys, and nobody may have more. Remove one first.",
            code="too_many_passkeys",
        )
    return None


@transaction
def _handle_of(organization_id: str, user_id: UUID) -> str:
    """What authenticators call the user, made at the first passkey."""
    found = select(PasskeyHandle.handle).where(
        PasskeyHandle.organization_id == organization_id, PasskeyHandle.user_id == user_id
    )
    handle = db.session.scalar(found)
    if handle is not None:
        return handle
    made = current_unit_of_work().stable_value(
        "handle", lambda: urlsafe_b64encode(os.urandom(32)).rstrip(b"=").decode()
    )
    try:
        with db.session.begin_nested():
            db.session.execute(
                insert(PasskeyHandle).values(organization_id=organization_id, user_id=user_id, handle=made)
            )
    except IntegrityError:
        # Another page of the same person made one in the meantime.
        return db.session.scalars(found.with_for_update()).one()
    return made


class LastSignInMethod(Conflict):
    """Nobody signs in with a password here, and without this passkey its owner never would again."""

    code = "last_way_in"


@read
def list_passkeys(actor: Actor) -> tuple[PasskeyRecord, ...]:
    """The actor's own passkeys, the newest first. Raises Forbidden."""
    organization, user_id = get_own_account(actor)
    return list_passkeys_of_user(organization.id, user_id)


@read
def get_passkey(actor: Actor, passkey_id: str) -> PasskeyRecord:
    """The actor's own passkey ``pky_…``. Raises NotFound for anybody else's, Forbidden."""
    organization, user_id = get_own_account(actor)
    row = db.session.scalar(
        select(Passkey).where(
            Passkey.organization_id == organization.id,
            Passkey.id == _id_of(passkey_id),
            Passkey.user_id == user_id,
        )
    )
    if row is None:
        raise NotFound("There is no such passkey.")
    return passkey_record(row)


@transaction
def rename_passkey(actor: Actor, passkey_id: str, name: str) -> None:
    """The passkey is called so. Raises NotFound, InvalidInput naming ``name``. Audit: ``passkey.renamed``."""
    passkey = get_passkey(actor, passkey_id)
    chosen = normalize_passkey_name(name)
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
    organization, user_id = get_own_account(actor)
    require_fresh_sign_in(actor)
    passkey = get_passkey(actor, passkey_id)
    _changed_one(
        count_changed(
            delete(Passkey).where(Passkey.organization_id == actor.organization_id, Passkey.id == passkey.id)
        )
    )
    by_password = organization.settings["authentication"]["password"]["enabled"]
    if not by_password and not has_passwordless_passkey(organization.id, user_id):
        raise LastSignInMethod(
            "Nobody signs in with a password here, so this is your only way in. Register another passkey first."
        )
    audit.record(
        actor,
        "passkey.removed",
        target_type="user",
        target_id=public_id("usr", user_id),
        before={"passkey": passkey.public_id, "name": passkey.name},
    )
    return complete_factor_removal(actor, organization, user_id, PASSKEY)


def _id_of(text: str) -> UUID:
    found = parse_public_id(PUBLIC_ID_PREFIX, text)
    if found is None:
        raise NotFound("There is no such passkey.")
    return found


def _changed_one(number: int) -> None:
    if number != 1:
        raise NotFound("There is no such passkey.")
