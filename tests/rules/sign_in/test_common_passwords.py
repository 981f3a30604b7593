"""The shipped list of common passwords (PW-3): how long it is, what it finds, and what it costs."""

from __future__ import annotations

import mmap
import random
import time
from itertools import pairwise
from pathlib import Path

import pytest

from app.rules.sign_in import passwords
from app.rules.sign_in import passwords as rule

DATA = Path(rule.__file__).parent / "data" / "common_passwords.bin"
POLICY = {"min_length": 8, "block_common": True, "block_personal": True}

# Of a breached list, each beyond what the rules about words, runs and repetitions would find.
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


def test_a_hundred_thousand_and_more_are_shipped() -> None:
    """PW-3: all of them as long as the shortest password that an organization may allow, offline, in one small file."""
    assert rule.count_listed_passwords() == 313_470
    assert DATA.stat().st_size == 313_470 * rule.DIGEST_PREFIX_BYTES < 2_000_000
    assert rule.MIN_LISTED_LENGTH == passwords.MIN_LENGTH


def test_the_records_are_sorted_and_each_is_there_once() -> None:
    """Bisection is right only then."""
    content = DATA.read_bytes()
    records = [
        content[at : at + rule.DIGEST_PREFIX_BYTES] for at in range(0, len(content), rule.DIGEST_PREFIX_BYTES)
    ]
    assert all(one < following for one, following in pairwise(records))


@pytest.mark.parametrize("password", LISTED)
def test_a_listed_password_is_found_in_any_case(password: str) -> None:
    assert rule.is_listed(password)
    assert rule.is_listed(password.upper())


@pytest.mark.parametrize(
    "password", ["ghbdtnbr", "GHBDTNBR", "ghbdtnbr1", "ghbdtnbr2026", "ghbd-tnbr", "!ghbdtnbr", "trolololo!!"]
)
def test_a_listed_password_is_refused_after_a_simple_change_too(password: str) -> None:
    """PW-3."""
    errors = passwords.find_password_errors(password, POLICY)
    assert [error.code for error in errors] == ["too_common"]
    assert passwords.find_password_errors(password, {**POLICY, "block_common": False}) == []


def test_the_first_and_the_last_record_are_found_and_what_is_between_two_is_not() -> None:
    content = rule._records()
    first, last = content[: rule.DIGEST_PREFIX_BYTES], content[-rule.DIGEST_PREFIX_BYTES :]
    assert rule._is_among(content, first) and rule._is_among(content, last)
    for beside in (
        first[:-1] + bytes([first[-1] ^ 1]),
        b"\xff" * rule.DIGEST_PREFIX_BYTES,
        b"\0" * rule.DIGEST_PREFIX_BYTES,
    ):
        assert not rule._is_among(content, beside)


def test_of_a_hundred_thousand_others_none_is_refused() -> None:
    """One in 3.5 million would be, by a collision of forty bits."""
    chance = random.Random(20261121)
    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    wrong = sum(rule.is_listed("".join(chance.choices(letters, k=16))) for _ in range(100_000))
    assert wrong == 0


def test_a_look_up_takes_microseconds_and_the_file_is_mapped_and_not_read() -> None:
    assert isinstance(rule._records(), mmap.mmap)
    started = time.perf_counter()
    for number in range(1000):
        rule.is_listed(f"a password number {number}")
    assert (time.perf_counter() - started) / 1000 < 0.000_5


def test_what_is_too_short_or_no_text_is_on_no_list() -> None:
    assert not rule.is_listed("123456")
    assert not rule.is_listed("seventeen\ud800lanterns")


def test_a_list_is_made_of_what_is_long_enough_each_once() -> None:
    made = rule.build_password_list(["password", "PASSWORD", "short", "12345678"])
    assert len(made) == 2 * rule.DIGEST_PREFIX_BYTES
    assert rule.digest_prefix("Password") in (
        made[: rule.DIGEST_PREFIX_BYTES],
        made[rule.DIGEST_PREFIX_BYTES :],
    )
