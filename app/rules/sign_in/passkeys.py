"""Passkeys: WebAuthn options for browsers, parsing of their responses, and challenges (WebAuthn Level 3)."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, TypeGuard
from urllib.parse import urlsplit

from msgspec import Struct

from app.rules.errors import HasDefaultText, InvalidInput
from app.rules.languages.translation import lazy_gettext
from app.rules.strict_json import InvalidJson, load_object

MAX_RESPONSE_BYTES = 32 * 1024
"""The largest responses of real authenticators have a quarter of this."""
MAX_CREDENTIAL_ID_LENGTH = 1364
TRANSPORTS = ("ble", "cable", "hybrid", "internal", "nfc", "smart-card", "usb")
_BASE64URL = re.compile(r"[A-Za-z0-9_-]+")
_REGISTRATION_FIELDS = ("clientDataJSON", "attestationObject")
_AUTHENTICATION_FIELDS = ("clientDataJSON", "authenticatorData", "signature", "userHandle")
CHALLENGE_LIFETIME = timedelta(minutes=5)
NONCE_BYTES = 16
_END_BYTES, _TAG_BYTES = 8, 32
_LENGTH = NONCE_BYTES + _END_BYTES + _TAG_BYTES
MAX_PASSKEYS_PER_USER = 20
MAX_PASSKEY_NAME_LENGTH = 60
TIMEOUT_MILLISECONDS = 300_000
"""How long a browser waits for the user (WebAuthn section 15.1). Equals the lifetime of a challenge."""
# Ed25519, ES256 and RS256 in order of preference.
_ALGORITHMS = (-8, -7, -257)


class InvalidPasskeyResponse(HasDefaultText):
    """The response does not have the form that browsers send."""

    code = "invalid_passkey"
    default_description = lazy_gettext("Your browser sent an unexpected response. Try again.")


class RegistrationResponse(Struct, frozen=True):
    """A passkey was created. ``content`` is passed to the library for verification."""

    credential_id: str
    content: Mapping[str, Any]
    transports: tuple[str, ...]
    is_discoverable: bool


class AuthenticationResponse(Struct, frozen=True):
    """A passkey was used. ``handle`` is the WebAuthn user handle, if the authenticator sent it."""

    credential_id: str
    content: Mapping[str, Any]
    handle: str | None


class RelyingParty(Struct, frozen=True):
    """The domain that passkeys are bound to, and the origin whose pages may use them."""

    id: str
    origin: str


class Descriptor(Struct, frozen=True):
    """A registered passkey as browsers need it to find the credential."""

    credential_id: str
    transports: tuple[str, ...]


def parse_registration_response(text: str) -> RegistrationResponse:
    """Parse a RegistrationResponseJSON (section 5.1). Raises InvalidPasskeyResponse."""
    document, response = _parse(text, _REGISTRATION_FIELDS)
    sent_transports = response.get("transports")
    transports = (
        {name for name in sent_transports if name in TRANSPORTS}
        if _is_list_of_text(sent_transports)
        else set()
    )
    properties = document.get("clientExtensionResults")
    credential_properties = properties.get("credProps") if isinstance(properties, dict) else None
    return RegistrationResponse(
        document["id"],
        _content(document, response, _REGISTRATION_FIELDS),
        tuple(sorted(transports)),
        isinstance(credential_properties, dict) and credential_properties.get("rk") is True,
    )


def parse_authentication_response(text: str) -> AuthenticationResponse:
    """Parse an AuthenticationResponseJSON (section 5.1). Raises InvalidPasskeyResponse."""
    document, response = _parse(text, _AUTHENTICATION_FIELDS[:-1])
    handle = response.get("userHandle") or None
    if handle is not None and not _is_encoded(handle):
        raise InvalidPasskeyResponse
    return AuthenticationResponse(
        document["id"], _content(document, response, _AUTHENTICATION_FIELDS), handle
    )


def create_challenge(key: bytes, binding: tuple[str, ...], nonce: bytes, expires_at: datetime) -> str:
    """Create a challenge in base64url, bound to purpose, organization, browser and, if known, the user."""
    head = nonce + int(expires_at.timestamp()).to_bytes(_END_BYTES, "big")
    return _encode(head + _tag(key, binding, head))


def find_challenge_expiry(
    key: bytes, binding: tuple[str, ...], challenge: str, now: datetime
) -> datetime | None:
    """Return when a challenge expires, or None if it has, or was not created with this key and binding."""
    content = _decode(challenge)
    head, tag = content[:-_TAG_BYTES], content[-_TAG_BYTES:]
    if len(content) != _LENGTH or not hmac.compare_digest(tag, _tag(key, binding, head)):
        return None
    expires_at = datetime.fromtimestamp(int.from_bytes(head[NONCE_BYTES:], "big"), UTC)
    return expires_at if now < expires_at else None


def relying_party(base_url: str) -> RelyingParty | None:
    """Return the relying party of the base URL, or None if its host is an IP address.

    The origin is written as browsers write it: in lowercase, without the default port of its scheme.
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
    """Return whether users of the organization may register passkeys."""
    return bool(settings["authentication"]["passkeys"]["enabled"])


def is_passwordless_enabled(settings: Mapping[str, Any]) -> bool:
    """Return whether a passkey is enough to sign in without a password."""
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
    existing: Iterable[Descriptor],
    passwordless: bool = False,
) -> dict[str, Any]:
    """Return the PublicKeyCredentialCreationOptions (section 5.4) as JSON.

    Discoverable credentials and user verification are preferred but not required, so that a simple security
    key can be a second factor. Signing in without a password requires user verification each time. With
    ``passwordless`` the passkey is the only sign-in method, so both are required. No attestation is
    requested, because authenticator models are not restricted.
    """
    need = "required" if passwordless else "preferred"
    return {
        "rp": {"id": party.id, "name": title},
        "user": {"id": handle, "name": email, "displayName": name or email},
        "challenge": challenge,
        "pubKeyCredParams": [{"type": "public-key", "alg": number} for number in _ALGORITHMS],
        "timeout": TIMEOUT_MILLISECONDS,
        "excludeCredentials": _listed(existing),
        "authenticatorSelection": {"residentKey": need, "userVerification": need},
        "attestation": "none",
        "extensions": {"credProps": True},
    }


def request_options(
    party: RelyingParty, challenge: str, *, existing: Iterable[Descriptor] = (), passwordless: bool
) -> dict[str, Any]:
    """Return the PublicKeyCredentialRequestOptions (section 5.5) as JSON.

    With ``passwordless`` the list of credentials is empty, so that no account is revealed, and user
    verification is required because the passkey is both factors.
    """
    return {
        "challenge": challenge,
        "rpId": party.id,
        "timeout": TIMEOUT_MILLISECONDS,
        "allowCredentials": _listed(existing),
        "userVerification": "required" if passwordless else "preferred",
    }


def passkey_amr(*, may_sync: bool, passwordless: bool) -> tuple[str, ...]:
    """Return the authentication methods of a passkey sign-in (RFC 8176).

    ``hwk`` is a key that never leaves its device, ``swk`` one that may be synced, and ``user`` a test of user
    presence. A verified user, by biometrics or PIN, makes it two factors, ``mfa``.
    """
    return ("swk" if may_sync else "hwk", "user", *(("mfa",) if passwordless else ()))


def is_sign_count_valid(previous: int, now: int) -> bool:
    """Return whether the signature counter increased or the passkey does not count (section 6.1.1)."""
    return now > previous or (now == 0 and previous == 0)


def normalize_passkey_name(text: str) -> str:
    """Return the passkey name on one line. Raises InvalidInput naming ``name``."""
    name = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    if not name:
        raise InvalidInput("Enter a name for the passkey.", field="name", code="required")
    if len(name) > MAX_PASSKEY_NAME_LENGTH:
        raise InvalidInput(
            lazy_gettext("Use at most %(most)s characters.", most=MAX_PASSKEY_NAME_LENGTH),
            field="name",
            code="too_long",
        )
    return name


def _parse(text: str, required: tuple[str, ...]) -> tuple[dict[str, Any], dict[str, Any]]:
    if len(text) > MAX_RESPONSE_BYTES:
        raise InvalidPasskeyResponse
    try:
        document = load_object(text.encode("utf-8", "surrogatepass"))
    except InvalidJson as error:
        raise InvalidPasskeyResponse from error
    response = document.get("response")
    if not isinstance(response, dict) or document.get("type") != "public-key":
        raise InvalidPasskeyResponse
    if not all(_is_encoded(response.get(name)) for name in required):
        raise InvalidPasskeyResponse
    name = document.get("id")
    if not _is_encoded(name) or len(name) > MAX_CREDENTIAL_ID_LENGTH:
        raise InvalidPasskeyResponse
    return document, response


def _content(
    document: Mapping[str, Any], response: Mapping[str, Any], names: tuple[str, ...]
) -> dict[str, Any]:
    # Pass only the checked fields to the library, and the checked id for both of its names.
    return {
        "id": document["id"],
        "rawId": document["id"],
        "type": "public-key",
        "response": {name: response[name] for name in names if response.get(name)},
    }


def _is_encoded(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and _BASE64URL.fullmatch(value) is not None


def _is_list_of_text(value: object) -> TypeGuard[list[str]]:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _tag(key: bytes, binding: tuple[str, ...], head: bytes) -> bytes:
    # Each part is prefixed with its length, so that different bindings never encode to the same bytes.
    encoded_binding = b"".join(len(part.encode()).to_bytes(4, "big") + part.encode() for part in binding)
    return hmac.digest(key, encoded_binding + head, hashlib.sha256)


def _encode(content: bytes) -> str:
    return urlsafe_b64encode(content).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    try:
        content = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (Error, ValueError):
        return b""
    # Accept only the canonical encoding, because another one of the same bytes would pass the single-use check.
    return content if _encode(content) == text else b""


def _listed(existing: Iterable[Descriptor]) -> list[dict[str, Any]]:
    return [
        {"type": "public-key", "id": item.credential_id, "transports": list(item.transports)}
        for item in existing
    ]
