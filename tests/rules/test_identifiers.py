"""Identifiers: encoding, parsing, and rejection of malformed ones."""

from __future__ import annotations

import time
import tracemalloc
from uuid import UUID

from app.rules.identifiers import (
    decode_uuid,
    encode_uuid,
    format_client_id,
    is_routing_key,
    new_id,
    new_routing_key,
    parse_client_id,
    parse_public_id,
    public_id,
)
from tests.support.cases import each

KEY = "0abcd123"
EDGES = [
    UUID(int=0),
    UUID(int=1),
    UUID(int=(1 << 128) - 1),
    UUID(int=1 << 127),
    *(new_id() for _ in range(50)),
]


@each("value", EDGES)
def test_public_id_is_parsed_back(value: UUID) -> None:
    assert decode_uuid(encode_uuid(value)) == value
    assert parse_public_id("usr", public_id("usr", value)) == value
    assert parse_client_id(format_client_id(KEY, value)) == (KEY, value)


def test_public_ids_sort_like_ids() -> None:
    ordered = sorted(EDGES)
    assert sorted(encode_uuid(value) for value in ordered) == [encode_uuid(value) for value in ordered]


def test_new_id_is_a_current_uuid_v7() -> None:
    before = time.time_ns() // 1_000_000
    made = new_id()
    after = time.time_ns() // 1_000_000
    assert (made.version, made.variant) == (7, "specified in RFC 4122")
    assert before <= made.int >> 80 <= after


def test_ids_of_the_same_millisecond_keep_their_order() -> None:
    made = [new_id() for _ in range(20_000)]
    assert sorted(set(made)) == made


@each(
    "text",
    [
        "",
        "0",
        "0" * 25,
        "0" * 27,
        "8" + "z" * 25,
        "i" * 26,
        "U" * 26,
        "0" * 25 + "\n",
        "0" * 25 + "é",
        "\u0660" * 26,
    ],
)
def test_malformed_id_is_none(text: str) -> None:
    assert decode_uuid(text) is None
    assert parse_public_id("usr", f"usr_{text}") is None
    assert parse_client_id(f"cli_{KEY}_{text}") is None


def test_long_client_ids_are_not_kept_in_memory() -> None:
    """Anyone can send them, without a client."""
    tracemalloc.start()
    try:
        for number in range(20):
            assert parse_client_id(f"{number:060000}") is None
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 60_000


def test_other_prefix_is_none() -> None:
    assert parse_public_id("ses", public_id("usr", new_id())) is None
    assert parse_public_id("us", public_id("usr", new_id())) is None


def test_client_id_never_equals_a_subject() -> None:
    """CO-4."""
    value = new_id()
    assert parse_public_id("usr", format_client_id(KEY, value)) is None
    assert parse_client_id(public_id("usr", value)) is None


@each(
    "text",
    [
        f"cli_{KEY}",
        f"cli_{KEY.upper()}_{'0' * 26}",
        f"CLI_{KEY}_{'0' * 26}",
        f"cli_{KEY}_{'0' * 26} ",
        f"cli_{KEY}_{'0' * 26}\n",
        f"cli_{KEY}x_{'0' * 26}",
        f"cli_{KEY}_{'0' * 26}\0",
    ],
)
def test_malformed_client_id_is_none(text: str) -> None:
    assert parse_client_id(text) is None


def test_routing_key_has_eight_unambiguous_characters() -> None:
    assert all(is_routing_key(new_routing_key()) for _ in range(100))
    for text in ("", "0abcd12", "0abcd1234", "0ABCD123", "labcd123", "0abcd12\n", "0abcd12é"):
        assert not is_routing_key(text)
