"""JWTs that clients sign: parsing, and the choice of the key that verifies the signature."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from joserfc.jwk import OctKey

from app.rules.clients.client_assertions import (
    ALGORITHMS,
    MalformedJwt,
    is_signed_by,
    read,
    time_claims_error,
    time_of,
)
from app.rules.clients.public_keys import jwks_problem, usable_keys
from tests.support.cases import each
from tests.support.signer import Signer, compact, encode, new_key

CLAIMS = {"sub": "cli_x"}
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
SECONDS = int(NOW.timestamp())


@each("algorithm", ALGORITHMS)
def test_each_supported_algorithm_is_verified(algorithm: str) -> None:
    """CA-6: RS256, PS256, ES256 and EdDSA, which RFC 9864 calls Ed25519."""
    signer = Signer(algorithm)
    jwt = read(signer.sign(CLAIMS), longest=8192)
    assert jwt.claims == CLAIMS
    assert is_signed_by(jwt, [signer.jwk])
    assert not is_signed_by(jwt, [Signer(algorithm, key=new_key(algorithm)).jwk])


def hs256() -> str:
    return compact({"alg": "HS256"}, CLAIMS, OctKey.import_key("a secret of thirty-two bytes or so"))


def unsigned(header: dict[str, Any]) -> str:
    return f"{encode(json.dumps(header).encode())}.{encode(b'{}')}.AA"


@each(
    "text",
    [
        "",
        "a.b",
        "a.b.c.d.e",
        compact({"alg": "none"}, CLAIMS, None),
        unsigned({"alg": "none"}),
        hs256(),
        Signer("RS256").sign(CLAIMS).replace(".", "=.", 1),
        Signer().sign(CLAIMS, crit=["exp"]),
        Signer().sign(CLAIMS, b64=False),
        Signer().sign(CLAIMS, kid=7),
        Signer().sign(CLAIMS, typ=["JWT"]),
        Signer().sign(b"[]"),
        Signer().sign(b"not json"),
        Signer().sign(b'{"sub": "a", "sub": "b"}'),
        Signer().sign(b'{"exp": NaN}'),
        Signer().sign({"sub": "x" * 9000}),
        Signer().sign(CLAIMS) + "\n",
        unsigned({"alg": ["ES256"]}),
        unsigned({}),
    ],
)
def test_unsigned_jwt_is_rejected_before_a_key_is_chosen(text: str) -> None:
    """KY-4: no ``none``, no shared secret, no extension, no name twice."""
    with pytest.raises(MalformedJwt):
        read(text, longest=8192)


@each("header", [{"jwk": True}, {"jku": "https://evil.example/keys"}, {"x5u": "https://e.example"}])
def test_key_in_the_header_is_ignored(header: dict[str, Any]) -> None:
    """KY-4: jku, jwk and x5u are ignored."""
    stranger = Signer(key=new_key())
    shown = {"jwk": stranger.jwk} if "jwk" in header else header
    jwt = read(stranger.sign(CLAIMS, **shown), longest=8192)
    assert not is_signed_by(jwt, [Signer().jwk])
    assert is_signed_by(read(Signer().sign(CLAIMS, **shown), longest=8192), [Signer().jwk])


def test_kid_selects_the_key() -> None:
    signer = Signer(key_id="two")
    jwt = read(signer.sign(CLAIMS), longest=8192)
    assert is_signed_by(jwt, [Signer("RS256", key_id="one").jwk, signer.jwk])
    assert not is_signed_by(jwt, [signer.jwk | {"kid": "one"}])


def test_key_without_kid_is_tried() -> None:
    nameless = Signer(key_id=None).jwk
    assert is_signed_by(read(Signer().sign(CLAIMS), longest=8192), [Signer("RS256").jwk, nameless])
    assert is_signed_by(read(Signer(key_id=None).sign(CLAIMS), longest=8192), [Signer(key_id="any").jwk])


@each(
    "change",
    [
        {"use": "enc"},
        {"alg": "ES384"},
        {"crv": "P-384"},
        {"kty": "RSA"},
        {"x": "A" * 43},
        {"x": 7},
        {"y": None},
    ],
)
def test_key_for_another_use_verifies_nothing(change: dict[str, Any]) -> None:
    assert not is_signed_by(read(Signer().sign(CLAIMS), longest=8192), [Signer().jwk | change])


def test_rsa_key_verifies_only_its_algorithm() -> None:
    """CA-6: a key registered for PS256 verifies no RS256 signature."""
    key = Signer("RS256").jwk | {"alg": "PS256"}
    assert not is_signed_by(read(Signer("RS256").sign(CLAIMS), longest=8192), [key])
    assert is_signed_by(read(Signer("PS256", key=Signer("RS256").key).sign(CLAIMS), longest=8192), [key])


@each("value", ["1", True, [1], -1, 1e300, {}])
def test_time_must_be_a_number_of_seconds(value: Any) -> None:
    with pytest.raises(MalformedJwt):
        time_of({"exp": value}, "exp")


@each(
    ("claims", "is_right"),
    [
        ({"exp": SECONDS + 60}, True),
        ({"exp": SECONDS + 60.5}, True),
        ({"exp": SECONDS - 29}, True),
        ({"exp": SECONDS - 31}, False),
        ({"exp": SECONDS + 300}, True),
        ({"exp": SECONDS + 331}, False),
        ({}, False),
        ({"exp": SECONDS + 60, "iat": SECONDS + 29, "nbf": SECONDS + 29}, True),
        ({"exp": SECONDS + 60, "iat": SECONDS + 31}, False),
        ({"exp": SECONDS + 60, "nbf": SECONDS + 31}, False),
        ({"exp": SECONDS + 60, "iat": SECONDS - 86400}, True),
    ],
)
def test_clocks_may_differ_by_half_a_minute(claims: dict[str, Any], is_right: bool) -> None:
    assert (time_claims_error(claims, NOW, longest=timedelta(minutes=5)) is None) is is_right


def test_expiry_is_optional_without_a_maximum_lifetime() -> None:
    assert time_claims_error({}, NOW, longest=None) is None
    assert time_claims_error({"exp": SECONDS - 31}, NOW, longest=None) is not None


def test_only_verifying_keys_of_a_fetched_set_are_used() -> None:
    """Such a set may contain encryption keys and unknown key types; a private key is never used."""
    good, private = Signer().jwk, Signer().key.as_dict(private=True)
    others: list[Any] = [good | {"use": "enc"}, {"kty": "oct", "k": "AAAA"}, {"kty": "AKP"}, private, 7]
    assert usable_keys({"keys": [*others, good], "more": True}) == [good]
    assert usable_keys({"keys": "none"}) == []
    assert len(usable_keys({"keys": [good] * 50})) == 10


def test_key_with_a_long_exponent_is_rejected() -> None:
    """Verifying with such a key would take too long."""
    key = Signer("RS256").jwk
    assert jwks_problem({"keys": [key]}) is None
    assert jwks_problem({"keys": [key | {"e": "A" * 300}]}) is not None


def test_no_modified_jwt_raises_another_error() -> None:
    """JS-6: a modified JWT is either malformed or has an invalid signature; no other error is raised."""
    chance = random.Random(7523)
    good = Signer().sign(CLAIMS | {"exp": SECONDS})
    alphabet = "ABCabc019-_.=+/ \0ü{}[]\"'"
    signed = 0
    for _ in range(3000):
        text = list(good)
        for _ in range(chance.randint(1, 4)):
            text[chance.randrange(len(text))] = chance.choice(alphabet)
        try:
            jwt = read("".join(text), longest=8192)
        except MalformedJwt:
            continue
        signed += is_signed_by(jwt, [Signer().jwk, Signer("RS256").jwk])
    # Some bits of the last character of a signature are not used.
    assert signed < 60


@each("value", ["", "A", "AA", "=", "ü", "A" * 5000, 7, None, [], {}, ["A"]])
def test_no_malformed_key_raises_another_error(value: Any) -> None:
    for algorithm, members in (("ES256", "xy"), ("EdDSA", "x"), ("RS256", "ne")):
        jwt = read(Signer(algorithm).sign(CLAIMS), longest=8192)
        for member in members:
            assert not is_signed_by(jwt, [Signer(algorithm).jwk | {member: value}])
