"""Common passwords: a shipped list of those that people chose and that were published, looked up without a network.

The list is a file of sorted records, each the first five bytes of a SHA-256 of one password in lower case. A worker
maps it and touches some twenty pages of it for a look-up, which are the same pages for all workers. Of the passwords
that are not on it, one in 3.5 million is refused (its records divided by 2^40). data/README.md says where it comes
from; script/common-passwords makes it.
"""

from __future__ import annotations

import mmap
import unicodedata
from collections.abc import Iterable
from functools import cache
from hashlib import sha256
from importlib.resources import as_file, files

RECORD = 5
"""Bytes of a digest that are kept."""
SHORTEST = 8
"""Characters of the shortest password on the list: no organization accepts a shorter one."""


def is_on_the_list(password: str) -> bool:
    """Whether the password, in any case, is on the shipped list."""
    return len(password) >= SHORTEST and _is_among(_records(), record_of(password))


def record_of(password: str) -> bytes:
    """What stands on the list for the password."""
    folded = unicodedata.normalize("NFKC", password).casefold()
    return sha256(folded.encode("utf-8", "surrogatepass")).digest()[:RECORD]


def list_of(passwords: Iterable[str]) -> bytes:
    """The content of the file for these passwords; shorter ones are left out."""
    return b"".join(sorted({record_of(one) for one in passwords if len(one) >= SHORTEST}))


def size_of_the_list() -> int:
    """How many passwords are on it."""
    return len(_records()) // RECORD


def _is_among(records: mmap.mmap, wanted: bytes) -> bool:
    low, high = 0, len(records) // RECORD
    while low < high:
        middle = (low + high) // 2
        if records[middle * RECORD : (middle + 1) * RECORD] < wanted:
            low = middle + 1
        else:
            high = middle
    return records[low * RECORD : (low + 1) * RECORD] == wanted


@cache
def _records() -> mmap.mmap:
    source = files("app.rules.people").joinpath("data/common_passwords.bin")
    with as_file(source) as path, path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
