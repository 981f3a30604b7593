"""The values that this service generates: identifiers, and the secrets of which it stores only digests.

Identifiers are routing keys of organizations, time-ordered row ids, and their public forms with a prefix.

Secrets are ``gth_<kind>_<routing key><random><checksum>``: secret scanners search for the prefix, the routing key tells
the organization without a query, 256 random bits are the secret, and the checksum tells a typing error from a wrong
secret. A refresh token also names its grant and carries a keyed tag, so that a forged token can be told from an old one
without storing every old one. Only the SHA-256 digest of the whole string is stored: at 256 bits of entropy a slow hash
would protect nothing (ASVS 6.5.2) and would slow down every token request (CA-4).
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import os
import re
import secrets
import time
import zlib
from base64 import urlsafe_b64encode
from datetime import datetime
from typing import ClassVar
from uuid import UUID

from msgspec import Struct

from app.rules.languages.translation import lazy_gettext as _

# Crockford's base32 in lower case has no i, l, o or u, so that a key can be read aloud.
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_VALUES = {char: value for value, char in enumerate(_ALPHABET)}
# Encode two characters at a time: every request makes an id, and most responses encode several.
_PAIRS = [first + second for first in _ALPHABET for second in _ALPHABET]
_PAIR_SHIFTS = tuple(range(120, -1, -10))
# The version and variant bits of RFC 9562, and the mask of the random ones.
_VERSION_BITS = 0x7 << 76 | 0x2 << 62
_RANDOM_BITS = (1 << 62) - 1
ROUTING_KEY_LENGTH = 8
ENCODED_UUID_LENGTH = 26
_CLIENT_ID_LENGTH = len("cli__") + ROUTING_KEY_LENGTH + ENCODED_UUID_LENGTH

ROUTING_KEY_PATTERN = rf"[0-9a-hjkmnp-tv-z]{{{ROUTING_KEY_LENGTH}}}"
ENCODED_UUID_PATTERN = rf"[0-9a-hjkmnp-tv-z]{{{ENCODED_UUID_LENGTH}}}"
_ROUTING_KEY = re.compile(ROUTING_KEY_PATTERN)
_CLIENT_ID = re.compile(f"cli_({ROUTING_KEY_PATTERN})_({ENCODED_UUID_PATTERN})")


def new_routing_key() -> str:
    """Return a new organization key: 40 random bits, eight characters. The primary key detects collisions."""
    number = secrets.randbits(40)
    return "".join(_ALPHABET[(number >> shift) & 31] for shift in range(35, -1, -5))


def routing_key_bounds(part: int, parts: int) -> tuple[str, str | None]:
    """Return the bounds of one of ``parts`` equal parts of all organization keys: the least, and the next part's.

    The first part has no lower bound and the last no upper one. Keys are random, so the parts hold about as many
    organizations each, as those of a hash would, and each is one range of every primary key.
    """
    size = len(_ALPHABET) // parts
    low = "" if part == 0 else _ALPHABET[part * size]
    return low, None if part == parts - 1 else _ALPHABET[(part + 1) * size]


def is_routing_key(text: str) -> bool:
    """Return whether the text has the form of an organization key."""
    return _ROUTING_KEY.fullmatch(text) is not None


def new_id() -> UUID:
    """Return a UUIDv7 (RFC 9562 section 5.7): 60 bits of time and 62 random bits, so that inserts append.

    The time counts quarters of a microsecond (section 6.2, method 3): of two events that a process records, the later
    one has the greater id.
    """
    return UUID(int=_new_number())


def first_id_at(at: datetime) -> UUID:
    """Return the lower bound of the ids made at this time or later, to use a time as a range of the primary key."""
    return UUID(int=max(0, int(at.timestamp() * 1000)) << 80)


def new_public_id(prefix: str) -> str:
    """Return a new public id that belongs to no row, such as a request id."""
    return f"{prefix}_{_encode(_new_number())}"


def encode_uuid(value: UUID) -> str:
    """Encode an id in 26 base32 characters, which sort as the id does."""
    return _encode(value.int)


def _new_number() -> int:
    milliseconds, rest = divmod(time.time_ns(), 1_000_000)
    fraction = (rest << 12) // 1_000_000
    return (
        milliseconds << 80
        | fraction << 64
        | int.from_bytes(os.urandom(8), "big") & _RANDOM_BITS
        | _VERSION_BITS
    )


def _encode(number: int) -> str:
    return "".join([_PAIRS[(number >> shift) & 1023] for shift in _PAIR_SHIFTS])


def decode_uuid(text: str) -> UUID | None:
    """Decode 26 base32 characters, or return None if the text is not an id."""
    if len(text) != ENCODED_UUID_LENGTH:
        return None
    number = 0
    for char in text:
        value = _VALUES.get(char)
        if value is None:
            return None
        number = number << 5 | value
    return UUID(int=number) if number < 1 << 128 else None


def public_id(prefix: str, value: UUID) -> str:
    """Return the public id of a row, such as ``usr_01jd…``."""
    return f"{prefix}_{encode_uuid(value)}"


class HasPublicId:
    """Base of the records of rows whose id is shown with a prefix."""

    __slots__ = ()
    id_prefix: ClassVar[str]
    id: UUID

    @property
    def public_id(self) -> str:
        """The public id, such as ``usr_01jd…``."""
        return public_id(self.id_prefix, self.id)


def parse_public_id(prefix: str, text: str) -> UUID | None:
    """Return the row id, or None if the text is not a public id with this prefix."""
    head = f"{prefix}_"
    return decode_uuid(text[len(head) :]) if text.startswith(head) else None


def existing_creator(created_by: str | None) -> str | None:
    """Return who created something, or None if it was a user who was deleted: their id has replaced the email."""
    return None if created_by is None or parse_public_id("usr", created_by) is not None else created_by


def format_client_id(organization_id: str, value: UUID) -> str:
    """Return the public ``client_id``. It names its organization and never equals a ``sub`` (RFC 9700 section 4.15)."""
    return f"cli_{organization_id}_{encode_uuid(value)}"


def parse_client_id(text: str) -> tuple[str, UUID] | None:
    """Return (organization key, client row id), or None if the text cannot be a ``client_id`` of this server."""
    # Anyone can send a text of any length, and the cache would hold thousands of them.
    return _parse_client_id(text) if len(text) == _CLIENT_ID_LENGTH else None


@functools.lru_cache(maxsize=4096)
def _parse_client_id(text: str) -> tuple[str, UUID] | None:
    match = _CLIENT_ID.fullmatch(text)
    if match is None:
        return None
    value = decode_uuid(match[2])
    return (match[1], value) if value is not None else None


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
PROVISIONING = "pv"

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
    PROVISIONING: _("a provisioning token of an identity provider"),
}
"""The name of each kind of token and secret, for users."""

_RANDOM, _CHECKSUM = r"[A-Za-z0-9_-]{43}", r"[0-9a-f]{8}"
_SIMPLE_KINDS = "|".join(kind for kind in KINDS if kind != REFRESH_TOKEN)
_SIMPLE = re.compile(rf"gth_({_SIMPLE_KINDS})_({ROUTING_KEY_PATTERN})({_RANDOM})({_CHECKSUM})")
_REFRESH = re.compile(
    rf"gth_rt_({ROUTING_KEY_PATTERN})({ENCODED_UUID_PATTERN})({_RANDOM})([A-Za-z0-9_-]{{11}})({_CHECKSUM})"
)
MAX_TOKEN_LENGTH = 160


class ParsedToken(Struct, frozen=True):
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


def is_token_of(text: str, kind: str, organization_id: str) -> bool:
    """Return whether the text is a well-formed secret of this kind and organization."""
    parsed = parse_token(text)
    return parsed is not None and (parsed.kind, parsed.organization_id) == (kind, organization_id)


def has_valid_tag(refresh_token: str, tag_key: bytes) -> bool:
    """Return whether the organization issued the refresh token: an old one is reuse, a forged one is merely unknown."""
    return hmac.compare_digest(_tag(refresh_token[:-19], tag_key), refresh_token[-19:-8])


def _checksum(body: str) -> str:
    return f"{zlib.crc32(body.encode()):08x}"


def _tag(body: str, tag_key: bytes) -> str:
    return urlsafe_b64encode(hmac.digest(tag_key, body.encode(), "sha256")[:8])[:11].decode()
