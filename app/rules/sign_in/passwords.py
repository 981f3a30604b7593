"""Passwords: the organization's policy, the list of common passwords, argon2id hashing, and lockout after failures."""

from __future__ import annotations

import ipaddress
import mmap
import re
import unicodedata
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from functools import cache
from hashlib import sha256
from importlib.resources import as_file, files
from typing import Any

from argon2 import PasswordHasher, Type
from argon2.exceptions import Argon2Error, InvalidHashError
from msgspec import Struct
from msgspec.structs import replace

from app.rules.errors import FieldError
from app.rules.languages.translation import lazy_gettext
from app.rules.sign_in import imported_hashes

DIGEST_PREFIX_BYTES = 5
"""Bytes of each digest in the list."""
MIN_LISTED_LENGTH = 8
"""Shorter passwords are not on the list, because no organization accepts them."""
MAX_COMPARED_LENGTH = 24
"""Longer texts are not looked up in the list."""
MAX_LENGTH = 128
"""Longer passwords are rejected before hashing, never truncated (PW-2, PW-6)."""
MAX_PERSONAL_LENGTH = 320
"""Of a name or email that a password is compared with. The rest is ignored: nothing has checked its length yet."""
MIN_LENGTH = 8
"""Organizations cannot set a lower minimum (PW-1)."""
# m=19 MiB, t=2, p=1: the OWASP minimum, 18 ms on a core; argon2-cffi's defaults allow 7 sign-ins a second.
_hasher = PasswordHasher(
    time_cost=2, memory_cost=19456, parallelism=1, hash_len=32, salt_len=16, type=Type.ID
)
_ROWS = (
    "abcdefghijklmnopqrstuvwxyz",
    "01234567890",
    "qwertyuiop",
    "qwertzuiop",
    "azertyuiop",
    "asdfghjkl",
    "zxcvbnm",
    "1qaz2wsx3edc4rfv5tgb6yhn7ujm8ik9ol0p",
    "qazwsxedcrfvtgbyhnujmikolp",
    "1q2w3e4r5t6y7u8i9o0p",
    "qawsedrftgyhujikolp",
)
_LOOKALIKES = str.maketrans("@4301!$579+8", "aaeoiisstgtb")
_TAIL = re.compile(r"[^a-z]+$")
_NOT_LETTERS = re.compile(r"[^a-z]+")
_SEPARATORS = re.compile(r"[\W_]+")
_MIN_REMAINDER = 8
_MAX_SUFFIX = 4
IPV6_SITE_FACTOR = 8
"""How many times the limit of a /64 applies to the /48 that contains it."""


def is_listed(password: str) -> bool:
    """Return whether the password, ignoring case, is on the shipped list.

    Texts longer than ``MAX_COMPARED_LENGTH`` are never found: hardly any is on a list, and the short digests would
    now and then refuse a password manager's.
    """
    return MIN_LISTED_LENGTH <= len(password) <= MAX_COMPARED_LENGTH and _contains(
        _list_entries(), digest_prefix(password)
    )


def digest_prefix(password: str) -> bytes:
    """Return the list entry of a password."""
    folded = unicodedata.normalize("NFKC", password).casefold()
    return sha256(folded.encode("utf-8", "surrogatepass")).digest()[:DIGEST_PREFIX_BYTES]


def build_password_list(passwords: Iterable[str]) -> bytes:
    """Return the content of the list file for these passwords, without those that are too short."""
    return b"".join(
        sorted({digest_prefix(password) for password in passwords if len(password) >= MIN_LISTED_LENGTH})
    )


def count_listed_passwords() -> int:
    """Return how many passwords are on the list."""
    return len(_list_entries()) // DIGEST_PREFIX_BYTES


def hash_password(password: str) -> str:
    """Return the argon2id hash of a password, whose length the caller has checked."""
    if len(password) > MAX_LENGTH:
        raise ValueError("a password over the maximum length must be rejected before hashing")
    return _hasher.hash(password)


def verify_password(stored_hash: str | None, password: str) -> bool:
    """Return whether the password matches the hash.

    Without a hash (no such user, or one without a password) a dummy of the same cost is verified, so that the
    response takes equally long (EN-2). A password over ``MAX_LENGTH`` never matches and costs no hash.
    """
    if len(password) > MAX_LENGTH:
        return False
    if stored_hash is not None and imported_hashes.is_imported(stored_hash):
        return imported_hashes.verify_imported_password(stored_hash, password)
    try:
        return _hasher.verify(stored_hash or dummy_hash(), password) and stored_hash is not None
    except (Argon2Error, InvalidHashError, UnicodeEncodeError):
        return False


def needs_rehash(stored_hash: str) -> bool:
    """Return whether the hash was imported or has outdated parameters, so that a sign-in renews it (PW-5)."""
    return imported_hashes.is_imported(stored_hash) or _hasher.check_needs_rehash(stored_hash)


@cache
def dummy_hash() -> str:
    """Return a hash with current parameters that no password is known for."""
    return _hasher.hash("this is the password of nobody")


def find_password_errors(
    password: str, policy: Mapping[str, Any], *, personal: Iterable[str] = (), field: str = "password"
) -> list[FieldError]:
    """Return the errors of a new password under the organization's policy, an empty list if it is accepted.

    ``policy`` is ``authentication.password`` of the settings. ``personal`` lists names and emails of the user
    and organization. There are no rules about kinds of characters (NIST SP 800-63B-4: SHALL NOT).
    """
    min_length = max(MIN_LENGTH, int(policy.get("min_length", 12)))
    if len(password) > MAX_LENGTH:
        return [
            FieldError(field, "too_long", lazy_gettext("Use at most %(most)s characters.", most=MAX_LENGTH))
        ]
    if not password.isprintable() and any(unicodedata.category(char) in ("Cc", "Cs") for char in password):
        return [FieldError(field, "invalid_characters", "Remove line breaks and control characters.")]
    if len(password) < min_length:
        return [
            FieldError(
                field,
                "too_short",
                lazy_gettext(
                    "Use at least %(least)s characters. A few unrelated words work well.", least=min_length
                ),
            )
        ]
    if policy.get("block_common", True) and is_common(password):
        return [FieldError(field, "too_common", "This is a common password. Use a few unrelated words.")]
    if policy.get("block_personal", True) and is_personal(password, personal):
        message = lazy_gettext(
            "This password is too similar to your name, email or organization. Use a few unrelated words."
        )
        return [FieldError(field, "too_personal", message)]
    return []


def is_common(password: str) -> bool:
    """Return whether a guessing program would try the password early.

    That is a password on the shipped list, also after a simple change (PW-3), a repeated piece, a run along
    the alphabet, the digits or the keyboard, or one or two listed words with digits and punctuation around
    them or in place of letters.
    """
    lowered = unicodedata.normalize("NFKC", password).casefold()
    solid = _SEPARATORS.sub("", lowered)
    if len(solid) < 6 or _is_repetition(solid) or _is_made_of_runs(solid):
        return True
    if any(is_listed(text) for text in _without_simple_changes(lowered, solid)):
        return True
    if not lowered.isascii():
        return False
    core = _TAIL.sub("", lowered)
    return any(
        _is_made_of_few_words(letters, others=len(solid) - len(letters))
        for letters in {_NOT_LETTERS.sub("", text) for text in (lowered, core.translate(_LOOKALIKES))}
    )


def is_personal(password: str, personal: Iterable[str]) -> bool:
    """Return whether fewer than eight characters remain without the words known about the user."""
    remainder = _plain(password)
    texts = [text[:MAX_PERSONAL_LENGTH] for text in personal]
    known = {word for text in texts for word in (_plain(text), *re.split(r"[\W_]+", text.casefold()))}
    found = False
    for word in sorted((word for word in known if len(word) >= 3), key=len, reverse=True):
        found = found or word in remainder
        remainder = remainder.replace(word, "")
    return found and len(remainder) < _MIN_REMAINDER


def _contains(entries: mmap.mmap, entry: bytes) -> bool:
    low, high = 0, len(entries) // DIGEST_PREFIX_BYTES
    while low < high:
        middle = (low + high) // 2
        if entries[middle * DIGEST_PREFIX_BYTES : (middle + 1) * DIGEST_PREFIX_BYTES] < entry:
            low = middle + 1
        else:
            high = middle
    return entries[low * DIGEST_PREFIX_BYTES : (low + 1) * DIGEST_PREFIX_BYTES] == entry


@cache
def _list_entries() -> mmap.mmap:
    source = files("app.rules.sign_in").joinpath("data/common_passwords.bin")
    with as_file(source) as path, path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _without_simple_changes(lowered: str, solid: str) -> set[str]:
    """Return the texts that the password may vary by look-alike characters or a short prefix or suffix."""
    texts = {lowered, solid}
    texts |= {text[:-cut] for text in (lowered, solid) for cut in range(1, _MAX_SUFFIX + 1)}
    texts |= {text[1:] for text in (lowered, solid)}
    return texts | {text.translate(_LOOKALIKES) for text in texts}


def _plain(text: str) -> str:
    return _SEPARATORS.sub("", unicodedata.normalize("NFKC", text).casefold())


def _is_repetition(text: str) -> bool:
    return any(
        text == (text[:size] * (len(text) // size + 1))[: len(text)]
        for size in range(1, min(5, len(text) // 2 + 1))
    )


def _is_made_of_runs(text: str) -> bool:
    """Return whether the text is runs of four or more neighbors with at most three other characters."""
    left_over = position = 0
    while position < len(text):
        size = _run_at(text, position)
        left_over += 1 if size == 0 else 0
        position += size or 1
    return left_over <= 3


def _run_at(text: str, position: int) -> int:
    for size in range(len(text) - position, 3, -1):
        piece = text[position : position + size]
        if any(piece in row or piece in row[::-1] for row in _ROWS) or len(set(piece)) == 1:
            return size
    return 0


def _is_made_of_few_words(letters: str, *, others: int) -> bool:
    """Return whether the letters are one or two common words with few other characters."""
    words = _common_words()
    if letters in words:
        return others <= 8
    return others <= 4 and any(
        letters[:cut] in words and letters[cut:] in words for cut in range(3, len(letters) - 2)
    )


@cache
def _common_words() -> frozenset[str]:
    text = files("app.rules.sign_in").joinpath("data/common_password_words.txt").read_text(encoding="utf-8")
    return frozenset(line for line in text.splitlines() if line and not line.startswith("#"))


class Lockout(Struct, frozen=True):
    """The setting ``authentication.lockout`` of an organization."""

    max_failures: int
    window: timedelta
    delay: timedelta
    max_delay: timedelta

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Lockout:
        """Return the lockout of an effective settings document."""
        values = settings["authentication"]["lockout"]
        return cls(
            values["max_failures"],
            timedelta(seconds=values["window_seconds"]),
            timedelta(seconds=values["delay_seconds"]),
            timedelta(seconds=values["max_delay_seconds"]),
        )

    def with_max_failures(self, max_failures: int) -> Lockout:
        """Return a copy in which waits begin after the given number of failures."""
        return replace(self, max_failures=max_failures)

    def seconds_to_wait(self, failures: int, last_failure: datetime | None, now: datetime) -> int:
        """Return the whole seconds until the next attempt, 0 if it is allowed now.

        ``failures`` counts those within the window, the last of them at ``last_failure``.
        """
        if failures < self.max_failures or last_failure is None:
            return 0
        doublings = min(failures - self.max_failures, 20)
        wait = last_failure + min(self.delay * 2**doublings, max(self.delay, self.max_delay)) - now
        return max(0, -int(-wait.total_seconds() // 1))

    def attempts_left(self, failures: int) -> int:
        """Return how many further attempts are possible without a wait."""
        return max(0, self.max_failures - failures)


def network_of(ip_address: str | None) -> str:
    """Return the /24 of an IPv4 address or the /64 of an IPv6 address, ``unknown`` for anything else."""
    parsed = _parse_ip(ip_address)
    if parsed is None:
        return "unknown"
    return _network(parsed, 24 if isinstance(parsed, ipaddress.IPv4Address) else 64)


def networks_of(ip_address: str | None) -> tuple[tuple[str, int], ...]:
    """Return the networks that the IP address counts towards, each with the factor for its limit."""
    parsed = _parse_ip(ip_address)
    nearest = (network_of(ip_address), 1)
    return (
        (nearest, (_network(parsed, 48), IPV6_SITE_FACTOR))
        if isinstance(parsed, ipaddress.IPv6Address)
        else (nearest,)
    )


def _parse_ip(ip_address: str | None) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        parsed = ipaddress.ip_address(ip_address or "")
    except ValueError:
        return None
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return mapped or parsed


def _network(ip_address: ipaddress.IPv4Address | ipaddress.IPv6Address, length: int) -> str:
    return str(ipaddress.ip_network(f"{ip_address}/{length}", strict=False))
