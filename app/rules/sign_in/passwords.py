"""Passwords: which ones an organization accepts, and how one is kept (argon2id, OWASP's parameters)."""

from __future__ import annotations

import mmap
import re
import unicodedata
from collections.abc import Iterable, Mapping
from functools import cache
from hashlib import sha256
from importlib.resources import as_file, files
from typing import Any

from argon2 import PasswordHasher, Type
from argon2.exceptions import Argon2Error, InvalidHashError

from app.rules.errors import FieldError
from app.rules.languages.sentences import sentence
from app.rules.sign_in import imported_hashes

DIGEST_PREFIX_BYTES = 5
"""Bytes of a digest that are kept."""
MIN_LISTED_LENGTH = 8
"""Characters of the shortest password on the list: no organization accepts a shorter one."""


def is_listed(password: str) -> bool:
    """Whether the password, in any case, is on the shipped list."""
    return len(password) >= MIN_LISTED_LENGTH and _is_among(_records(), digest_prefix(password))


def digest_prefix(password: str) -> bytes:
    """What stands on the list for the password."""
    folded = unicodedata.normalize("NFKC", password).casefold()
    return sha256(folded.encode("utf-8", "surrogatepass")).digest()[:DIGEST_PREFIX_BYTES]


def build_password_list(passwords: Iterable[str]) -> bytes:
    """The content of the file for these passwords; shorter ones are left out."""
    return b"".join(sorted({digest_prefix(one) for one in passwords if len(one) >= MIN_LISTED_LENGTH}))


def count_listed_passwords() -> int:
    """How many passwords are on it."""
    return len(_records()) // DIGEST_PREFIX_BYTES


def _is_among(records: mmap.mmap, wanted: bytes) -> bool:
    low, high = 0, len(records) // DIGEST_PREFIX_BYTES
    while low < high:
        middle = (low + high) // 2
        if records[middle * DIGEST_PREFIX_BYTES : (middle + 1) * DIGEST_PREFIX_BYTES] < wanted:
            low = middle + 1
        else:
            high = middle
    return records[low * DIGEST_PREFIX_BYTES : (low + 1) * DIGEST_PREFIX_BYTES] == wanted


@cache
def _records() -> mmap.mmap:
    source = files("app.rules.sign_in").joinpath("data/common_passwords.bin")
    with as_file(source) as path, path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


MAX_LENGTH = 128
"""Characters; longer ones are refused before hashing, never cut (PW-2, PW-6)."""
MIN_LENGTH = 8
"""No organization may go below this (PW-1)."""

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
_LEAST_REMAINDER = 8
_LONGEST_ENDING = 4


def hash_password(password: str) -> str:
    """The argon2id hash to store. The caller has checked the length: nothing over ``LONGEST`` comes here."""
    if len(password) > MAX_LENGTH:
        raise ValueError("a password over the longest length must be refused before it is hashed")
    return _hasher.hash(password)


def verify_password(stored_hash: str | None, password: str) -> bool:
    """Whether the password is the one behind the hash.

    Without a hash (no such user, or one without a password) a dummy of the same cost is verified, so that the
    answer takes as long (EN-2). A password over ``LONGEST`` can be nobody's and costs no hash.
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
    """Whether the hash was made elsewhere, or with other parameters than today's: a sign-in renews it (PW-5)."""
    return imported_hashes.is_imported(stored_hash) or _hasher.check_needs_rehash(stored_hash)


@cache
def dummy_hash() -> str:
    """A hash that no password is known for, with today's parameters."""
    return _hasher.hash("this is the password of nobody")


def find_password_errors(
    password: str, policy: Mapping[str, Any], *, personal: Iterable[str] = (), field: str = "password"
) -> list[FieldError]:
    """What is wrong with a new password under the organization's policy; empty when it is accepted.

    ``policy`` is ``authentication.password`` of the settings. ``personal`` are the user's and organization's
    names and addresses. There are no rules about kinds of characters (NIST 800-63B-4: SHALL NOT).
    """
    shortest = max(MIN_LENGTH, int(policy.get("min_length", 12)))
    if len(password) > MAX_LENGTH:
        return [FieldError(field, "too_long", sentence("Use at most %(most)s characters.", most=MAX_LENGTH))]
    if not password.isprintable() and any(unicodedata.category(char) in ("Cc", "Cs") for char in password):
        return [FieldError(field, "invalid_characters", "Leave out line breaks and control characters.")]
    if len(password) < shortest:
        return [
            FieldError(
                field,
                "too_short",
                sentence("Use at least %(least)s characters; a few words in a row are good.", least=shortest),
            )
        ]
    if policy.get("block_common", True) and is_common(password):
        return [
            FieldError(
                field, "too_common", "This is among the passwords tried first. Use a few unrelated words."
            )
        ]
    if policy.get("block_personal", True) and is_personal(password, personal):
        message = sentence("This is mostly your name, address or organization. Use a few unrelated words.")
        return [FieldError(field, "too_personal", message)]
    return []


def is_common(password: str) -> bool:
    """Whether a guessing program tries the password early.

    It does when the password is on the shipped list, as typed or after a simple change (PW-3), a piece repeated, a
    run along the alphabet, the digits or the keyboard, or one or two of the shipped words with digits and punctuation
    around them or in place of letters.
    """
    lowered = unicodedata.normalize("NFKC", password).casefold()
    solid = _SEPARATORS.sub("", lowered)
    if len(solid) < 6 or _is_repetition(solid) or _is_made_of_runs(solid):
        return True
    if any(is_listed(text) for text in _unchanged(lowered, solid)):
        return True
    if not lowered.isascii():
        return False
    core = _TAIL.sub("", lowered)
    return any(
        _is_made_of_few_words(letters, others=len(solid) - len(letters))
        for letters in {_NOT_LETTERS.sub("", text) for text in (lowered, core.translate(_LOOKALIKES))}
    )


def is_personal(password: str, personal: Iterable[str]) -> bool:
    """Whether fewer than eight characters remain without the words that anybody knows of the person."""
    remainder = _plain(password)
    known = {word for text in personal for word in (_plain(text), *re.split(r"[\W_]+", text.casefold()))}
    found = False
    for word in sorted((word for word in known if len(word) >= 3), key=len, reverse=True):
        found = found or word in remainder
        remainder = remainder.replace(word, "")
    return found and len(remainder) < _LEAST_REMAINDER


def _unchanged(lowered: str, solid: str) -> set[str]:
    """What the password may have been before a simple change: others for letters, or a few characters at an end."""
    texts = {lowered, solid}
    texts |= {text[:-cut] for text in (lowered, solid) for cut in range(1, _LONGEST_ENDING + 1)}
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
    """Whether the text is runs of four or more neighbours, with at most three characters left over."""
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
    """Whether the letters are one common word, or two of which little else stands beside."""
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
