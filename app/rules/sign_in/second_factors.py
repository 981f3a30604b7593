"""Second factors: who is asked for one, who may put it off until when, and what a sign-in is worth by it.

``amr`` names what was really used, in the words of RFC 8176: ``pwd``, ``otp`` for a code of an authenticator app and
for a recovery code (which is a password of use once), ``hwk`` or ``swk`` and ``user`` for a passkey, and ``mfa`` as
soon as two factors came together.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import struct
from base64 import b32encode
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Any
from urllib.parse import quote, urlencode

STEP_SECONDS = 30
DIGITS = 6
SECRET_BYTES = 20
"""160 bits, as long as the hash (RFC 4226 section 4, R6)."""
ACCEPTED_STEP_OFFSETS = (0, -1, 1)
"""The step that it is, the one before and the one after: clocks differ (RFC 6238 section 5.2)."""

_CODE = re.compile(r"[0-9]{6}")
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_RECOVERY = re.compile(rf"[{_ALPHABET}]{{24}}")
_MISREAD = str.maketrans({"o": "0", "i": "1", "l": "1", "u": "v"})


def new_secret() -> bytes:
    """The secret that an authenticator app shares with us."""
    return secrets.token_bytes(SECRET_BYTES)


def format_secret(secret: bytes) -> str:
    """The secret as one types it where no code can be scanned, in groups of four."""
    text = b32encode(secret).decode().rstrip("=")
    return " ".join(text[index : index + 4] for index in range(0, len(text), 4))


def otpauth_uri(secret: bytes, *, issuer: str, account: str) -> str:
    """``otpauth://…``, what the QR code holds: the form that authenticator apps read."""
    # Apps split the label at the first colon, and some refuse two issuers that differ.
    issuer = issuer.replace(":", " ")
    query = {"secret": b32encode(secret).decode().rstrip("="), "issuer": issuer}
    label = f"{quote(issuer)}:{quote(account)}"
    return f"otpauth://totp/{label}?{urlencode(query, quote_via=quote)}"


def totp_code(secret: bytes, step: int) -> str:
    """The code of a time step: HMAC-SHA-1, truncated to six digits (RFC 4226 section 5.3)."""
    mac = hmac.digest(secret, struct.pack(">Q", step), hashlib.sha1)
    start = mac[-1] & 0x0F
    number = int.from_bytes(mac[start : start + 4], "big") & 0x7FFFFFFF
    return f"{number % 10**DIGITS:0{DIGITS}}"


def matching_step(secret: bytes, typed: str, now: datetime) -> int | None:
    """The time step whose code was typed, of the three that count now, or None."""
    code = re.sub(r"[\s-]", "", typed)
    if not _CODE.fullmatch(code):
        return None
    current = int(now.timestamp()) // STEP_SECONDS
    # All three are compared, so that the time taken says nothing of which it was.
    found = [
        current + offset
        for offset in ACCEPTED_STEP_OFFSETS
        if hmac.compare_digest(totp_code(secret, current + offset), code)
    ]
    return found[0] if found else None


def new_recovery_code() -> str:
    """120 random bits, in groups of four that can be read from paper."""
    text = "".join(secrets.choice(_ALPHABET) for _ in range(24))
    return "-".join(text[index : index + 4] for index in range(0, 24, 4))


def normalize_recovery_code(typed: str) -> str | None:
    """The code in its one form, or None for what cannot be one; spaces, hyphens and case do not matter."""
    text = re.sub(r"[\s-]", "", typed).lower().translate(_MISREAD) if len(typed) <= 64 else ""
    return text if _RECOVERY.fullmatch(text) else None


def recovery_code_digest(code: str) -> bytes:
    """SHA-256 of the code's one form: at 120 random bits nothing slower protects more (MF-4)."""
    return hashlib.sha256(f"recovery code {code}".encode()).digest()


TOTP, PASSKEY = "totp", "passkey"
AMR_MFA = "mfa"

_OF_EVERYBODY = frozenset({"required"})
_OF_ADMINS = frozenset({"required", "required_for_admins"})


class MfaRequirement(Enum):
    """What a person with one proof is asked for before the sign-in stands."""

    NOTHING = "nothing"
    VERIFY = "verify"
    OFFER = "offer"
    ENROL = "enrol"


@dataclass(frozen=True, slots=True)
class MfaDecision:
    """``until`` is when an offer becomes a demand."""

    demand: MfaRequirement
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class MfaGraceStart:
    """Since when what the demand rests on is so: the account, the role of an administrator, the policy.

    A moment of the policy that is unknown lies before the account was made.
    """

    created_at: datetime
    admin_since: datetime | None = None
    demanded_of_all_from: datetime | None = None
    demanded_of_admins_from: datetime | None = None


def used_second_factor(amr: Collection[str]) -> bool:
    """Whether the sign-in rests on more than one factor."""
    return AMR_MFA in amr


def combine_amr(amr: Iterable[str], more: Iterable[str]) -> tuple[str, ...]:
    """The methods of a sign-in whose second factor was given, each once."""
    return tuple(dict.fromkeys([*(name for name in amr if name != AMR_MFA), *more, AMR_MFA]))


def is_mfa_offered(settings: Mapping[str, Any]) -> bool:
    """Whether people of the organization may have a second factor at all."""
    return bool(settings["authentication"]["mfa"]["policy"] != "off")


def allowed_methods(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """What counts as a second factor and may be set up."""
    authentication = settings["authentication"]
    methods = authentication["mfa"]["methods"] if is_mfa_offered(settings) else []
    return tuple(name for name in methods if name != PASSKEY or authentication["passkeys"]["enabled"])


def decide_mfa(
    settings: Mapping[str, Any],
    *,
    enrolled: Collection[str],
    amr: Collection[str],
    standing: MfaGraceStart,
    now: datetime,
) -> MfaDecision:
    """What the sign-in still needs.

    A factor that somebody has is asked for, also when its method counts no more: narrowing the methods must not open
    an account to its password alone.
    """
    if not is_mfa_offered(settings):
        return MfaDecision(MfaRequirement.NOTHING)
    if enrolled and not used_second_factor(amr):
        return MfaDecision(MfaRequirement.VERIFY)
    since = _demanded_since(settings["authentication"]["mfa"]["policy"], standing)
    if since is None or set(enrolled) & set(allowed_methods(settings)):
        return MfaDecision(MfaRequirement.NOTHING)
    until = since + timedelta(seconds=settings["authentication"]["mfa"]["grace_period_seconds"])
    return MfaDecision(MfaRequirement.OFFER, until) if now < until else MfaDecision(MfaRequirement.ENROL)


def update_mfa_required_since(
    before: str, after: str, moments: tuple[datetime | None, datetime | None], now: datetime
) -> tuple[datetime | None, datetime | None]:
    """Since when the policy demands a second factor of everybody and of administrators, after it changed.

    What was demanded before stays so since then; what is demanded no more has no moment.
    """
    of_all, of_admins = moments
    return (
        _moment(before in _OF_EVERYBODY, after in _OF_EVERYBODY, of_all, now),
        _moment(before in _OF_ADMINS, after in _OF_ADMINS, of_admins, now),
    )


def _moment(was: bool, is_now: bool, moment: datetime | None, now: datetime) -> datetime | None:
    if not is_now:
        return None
    return moment if was else now


def _demanded_since(policy: str, standing: MfaGraceStart) -> datetime | None:
    """The later of the moments that make the demand; None when there is none."""
    found = []
    if policy in _OF_EVERYBODY:
        found.append(_latest(standing.created_at, standing.demanded_of_all_from))
    if policy in _OF_ADMINS and standing.admin_since is not None:
        found.append(_latest(standing.created_at, standing.admin_since, standing.demanded_of_admins_from))
    # An administrator of whom it was demanded before everybody's turn came does not start again.
    return min(found) if found else None


def _latest(*moments: datetime | None) -> datetime:
    return max(moment for moment in moments if moment is not None)
