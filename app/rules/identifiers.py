"""Identifiers: routing keys, time-ordered row ids, and their public forms with a prefix."""

from __future__ import annotations

import functools
import os
import re
import secrets
import time
from datetime import datetime
from uuid import UUID

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

_ROUTING_KEY = re.compile(rf"[{_ALPHABET}]{{{ROUTING_KEY_LENGTH}}}")
_CLIENT_ID = re.compile(
    rf"cli_([{_ALPHABET}]{{{ROUTING_KEY_LENGTH}}})_([{_ALPHABET}]{{{ENCODED_UUID_LENGTH}}})"
)


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


def parse_public_id(prefix: str, text: str) -> UUID | None:
    """Return the row id, or None if the text is not a public id with this prefix."""
    head = f"{prefix}_"
    return decode_uuid(text[len(head) :]) if text.startswith(head) else None


def format_client_id(organization_id: str, value: UUID) -> str:
    """Return the public ``client_id``. It names its organization and never equals a ``sub`` (RFC 9700 section 4.15)."""
    return f"cli_{organization_id}_{encode_uuid(value)}"


@functools.lru_cache(maxsize=4096)
def parse_client_id(text: str) -> tuple[str, UUID] | None:
    """Return (organization key, client row id), or None if the text cannot be a ``client_id`` of this server."""
    match = _CLIENT_ID.fullmatch(text)
    if match is None:
        return None
    value = decode_uuid(match[2])
    return (match[1], value) if value is not None else None
