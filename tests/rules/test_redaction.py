"""Redaction: secrets are removed and everything else is unchanged."""

from __future__ import annotations

from app.rules import identifiers
from app.rules.identifiers import new_id
from app.rules.redaction import redact
from tests.support.cases import each

KEY = "0" * 32
JWT = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ1c3JfMSJ9.c2lnbmF0dXJl"


@each("kind", ["cs", "at", "ac", "ss", "ar", "iv", "su", "rs"])
def test_redacted_token_keeps_only_its_kind(kind: str) -> None:
    token = identifiers.new_token(kind, "0123abcd")
    assert redact(f"found {token}.") == f"found gth_{kind}_[redacted]."


def test_complete_and_truncated_refresh_tokens_are_redacted() -> None:
    token = identifiers.new_refresh_token("0123abcd", new_id(), b"k" * 32)
    assert redact(token) == "gth_rt_[redacted]"
    assert redact(token[:40]) == "gth_rt_[redacted]"


@each(
    ("text", "secret"),
    [
        ("Authorization: Basic Y2xpOnNlY3JldA==", "Y2xp"),
        ("authorization='Bearer abcdefgh.ijkl'", "abcdefgh"),
        ("DPoP aaaabbbbcccc", "aaaabbbb"),
        ("DPoP proof.bbbbcccc", "bbbbcccc"),
        ("DPoP proof-bbbbcccc", "bbbbcccc"),
        ("DPoP proofbbbbcccc", "bbbbcccc"),
        ("Bearer token==", "token=="),
        ("password=hunter2+again&x=1", "hunter2"),
        ('{"password": "with \'quotes\' and spaces"}', "quotes"),
        ("{'new_password': 'heron'}", "heron"),
        ("client_secret=abc&grant_type=x", "abc"),
        ("code_verifier: b'verify-me'", "verify-me"),
        ("{'access_token': 'opaque-of-another', 'expires_in': 3600}", "opaque-of-another"),
        ("Set-Cookie: gatehouse-0123abcd=value", "gatehouse-0123abcd=value"),
        (f"assertion {JWT} refused", "eyJzdWIi"),
        (f"of-eyJ-{JWT}", "eyJzdWIi"),
        (f"eyJ.{JWT}", "eyJzdWIi"),
        (f"www.example.com.{JWT}", "eyJzdWIi"),
        ("GATEHOUSE_MASTER_KEY=00112233445566", "00112233"),
    ],
)
def test_value_after_secret_name_is_redacted(text: str, secret: str) -> None:
    assert secret not in redact(text)
    assert "[redacted" in redact(text)


@each(
    "text",
    [
        "GET /oauth/token 200",
        "the token was revoked by usr_01jd3k",
        "client cli_0123abcd_01jd3k authenticated by client_secret_basic",
        "{'expires_in': 3600, 'scope': 'openid'}",
        "eyJabcdefgh-eyJabcdefgh and eyJ.eyJ",
        "Send a DPoP proof.",
        "The request contains more than one DPoP proof. Send exactly one.",
        "Send a DPoP header with each request, and no DPoP proofs, headers or Bearer tokens.",
        "Registration needs a valid initial access token, sent as a Bearer token.",
        "",
    ],
)
def test_other_text_is_unchanged(text: str) -> None:
    assert redact(text) == text


def test_rest_of_the_line_is_unchanged() -> None:
    text = redact("Issue token {'access_token': 'abc', 'scope': 'openid email'} to <Client 7>")
    assert text.endswith("'scope': 'openid email'} to <Client 7>")


def test_long_hostile_input_is_fast() -> None:
    """LG-4: half a megabyte of near-secrets takes linear time."""
    for text in (
        "password" * 60_000,
        "eyJ" * 150_000,
        "-eyJ" * 120_000,
        "-eyJaaaaaaaa" * 40_000,
        "-whsec_" * 70_000,
        "bearer " * 60_000,
        "gth_" * 100_000,
        "secret=('" * 50_000,
    ):
        redact(text)
