"""One-time codes: those of authenticator apps (RFC 6238) and recovery codes."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import struct
from base64 import b32encode
from datetime import datetime
from urllib.parse import quote, urlencode

STEP_SECONDS = 30
DIGITS = 6
SECRET_BYTES = 20
"""160 bits, as long as the hash (RFC 4226 section 4, R6)."""
WINDOW = (0, -1, 1)
"""The step that it is, the one before and the one after: clocks differ (RFC 6238 section 5.2)."""

_CODE = re.compile(r"[0-9]{6}")
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_RECOVERY = re.compile(rf"[{_ALPHABET}]{{24}}")
_MISREAD = str.maketrans({"o": "0", "i": "1", "l": "1", "u": "v"})


def new_secret() -> bytes:
    """The secret that an authenticator app shares with us."""
    return secrets.token_bytes(SECRET_BYTES)


def secret_text(secret: bytes) -> str:
    """The secret as one types it where no code can be scanned, in groups of four."""
    text = b32encode(secret).decode().rstrip("=")
    return " ".join(text[index : index + 4] for index in range(0, len(text), 4))


def address_of(secret: bytes, *, issuer: str, account: str) -> str:
    """``otpauth://…``, what the QR code holds: the form that authenticator apps read."""
    # Apps split the label at the first colon, and some refuse two issuers that differ.
    issuer = issuer.replace(":", " ")
    query = {"secret": b32encode(secret).decode().rstrip("="), "issuer": issuer}
    label = f"{quote(issuer)}:{quote(account)}"
    return f"otpauth://totp/{label}?{urlencode(query, quote_via=quote)}"


def code_at(secret: bytes, step: int) -> str:
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
        current + offset for offset in WINDOW if hmac.compare_digest(code_at(secret, current + offset), code)
    ]
    return found[0] if found else None


def new_recovery_code() -> str:
    """120 random bits, in groups of four that can be read from paper."""
    text = "".join(secrets.choice(_ALPHABET) for _ in range(24))
    return "-".join(text[index : index + 4] for index in range(0, 24, 4))


def read_recovery_code(typed: str) -> str | None:
    """The code in its one form, or None for what cannot be one; spaces, hyphens and case do not matter."""
    text = re.sub(r"[\s-]", "", typed).lower().translate(_MISREAD) if len(typed) <= 64 else ""
    return text if _RECOVERY.fullmatch(text) else None


def recovery_digest(code: str) -> bytes:
    """SHA-256 of the code's one form: at 120 random bits nothing slower protects more (MF-4)."""
    return hashlib.sha256(f"recovery code {code}".encode()).digest()
