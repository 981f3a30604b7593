"""PKCE with S256: exact forms, and the example of the standard (PK-3, PK-4)."""

from __future__ import annotations

from app.rules.authorization.authorization_request import challenge_of, is_challenge, is_verified
from tests.support.cases import each

# RFC 7636, appendix B.
VERIFIER = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
CHALLENGE = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"


def test_example_of_the_standard_matches() -> None:
    assert challenge_of(VERIFIER) == CHALLENGE
    assert is_verified(VERIFIER, CHALLENGE)


@each("verifier", ["a" * 43, "a" * 128, "A-._~0" * 10])
def test_verifier_has_43_to_128_unreserved_characters(verifier: str) -> None:
    assert is_verified(verifier, challenge_of(verifier))


@each(
    "verifier",
    [
        None,
        "",
        "a" * 42,
        "a" * 129,
        "a" * 42 + "\n",
        "a" * 43 + "\n",
        "a" * 42 + "+",
        "a" * 42 + " ",
        "ä" * 43,
        "a" * 42 + "\0",
    ],
)
def test_malformed_verifier_never_matches(verifier: str | None) -> None:
    assert not is_verified(verifier, challenge_of(verifier or ""))


@each(
    "wrong",
    [VERIFIER[:-1] + "l", VERIFIER.upper(), VERIFIER[::-1], CHALLENGE, VERIFIER + "="],
    ids=["one character", "case", "backwards", "the challenge itself: plain", "padding"],
)
def test_another_verifier_does_not_match(wrong: str) -> None:
    assert not is_verified(wrong, CHALLENGE)


def test_no_verifier_matches_an_empty_challenge() -> None:
    assert not is_verified("", "")
    assert not is_verified(VERIFIER, "")


@each("text", [CHALLENGE, "a" * 43, "-_" * 21 + "A"])
def test_challenge_has_43_base64url_characters(text: str) -> None:
    assert is_challenge(text)


@each(
    "text",
    [
        "",
        "a" * 42,
        "a" * 44,
        "a" * 42 + "\n",
        "a" * 43 + "\n",
        "a" * 42 + "=",
        "a" * 42 + "+",
        "a" * 42 + "/",
        "a" * 42 + "é",
        "a" * 42 + ".",
    ],
)
def test_malformed_challenge_is_rejected(text: str) -> None:
    assert not is_challenge(text)
