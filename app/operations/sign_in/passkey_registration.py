"""Registering and managing passkeys of one's own account, also during a sign-in that requires a factor."""

from __future__ import annotations

import os
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from msgspec import Struct
from sqlalchemy import delete, insert, select, update

from app.extensions import db
from app.models.base import has_key, is_of_user
from app.models.second_factor import Passkey, PasskeyHandle
from app.operations.directory.snapshots import OrganizationSnapshot
from app.operations.directory.users import get_user, hold_user
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
    count_passkeys,
    find_relying_party,
    get_relying_party,
    issue_challenge,
    list_descriptors,
    list_passkeys_of_user,
    passkey_record,
    validate_challenge,
    verify_registration,
)
from app.operations.sign_in.reauthentication import require_fresh_sign_in
from app.operations.sign_in.sign_in import Browser
from app.operations.sign_in.usable_identities import can_sign_in
from app.operations.store import audit, clock
from app.operations.store.transactions import (
    count_changed,
    current_unit_of_work,
    insert_or_update,
    read,
    savepoint,
    transaction,
)
from app.rules.actor import Actor
from app.rules.errors import Conflict, NotFound
from app.rules.identifiers import new_id, parse_public_id, public_id
from app.rules.languages.translation import lazy_gettext
from app.rules.sign_in.browser_names import browser_name, printable_user_agent
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


class VerifiedPasskey(Struct, frozen=True):
    """A verified passkey that may be stored, with its name."""

    created: CreatedPasskey
    response: RegistrationResponse
    name: str
    user_agent: str

    @property
    def methods(self) -> tuple[str, ...]:
        """Return the authentication methods (``amr``) of the registration."""
        return passkey_amr(may_sync=self.created.may_sync, passwordless=False)


class LastSignInMethod(Conflict):
    """Without this passkey its owner could not sign in again."""

    code = "last_way_in"


@read
def can_register_passkey(actor: Actor) -> bool:
    """Return whether the actor may register another passkey at the configured URL. Raises Forbidden."""
    organization, user_id = get_own_account(actor)
    return find_relying_party() is not None and _registration_error(organization, user_id) is None


def begin_registration(actor: Actor, browser: Browser) -> Mapping[str, Any]:
    """Return the PublicKeyCredentialCreationOptions as JSON for a new passkey of the actor.

    Raises FreshSignInRequired, Forbidden, and Conflict if no further passkey is allowed.
    """
    organization, user_id = get_own_account(actor)
    require_fresh_sign_in(actor)
    _require_registration_allowed(organization, user_id)
    return _creation_options(organization, user_id, browser)


def finish_registration(actor: Actor, response_json: str, name: str, browser: Browser) -> AddedFactor:
    """Store the passkey of the browser's response, and end the user's other sessions and grants (SS-6).

    Without a ``name`` it is named after the browser. Raises FreshSignInRequired, InvalidPasskeyResponse,
    PasskeyNotVerified, InvalidChallenge, InvalidInput naming ``name``, Conflict when it is registered
    already. Audit: ``passkey.registered`` and ``second_factor.added``.
    """
    organization, user_id = get_own_account(actor)
    require_fresh_sign_in(actor)
    _require_registration_allowed(organization, user_id)
    verified = verify_new_passkey(organization, REGISTER, str(user_id), response_json, name, browser)
    return _store_and_complete(actor, organization, user_id, verified, browser.known_cookie)


def begin_registration_at_sign_in(
    organization: OrganizationSnapshot, token: str, browser: Browser
) -> Mapping[str, Any] | None:
    """Return the creation options for a sign-in that waits for a factor, None if passkeys are unavailable.

    Raises SignInEnded.
    """
    user_id = get_pending_enrollment(organization, token, browser.id).pending.user_id
    is_allowed = PASSKEY in allowed_methods(organization.settings)
    if (
        not is_allowed
        or find_relying_party() is None
        or _registration_error(organization, user_id) is not None
    ):
        return None
    return _creation_options(organization, user_id, browser)


def finish_registration_at_sign_in(
    actor: Actor,
    organization: OrganizationSnapshot,
    token: str,
    response_json: str,
    name: str,
    browser: Browser,
) -> EnrollmentAtSignIn:
    """Store the passkey as ``finish_registration`` does and continue the pending sign-in.

    Raises SignInEnded too.
    """
    enrollment = get_pending_enrollment(organization, token, browser.id)
    require_method_allowed(organization, PASSKEY)
    user_id = enrollment.pending.user_id
    _require_registration_allowed(organization, user_id)
    verified = verify_new_passkey(organization, REGISTER, str(user_id), response_json, name, browser)
    return _store_and_complete_at_sign_in(actor, organization, token, verified, browser)


def verify_new_passkey(
    organization: OrganizationSnapshot,
    purpose: str,
    subject: str,
    response_json: str,
    name: str,
    browser: Browser,
) -> VerifiedPasskey:
    """Verify the response to a challenge issued for the purpose and subject, and consume the challenge.

    Call it outside of a transaction, because it takes time and a challenge is used once. Raises as
    ``finish_registration``.
    """
    party = get_relying_party()
    chosen_name = normalize_passkey_name(name if name.strip() else browser_name(browser.user_agent))
    response = parse_registration_response(response_json)
    challenge = challenge_in_response(response)
    validate_challenge(organization, purpose, browser.id, challenge, subject)
    created = verify_registration(party, response, challenge)
    consume_challenge(organization, challenge)
    return VerifiedPasskey(created, response, chosen_name, browser.user_agent)


@transaction
def store_passkey(
    actor: Actor, organization: OrganizationSnapshot, user_id: UUID, verified: VerifiedPasskey
) -> None:
    """Store the user's passkey.

    Raises Conflict when it is registered already. Audit: ``passkey.registered``.
    """
    created, passkey_id = verified.created, current_unit_of_work().stable_value("passkey", new_id)
    duplicate = Conflict("This passkey is already registered.", code="passkey_exists")
    with savepoint(on_duplicate=duplicate):
        db.session.execute(
            insert(Passkey).values(
                organization_id=organization.id,
                id=passkey_id,
                user_id=user_id,
                credential_id=created.credential_id,
                public_key=created.public_key,
                sign_count=created.sign_count,
                transports=" ".join(verified.response.transports),
                aaguid=created.aaguid,
                name=verified.name,
                may_sync=created.may_sync,
                is_synced=created.is_synced,
                signs_in_alone=verified.response.is_discoverable and created.was_verified,
                user_agent=printable_user_agent(verified.user_agent),
                created_at=clock.now(),
            )
        )
    audit.record_user_event(
        actor,
        "passkey.registered",
        user_id,
        after={
            "passkey": public_id(PUBLIC_ID_PREFIX, passkey_id),
            "name": verified.name,
            "synced": created.is_synced,
        },
    )


@read
def list_passkeys(actor: Actor) -> tuple[PasskeyRecord, ...]:
    """List the actor's own passkeys, newest first. Raises Forbidden."""
    organization, user_id = get_own_account(actor)
    return list_passkeys_of_user(organization.id, user_id)


@read
def get_passkey(actor: Actor, passkey_id: str) -> PasskeyRecord:
    """Return the actor's own passkey ``pky_…``. Raises NotFound, Forbidden."""
    organization, user_id = get_own_account(actor)
    row = db.session.scalar(
        select(Passkey).where(
            Passkey.organization_id == organization.id,
            Passkey.id == parse_public_id(PUBLIC_ID_PREFIX, passkey_id),
            Passkey.user_id == user_id,
        )
    )
    if row is None:
        raise _passkey_not_found()
    return passkey_record(row)


@transaction
def rename_passkey(actor: Actor, passkey_id: str, name: str) -> None:
    """Rename the actor's passkey.

    Raises NotFound, InvalidInput naming ``name``. Audit: ``passkey.renamed``.
    """
    passkey = get_passkey(actor, passkey_id)
    chosen_name = normalize_passkey_name(name)
    if chosen_name == passkey.name:
        return
    renamed = count_changed(
        update(Passkey).where(has_key(Passkey, actor.organization_id, passkey.id)).values(name=chosen_name)
    )
    if not renamed:
        raise _passkey_not_found()
    audit.record_user_event(
        actor,
        "passkey.renamed",
        passkey.user_id,
        before={"passkey": passkey.public_id, "name": passkey.name},
        after={"passkey": passkey.public_id, "name": chosen_name},
    )


@transaction
def remove_passkey(actor: Actor, passkey_id: str) -> str | None:
    """Remove the actor's passkey, end their other sessions and grants (SS-6), and return the new cookie.

    Raises FreshSignInRequired, which also requires the second factor, NotFound, SecondFactorRequired,
    LastSignInMethod. Audit: ``passkey.removed`` and ``second_factor.removed``.
    """
    organization, user_id = get_own_account(actor)
    require_fresh_sign_in(actor)
    passkey = get_passkey(actor, passkey_id)
    hold_user(organization.id, user_id)
    removed = count_changed(delete(Passkey).where(has_key(Passkey, actor.organization_id, passkey.id)))
    if not removed:
        raise _passkey_not_found()
    if not can_sign_in(organization, get_user(organization.id, user_id)):
        raise LastSignInMethod("This passkey is your only way to sign in. Add another passkey first.")
    audit.record_user_event(
        actor, "passkey.removed", user_id, before={"passkey": passkey.public_id, "name": passkey.name}
    )
    return complete_factor_removal(actor, organization, user_id, PASSKEY)


@transaction
def _store_and_complete(
    actor: Actor,
    organization: OrganizationSnapshot,
    user_id: UUID,
    verified: VerifiedPasskey,
    known_cookie: str,
) -> AddedFactor:
    hold_user(organization.id, user_id)
    store_passkey(actor, organization, user_id, verified)
    return complete_enrollment(
        actor, organization, user_id, PASSKEY, methods=verified.methods, known_cookie=known_cookie
    )


@transaction
def _store_and_complete_at_sign_in(
    actor: Actor, organization: OrganizationSnapshot, token: str, verified: VerifiedPasskey, browser: Browser
) -> EnrollmentAtSignIn:
    # Checked again within the transaction, before anything is stored, because a sign-in continues only once.
    enrollment = get_pending_enrollment(organization, token, browser.id)
    user_actor = enrollment.pending.to_actor(actor)
    hold_user(organization.id, enrollment.pending.user_id)
    store_passkey(user_actor, organization, enrollment.pending.user_id, verified)
    return complete_enrollment_at_sign_in(
        actor, enrollment, PASSKEY, methods=verified.methods, browser=browser
    )


def _creation_options(
    organization: OrganizationSnapshot, user_id: UUID, browser: Browser
) -> Mapping[str, Any]:
    party = get_relying_party()
    user = get_user(organization.id, user_id)
    return creation_options(
        party,
        issue_challenge(organization, REGISTER, browser.id, str(user_id)),
        title=organization.title,
        handle=_get_or_create_handle(organization.id, user_id),
        email=user.email,
        name=user.name,
        existing=list_descriptors(organization.id, user_id),
    )


def _require_registration_allowed(organization: OrganizationSnapshot, user_id: UUID) -> None:
    error = _registration_error(organization, user_id)
    if error is not None:
        raise error


def _registration_error(organization: OrganizationSnapshot, user_id: UUID) -> Conflict | None:
    """Return why no passkey may be registered, or None.

    Concurrent registrations may exceed the limit slightly.
    """
    if not is_passkey_registration_enabled(organization.settings):
        return Conflict("This organization doesn't allow passkeys.", code="passkeys_off")
    if count_passkeys(organization.id, user_id) >= MAX_PASSKEYS_PER_USER:
        return Conflict(
            lazy_gettext(
                "You have %(max)s passkeys, which is the limit. Remove one first.", max=MAX_PASSKEYS_PER_USER
            ),
            code="too_many_passkeys",
        )
    return None


@transaction
def _get_or_create_handle(organization_id: str, user_id: UUID) -> str:
    """Return the user's WebAuthn user handle, which is created with the first passkey."""
    select_handle = select(PasskeyHandle.handle).where(is_of_user(PasskeyHandle, organization_id, user_id))
    handle = db.session.scalar(select_handle)
    if handle is not None:
        return handle
    created = current_unit_of_work().stable_value(
        "handle", lambda: urlsafe_b64encode(os.urandom(32)).rstrip(b"=").decode()
    )
    key = {"organization_id": organization_id, "user_id": user_id}
    insert_or_update(PasskeyHandle, key, {}, handle=created)
    # A concurrent request of the same user may have created another one.
    return db.session.scalars(select_handle).one()


def _passkey_not_found() -> NotFound:
    return NotFound("There is no such passkey.")
