"""Stored passkeys, the challenges that browsers answer, and the verification of their responses (WebAuthn)."""

from __future__ import annotations

import json
import os
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from uuid import UUID

from cryptography.exceptions import UnsupportedAlgorithm
from msgspec import Struct
from sqlalchemy import bindparam, delete, func, select

from app.config import current
from app.extensions import db
from app.fast_path.compiled_query import CompiledQuery
from app.models.base import is_of_user, is_same
from app.models.second_factor import Passkey, PasskeyHandle
from app.models.user import ACTIVE, User
from app.operations.directory.snapshots import OrganizationSnapshot
from app.operations.store import clock, idempotency, keyring
from app.operations.store.rows import has_rows, make_record
from app.operations.store.transactions import count_changed, read, transaction
from app.rules.errors import Conflict, HasDefaultText
from app.rules.identifiers import HasPublicId
from app.rules.languages.translation import lazy_gettext
from app.rules.sign_in.passkeys import (
    CHALLENGE_LIFETIME,
    MAX_PASSKEYS_PER_USER,
    NONCE_BYTES,
    AuthenticationResponse,
    Descriptor,
    InvalidPasskeyResponse,
    RegistrationResponse,
    RelyingParty,
    create_challenge,
    find_challenge_expiry,
    is_passwordless_enabled,
    relying_party,
)

PUBLIC_ID_PREFIX = "pky"
UNKNOWN_AAGUID = UUID(int=0)
REGISTER, SIGN_IN, SECOND_FACTOR = "register", "sign in", "second factor"
INVITATION = "invitation"


class PasskeyRecord(HasPublicId, Struct, frozen=True):
    """A passkey without its key. ``aaguid`` is None if the authenticator does not state its model."""

    id_prefix = PUBLIC_ID_PREFIX
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


class StoredPasskey(Struct, frozen=True):
    """The data that verify a response, and the passkey's user.

    ``handle`` is the user's WebAuthn user handle.
    """

    id: UUID
    user_id: UUID
    name: str
    public_key: bytes
    may_sync: bool
    handle: str
    email: str
    user_status: str


class InvalidChallenge(HasDefaultText):
    """The response came too late, was sent twice, or came from another browser."""

    code = "passkey_challenge_ended"
    default_description = lazy_gettext(
        "This took too long, or the page was already used. Try your passkey again."
    )


class PasskeysUnavailable(HasDefaultText, Conflict):
    """The service is reached by an IP address, but passkeys are bound to a domain name."""

    code = "passkeys_unavailable"
    default_description = lazy_gettext("Passkeys need a domain name, but this service uses an IP address.")


class PasskeyNotVerified(HasDefaultText):
    """The response does not belong to this passkey, challenge and origin."""

    code = "invalid_passkey"
    default_description = lazy_gettext("We couldn't verify this passkey. Try again, or use another one.")


class CreatedPasskey(Struct, frozen=True):
    """A passkey that an authenticator has created. ``was_verified``: the authenticator verified the user."""

    credential_id: str
    public_key: bytes
    sign_count: int
    aaguid: UUID
    may_sync: bool
    is_synced: bool
    was_verified: bool


class PasskeyAssertion(Struct, frozen=True):
    """The signed statements of an authenticator."""

    sign_count: int
    may_sync: bool
    is_synced: bool


@read
def list_passkeys_of_user(organization_id: str, user_id: UUID) -> tuple[PasskeyRecord, ...]:
    """List the user's passkeys, newest first."""
    rows = db.session.scalars(
        select(Passkey)
        .where(is_of_user(Passkey, organization_id, user_id))
        .order_by(Passkey.id.desc())
        .limit(10 * MAX_PASSKEYS_PER_USER)
    )
    return tuple(passkey_record(row) for row in rows)


_COUNT = CompiledQuery(
    select(func.count()).where(is_of_user(Passkey, bindparam("organization_id"), bindparam("user_id")))
)


def count_passkeys(organization_id: str, user_id: UUID) -> int:
    """Count the user's passkeys."""
    return int(_COUNT.first(organization_id=organization_id, user_id=user_id)[0])


@read
def has_passwordless_passkey(organization_id: str, user_id: UUID) -> bool:
    """Return whether the user could sign in with a passkey alone."""
    return has_rows(
        select(Passkey.id).where(
            is_of_user(Passkey, organization_id, user_id), Passkey.signs_in_alone.is_(True)
        )
    )


@read
def any_user_has_passwordless_passkey(organization_id: str) -> bool:
    """Return whether any active user of the organization could sign in with a passkey alone."""
    return has_rows(
        select(Passkey.id)
        .join(User, is_same(User.id, Passkey.user_id))
        .where(
            Passkey.organization_id == organization_id,
            Passkey.signs_in_alone.is_(True),
            User.status == ACTIVE,
        )
    )


@read
def list_descriptors(organization_id: str, user_id: UUID) -> tuple[Descriptor, ...]:
    """List the descriptors of the user's passkeys that browsers receive."""
    rows = db.session.execute(
        select(Passkey.credential_id, Passkey.transports)
        .where(is_of_user(Passkey, organization_id, user_id))
        .order_by(Passkey.id.desc())
        .limit(10 * MAX_PASSKEYS_PER_USER)
    )
    return tuple(Descriptor(credential_id, tuple(ways.split())) for credential_id, ways in rows)


@read
def find_passkey_by_credential(organization_id: str, credential_id: str) -> StoredPasskey | None:
    """Find the passkey with the credential id in this organization."""
    row = db.session.execute(
        select(
            Passkey.id,
            Passkey.user_id,
            Passkey.name,
            Passkey.public_key,
            Passkey.may_sync,
            PasskeyHandle.handle,
            User.email,
            User.status,
        )
        .join(PasskeyHandle, is_same(PasskeyHandle.user_id, Passkey.user_id))
        .join(User, is_same(User.id, Passkey.user_id))
        .where(Passkey.organization_id == organization_id, Passkey.credential_id == credential_id)
    ).first()
    return None if row is None else StoredPasskey(*row)


@transaction
def delete_passkeys_of_user(organization_id: str, user_id: UUID) -> int:
    """Delete the user's passkeys and user handle and return the number of passkeys.

    Call it in the transaction that audits it.
    """
    removed = count_changed(delete(Passkey).where(is_of_user(Passkey, organization_id, user_id)))
    count_changed(delete(PasskeyHandle).where(is_of_user(PasskeyHandle, organization_id, user_id)))
    return removed


def passkey_record(row: Passkey) -> PasskeyRecord:
    """Return the record of a row."""
    aaguid = None if row.aaguid == UNKNOWN_AAGUID else row.aaguid
    return make_record(PasskeyRecord, row, transports=tuple(row.transports.split()), aaguid=aaguid)


def find_relying_party() -> RelyingParty | None:
    """Return the WebAuthn relying party of the configured base URL, or None if it has no domain name."""
    return relying_party(current().base_url)


def get_relying_party() -> RelyingParty:
    """Return the relying party as ``find_relying_party`` does. Raises PasskeysUnavailable."""
    party = find_relying_party()
    if party is None:
        raise PasskeysUnavailable
    return party


def is_passkey_sign_in_available(organization: OrganizationSnapshot) -> bool:
    """Return whether users can sign in to the organization with a passkey alone at the configured URL."""
    return is_passwordless_enabled(organization.settings) and find_relying_party() is not None


def issue_challenge(
    organization: OrganizationSnapshot, purpose: str, browser_id: str, subject: str = ""
) -> str:
    """Issue a challenge for the purpose and browser. ``subject`` is the user or pending sign-in, if known."""
    return create_challenge(
        _challenge_key(organization),
        _challenge_binding(organization, purpose, browser_id, subject),
        os.urandom(NONCE_BYTES),
        clock.now() + CHALLENGE_LIFETIME,
    )


def validate_challenge(
    organization: OrganizationSnapshot, purpose: str, browser_id: str, challenge: str, subject: str = ""
) -> None:
    """Require that the challenge was issued for this purpose, has not expired, and is not from before a restore.

    Raises InvalidChallenge.

    ``consume_challenge`` checks whether it was used before.
    """
    binding = _challenge_binding(organization, purpose, browser_id, subject)
    expires_at = find_challenge_expiry(_challenge_key(organization), binding, challenge, clock.now())
    if expires_at is None or organization.is_before_restore(expires_at - CHALLENGE_LIFETIME):
        raise InvalidChallenge


def consume_challenge(organization: OrganizationSnapshot, challenge: str) -> None:
    """Mark the challenge as used. A unique key lets only one of several concurrent callers succeed.

    Call it outside of a transaction, after the response was verified. Raises InvalidChallenge.
    """
    if not idempotency.claim(
        organization.id, "passkey", "", challenge, expires_at=clock.now() + CHALLENGE_LIFETIME
    ):
        raise InvalidChallenge


def challenge_in_response(response: RegistrationResponse | AuthenticationResponse) -> str:
    """Return the challenge that the browser says it answers, which verification compares with the signed one.

    Raises InvalidPasskeyResponse, PasskeyNotVerified.
    """
    try:
        content = json.loads(_decode(response.content["response"]["clientDataJSON"]))
    except (ValueError, RecursionError) as error:
        raise InvalidPasskeyResponse from error
    if not isinstance(content, dict) or not isinstance(content.get("challenge"), str):
        raise InvalidPasskeyResponse
    # Gatehouse's pages are never framed, so no other origin is involved (WebAuthn section 7.1, steps 10 and 11).
    if content.get("crossOrigin") not in (None, False) or "topOrigin" in content:
        raise PasskeyNotVerified
    challenge: str = content["challenge"]
    return challenge


def verify_registration(
    party: RelyingParty, response: RegistrationResponse, challenge: str
) -> CreatedPasskey:
    """Verify a new passkey that was created for the challenge on this origin. Raises PasskeyNotVerified."""
    from webauthn import verify_registration_response
    from webauthn.helpers import parse_attestation_object
    from webauthn.helpers.structs import AttestationFormat, CredentialDeviceType

    with _library_errors():
        attestation = _decode(response.content["response"]["attestationObject"])
        content = parse_attestation_object(attestation)
        # Attestation is not requested. Some browsers still send a self attestation, and certificates are ignored.
        if content.fmt not in (AttestationFormat.NONE, AttestationFormat.PACKED) or content.att_stmt.x5c:
            raise PasskeyNotVerified
        created = verify_registration_response(
            credential=dict(response.content),
            expected_challenge=_decode(challenge),
            expected_rp_id=party.id,
            expected_origin=party.origin,
            require_user_verification=False,
        )
        passkey = CreatedPasskey(
            urlsafe_b64encode(created.credential_id).rstrip(b"=").decode(),
            created.credential_public_key,
            created.sign_count,
            UUID(created.aaguid),
            created.credential_device_type is CredentialDeviceType.MULTI_DEVICE,
            created.credential_backed_up,
            created.user_verified,
        )
    # The library takes the id from the attested data. The id in the browser's response must be the same.
    if passkey.credential_id != response.credential_id:
        raise PasskeyNotVerified
    return passkey


def verify_assertion(
    party: RelyingParty,
    response: AuthenticationResponse,
    challenge: str,
    public_key: bytes,
    *,
    passwordless: bool,
) -> PasskeyAssertion:
    """Verify a response that was signed by the key for the challenge on this origin.

    With ``passwordless`` the authenticator must have verified the user. The caller checks the signature
    counter. Raises PasskeyNotVerified.
    """
    from webauthn import verify_authentication_response
    from webauthn.helpers.structs import CredentialDeviceType

    with _library_errors():
        assertion = verify_authentication_response(
            credential=dict(response.content),
            expected_challenge=_decode(challenge),
            expected_rp_id=party.id,
            expected_origin=party.origin,
            credential_public_key=public_key,
            credential_current_sign_count=0,
            require_user_verification=passwordless,
        )
        return PasskeyAssertion(
            assertion.new_sign_count,
            assertion.credential_device_type is CredentialDeviceType.MULTI_DEVICE,
            assertion.credential_backed_up,
        )


def _challenge_key(organization: OrganizationSnapshot) -> bytes:
    return keyring.derive_organization_key(organization.id, "passkey challenges")


def _challenge_binding(
    organization: OrganizationSnapshot, purpose: str, browser_id: str, subject: str
) -> tuple[str, ...]:
    return purpose, organization.id, browser_id, subject


@contextmanager
def _library_errors() -> Iterator[None]:
    """Raise PasskeyNotVerified for what the library raises in a ``with`` block."""
    from webauthn.helpers.exceptions import WebAuthnException

    try:
        yield
    # Besides its own errors, the library lets those of its parsers through, whose input is untrusted.
    except (WebAuthnException, ValueError, LookupError, TypeError, AttributeError) as error:
        raise PasskeyNotVerified from error
    except (EOFError, OverflowError, RecursionError, UnsupportedAlgorithm) as error:
        raise PasskeyNotVerified from error


def _decode(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))
