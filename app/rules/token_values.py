"""Format of the secrets that this service issues, and the digests that it stores.

``gth_<kind>_<routing key><random><checksum>``: secret scanners search for the prefix, the routing key tells the
organization without a query, 256 random bits are the secret, and the checksum tells a typing error from a wrong secret.
A refresh token also names its grant and carries a keyed tag, so that a forged token can be told from an old one without
storing every old one. Only the SHA-256 digest of the whole string is stored: at 256 bits of entropy a slow hash would
protect nothing (ASVS 6.5.2) and would slow down every token request (CA-4).
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import zlib
from base64 import urlsafe_b64encode
from dataclasses import dataclass
from uuid import UUID

from app.rules.identifiers import decode_uuid, encode_uuid
from app.rules.languages.translation import lazy_gettext as _

CLIENT_SECRET = "cs"
ACCESS_TOKEN = "at"
REFRESH_TOKEN = "rt"
AUTHORIZATION_CODE = "ac"
DEVICE_CODE = "dc"
SESSION = "ss"
AUTHORIZATION_REQUEST = "ar"
PUSHED_REQUEST = "pr"
INVITATION = "iv"
SETUP = "su"
INITIAL_ACCESS = "ia"
REGISTRATION_ACCESS = "ra"
PASSWORD_RESET = "pw"
EMAIL_VERIFICATION = "ev"
PENDING_SIGN_IN = "si"
KNOWN_BROWSER = "kb"

KINDS = {
    CLIENT_SECRET: _("a client secret"),
    ACCESS_TOKEN: _("an access token"),
    REFRESH_TOKEN: _("a refresh token"),
    AUTHORIZATION_CODE: _("an authorization code"),
    DEVICE_CODE: _("a device code"),
    SESSION: _("a session cookie"),
    AUTHORIZATION_REQUEST: _("an authorization request"),
    PUSHED_REQUEST: _("a pushed request"),
    INVITATION: _("an invitation"),
    SETUP: _("a setup link"),
    INITIAL_ACCESS: _("an initial access token for registering clients"),
    REGISTRATION_ACCESS: _("a registration access token of a client"),
    PASSWORD_RESET: _("a password reset link"),
    EMAIL_VERIFICATION: _("an email verification link"),
    PENDING_SIGN_IN: _("a pending sign-in"),
    KNOWN_BROWSER: _("a cookie of a recognized browser"),
}
"""The name of each kind of token and secret, for users."""

_KEY = "[0-9a-hjkmnp-tv-z]{8}"
_SIMPLE = re.compile(
    rf"gth_(cs|at|ac|dc|ss|ar|pr|iv|su|ia|ra|pw|ev|si|kb)_({_KEY})([A-Za-z0-9_-]{{43}})([0-9a-f]{{8}})"
)
_REFRESH = re.compile(
    rf"gth_rt_({_KEY})([0-9a-hjkmnp-tv-z]{{26}})([A-Za-z0-9_-]{{43}})([A-Za-z0-9_-]{{11}})([0-9a-f]{{8}})"
)
MAX_TOKEN_LENGTH = 160


@dataclass(frozen=True, slots=True)
class ParsedToken:
    """The claims of a well-formed secret. None of them is verified yet."""

    kind: str
    organization_id: str
    grant_id: UUID | None = None


def digest(text: str) -> bytes:
    """Return the SHA-256 digest of the whole string, the only form that is stored."""
    return hashlib.sha256(text.encode()).digest()


def keyed_digest(key: bytes, text: str) -> bytes:
    """Return the HMAC-SHA256, which is stored for values that are short enough to be guessed."""
    return hmac.digest(key, text.encode(), "sha256")


def hint(text: str) -> str:
    """Return the last four characters of the random part, to tell two secrets apart on a page."""
    return text[-12:-8]


def new_token(kind: str, organization_id: str) -> str:
    """Return a new secret of the kind for the organization, with 256 random bits."""
    body = f"gth_{kind}_{organization_id}{secrets.token_urlsafe(32)}"
    return body + _checksum(body)


def new_refresh_token(organization_id: str, grant_id: UUID, tag_key: bytes) -> str:
    """Return a new refresh token of the grant. ``tag_key`` is the key for refresh token tags."""
    body = f"gth_rt_{organization_id}{encode_uuid(grant_id)}{secrets.token_urlsafe(32)}"
    body += _tag(body, tag_key)
    return body + _checksum(body)


def parse_token(text: str) -> ParsedToken | None:
    """Parse a secret, or return None if its format or checksum is wrong. This uses no database."""
    if len(text) > MAX_TOKEN_LENGTH or not text.startswith("gth_"):
        return None
    match = _SIMPLE.fullmatch(text)
    if match is not None:
        return ParsedToken(match[1], match[2]) if _checksum(text[:-8]) == text[-8:] else None
    match = _REFRESH.fullmatch(text)
    if match is None or _checksum(text[:-8]) != text[-8:]:
        return None
    grant_id = decode_uuid(match[2])
    return ParsedToken(REFRESH_TOKEN, match[1], grant_id) if grant_id is not None else None


def has_valid_tag(refresh_token: str, tag_key: bytes) -> bool:
    """Return whether the organization issued the refresh token: an old one is reuse, a forged one is merely unknown."""
    return hmac.compare_digest(_tag(refresh_token[:-19], tag_key), refresh_token[-19:-8])


def _checksum(body: str) -> str:
    return f"{zlib.crc32(body.encode()):08x}"


def _tag(body: str, tag_key: bytes) -> str:
    return urlsafe_b64encode(hmac.digest(tag_key, body.encode(), "sha256")[:8])[:11].decode()
