"""Passkeys: what browsers are asked for, and what their answers are worth (WebAuthn Level 3)."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any, TypeGuard
from urllib.parse import urlsplit

from app.rules.errors import DomainError, InvalidInput
from app.rules.languages.sentences import sentence
from app.rules.strict_json import InvalidJson, load_object

MAX_RESPONSE_BYTES = 32 * 1024
"""Of the whole answer, in bytes; the largest that authenticators make is a quarter of it."""
MAX_CREDENTIAL_ID_LENGTH = 1364
TRANSPORTS = ("ble", "cable", "hybrid", "internal", "nfc", "smart-card", "usb")
_BASE64URL = re.compile(r"[A-Za-z0-9_-]+")
_CREATED = ("clientDataJSON", "attestationObject")
_USED = ("clientDataJSON", "authenticatorData", "signature", "userHandle")


class InvalidPasskeyResponse(DomainError):
    """The browser's answer is not what a browser sends."""

    code = "invalid_passkey"

    def __init__(self) -> None:
        super().__init__("Your browser did not answer as expected. Try again.")


@dataclass(frozen=True, slots=True)
class RegistrationResponse:
    """A passkey was made; ``content`` is what the library verifies."""

    credential_id: str
    content: Mapping[str, Any]
    transports: tuple[str, ...]
    is_discoverable: bool


@dataclass(frozen=True, slots=True)
class AuthenticationResponse:
    """A passkey was used. ``handle`` is what the authenticator calls the person, where it says so."""

    credential_id: str
    content: Mapping[str, Any]
    handle: str | None


def parse_registration_response(text: str) -> RegistrationResponse:
    """RegistrationResponseJSON (section 5.1). Raises BadAnswer."""
    document, response = _read(text, _CREATED)
    named = response.get("transports")
    transports = {name for name in named if name in TRANSPORTS} if _is_list_of_text(named) else set()
    properties = document.get("clientExtensionResults")
    kept = properties.get("credProps") if isinstance(properties, dict) else None
    return RegistrationResponse(
        document["id"],
        _content(document, response, _CREATED),
        tuple(sorted(transports)),
        isinstance(kept, dict) and kept.get("rk") is True,
    )


def parse_authentication_response(text: str) -> AuthenticationResponse:
    """AuthenticationResponseJSON (section 5.1). Raises BadAnswer."""
    document, response = _read(text, _USED[:-1])
    handle = response.get("userHandle") or None
    if handle is not None and not _is_encoded(handle):
        raise InvalidPasskeyResponse
    return AuthenticationResponse(document["id"], _content(document, response, _USED), handle)


def _read(text: str, needed: tuple[str, ...]) -> tuple[dict[str, Any], dict[str, Any]]:
    if len(text) > MAX_RESPONSE_BYTES:
        raise InvalidPasskeyResponse
    try:
        document = load_object(text.encode("utf-8", "surrogatepass"))
    except InvalidJson as error:
        raise InvalidPasskeyResponse from error
    response = document.get("response")
    if not isinstance(response, dict) or document.get("type") != "public-key":
        raise InvalidPasskeyResponse
    if not all(_is_encoded(response.get(name)) for name in needed):
        raise InvalidPasskeyResponse
    name = document.get("id")
    if not _is_encoded(name) or len(name) > MAX_CREDENTIAL_ID_LENGTH:
        raise InvalidPasskeyResponse
    return document, response


def _content(
    document: Mapping[str, Any], response: Mapping[str, Any], names: tuple[str, ...]
) -> dict[str, Any]:
    # Nothing else reaches the library; of two names for one thing the one that was checked counts.
    return {
        "id": document["id"],
        "rawId": document["id"],
        "type": "public-key",
        "response": {name: response[name] for name in names if response.get(name)},
    }


def _is_encoded(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and _BASE64URL.fullmatch(value) is not None


def _is_list_of_text(value: object) -> TypeGuard[list[str]]:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


CHALLENGE_LIFETIME = timedelta(minutes=5)
NONCE_BYTES = 16
_END_BYTES, _TAG_BYTES = 8, 32
_LENGTH = NONCE_BYTES + _END_BYTES + _TAG_BYTES


class ChallengeState(Enum):
    """What a challenge that came back is."""

    GOOD = "good"
    EXPIRED = "expired"
    FOREIGN = "foreign"


def create_challenge(key: bytes, bound: tuple[str, ...], nonce: bytes, expires_at: datetime) -> str:
    """A challenge in base64url. ``bound``: purpose, organization, browser, and who is asked where that is known."""
    head = nonce + int(expires_at.timestamp()).to_bytes(_END_BYTES, "big")
    return _text_of(head + _tag(key, bound, head))


def check_challenge(
    key: bytes, bound: tuple[str, ...], challenge: str, now: datetime
) -> tuple[ChallengeState, datetime]:
    """(what it is, when it ends); one that was made for anything else is FOREIGN."""
    content = _bytes_of(challenge)
    head, tag = content[:-_TAG_BYTES], content[-_TAG_BYTES:]
    if len(content) != _LENGTH or not hmac.compare_digest(tag, _tag(key, bound, head)):
        return ChallengeState.FOREIGN, now
    expires_at = datetime.fromtimestamp(int.from_bytes(head[NONCE_BYTES:], "big"), UTC)
    return (ChallengeState.GOOD if now < expires_at else ChallengeState.EXPIRED), expires_at


def _tag(key: bytes, bound: tuple[str, ...], head: bytes) -> bytes:
    # Each part with its length: no two bindings are one text.
    said = b"".join(len(part.encode()).to_bytes(4, "big") + part.encode() for part in bound)
    return hmac.digest(key, said + head, hashlib.sha256)


def _text_of(content: bytes) -> str:
    return urlsafe_b64encode(content).rstrip(b"=").decode()


def _bytes_of(text: str) -> bytes:
    try:
        content = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (Error, ValueError):
        return b""
    # One spelling alone: another of the same bytes would count once more.
    return content if _text_of(content) == text else b""


MAX_PASSKEYS_PER_USER = 20
MAX_PASSKEY_NAME_LENGTH = 60
TIMEOUT_MILLISECONDS = 300_000
"""How long a browser waits for its person; a recommendation of WebAuthn section 15.1, and a challenge's whole life."""
# Ed25519, ES256, RS256: what authenticators of today have, the best first.
_ALGORITHMS = (-8, -7, -257)


@dataclass(frozen=True, slots=True)
class RelyingParty:
    """For whom authenticators make and use passkeys: a domain, and the one origin whose pages may ask."""

    id: str
    origin: str


@dataclass(frozen=True, slots=True)
class Descriptor:
    """How browsers find a passkey that is known already."""

    credential_id: str
    transports: tuple[str, ...]


def relying_party(base_url: str) -> RelyingParty | None:
    """Who we are to authenticators, by the configured address alone; None at an address that is a number.

    The origin is written as browsers write it: lower case, without the port that its scheme implies.
    """
    parts = urlsplit(base_url)
    host = (parts.hostname or "").rstrip(".")
    try:
        ipaddress.ip_address(host)
    except ValueError:
        domain = host.encode("idna").decode("ascii").lower()
        implied = {"https": 443, "http": 80}[parts.scheme]
        port = "" if parts.port in (None, implied) else f":{parts.port}"
        return RelyingParty(domain, f"{parts.scheme}://{domain}{port}")
    return None


def is_passkey_registration_enabled(settings: Mapping[str, Any]) -> bool:
    """Whether people of the organization may have new passkeys."""
    return bool(settings["authentication"]["passkeys"]["enabled"])


def is_passwordless_enabled(settings: Mapping[str, Any]) -> bool:
    """Whether a passkey is enough to sign in, without a password."""
    passkeys = settings["authentication"]["passkeys"]
    return bool(passkeys["enabled"] and passkeys["passwordless"])


def creation_options(
    party: RelyingParty,
    challenge: str,
    *,
    title: str,
    handle: str,
    email: str,
    name: str,
    known: Iterable[Descriptor],
    alone: bool = False,
) -> dict[str, Any]:
    """PublicKeyCredentialCreationOptions (section 5.4) as JSON: a passkey, wherever the authenticator can hold one.

    Verification of the person is preferred and not required, so that a simple security key may still be a second
    factor; signing in without a password requires it each time. ``alone``: it is the only way in, so both are required.
    No attestation: models are not chosen among.
    """
    need = "required" if alone else "preferred"
    return {
        "rp": {"id": party.id, "name": title},
        "user": {"id": handle, "name": email, "displayName": name or email},
        "challenge": challenge,
        "pubKeyCredParams": [{"type": "public-key", "alg": number} for number in _ALGORITHMS],
        "timeout": TIMEOUT_MILLISECONDS,
        "excludeCredentials": _listed(known),
        "authenticatorSelection": {"residentKey": need, "userVerification": need},
        "attestation": "none",
        "extensions": {"credProps": True},
    }


def request_options(
    party: RelyingParty, challenge: str, *, known: Iterable[Descriptor] = (), alone: bool
) -> dict[str, Any]:
    """PublicKeyCredentialRequestOptions (section 5.5) as JSON.

    ``alone``: the passkey signs in by itself. Then no list says whose accounts there are, and the person must be
    verified: the passkey is both factors.
    """
    return {
        "challenge": challenge,
        "rpId": party.id,
        "timeout": TIMEOUT_MILLISECONDS,
        "allowCredentials": _listed(known),
        "userVerification": "required" if alone else "preferred",
    }


def passkey_amr(*, may_sync: bool, alone: bool) -> tuple[str, ...]:
    """What a use of the passkey proves, in the words of RFC 8176.

    ``hwk``: its key never leaves its device; ``swk``: it may be copied, as software keys are. ``user``: somebody was
    there. That they were verified, by a finger or a number that we never learn, makes it two factors: ``mfa``.
    """
    return ("swk" if may_sync else "hwk", "user", *(("mfa",) if alone else ()))


def is_sign_count_valid(before: int, now: int) -> bool:
    """Whether the counter moved as it should (section 6.1.1): forward, or it is one that never counts."""
    return now > before or (now == 0 and before == 0)


def normalize_passkey_name(text: str) -> str:
    """The name of a passkey in one line. Raises InvalidInput naming ``name``."""
    name = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    if not name:
        raise InvalidInput("Give it a name by which you know it.", field="name", code="required")
    if len(name) > MAX_PASSKEY_NAME_LENGTH:
        raise InvalidInput(
            sentence("At most %(most)s characters.", most=MAX_PASSKEY_NAME_LENGTH),
            field="name",
            code="too_long",
        )
    return name


def _listed(known: Iterable[Descriptor]) -> list[dict[str, Any]]:
    return [
        {"type": "public-key", "id": one.credential_id, "transports": list(one.transports)} for one in known
    ]
