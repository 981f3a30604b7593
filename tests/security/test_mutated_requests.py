"""A valid request to each route with one part replaced by a hostile value: never a 500. With an encoded body: 415.

Each request is sent with a few mutations, the same each time. ``GATEHOUSE_FUZZ_EXAMPLES=60`` sends more than 20,000.
"""

from __future__ import annotations

import json
import os
import random
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import pytest
from flask import Flask

from tests.support.applications import forget
from tests.support.request_world import ValidRequest
from tests.support.stored_state import StateKeeper
from tests.support.valid_requests import Requests

pytestmark = pytest.mark.either
EXAMPLES = int(os.environ.get("GATEHOUSE_FUZZ_EXAMPLES", "2"))
PARTS = ("management", "portal", "account", "protocol")
TEXTS = (
    "",
    "\0",
    "a\0b",
    "\ud800",
    "\u1100\u1161\u11a8\ufb01",
    "\u202e\u200b",
    "e\u0301" * 200,
    "'; DROP TABLE users; --",
    "{{7*7}}",
    "\r\nSet-Cookie: a=b",
    "9" * 5_000,
    "-1",
    "1e400",
    "NaN",
    "x" * 70_000,
    "../../etc/passwd",
    "usr_00000000000000000000000000",
    "2024-02-30T25:61:61Z",
    "9999-12-31T23:59:59Z",
    "0001-01-01T00:00:00+23:59",
    "https://[::1",
    "http://a:99999999/",
    "javascript:alert(1)",
)
BODIES = (
    b"[" * 3_000,
    b'{"a":' * 3_000 + b"1" + b"}" * 3_000,
    b'{"name": 1' + b"0" * 5_000 + b"}",
    b'{"name": NaN, "id": -Infinity}',
    b'{"name": "\\ud800", "email": "\\udfff@a.example"}',
    b'{"name": "a", "name": "b"}',
    b"\xff\xfe{\0}\0",
    b"\xef\xbb\xbf{}",
    b"null",
    b"",
)
# The numbers of rows in the names of fields.
ROW_NUMBERS = ("²", "٣", "9" * 5_000, "9" * 9, "-1", "", "00", "\0", "1-2")
_ROW_OF_TABLE = re.compile(r"(.+)-[0-9]+-(.+)")
VALUES: tuple[Any, ...] = (
    *TEXTS,
    None,
    True,
    [],
    {},
    [[[]]],
    {"a": {"b": {}}},
    2**63,
    -(2**70),
    1.5,
    ["x"] * 500,
)
TYPES = (
    "application/json",
    "application/json; charset=utf-7",
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=x",
    "multipart/form-data",
    "text/csv",
    "x",
)
HEADERS = (
    "Cookie",
    "Authorization",
    "DPoP",
    "Accept",
    "Accept-Language",
    "If-Match",
    "If-None-Match",
    "Idempotency-Key",
    "Origin",
    "Content-Type",
    "X-Request-Id",
)


def mutated(request: ValidRequest, chance: random.Random) -> ValidRequest:
    """Return the request with one part replaced."""
    ways: list[Callable[[ValidRequest, random.Random], ValidRequest]] = [_path, _query, _header]
    if request.method != "GET":
        ways.append(_body)
    if request.form:
        ways += [_form] * 4
    if isinstance(request.json, dict) and request.json:
        ways += [_json] * 4
    return chance.choice(ways)(request, chance)


def _text(chance: random.Random) -> str:
    return chance.choice(TEXTS)


def _quoted(text: str) -> str:
    return quote(text, safe="", errors="surrogatepass")


def _path(request: ValidRequest, chance: random.Random) -> ValidRequest:
    parts = request.path.partition("?")[0].split("/")
    parts[chance.randrange(1, len(parts))] = _quoted(_text(chance)[:5_000])
    return replace(request, path="/".join(parts))


def _query(request: ValidRequest, chance: random.Random) -> ValidRequest:
    path, _, query = request.path.partition("?")
    names = [pair.partition("=")[0] for pair in query.split("&") if pair]
    names += [
        "limit",
        "cursor",
        "organization_id",
        "request",
        "next",
        "status",
        "client_id",
        "q",
        "created_after",
    ]
    pairs = [query] if query and chance.random() < 0.5 else []
    pairs += [
        f"{chance.choice(names)}={_quoted(_text(chance)[:5_000])}" for _ in range(chance.randrange(1, 4))
    ]
    return replace(request, path=f"{path}?{'&'.join(pairs)}")


def _header(request: ValidRequest, chance: random.Random) -> ValidRequest:
    name = chance.choice(HEADERS)
    value = "".join(letter for letter in _text(chance) if letter.isprintable() and ord(letter) < 256)
    value = chance.choice(
        (value, request.cookies[:-1] + "x", f"Bearer {value}", f"Basic {value}", '"1", W/"2"')
    )
    if name == "Cookie":
        return replace(request, cookies=value or "=")
    if name == "Content-Type":
        value = chance.choice(TYPES)
        return replace(
            request, body=chance.choice(BODIES), json=None, form=None, file=None, content_type=value
        )
    return replace(request, headers=request.headers | {name: value})


def _body(request: ValidRequest, chance: random.Random) -> ValidRequest:
    kind = request.content_type or "application/json"
    if request.form is not None:
        kind = "application/x-www-form-urlencoded"
    if chance.random() < 0.3:
        kind = chance.choice(TYPES)
    return replace(request, body=chance.choice(BODIES), json=None, form=None, file=None, content_type=kind)


def _form(request: ValidRequest, chance: random.Random) -> ValidRequest:
    form = dict(request.form)
    name = chance.choice(sorted(form))
    text = _text(chance).encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    form[name] = chance.choice((text, [text] * 3, []))
    if chance.random() < 0.3:
        form[text[:100] or "x"] = text
    row = _ROW_OF_TABLE.fullmatch(name)
    if row is not None:
        form[f"{row[1]}-{chance.choice(ROW_NUMBERS)}-{row[2]}"] = form.pop(name)
    return replace(request, form=form)


def _json(request: ValidRequest, chance: random.Random) -> ValidRequest:
    name = chance.choice([*sorted(request.json), "organization_id", "metadata"])
    sent = json.dumps(request.json | {name: chance.choice(VALUES)}).encode()
    return replace(request, json=None, body=sent, content_type="application/json")


@pytest.mark.timeout(600 if EXAMPLES <= 2 else 7200)
@pytest.mark.parametrize("part", PARTS)
def test_mutations_of_a_valid_request_cause_no_500_and_encoded_bodies_are_rejected(
    app: Flask, requests: Requests, keeper: StateKeeper, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    monkeypatch.setitem(app.config, "PROPAGATE_EXCEPTIONS", False)
    failed: list[str] = []
    statuses: Counter[int] = Counter()
    for request in getattr(requests, part)():
        keeper.read()
        # JS-1: a proxy or firewall in front may decode what this service would read as it is.
        if request.json or request.form or request.body or request.file:
            answer = replace(request, headers=request.headers | {"Content-Encoding": "gzip"}).send(app)
            answer.close()
            if (answer.status_code, answer.headers.get("Accept-Encoding")) != (415, "identity"):
                failed.append(f"{answer.status_code} {request.method} {request.name}: encoded body")
        for number in range(EXAMPLES):
            changed = mutated(request, random.Random(f"{request.method} {request.name} {number}"))
            answer = changed.send(app)
            answer.close()
            statuses[answer.status_code] += 1
            if answer.status_code >= 500:
                failed.append(
                    f"{answer.status_code} {request.method} {request.name} {number}: {changed!r}"[:600]
                )
        keeper.put_back()
        forget(app)
    assert not failed, f"{len(failed)} of {statuses.total()}:\n" + "\n".join(failed)
