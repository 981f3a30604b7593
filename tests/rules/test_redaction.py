"""Redaction: what is secret goes, what a reader needs stays."""

from __future__ import annotations

import pytest

from app.rules import token_values
from app.rules.identifiers import new_id
from app.rules.redaction import redact

KEY = "0" * 32
JWT = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ1c3JfMSJ9.c2lnbmF0dXJl"


@pytest.mark.parametrize("kind", ["cs", "at", "ac", "ss", "ar", "iv", "su", "rs"])
def test_every_kind_of_token_keeps_its_kind_alone(kind: str) -> None:
    token = token_values.new_token(kind, "0123abcd")
    assert redact(f"found {token}.") == f"found gth_{kind}_[redacted]."


def test_a_refresh_token_and_a_cut_off_one_go_too() -> None:
    token = token_values.new_refresh_token("0123abcd", new_id(), b"k" * 32)
    assert redact(token) == "gth_rt_[redacted]"
    assert redact(token[:40]) == "gth_rt_[redacted]"


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("Authorization: Basic Y2xpOnNlY3JldA==", "Y2xp"),
        ("authorization='Bearer abcdefgh.ijkl'", "abcdefgh"),
        ("DPoP aaaabbbbcccc", "aaaabbbb"),
        ("password=hunter2+again&x=1", "hunter2"),
        ('{"password": "with \'quotes\' and spaces"}', "quotes"),
        ("{'new_password': 'heron'}", "heron"),
        ("client_secret=abc&grant_type=x", "abc"),
        ("code_verifier: b'verify-me'", "verify-me"),
        ("{'access_token': 'opaque-of-another', 'expires_in': 3600}", "opaque-of-another"),
        ("Set-Cookie: gatehouse-0123abcd=value", "gatehouse-0123abcd=value"),
        (f"assertion {JWT} refused", "eyJzdWIi"),
        ("GATEHOUSE_MASTER_KEY=00112233445566", "00112233"),
    ],
)
def test_what_stands_near_a_telling_word_goes(text: str, secret: str) -> None:
    assert secret not in redact(text)
    assert "[redacted" in redact(text)


@pytest.mark.parametrize(
    "text",
    [
        "GET /oauth/token 200",
        "the token was revoked by usr_01jd3k",
        "client cli_0123abcd_01jd3k authenticated by client_secret_basic",
        "{'expires_in': 3600, 'scope': 'openid'}",
        "",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert redact(text) == text


def test_the_rest_of_the_line_stays() -> None:
    text = redact("Issue token {'access_token': 'abc', 'scope': 'openid email'} to <Client 7>")
    assert text.endswith("'scope': 'openid email'} to <Client 7>")


def test_long_hostile_input_takes_no_time() -> None:
    """Linear: half a megabyte of almost-secrets within the bound that requirements set for a regular expression."""
    for text in (
        "password" * 60_000,
        "eyJ" * 150_000,
        "bearer " * 60_000,
        "gth_" * 100_000,
        "secret=('" * 50_000,
    ):
        redact(text)
