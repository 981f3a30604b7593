"""Second factors: TOTP and recovery codes, when an organization requires a second factor, and ``amr`` values.

``amr`` lists the methods that were used (RFC 8176): ``pwd``, ``fed`` for an identity provider, ``otp`` for an
authenticator or recovery code (a one-time password), ``hwk`` or ``swk`` with ``user`` for a passkey, and ``mfa`` once
two factors were combined.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import struct
from base64 import b32encode
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any
from urllib.parse import quote, urlencode

from msgspec import Struct

STEP_SECONDS = 30
DIGITS = 6
SECRET_BYTES = 20
"""160 bits, as long as the hash (RFC 4226 section 4, R6)."""
ACCEPTED_STEP_OFFSETS = (0, -1, 1)
"""The current time step, the one before and the one after, because clocks differ (RFC 6238 section 5.2)."""
# In characters of the URI, where an emoji takes twelve. A QR code holds 2331 of them.
_MAX_ISSUER, _MAX_ACCOUNT = 300, 400
_CODE = re.compile(r"[0-9]{6}")
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_RECOVERY = re.compile(rf"[{_ALPHABET}]{{24}}")
_MISREAD = str.maketrans({"o": "0", "i": "1", "l": "1", "u": "v"})
TOTP, PASSKEY = "totp", "passkey"
AMR_MFA = "mfa"
_REQUIRED_FOR_ALL = frozenset({"required"})
_REQUIRED_FOR_ADMINS = frozenset({"required", "required_for_admins"})


class MfaRequirement(Enum):
    """The next step of a user who has presented one factor."""

    NOTHING = "nothing"
    VERIFY = "verify"
    OFFER = "offer"
    ENROL = "enrol"


class MfaDecision(Struct, frozen=True):
    """A requirement. ``until`` is when an offered factor becomes required."""

    requirement: MfaRequirement
    until: datetime | None = None


class MfaGraceStart(Struct, frozen=True):
    """The times that a grace period can start from: the account, the administrator role, the policy.

    An unknown time of the policy counts as before the account was created.
    """

    created_at: datetime
    admin_since: datetime | None = None
    required_of_all_since: datetime | None = None
    required_of_admins_since: datetime | None = None


def new_secret() -> bytes:
    """Create the secret that an authenticator app shares with the server."""
    return secrets.token_bytes(SECRET_BYTES)


def format_secret(secret: bytes) -> str:
    """Return the secret in base32 in groups of four, for typing it where no QR code can be scanned."""
    text = b32encode(secret).decode().rstrip("=")
    return " ".join(text[index : index + 4] for index in range(0, len(text), 4))


def otpauth_uri(secret: bytes, *, issuer: str, account: str) -> str:
    """Return the ``otpauth:`` URI for the QR code. Long names are cut, so that a code can hold and a camera read it."""
    # Apps split the label at the first colon, and some refuse two issuers that differ.
    issuer = _cut(issuer.replace(":", " "), _MAX_ISSUER)
    query = {"secret": b32encode(secret).decode().rstrip("="), "issuer": issuer}
    label = f"{quote(issuer)}:{quote(_cut(account, _MAX_ACCOUNT))}"
    return f"otpauth://totp/{label}?{urlencode(query, quote_via=quote)}"


def _cut(text: str, max_length: int) -> str:
    """Return the longest beginning of the text whose percent-encoded form has at most ``max_length`` characters."""
    while len(quote(text)) > max_length:
        text = text[:-1]
    return text


def totp_code(secret: bytes, step: int) -> str:
    """Return the code of a time step: HMAC-SHA-1, truncated to six digits (RFC 4226 section 5.3)."""
    mac = hmac.digest(secret, struct.pack(">Q", step), hashlib.sha1)
    start = mac[-1] & 0x0F
    number = int.from_bytes(mac[start : start + 4], "big") & 0x7FFFFFFF
    return f"{number % 10**DIGITS:0{DIGITS}}"


def matching_step(secret: bytes, typed: str, now: datetime) -> int | None:
    """Return the accepted time step whose code was typed, or None."""
    code = re.sub(r"[\s-]", "", typed)
    if not _CODE.fullmatch(code):
        return None
    current = int(now.timestamp()) // STEP_SECONDS
    # Compare all three, so that the time taken does not reveal which one matched.
    starts = [
        current + offset
        for offset in ACCEPTED_STEP_OFFSETS
        if hmac.compare_digest(totp_code(secret, current + offset), code)
    ]
    return starts[0] if starts else None


def accepted_since(step: int) -> datetime:
    """Return when the code of the time step was first accepted."""
    return datetime.fromtimestamp((step - max(ACCEPTED_STEP_OFFSETS)) * STEP_SECONDS, UTC)


def new_recovery_code() -> str:
    """Create a recovery code of 120 random bits in groups of four, easy to read from paper."""
    text = "".join(secrets.choice(_ALPHABET) for _ in range(24))
    return "-".join(text[index : index + 4] for index in range(0, 24, 4))


def normalize_recovery_code(typed: str) -> str | None:
    """Return the canonical form of a typed code, or None if it cannot be one.

    Spaces, hyphens and case do not matter.
    """
    text = re.sub(r"[\s-]", "", typed).lower().translate(_MISREAD) if len(typed) <= 64 else ""
    return text if _RECOVERY.fullmatch(text) else None


def recovery_code_digest(code: str) -> bytes:
    """Return the SHA-256 of a normalized code. With 120 random bits a slow hash adds nothing (MF-4)."""
    return hashlib.sha256(f"recovery code {code}".encode()).digest()


def used_second_factor(amr: Collection[str]) -> bool:
    """Return whether the sign-in used more than one factor."""
    return AMR_MFA in amr


def combine_amr(amr: Iterable[str], more: Iterable[str]) -> tuple[str, ...]:
    """Return the methods of a sign-in after its second factor, without duplicates and with ``mfa``."""
    return tuple(dict.fromkeys([*(name for name in amr if name != AMR_MFA), *more, AMR_MFA]))


def is_mfa_offered(settings: Mapping[str, Any]) -> bool:
    """Return whether users of the organization may have a second factor at all."""
    return bool(settings["authentication"]["mfa"]["policy"] != "off")


def allowed_methods(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the second-factor methods that the organization accepts and that may be set up."""
    authentication = settings["authentication"]
    methods = authentication["mfa"]["methods"] if is_mfa_offered(settings) else []
    return tuple(name for name in methods if name != PASSKEY or authentication["passkeys"]["enabled"])


def decide_mfa(
    settings: Mapping[str, Any],
    *,
    enrolled: Collection[str],
    amr: Collection[str],
    grace_start: MfaGraceStart,
    now: datetime,
) -> MfaDecision:
    """Decide what a sign-in still needs.

    An enrolled factor is requested even if its method is no longer allowed, because restricting the methods
    must not reduce an account's protection to the password.
    """
    if not is_mfa_offered(settings):
        return MfaDecision(MfaRequirement.NOTHING)
    if enrolled and not used_second_factor(amr):
        return MfaDecision(MfaRequirement.VERIFY)
    since = _required_since(settings["authentication"]["mfa"]["policy"], grace_start)
    if since is None or set(enrolled) & set(allowed_methods(settings)):
        return MfaDecision(MfaRequirement.NOTHING)
    until = since + timedelta(seconds=settings["authentication"]["mfa"]["grace_period_seconds"])
    return MfaDecision(MfaRequirement.OFFER, until) if now < until else MfaDecision(MfaRequirement.ENROL)


def update_mfa_required_since(
    before: str, after: str, required_since: tuple[datetime | None, datetime | None], now: datetime
) -> tuple[datetime | None, datetime | None]:
    """Return since when a factor is required of all users and of administrators, after a policy change.

    An existing requirement keeps its time. A requirement that was lifted has none.
    """
    all_since, admins_since = required_since
    return (
        _updated_since(before in _REQUIRED_FOR_ALL, after in _REQUIRED_FOR_ALL, all_since, now),
        _updated_since(before in _REQUIRED_FOR_ADMINS, after in _REQUIRED_FOR_ADMINS, admins_since, now),
    )


def _updated_since(
    was_required: bool, is_required: bool, since: datetime | None, now: datetime
) -> datetime | None:
    if not is_required:
        return None
    return since if was_required else now


def _required_since(policy: str, grace_start: MfaGraceStart) -> datetime | None:
    """Return the earliest time from which the policy requires a factor of this user, or None."""
    starts = []
    if policy in _REQUIRED_FOR_ALL:
        starts.append(_latest(grace_start.created_at, grace_start.required_of_all_since))
    if policy in _REQUIRED_FOR_ADMINS and grace_start.admin_since is not None:
        starts.append(
            _latest(grace_start.created_at, grace_start.admin_since, grace_start.required_of_admins_since)
        )
    # An administrator's grace period does not restart when the requirement is extended to all users.
    return min(starts) if starts else None


def _latest(*required_since: datetime | None) -> datetime:
    return max(since for since in required_since if since is not None)
