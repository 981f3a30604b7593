"""Passkeys: what browsers are asked for, and what their answers are worth (WebAuthn Level 3)."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from app.rules.errors import InvalidInput
from app.rules.languages.sentences import sentence

MOST_PER_USER = 20
LONGEST_NAME = 60
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


def may_register(settings: Mapping[str, Any]) -> bool:
    """Whether people of the organization may have new passkeys."""
    return bool(settings["authentication"]["passkeys"]["enabled"])


def may_sign_in_alone(settings: Mapping[str, Any]) -> bool:
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


def methods_proved(*, may_sync: bool, alone: bool) -> tuple[str, ...]:
    """What a use of the passkey proves, in the words of RFC 8176.

    ``hwk``: its key never leaves its device; ``swk``: it may be copied, as software keys are. ``user``: somebody was
    there. That they were verified, by a finger or a number that we never learn, makes it two factors: ``mfa``.
    """
    return ("swk" if may_sync else "hwk", "user", *(("mfa",) if alone else ()))


def counts_on(before: int, now: int) -> bool:
    """Whether the counter moved as it should (section 6.1.1): forward, or it is one that never counts."""
    return now > before or (now == 0 and before == 0)


def checked_name(text: str) -> str:
    """The name of a passkey in one line. Raises InvalidInput naming ``name``."""
    name = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    if not name:
        raise InvalidInput("Give it a name by which you know it.", field="name", code="required")
    if len(name) > LONGEST_NAME:
        raise InvalidInput(
            sentence("At most %(most)s characters.", most=LONGEST_NAME), field="name", code="too_long"
        )
    return name


def _listed(known: Iterable[Descriptor]) -> list[dict[str, Any]]:
    return [
        {"type": "public-key", "id": one.credential_id, "transports": list(one.transports)} for one in known
    ]
