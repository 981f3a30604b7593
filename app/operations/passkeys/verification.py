"""Verifying what authenticators sign. The library is read when the first answer comes: most workers never need it."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar
from uuid import UUID

from cryptography.exceptions import UnsupportedAlgorithm

from app.rules.errors import DomainError
from app.rules.people.passkey_answers import BadAnswer, CreatedAnswer, UsedAnswer
from app.rules.people.passkeys import RelyingParty

R = TypeVar("R")


class NotVerified(DomainError):
    """The answer is not that of this passkey, for this challenge, on a page of ours."""

    code = "invalid_passkey"

    def __init__(self) -> None:
        super().__init__("This passkey could not be verified here.")


@dataclass(frozen=True, slots=True)
class MadePasskey:
    """A passkey that an authenticator has made."""

    credential_id: str
    public_key: bytes
    sign_count: int
    aaguid: UUID
    may_sync: bool
    is_synced: bool
    was_verified: bool


@dataclass(frozen=True, slots=True)
class UsedPasskey:
    """What an authenticator says beside its signature. ``was_verified``: it knew its person."""

    sign_count: int
    may_sync: bool
    is_synced: bool
    was_verified: bool


def challenge_of(content_of: CreatedAnswer | UsedAnswer) -> str:
    """The challenge that the browser says it answers; what is signed says the same, or it is refused later.

    Raises BadAnswer.
    """
    try:
        said = json.loads(_bytes_of(content_of.content["response"]["clientDataJSON"]))
    except (ValueError, RecursionError) as error:
        raise BadAnswer from error
    if not isinstance(said, dict) or not isinstance(said.get("challenge"), str):
        raise BadAnswer
    # Our pages are never framed, so nobody's page asks on behalf of another (WebAuthn section 7.1, steps 10 and 11).
    if said.get("crossOrigin") not in (None, False) or "topOrigin" in said:
        raise NotVerified
    challenge: str = said["challenge"]
    return challenge


def verify_created(party: RelyingParty, answer: CreatedAnswer, challenge: str) -> MadePasskey:
    """The new passkey, made for this challenge on a page of our origin. Raises NotVerified."""
    from webauthn import verify_registration_response
    from webauthn.helpers import parse_attestation_object
    from webauthn.helpers.structs import AttestationFormat, CredentialDeviceType

    def verify() -> MadePasskey:
        attestation = _bytes_of(answer.content["response"]["attestationObject"])
        said = parse_attestation_object(attestation)
        # None was asked for. What browsers leave is a signature of the key itself; no certificate is looked at.
        if said.fmt not in (AttestationFormat.NONE, AttestationFormat.PACKED) or said.att_stmt.x5c:
            raise NotVerified
        made = verify_registration_response(
            credential=dict(answer.content),
            expected_challenge=_bytes_of(challenge),
            expected_rp_id=party.id,
            expected_origin=party.origin,
            require_user_verification=False,
        )
        return MadePasskey(
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
        raise NotVerified
    return made


def verify_used(
    party: RelyingParty, answer: UsedAnswer, challenge: str, public_key: bytes, *, alone: bool
) -> UsedPasskey:
    """What the authenticator says, signed by the key for this challenge on a page of our origin.

    ``alone``: it must have verified its person. Its counter is judged by the caller. Raises NotVerified.
    """
    from webauthn import verify_authentication_response
    from webauthn.helpers.structs import CredentialDeviceType

    def verify() -> UsedPasskey:
        used = verify_authentication_response(
            credential=dict(answer.content),
            expected_challenge=_bytes_of(challenge),
            expected_rp_id=party.id,
            expected_origin=party.origin,
            credential_public_key=public_key,
            credential_current_sign_count=0,
            require_user_verification=alone,
        )
        return UsedPasskey(
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
        raise NotVerified from error
    except (EOFError, OverflowError, RecursionError, UnsupportedAlgorithm) as error:
        raise NotVerified from error


def _bytes_of(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))
