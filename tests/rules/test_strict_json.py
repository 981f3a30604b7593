"""Strict JSON bodies (JS-1 to JS-4)."""

from __future__ import annotations

import json

import pytest

from app.rules.strict_json import MAX_DEPTH, InvalidJson, load_object
from tests.support.cases import each


@each(
    ("body", "expected"),
    [
        (b"{}", {}),
        (b'  {"a": 1}\r\n', {"a": 1}),
        ('{"name": "Käse 🧀"}'.encode(), {"name": "Käse 🧀"}),
        (rb'{"a": "\ud83e\uddc0"}', {"a": "🧀"}),
        (b'{"a": 9007199254740992}', {"a": 2**53}),
        (b'{"a": -9007199254740992}', {"a": -(2**53)}),
        (b'{"a": 1.5e3, "b": [true, false, null]}', {"a": 1500.0, "b": [True, False, None]}),
        (b'{"a": "[[[[{{{{\\"[["}', {"a": '[[[[{{{{"[['}),
        (b'{"a": {"x": 1}, "b": {"x": 2}}', {"a": {"x": 1}, "b": {"x": 2}}),
    ],
)
def test_object_is_parsed(body, expected):
    assert load_object(body) == expected


@each(
    "body",
    [
        b"",
        b"   ",
        b"null",
        b"[]",
        b"[1]",
        b'"x"',
        b"0",
        b"true",
        b"{",
        b"{} {}",
        b"{'a': 1}",
        b'{"a": 1,}',
        b'{"a": 01}',
        b'{"a": .5}',
        b'{"a": +1}',
        b"// c\n{}",
        b'{"a": NaN}',
        b'{"a": Infinity}',
        b'{"a": -Infinity}',
        b'{"a": 1e999}',
        b'{"a": 9007199254740993}',
        b'{"a": -9007199254740993}',
        b'{"a": ' + b"9" * 5000 + b"}",
        b'{"a": 1, "a": 1}',
        b'{"a": {"b": 1, "b": 2}}',
        b'{"a": 1, "\\u0061": 2}',
        rb'{"a": "\u0000"}',
        rb'{"\u0000": 1}',
        rb'{"a": "\ud800"}',
        rb'{"a": ["\udc00x"]}',
        rb'{"\ud800": 1}',
        rb'{"\ud800": 1, "\ud800": 2}',
        b'{"a": "\x00"}',
        b'{"a": "line\nbreak"}',
        b'{"a": "\xff"}',
        b"\xef\xbb\xbf{}",
        "{}".encode("utf-16"),
        b'{"a": "\xed\xa0\x80"}',
    ],
)
def test_ambiguous_json_is_rejected(body):
    with pytest.raises(InvalidJson) as refusal:
        load_object(body)
    assert refusal.value.status == 400
    assert refusal.value.code == "invalid_json"


def test_nesting_is_limited():
    within = b'{"a":' + b"[" * (MAX_DEPTH - 1) + b"]" * (MAX_DEPTH - 1) + b"}"
    assert load_object(within)["a"] is not None
    with pytest.raises(InvalidJson):
        load_object(b'{"a":' + b"[" * MAX_DEPTH + b"]" * MAX_DEPTH + b"}")


def test_endless_nesting_is_rejected():
    with pytest.raises(InvalidJson):
        load_object(b'{"a":' + b"[" * 60_000)


def test_duplicate_key_is_named():
    with pytest.raises(InvalidJson) as refusal:
        load_object(b'{"token": "a", "token": "b"}')
    assert refusal.value.field == "token"


def test_every_plain_character_is_preserved():
    text = "".join(chr(point) for point in range(1, 0xD7FF, 37))
    assert load_object(json.dumps({"a": text}).encode())["a"] == text
