"""The passkeys of people: found, listed and counted, within one organization."""

from __future__ import annotations

import json
import os
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar
from uuid import UUID

from cryptography.exceptions import UnsupportedAlgorithm
from sqlalchemy import delete, func, select

from app.config import current
from app.extensions import db
from app.models.second_factor import Passkey, PasskeyHandle
from app.models.user import ACTIVE, User
from app.operations.directory.lookups import OrganizationSnapshot
from app.operations.store import clock, keyring, single_use
from app.operations.store.transactions import count_changed, read, transaction
from app.rules.errors import Conflict, DomainError
from app.rules.identifiers import public_id
from app.rules.sign_in.passkeys import (
    CHALLENGE_LIFETIME,
    MAX_PASSKEYS_PER_USER,
    NONCE_BYTES,
    AuthenticationResponse,
    ChallengeState,
    Descriptor,
    InvalidPasskeyResponse,
    RegistrationResponse,
    RelyingParty,
    check_challenge,
    create_challenge,
    relying_party,
)

PUBLIC_ID_PREFIX = "pky"
UNKNOWN_AAGUID = UUID(int=0)


@dataclass(frozen=True, slots=True)
class PasskeyRecord:
    """A passkey without its key. ``aaguid`` is None where the authenticator does not say what it is."""

    id: UUID
    user_id: UUID
    name: str
    may_sync: bool
    is_synced: bool
    signs_in_alone: bool
    transports: tuple[str, ...]
    aaguid: UUID | None
    user_agent: str
    created_at: datetime
    last_used_at: datetime | None

    @property
    def public_id(self) -> str:
        """``pky_…``."""
        return public_id(PUBLIC_ID_PREFIX, self.id)


@dataclass(frozen=True, slots=True)
class StoredPasskey:
    """What an answer is verified with, and whose it is. ``handle`` is what authenticators call them."""

    id: UUID
    user_id: UUID
    name: str
    public_key: bytes
    sign_count: int
    may_sync: bool
    handle: str
    email: str
    user_status: str


@read
def list_passkeys_of_user(organization_id: str, user_id: UUID) -> tuple[PasskeyRecord, ...]:
    """The user's passkeys, the newest first."""
    rows = db.session.scalars(
        select(Passkey)
        .where(Passkey.organization_id == organization_id, Passkey.user_id == user_id)
        .order_by(Passkey.id.desc())
        .limit(10 * MAX_PASSKEYS_PER_USER)
    )
    return tuple(passkey_record(row) for row in rows)


@read
def count_passkeys_of_users(organization_id: str, user_ids: Collection[UUID]) -> Mapping[UUID, int]:
    """How many passkeys each of at most a page of users has; who has none is left out."""
    if not user_ids:
        return {}
    rows = db.session.execute(
        select(Passkey.user_id, func.count())
        .where(Passkey.organization_id == organization_id, Passkey.user_id.in_(user_ids))
        .group_by(Passkey.user_id)
    )
    return {row[0]: row[1] for row in rows}


@read
def has_passwordless_passkey(organization_id: str, user_id: UUID) -> bool:
    """Whether the user could sign in by a passkey alone."""
    found = db.session.scalar(
        select(Passkey.id)
        .where(
            Passkey.organization_id == organization_id,
            Passkey.user_id == user_id,
            Passkey.signs_in_alone.is_(True),
        )
        .limit(1)
    )
    return found is not None


@read
def any_user_has_passwordless_passkey(organization_id: str) -> bool:
    """Whether anybody of the organization who may sign in has a passkey that is enough for it."""
    found = db.session.scalar(
        select(Passkey.id)
        .join(User, (User.organization_id == Passkey.organization_id) & (User.id == Passkey.user_id))
        .where(
            Passkey.organization_id == organization_id,
            Passkey.signs_in_alone.is_(True),
            User.status == ACTIVE,
        )
        .limit(1)
    )
    return found is not None


@read
def list_descriptors(organization_id: str, user_id: UUID) -> tuple[Descriptor, ...]:
    """The user's passkeys as browsers are told of them."""
    rows = db.session.execute(
        select(Passkey.credential_id, Passkey.transports)
        .where(Passkey.organization_id == organization_id, Passkey.user_id == user_id)
        .order_by(Passkey.id.desc())
        .limit(10 * MAX_PASSKEYS_PER_USER)
    )
    return tuple(Descriptor(credential_id, tuple(ways.split())) for credential_id, ways in rows)


@read
def find_passkey_by_credential(organization_id: str, credential_id: str) -> StoredPasskey | None:
    """The key of that credential in this organization; another's is as unknown as one that never was."""
    row = db.session.execute(
        select(
            Passkey.id,
            Passkey.user_id,
            Passkey.name,
            Passkey.public_key,
            Passkey.sign_count,
            Passkey.may_sync,
            PasskeyHandle.handle,
            User.email,
            User.status,
        )
        .join(
            PasskeyHandle,
            (PasskeyHandle.organization_id == Passkey.organization_id)
            & (PasskeyHandle.user_id == Passkey.user_id),
        )
        .join(User, (User.organization_id == Passkey.organization_id) & (User.id == Passkey.user_id))
        .where(Passkey.organization_id == organization_id, Passkey.credential_id == credential_id)
    ).first()
    return None if row is None else StoredPasskey(*row)


@transaction
def delete_passkeys_of_user(organization_id: str, user_id: UUID) -> int:
    """The user has no passkey any more, nor a name that authenticators know; part of the unit that audits it.

    Returns how many there were.
    """
    removed = count_changed(
        delete(Passkey).where(Passkey.organization_id == organization_id, Passkey.user_id == user_id)
    )
    count_changed(
        delete(PasskeyHandle).where(
            PasskeyHandle.organization_id == organization_id, PasskeyHandle.user_id == user_id
        )
    )
    return removed


def passkey_record(row: Passkey) -> PasskeyRecord:
    """The row as others may see it."""
    return PasskeyRecord(
        row.id,
        row.user_id,
        row.name,
        row.may_sync,
        row.is_synced,
        row.signs_in_alone,
        tuple(row.transports.split()),
        None if row.aaguid == UNKNOWN_AAGUID else row.aaguid,
        row.user_agent,
        row.created_at,
        row.last_used_at,
    )


REGISTER, SIGN_IN, SECOND_FACTOR = "register", "sign in", "second factor"
INVITATION = "invitation"


class InvalidChallenge(DomainError):
    """The answer comes too late, a second time, or from another browser than the one that was asked."""

    code = "passkey_challenge_ended"

    def __init__(self) -> None:
        super().__init__("That took too long, or this page was used before. Try your passkey again.")


class PasskeysUnavailable(Conflict):
    """The service is reached at a number, and authenticators know domains alone."""

    code = "passkeys_unavailable"

    def __init__(self) -> None:
        super().__init__("Passkeys need a domain name, and this service is reached by an IP address.")


def find_relying_party() -> RelyingParty | None:
    """Who this service is to authenticators, by its configured address; None where it has no domain."""
    return relying_party(current().base_url)


def get_relying_party() -> RelyingParty:
    """As ``find_party``. Raises NoPasskeysHere."""
    party = find_relying_party()
    if party is None:
        raise PasskeysUnavailable
    return party


def issue_challenge(
    organization: OrganizationSnapshot, purpose: str, browser_id: str, whose: str = ""
) -> str:
    """A challenge for what is asked now. ``whose``: the user or the sign-in that waits, where that is known."""
    return create_challenge(
        _key(organization),
        _bound(organization, purpose, browser_id, whose),
        os.urandom(NONCE_BYTES),
        clock.now() + CHALLENGE_LIFETIME,
    )


def validate_challenge(
    organization: OrganizationSnapshot, purpose: str, browser_id: str, challenge: str, whose: str = ""
) -> None:
    """It was made for this and has not ended; whether it was used is asked by ``use_challenge``.

    Raises ChallengeEnded.
    """
    bound = _bound(organization, purpose, browser_id, whose)
    if check_challenge(_key(organization), bound, challenge, clock.now())[0] is not ChallengeState.GOOD:
        raise InvalidChallenge


def consume_challenge(organization: OrganizationSnapshot, challenge: str) -> None:
    """It counts no more, whatever follows: of all who bring it at once a unique key lets one go on.

    Called outside of a unit of work, with an answer that was verified. Raises ChallengeEnded.
    """
    if not single_use.claim(
        organization.id, "passkey", "", challenge, expires_at=clock.now() + CHALLENGE_LIFETIME
    ):
        raise InvalidChallenge


def _key(organization: OrganizationSnapshot) -> bytes:
    return keyring.derive_organization_key(organization.id, "passkey challenges")


def _bound(organization: OrganizationSnapshot, purpose: str, browser_id: str, whose: str) -> tuple[str, ...]:
    return purpose, organization.id, browser_id, whose


R = TypeVar("R")


class PasskeyNotVerified(DomainError):
    """The answer is not that of this passkey, for this challenge, on a page of ours."""

    code = "invalid_passkey"

    def __init__(self) -> None:
        super().__init__("This passkey could not be verified here.")


@dataclass(frozen=True, slots=True)
class CreatedPasskey:
    """A passkey that an authenticator has made."""

    credential_id: str
    public_key: bytes
    sign_count: int
    aaguid: UUID
    may_sync: bool
    is_synced: bool
    was_verified: bool


@dataclass(frozen=True, slots=True)
class PasskeyAssertion:
    """What an authenticator says beside its signature. ``was_verified``: it knew its person."""

    sign_count: int
    may_sync: bool
    is_synced: bool
    was_verified: bool


def challenge_in_response(content_of: RegistrationResponse | AuthenticationResponse) -> str:
    """The challenge that the browser says it answers; what is signed says the same, or it is refused later.

    Raises BadAnswer.
    """
    try:
        said = json.loads(_bytes_of(content_of.content["response"]["clientDataJSON"]))
    except (ValueError, RecursionError) as error:
        raise InvalidPasskeyResponse from error
    if not isinstance(said, dict) or not isinstance(said.get("challenge"), str):
        raise InvalidPasskeyResponse
    # Our pages are never framed, so nobody's page asks on behalf of another (WebAuthn section 7.1, steps 10 and 11).
    if said.get("crossOrigin") not in (None, False) or "topOrigin" in said:
        raise PasskeyNotVerified
    challenge: str = said["challenge"]
    return challenge


def verify_registration(party: RelyingParty, answer: RegistrationResponse, challenge: str) -> CreatedPasskey:
    """The new passkey, made for this challenge on a page of our origin. Raises NotVerified."""
    from webauthn import verify_registration_response
    from webauthn.helpers import parse_attestation_object
    from webauthn.helpers.structs import AttestationFormat, CredentialDeviceType

    def verify() -> CreatedPasskey:
        attestation = _bytes_of(answer.content["response"]["attestationObject"])
        said = parse_attestation_object(attestation)
        # None was asked for. What browsers leave is a signature of the key itself; no certificate is looked at.
        if said.fmt not in (AttestationFormat.NONE, AttestationFormat.PACKED) or said.att_stmt.x5c:
            raise PasskeyNotVerified
        made = verify_registration_response(
            credential=dict(answer.content),
            expected_challenge=_bytes_of(challenge),
            expected_rp_id=party.id,
            expected_origin=party.origin,
            require_user_verification=False,
        )
        return CreatedPasskey(
            urlsafe_b64encode(made.credential_id).rstrip(b"=").decode(),
            made.credential_public_key,
            made.sign_count,
            UUID(made.aaguid),
            made.credential_device_type is CredentialDeviceType.MULTI_DEVICE,
            made.credential_backed_up,
            made.user_verified,
        )

    made = _strict(verify)
    # The library takes the id from what is attested; the browser's word for it must be the same.
    if made.credential_id != answer.credential_id:
        raise PasskeyNotVerified
    return made


def verify_assertion(
    party: RelyingParty, answer: AuthenticationResponse, challenge: str, public_key: bytes, *, alone: bool
) -> PasskeyAssertion:
    """What the authenticator says, signed by the key for this challenge on a page of our origin.

    ``alone``: it must have verified its person. Its counter is judged by the caller. Raises NotVerified.
    """
    from webauthn import verify_authentication_response
    from webauthn.helpers.structs import CredentialDeviceType

    def verify() -> PasskeyAssertion:
        used = verify_authentication_response(
            credential=dict(answer.content),
            expected_challenge=_bytes_of(challenge),
            expected_rp_id=party.id,
            expected_origin=party.origin,
            credential_public_key=public_key,
            credential_current_sign_count=0,
            require_user_verification=alone,
        )
        return PasskeyAssertion(
            used.new_sign_count,
            used.credential_device_type is CredentialDeviceType.MULTI_DEVICE,
            used.credential_backed_up,
            used.user_verified,
        )

    return _strict(verify)


def _strict(verify: Callable[[], R]) -> R:
    from webauthn.helpers.exceptions import WebAuthnException

    try:
        return verify()
    # Beside its own errors the library lets those of its parsers through, whose input a stranger wrote.
    except (WebAuthnException, ValueError, LookupError, TypeError, AttributeError) as error:
        raise PasskeyNotVerified from error
    except (EOFError, OverflowError, RecursionError, UnsupportedAlgorithm) as error:
        raise PasskeyNotVerified from error


def _bytes_of(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))
