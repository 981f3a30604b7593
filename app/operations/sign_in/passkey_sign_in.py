"""Signing in with a passkey, either alone as both factors or as the second factor after a password.

A signature counter that went backwards is rejected, not only recorded: the key was copied or the
authenticator is faulty, and its owner has other ways to sign in. Synced passkeys never count and are not
affected.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Literal
from uuid import UUID

from msgspec import Struct
from sqlalchemy import select, update

from app.extensions import db
from app.models.base import has_key
from app.models.second_factor import Passkey
from app.models.user import ACTIVE
from app.operations.directory.lookups import get_organization_by_id
from app.operations.directory.snapshots import OrganizationSnapshot
from app.operations.directory.users import hold_user
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
    is_passkey_sign_in_available,
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
    is_sign_count_valid,
    parse_authentication_response,
    passkey_amr,
    request_options,
)

MAX_AUDITED_FAILURES = 20
"""Per passkey and hour, so that someone who knows its id cannot fill the audit log."""

PasskeyRefusalReason = Literal["expired", "unknown", "copied", "disabled", "suspended", "off"]


class PasskeyRefused(Struct, frozen=True):
    """The reason why a passkey sign-in was rejected. ``unknown`` covers every problem with the passkey itself."""

    reason: PasskeyRefusalReason


def is_passkey_sign_in_offered(organization: OrganizationSnapshot) -> bool:
    """Return whether users of the organization may sign in with a passkey alone at the configured URL."""
    return organization.is_active and is_passkey_sign_in_available(organization)


def begin_passkey_sign_in(organization: OrganizationSnapshot, browser_id: str) -> Mapping[str, Any]:
    """Return the PublicKeyCredentialRequestOptions as JSON for a sign-in with a passkey alone.

    The options identify no user. Raises PasskeysUnavailable if this is not offered.
    """
    if not is_passkey_sign_in_offered(organization):
        raise PasskeysUnavailable
    return request_options(
        get_relying_party(), issue_challenge(organization, SIGN_IN, browser_id), passwordless=True
    )


def sign_in_with_passkey(
    actor: Actor, organization: OrganizationSnapshot, response_json: str, browser: Browser
) -> SignedIn | SecondStepRequired | PasskeyRefused:
    """Sign in the user whose passkey answered the challenge, or return why not.

    The authenticator must have verified the user and name them. ``actor`` is the anonymous actor. Audit: as
    ``complete_first_factor``, ``sign_in.failed`` for a known passkey, ``passkey.counter_went_back``.
    """
    organization = get_organization_by_id(organization.id)
    if not organization.is_active:
        return PasskeyRefused("suspended")
    if not is_passkey_sign_in_offered(organization):
        return PasskeyRefused("off")
    passkey = None
    try:
        response = parse_authentication_response(response_json)
        challenge = challenge_in_response(response)
        validate_challenge(organization, SIGN_IN, browser.id, challenge)
        passkey = find_passkey_by_credential(organization.id, response.credential_id)
        assertion = _verify_assertion(passkey, response, challenge, passwordless=True)
        consume_challenge(organization, challenge)
    except InvalidChallenge:
        return PasskeyRefused("expired")
    except (InvalidPasskeyResponse, PasskeyNotVerified):
        _record_failure(actor, organization, passkey, "passkey")
        return PasskeyRefused("unknown")
    if passkey is None or passkey.user_status != ACTIVE:
        _record_failure(actor, organization, passkey, "disabled")
        return PasskeyRefused("disabled")
    return _complete(actor, organization, passkey, assertion, browser)


def begin_passkey_second_factor(
    organization: OrganizationSnapshot, token: str, browser: Browser
) -> Mapping[str, Any] | None:
    """Return the request options as JSON for a pending sign-in, or None if its user has no passkey.

    Raises SignInEnded.
    """
    pending = get_pending_sign_in(organization, token, browser.id)
    existing = list_descriptors(organization.id, pending.user_id)
    party = find_relying_party()
    if not existing or party is None:
        return None
    challenge = issue_challenge(organization, SECOND_FACTOR, browser.id, str(pending.id))
    return request_options(party, challenge, existing=existing, passwordless=False)


def verify_passkey_second_factor(
    actor: Actor, organization: OrganizationSnapshot, token: str, response_json: str, browser: Browser
) -> SignedIn | SecondStepRequired | PasskeyRefused:
    """Complete the second step of a sign-in with one of the user's passkeys, or return why not.

    Existing passkeys are accepted even where new ones may not be registered. Raises SignInEnded. Audit: as
    ``sign_in_with_passkey``, and ``second_factor.failed``.
    """
    pending = get_pending_sign_in(organization, token, browser.id)
    try:
        response = parse_authentication_response(response_json)
        challenge = challenge_in_response(response)
        validate_challenge(organization, SECOND_FACTOR, browser.id, challenge, str(pending.id))
        passkey = find_passkey_by_credential(organization.id, response.credential_id)
        if passkey is None or passkey.user_id != pending.user_id:
            raise PasskeyNotVerified
        assertion = _verify_assertion(passkey, response, challenge, passwordless=False)
        consume_challenge(organization, challenge)
    except InvalidChallenge:
        return PasskeyRefused("expired")
    except (InvalidPasskeyResponse, PasskeyNotVerified):
        _record_second_factor_failure(actor, organization, pending)
        return PasskeyRefused("unknown")
    return _complete(actor, organization, passkey, assertion, browser, pending)


def _verify_assertion(
    passkey: StoredPasskey | None, response: AuthenticationResponse, challenge: str, *, passwordless: bool
) -> PasskeyAssertion:
    """Verify the response with the passkey.

    Raises PasskeyNotVerified for an unknown one or another user's.
    """
    if passkey is None or response.handle not in (
        (passkey.handle,) if passwordless else (passkey.handle, None)
    ):
        raise PasskeyNotVerified
    assertion = verify_assertion(
        get_relying_party(), response, challenge, passkey.public_key, passwordless=passwordless
    )
    # Backup eligibility is fixed when the passkey is created (WebAuthn section 7.2, step 19).
    if assertion.may_sync != passkey.may_sync:
        raise PasskeyNotVerified
    return assertion


@transaction
def _complete(
    actor: Actor,
    organization: OrganizationSnapshot,
    passkey: StoredPasskey,
    assertion: PasskeyAssertion,
    browser: Browser,
    pending: PendingSignInRecord | None = None,
) -> SignedIn | SecondStepRequired | PasskeyRefused:
    """Complete the sign-in with the passkey alone, or the ``pending`` one with its second factor."""
    refused = _record_use(actor, organization, passkey, assertion, passwordless=pending is None)
    if refused is not None:
        return refused
    amr = passkey_amr(may_sync=passkey.may_sync, passwordless=pending is None)
    if pending is not None:
        return complete_second_factor(actor, organization, pending, amr, browser)
    return complete_first_factor(actor, organization, passkey.user_id, amr=amr, browser=browser)


def _record_use(
    actor: Actor,
    organization: OrganizationSnapshot,
    passkey: StoredPasskey,
    assertion: PasskeyAssertion,
    *,
    passwordless: bool,
) -> PasskeyRefused | None:
    """Record the use of the passkey, unless its counter went backwards. Locks its user, who signs in with it.

    The row count decides between concurrent uses.
    """
    hold_user(organization.id, passkey.user_id)
    # A sign-in with the passkey alone proves that it can do so, whatever the browser stated at registration.
    extra = {"signs_in_alone": True} if passwordless else {}
    counter_advanced = (
        Passkey.sign_count < assertion.sign_count if assertion.sign_count else Passkey.sign_count == 0
    )
    recorded = count_changed(
        update(Passkey)
        .where(has_key(Passkey, organization.id, passkey.id), counter_advanced)
        .values(
            sign_count=assertion.sign_count, is_synced=assertion.is_synced, last_used_at=clock.now(), **extra
        )
    )
    if recorded:
        return None
    stored = db.session.scalar(
        select(Passkey.sign_count).where(has_key(Passkey, organization.id, passkey.id))
    )
    if stored is None or is_sign_count_valid(stored, assertion.sign_count):
        return PasskeyRefused("unknown")
    anonymous = Actor.anonymous(organization.id, actor.ip_address, actor.request_id)
    audit.record_user_event(
        anonymous,
        "passkey.counter_went_back",
        passkey.user_id,
        before={"passkey": public_id(PUBLIC_ID_PREFIX, passkey.id), "sign_count": stored},
        after={"sign_count": assertion.sign_count},
    )
    notify_user(actor, passkey.user_id, "passkey_refused", passkey=passkey.name)
    return PasskeyRefused("copied")


@transaction
def _record_failure(
    actor: Actor, organization: OrganizationSnapshot, passkey: StoredPasskey | None, reason: str
) -> None:
    if passkey is None or not _should_audit_failure(organization, passkey.id):
        return
    after = {"email": passkey.email, "reason": reason, "passkey": public_id(PUBLIC_ID_PREFIX, passkey.id)}
    audit.record_user_event(actor, "sign_in.failed", passkey.user_id, after=after)


@transaction
def _record_second_factor_failure(
    actor: Actor, organization: OrganizationSnapshot, pending: PendingSignInRecord
) -> None:
    if _should_audit_failure(organization, pending.user_id):
        audit.record_user_event(actor, "second_factor.failed", pending.user_id)


def _should_audit_failure(organization: OrganizationSnapshot, of: UUID) -> bool:
    bucket = rate_limits.bucket_key("passkey failure", str(of))
    return rate_limits.consume_quota(organization.id, bucket, MAX_AUDITED_FAILURES, timedelta(hours=1))
