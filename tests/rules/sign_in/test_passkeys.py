"""Passkeys from plain values: who we are to authenticators, and what a challenge is bound to (MF-5)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from app.rules.sign_in.passkeys import (
    ChallengeState,
    InvalidPasskeyResponse,
    RelyingParty,
    check_challenge,
    create_challenge,
    is_sign_count_valid,
    parse_authentication_response,
    parse_registration_response,
    passkey_amr,
    relying_party,
)

KEY, NONCE = b"k" * 32, b"n" * 16
NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
BOUND = ("sign in", "acme", "browser", "")


@pytest.mark.parametrize(
    ("base_url", "party"),
    [
        ("https://id.example.com", RelyingParty("id.example.com", "https://id.example.com")),
        ("https://ID.Example.com:443", RelyingParty("id.example.com", "https://id.example.com")),
        ("https://id.example.com:8443", RelyingParty("id.example.com", "https://id.example.com:8443")),
        ("http://localhost:8000", RelyingParty("localhost", "http://localhost:8000")),
        ("http://localhost:80", RelyingParty("localhost", "http://localhost")),
        ("https://bücher.example", RelyingParty("xn--bcher-kva.example", "https://xn--bcher-kva.example")),
        ("http://127.0.0.1:8000", None),
        ("https://[::1]", None),
    ],
)
def test_we_are_our_configured_address(base_url: str, party: RelyingParty | None) -> None:
    """MF-5: written as browsers write an origin; at a number there are no passkeys."""
    assert relying_party(base_url) == party


@pytest.mark.parametrize(
    ("change", "standing"),
    [
        ({}, ChallengeState.GOOD),
        ({"bound": ("second factor", *BOUND[1:])}, ChallengeState.FOREIGN),
        ({"bound": ("sign in", "globex", "browser", "")}, ChallengeState.FOREIGN),
        ({"bound": ("sign in", "acme", "other", "")}, ChallengeState.FOREIGN),
        ({"bound": ("sign in", "acme", "browser", "ada")}, ChallengeState.FOREIGN),
        ({"bound": ("sign in", "acmebrowser", "", "")}, ChallengeState.FOREIGN),
        ({"key": b"x" * 32}, ChallengeState.FOREIGN),
        ({"now": NOW + timedelta(minutes=5)}, ChallengeState.EXPIRED),
        ({"now": NOW + timedelta(minutes=4, seconds=59)}, ChallengeState.GOOD),
    ],
)
def test_a_challenge_counts_for_what_it_was_made(change: dict[str, object], standing: ChallengeState) -> None:
    """MF-5."""
    challenge = create_challenge(KEY, BOUND, NONCE, NOW + timedelta(minutes=5))
    asked: dict[str, object] = {"key": KEY, "bound": BOUND, "now": NOW, **change}
    assert check_challenge(challenge=challenge, **asked)[0] is standing  # type: ignore[arg-type]


@pytest.mark.parametrize("position", range(0, 75, 6))
def test_every_bit_of_a_challenge_counts(position: int) -> None:
    """Its end too: nobody makes it live longer. And it has one spelling, or it could be used twice."""
    challenge = create_challenge(KEY, BOUND, NONCE, NOW)
    other = "A" if challenge[position] != "A" else "B"
    changed = challenge[:position] + other + challenge[position + 1 :]
    assert check_challenge(KEY, BOUND, changed, NOW)[0] is ChallengeState.FOREIGN


@pytest.mark.parametrize("text", ["", "=", "AAAA", "é", "A" * 75, "A" * 100_000, "-_-_"])
def test_what_is_no_challenge_is_foreign(text: str) -> None:
    assert check_challenge(KEY, BOUND, text, NOW)[0] is ChallengeState.FOREIGN


def test_a_challenge_has_one_spelling() -> None:
    challenge = create_challenge(KEY, BOUND, NONCE, NOW + timedelta(minutes=1))
    for other in (challenge + "=", challenge + "\n", challenge[:-1] + chr(ord(challenge[-1]) + 1)):
        assert check_challenge(KEY, BOUND, other, NOW)[0] is ChallengeState.FOREIGN


@pytest.mark.parametrize(
    ("before", "now", "counts"), [(0, 0, True), (0, 1, True), (5, 6, True), (5, 5, False), (5, 0, False)]
)
def test_counters(before: int, now: int, counts: bool) -> None:
    """MF-5: WebAuthn section 6.1.1."""
    assert is_sign_count_valid(before, now) is counts


def test_what_a_use_proves() -> None:
    assert passkey_amr(may_sync=False, alone=True) == ("hwk", "user", "mfa")
    assert passkey_amr(may_sync=True, alone=True) == ("swk", "user", "mfa")
    assert passkey_amr(may_sync=True, alone=False) == ("swk", "user")


def test_only_what_was_checked_reaches_the_library() -> None:
    """Two names for the id, fields that nobody asked for, transports that are none."""
    text = (
        '{"id":"AAAA","rawId":"BBBB","type":"public-key","authenticatorAttachment":"x","response":'
        '{"clientDataJSON":"AA","attestationObject":"BB","extra":"CC","transports":["usb","<b>",7]}}'
    )
    answer = parse_registration_response(text)
    assert answer.content["rawId"] == "AAAA"
    assert set(answer.content["response"]) == {"clientDataJSON", "attestationObject"}
    assert (answer.transports, answer.is_discoverable) == ((), False)


@pytest.mark.parametrize("handle", ["7", '"a b"', "[]", '{"x":1}'])
def test_a_handle_is_text_in_base64url(handle: str) -> None:
    text = (
        '{"id":"AAAA","type":"public-key","response":'
        f'{{"clientDataJSON":"AA","authenticatorData":"BB","signature":"CC","userHandle":{handle}}}}}'
    )
    if handle == "7" or " " in handle or handle[0] == "{":
        with pytest.raises(InvalidPasskeyResponse):
            parse_authentication_response(text)
    else:
        assert parse_authentication_response(text).handle is None
