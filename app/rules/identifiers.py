"""Identifiers: routing keys, time-ordered row ids, and the prefixed forms that people and programs see."""

from __future__ import annotations

import functools
import os
import re
import secrets
import time
from datetime import datetime
from uuid import UUID

# Crockford's base32, lower case: no i, l, o, u, so that a key read aloud survives.
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_VALUES = {char: value for value, char in enumerate(_ALPHABET)}
# Two characters at a time: every request makes an id, and most answers encode several.
_PAIRS = [first + second for first in _ALPHABET for second in _ALPHABET]
_PAIR_SHIFTS = tuple(range(120, -1, -10))
# Version 7 and the variant of RFC 9562, and the bits beside them.
_FIXED = 0x7 << 76 | 0x2 << 62
_UNFIXED = (1 << 128) - 1 & ~(0xF << 76) & ~(0x3 << 62)
ROUTING_KEY_LENGTH = 8
ENCODED_UUID_LENGTH = 26

_ROUTING_KEY = re.compile(rf"[{_ALPHABET}]{{{ROUTING_KEY_LENGTH}}}")
_CLIENT_ID = re.compile(
    rf"cli_([{_ALPHABET}]{{{ROUTING_KEY_LENGTH}}})_([{_ALPHABET}]{{{ENCODED_UUID_LENGTH}}})"
)


def new_routing_key() -> str:
    """A fresh organization key: 40 random bits, eight characters. Its table's primary key settles collisions."""
    number = secrets.randbits(40)
    return "".join(_ALPHABET[(number >> shift) & 31] for shift in range(35, -1, -5))


def is_routing_key(text: str) -> bool:
    """Whether the text has the form of an organization key."""
    return _ROUTING_KEY.fullmatch(text) is not None


def new_id() -> UUID:
    """A UUIDv7 (RFC 9562 section 5.7): 48 bits of milliseconds, 74 random bits, so that inserts append."""
    return UUID(int=_new_number())


def first_id_at(moment: datetime) -> UUID:
    """The bound that no id made at the moment or later is below: a time as a range of the primary key."""
    return UUID(int=max(0, int(moment.timestamp() * 1000)) << 80)


def new_public_id(prefix: str) -> str:
    """The public form of an id that no row has: of a request."""
    return f"{prefix}_{_encode(_new_number())}"


def encode_uuid(value: UUID) -> str:
    """The 26 base32 characters of an id; they sort as the id does."""
    return _encode(value.int)


def _new_number() -> int:
    value = (time.time_ns() // 1_000_000) << 80 | int.from_bytes(os.urandom(10), "big")
    return value & _UNFIXED | _FIXED


def _encode(number: int) -> str:
    return "".join([_PAIRS[(number >> shift) & 1023] for shift in _PAIR_SHIFTS])


def decode_uuid(text: str) -> UUID | None:
    """The id in 26 base32 characters, or None when it is none."""
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
    """``usr_01jd…``: what the API and pages call a row."""
    return f"{prefix}_{encode_uuid(value)}"


def parse_public_id(prefix: str, text: str) -> UUID | None:
    """The row's id in its public form, or None when the text is not one of this prefix."""
    head = f"{prefix}_"
    return decode_uuid(text[len(head) :]) if text.startswith(head) else None


def format_client_id(organization_id: str, value: UUID) -> str:
    """The public ``client_id``; it names its organization and can never equal a ``sub`` (RFC 9700 section 4.15)."""
    return f"cli_{organization_id}_{encode_uuid(value)}"


@functools.lru_cache(maxsize=4096)
def parse_client_id(text: str) -> tuple[str, UUID] | None:
    """(organization key, client row id) of a ``client_id``, or None when it cannot be one of ours."""
    match = _CLIENT_ID.fullmatch(text)
    if match is None:
        return None
    value = decode_uuid(match[2])
    return (match[1], value) if value is not None else None
