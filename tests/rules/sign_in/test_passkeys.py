"""Passkey rules: the relying party, what challenges are bound to, and response parsing (MF-5)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from app.rules.sign_in.passkeys import (
    InvalidPasskeyResponse,
    RelyingParty,
    create_challenge,
    find_challenge_expiry,
    is_sign_count_valid,
    parse_authentication_response,
    parse_registration_response,
    passkey_amr,
    relying_party,
)
from tests.support.cases import each

KEY, NONCE = b"k" * 32, b"n" * 16
NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
BINDING = ("sign in", "acme", "browser", "")


@each(
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
def test_relying_party_is_derived_from_base_url(base_url: str, party: RelyingParty | None) -> None:
    """MF-5: written as browsers write an origin. There are no passkeys at an IP address."""
    assert relying_party(base_url) == party


@each(
    ("change", "is_valid"),
    [
        ({}, True),
        ({"binding": ("second factor", *BINDING[1:])}, False),
        ({"binding": ("sign in", "globex", "browser", "")}, False),
        ({"binding": ("sign in", "acme", "other", "")}, False),
        ({"binding": ("sign in", "acme", "browser", "ada")}, False),
        ({"binding": ("sign in", "acmebrowser", "", "")}, False),
        ({"key": b"x" * 32}, False),
        ({"now": NOW + timedelta(minutes=5)}, False),
        ({"now": NOW + timedelta(minutes=4, seconds=59)}, True),
    ],
)
def test_challenge_is_valid_only_for_its_binding(change: dict[str, object], is_valid: bool) -> None:
    """MF-5."""
    challenge = create_challenge(KEY, BINDING, NONCE, NOW + timedelta(minutes=5))
    arguments: dict[str, object] = {"key": KEY, "binding": BINDING, "now": NOW, **change}
    expires_at = find_challenge_expiry(challenge=challenge, **arguments)  # type: ignore[arg-type]
    assert expires_at == (NOW + timedelta(minutes=5) if is_valid else None)


@each("position", range(0, 75, 6))
def test_modified_challenge_is_invalid(position: int) -> None:
    """Including its expiry. A single encoding is accepted, or it could be used twice."""
    challenge = create_challenge(KEY, BINDING, NONCE, NOW + timedelta(minutes=1))
    other = "A" if challenge[position] != "A" else "B"
    changed = challenge[:position] + other + challenge[position + 1 :]
    assert find_challenge_expiry(KEY, BINDING, changed, NOW) is None


@each("text", ["", "=", "AAAA", "é", "A" * 75, "A" * 100_000, "-_-_"])
def test_malformed_challenge_is_invalid(text: str) -> None:
    assert find_challenge_expiry(KEY, BINDING, text, NOW) is None


def test_other_encoding_of_challenge_is_invalid() -> None:
    challenge = create_challenge(KEY, BINDING, NONCE, NOW + timedelta(minutes=1))
    for other in (challenge + "=", challenge + "\n", challenge[:-1] + chr(ord(challenge[-1]) + 1)):
        assert find_challenge_expiry(KEY, BINDING, other, NOW) is None


@each(("before", "now", "is_valid"), [(0, 0, True), (0, 1, True), (5, 6, True), (5, 5, False), (5, 0, False)])
def test_sign_count_validity(before: int, now: int, is_valid: bool) -> None:
    """MF-5: WebAuthn section 6.1.1."""
    assert is_sign_count_valid(before, now) is is_valid


def test_passkey_amr_values() -> None:
    assert passkey_amr(may_sync=False, passwordless=True) == ("hwk", "user", "mfa")
    assert passkey_amr(may_sync=True, passwordless=True) == ("swk", "user", "mfa")
    assert passkey_amr(may_sync=True, passwordless=False) == ("swk", "user")


def test_only_validated_fields_are_passed_to_the_library() -> None:
    """Conflicting ids, unexpected fields, invalid transports."""
    text = (
        '{"id":"AAAA","rawId":"BBBB","type":"public-key","authenticatorAttachment":"x","response":'
        '{"clientDataJSON":"AA","attestationObject":"BB","extra":"CC","transports":["usb","<b>",7]}}'
    )
    response = parse_registration_response(text)
    assert response.content["rawId"] == "AAAA"
    assert set(response.content["response"]) == {"clientDataJSON", "attestationObject"}
    assert (response.transports, response.is_discoverable) == ((), False)


@each("handle", ["7", '"a b"', "[]", '{"x":1}'])
def test_user_handle_must_be_base64url(handle: str) -> None:
    text = (
        '{"id":"AAAA","type":"public-key","response":'
        f'{{"clientDataJSON":"AA","authenticatorData":"BB","signature":"CC","userHandle":{handle}}}}}'
    )
    if handle == "7" or " " in handle or handle[0] == "{":
        with pytest.raises(InvalidPasskeyResponse):
            parse_authentication_response(text)
    else:
        assert parse_authentication_response(text).handle is None
