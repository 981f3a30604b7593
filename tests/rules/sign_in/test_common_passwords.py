"""The shipped list of common passwords (PW-3): size and matches."""

from __future__ import annotations

import mmap
import random
from itertools import pairwise
from pathlib import Path

import pytest

from app.rules.sign_in import passwords
from tests.support.cases import each

DATA = Path(passwords.__file__).parent / "data" / "common_passwords.bin"
POLICY = {"min_length": 8, "block_common": True, "block_personal": True}

# From a breached list. The rules about words, runs and repetitions would not find them.
LISTED = (
    "zaq12wsx",
    "nirvana1",
    "gfhjkm123",
    "ghbdtnbr",
    "pmtgjnbl",
    "trolololo",
    "Fu082508251",
    "pokerslut44",
    "045844669",
)


def test_list_has_expected_size() -> None:
    """PW-3: the list covers passwords from the shortest allowed length on, offline, in one small file."""
    assert passwords.count_listed_passwords() == 313_470
    assert DATA.stat().st_size == 313_470 * passwords.DIGEST_PREFIX_BYTES < 2_000_000
    assert passwords.MIN_LISTED_LENGTH == passwords.MIN_LENGTH


def test_list_entries_are_sorted_and_unique() -> None:
    """Binary search requires this."""
    content = DATA.read_bytes()
    records = [
        content[at : at + passwords.DIGEST_PREFIX_BYTES]
        for at in range(0, len(content), passwords.DIGEST_PREFIX_BYTES)
    ]
    assert all(one < following for one, following in pairwise(records))


@each("password", LISTED)
def test_listed_password_is_found_in_any_case(password: str) -> None:
    assert passwords.is_listed(password)
    assert passwords.is_listed(password.upper())


@each(
    "password", ["ghbdtnbr", "GHBDTNBR", "ghbdtnbr1", "ghbdtnbr2026", "ghbd-tnbr", "!ghbdtnbr", "trolololo!!"]
)
def test_listed_password_is_rejected_after_simple_change(password: str) -> None:
    """PW-3."""
    errors = passwords.find_password_errors(password, POLICY)
    assert [error.code for error in errors] == ["too_common"]
    assert passwords.find_password_errors(password, {**POLICY, "block_common": False}) == []


def test_first_and_last_entries_are_found_and_neighbors_are_not() -> None:
    content = passwords._list_entries()
    first, last = content[: passwords.DIGEST_PREFIX_BYTES], content[-passwords.DIGEST_PREFIX_BYTES :]
    assert passwords._contains(content, first) and passwords._contains(content, last)
    for beside in (
        first[:-1] + bytes([first[-1] ^ 1]),
        b"\xff" * passwords.DIGEST_PREFIX_BYTES,
        b"\0" * passwords.DIGEST_PREFIX_BYTES,
    ):
        assert not passwords._contains(content, beside)


def test_random_passwords_are_not_listed() -> None:
    """The chance of a collision of forty bits is one in 3.5 million."""
    chance = random.Random(20261121)
    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    matches = sum(passwords.is_listed("".join(chance.choices(letters, k=16))) for _ in range(100_000))
    assert matches == 0


def test_long_password_with_the_digest_of_a_listed_one_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a password manager makes is never refused by chance."""
    monkeypatch.setattr(passwords, "_contains", lambda entries, entry: True)
    assert passwords.is_listed("kT4vq9Wm2xRz8LpHs6NbYc3J")
    assert not passwords.is_listed("kT4vq9Wm2xRz8LpHs6NbYc3Jd")


def test_list_is_a_mapped_file() -> None:
    assert isinstance(passwords._list_entries(), mmap.mmap)


def test_short_or_invalid_password_is_not_listed() -> None:
    assert not passwords.is_listed("123456")
    assert not passwords.is_listed("seventeen\ud800lanterns")


def test_built_list_contains_each_long_enough_password_once() -> None:
    made = passwords.build_password_list(["password", "PASSWORD", "short", "12345678"])
    assert len(made) == 2 * passwords.DIGEST_PREFIX_BYTES
    assert passwords.digest_prefix("Password") in (
        made[: passwords.DIGEST_PREFIX_BYTES],
        made[passwords.DIGEST_PREFIX_BYTES :],
    )
