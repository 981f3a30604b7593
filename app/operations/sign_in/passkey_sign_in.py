"""Signing in with a passkey: alone, where it is both factors, or after the password, where it is the second.

A counter that went back is refused and not only noted: either a copy of the key is about, or the authenticator lies,
and its owner has other ways in. What is synced never counts, and is not touched by this.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal
from uuid import UUID

from sqlalchemy import select, update

from app.extensions import db
from app.models.second_factor import Passkey
from app.models.user import ACTIVE
from app.operations.directory.lookups import OrganizationSnapshot, get_organization_by_id
from app.operations.mail.notices import notify_user
from app.operations.sign_in.passkeys import (
    PUBLIC_ID_PREFIX,
    SECOND_FACTOR,
    SIGN_IN,
    InvalidChallenge,
    PasskeyAssertion,
    PasskeyNotVerified,
    PasskeysUnavailable,
    StoredPasskey,
    challenge_in_response,
    consume_challenge,
    find_passkey_by_credential,
    find_relying_party,
    get_relying_party,
    issue_challenge,
    list_descriptors,
    validate_challenge,
    verify_assertion,
)
from app.operations.sign_in.pending_sign_ins import PendingSignInRecord, get_pending_sign_in
from app.operations.sign_in.sign_in import (
    Browser,
    SecondStepRequired,
    SignedIn,
    complete_first_factor,
    complete_second_factor,
)
from app.operations.store import audit, clock, rate_limits
from app.operations.store.transactions import count_changed, transaction
from app.rules.actor import Actor
from app.rules.identifiers import public_id
from app.rules.sign_in.passkeys import (
    AuthenticationResponse,
    InvalidPasskeyResponse,
    is_passwordless_enabled,
    is_sign_count_valid,
    parse_authentication_response,
    passkey_amr,
    request_options,
)

MAX_AUDITED_FAILURES = 20
"""Of one passkey in an hour: whoever knows its id must not fill the audit log."""

PasskeyRefusalReason = Literal["expired", "unknown", "copied", "disabled", "suspended", "off"]


@dataclass(frozen=True, slots=True)
class PasskeyRefused:
    """Why nobody was signed in. ``unknown`` is everything about the passkey itself, another organization's too."""

    reason: PasskeyRefusalReason


def is_passkey_sign_in_offered(organization: OrganizationSnapshot) -> bool:
    """Whether people of the organization may sign in by a passkey alone, at this address."""
    return (
        organization.is_active
        and is_passwordless_enabled(organization.settings)
        and find_relying_party() is not None
    )


def begin_passkey_sign_in(organization: OrganizationSnapshot, browser_id: str) -> Mapping[str, Any]:
    """What the browser is asked, as JSON (PublicKeyCredentialRequestOptions), for a sign-in by a passkey alone.

    It names nobody. Raises NoPasskeysHere where that is not offered.
    """
    if not is_passkey_sign_in_offered(organization):
        raise PasskeysUnavailable
    return request_options(
        get_relying_party(), issue_challenge(organization, SIGN_IN, browser_id), alone=True
    )


def sign_in_with_passkey(
    actor: Actor, organization: OrganizationSnapshot, text: str, browser: Browser
) -> SignedIn | SecondStepRequired | PasskeyRefused:
    """The sign-in of the person whose passkey answered, or why not; nothing is raised for a wrong passkey.

    The authenticator must have verified them and say whose it is. ``actor`` is the anonymous one. Audit: that of
    ``complete_first_proof``, ``sign_in.failed`` of a passkey that is known, ``passkey.counter_went_back``.
    """
    organization = get_organization_by_id(organization.id)
    if not organization.is_active:
        return PasskeyRefused("suspended")
    if not is_passkey_sign_in_offered(organization):
        return PasskeyRefused("off")
    key = None
    try:
        answer = parse_authentication_response(text)
        challenge = challenge_in_response(answer)
        validate_challenge(organization, SIGN_IN, browser.id, challenge)
        key = find_passkey_by_credential(organization.id, answer.credential_id)
        used = _verify(key, answer, challenge, alone=True)
        consume_challenge(organization, challenge)
    except InvalidChallenge:
        return PasskeyRefused("expired")
    except (InvalidPasskeyResponse, PasskeyNotVerified):
        _note_failure(actor, organization, key, "passkey")
        return PasskeyRefused("unknown")
    if key is None or key.user_status != ACTIVE:
        _note_failure(actor, organization, key, "disabled")
        return PasskeyRefused("disabled")
    return _accept(actor, organization, key, used, browser)


def begin_passkey_second_factor(
    organization: OrganizationSnapshot, token: str, browser: Browser
) -> Mapping[str, Any] | None:
    """What the browser is asked, as JSON, for the sign-in that waits; None when its person has no passkey.

    Raises SignInEnded.
    """
    pending = get_pending_sign_in(organization, token, browser.id)
    known = list_descriptors(organization.id, pending.user_id)
    party = find_relying_party()
    if not known or party is None:
        return None
    challenge = issue_challenge(organization, SECOND_FACTOR, browser.id, str(pending.id))
    return request_options(party, challenge, known=known, alone=False)


def verify_passkey_second_factor(
    actor: Actor, organization: OrganizationSnapshot, token: str, text: str, browser: Browser
) -> SignedIn | SecondStepRequired | PasskeyRefused:
    """The sign-in that waits goes on by a passkey of its person, or why not.

    Whoever has one may use it here, also where no new ones may be registered. Raises SignInEnded. Audit: as
    ``sign_in_with_passkey``, and ``second_factor.failed``.
    """
    pending = get_pending_sign_in(organization, token, browser.id)
    try:
        answer = parse_authentication_response(text)
        challenge = challenge_in_response(answer)
        validate_challenge(organization, SECOND_FACTOR, browser.id, challenge, str(pending.id))
        key = find_passkey_by_credential(organization.id, answer.credential_id)
        if key is None or key.user_id != pending.user_id:
            raise PasskeyNotVerified
        used = _verify(key, answer, challenge, alone=False)
        consume_challenge(organization, challenge)
    except InvalidChallenge:
        return PasskeyRefused("expired")
    except (InvalidPasskeyResponse, PasskeyNotVerified):
        _note_second_failure(actor, organization, pending)
        return PasskeyRefused("unknown")
    return _accept_second(actor, organization, pending, key, used, browser)


def _verify(
    key: StoredPasskey | None, answer: AuthenticationResponse, challenge: str, *, alone: bool
) -> PasskeyAssertion:
    """What its authenticator says. Raises NotVerified for an unknown key and for one that is another person's."""
    if key is None or answer.handle not in ((key.handle,) if alone else (key.handle, None)):
        raise PasskeyNotVerified
    used = verify_assertion(get_relying_party(), answer, challenge, key.public_key, alone=alone)
    # Whether a key may be copied is settled when it is made (WebAuthn section 7.2, step 19).
    if used.may_sync != key.may_sync:
        raise PasskeyNotVerified
    return used


@transaction
def _accept(
    actor: Actor,
    organization: OrganizationSnapshot,
    key: StoredPasskey,
    used: PasskeyAssertion,
    browser: Browser,
) -> SignedIn | SecondStepRequired | PasskeyRefused:
    refused = _count(actor, organization, key, used, alone=True)
    if refused is not None:
        return refused
    amr = passkey_amr(may_sync=key.may_sync, alone=True)
    return complete_first_factor(actor, organization, key.user_id, amr=amr, browser=browser)


@transaction
def _accept_second(
    actor: Actor,
    organization: OrganizationSnapshot,
    pending: PendingSignInRecord,
    key: StoredPasskey,
    used: PasskeyAssertion,
    browser: Browser,
) -> SignedIn | SecondStepRequired | PasskeyRefused:
    refused = _count(actor, organization, key, used, alone=False)
    if refused is not None:
        return refused
    proved = passkey_amr(may_sync=key.may_sync, alone=False)
    return complete_second_factor(actor, organization, pending, proved, browser)


def _count(
    actor: Actor,
    organization: OrganizationSnapshot,
    key: StoredPasskey,
    used: PasskeyAssertion,
    *,
    alone: bool,
) -> PasskeyRefused | None:
    """The use is noted, unless the counter went back: the row count decides between two at once."""
    # Whoever signed in alone by it has shown that it can, whatever the browser said when it was made.
    learned = {"signs_in_alone": True} if alone else {}
    moved = Passkey.sign_count < used.sign_count if used.sign_count else Passkey.sign_count == 0
    noted = count_changed(
        update(Passkey)
        .where(
            Passkey.organization_id == organization.id,
            Passkey.id == key.id,
            moved,
        )
        .values(sign_count=used.sign_count, is_synced=used.is_synced, last_used_at=clock.now(), **learned)
    )
    if noted:
        return None
    stored = db.session.scalar(
        select(Passkey.sign_count).where(Passkey.organization_id == organization.id, Passkey.id == key.id)
    )
    if stored is None or is_sign_count_valid(stored, used.sign_count):
        return PasskeyRefused("unknown")
    owner = Actor.anonymous(organization.id, actor.ip_address, actor.request_id)
    audit.record(
        owner,
        "passkey.counter_went_back",
        target_type="user",
        target_id=public_id("usr", key.user_id),
        before={"passkey": public_id(PUBLIC_ID_PREFIX, key.id), "sign_count": stored},
        after={"sign_count": used.sign_count},
    )
    notify_user(actor, key.user_id, "passkey_refused", passkey=key.name)
    return PasskeyRefused("copied")


@transaction
def _note_failure(
    actor: Actor, organization: OrganizationSnapshot, key: StoredPasskey | None, reason: str
) -> None:
    if key is None or not _is_worth_noting(organization, key.id):
        return
    after = {"email": key.email, "reason": reason, "passkey": public_id(PUBLIC_ID_PREFIX, key.id)}
    audit.record(
        actor, "sign_in.failed", target_type="user", target_id=public_id("usr", key.user_id), after=after
    )


@transaction
def _note_second_failure(
    actor: Actor, organization: OrganizationSnapshot, pending: PendingSignInRecord
) -> None:
    if _is_worth_noting(organization, pending.user_id):
        audit.record(
            actor, "second_factor.failed", target_type="user", target_id=public_id("usr", pending.user_id)
        )


def _is_worth_noting(organization: OrganizationSnapshot, of: UUID) -> bool:
    bucket = rate_limits.bucket_key("passkey failure", str(of))
    return rate_limits.consume_quota(organization.id, bucket, MAX_AUDITED_FAILURES, timedelta(hours=1))
