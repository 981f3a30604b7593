"""DPoP proofs: every reason for rejection, and the examples of the standards (DC-6)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.rules.clients.dpop import ALGORITHMS, InvalidProof, validate_proof
from tests.support.cases import each
from tests.support.dpop import Prover
from tests.support.signer import new_key

URL = "https://login.example/oauth/token"
TOKEN = "gth_at_token"
# The proof of the request in RFC 9449 section 4.1.
EXAMPLE = (
    "eyJ0eXAiOiJkcG9wK2p3dCIsImFsZyI6IkVTMjU2IiwiandrIjp7Imt0eSI6IkVDIiwieCI6Imw4dEZyaHgtMzR0VjNoUklDUkRZOXpDa0Rs"
    "cEJoRjQyVVFVZldWQVdCRnMiLCJ5IjoiOVZFNGpmX09rX282NHpiVFRsY3VOSmFqSG10NnY5VERWclUwQ2R2R1JEQSIsImNydiI6IlAtMjU2"
    "In19.eyJqdGkiOiItQndDM0VTYzZhY2MybFRjIiwiaHRtIjoiUE9TVCIsImh0dSI6Imh0dHBzOi8vc2VydmVyLmV4YW1wbGUuY29tL3Rva2Vu"
    "IiwiaWF0IjoxNTYyMjYyNjE2fQ.2-GxA6T8lP4vfrg8v-FdWP0A0zdrj8igiMLvqRMUvwnQg4PtFLbdLXiOSsX0x7NVY-FNyJK70nfbV37xRZT"
    "3Lg"
)
EC, RSA = Prover(), Prover("PS256")


def now() -> datetime:
    return datetime.now(UTC)


def refusal_of(header: str, *, access_token: str | None = None, method: str = "POST", url: str = URL) -> str:
    with pytest.raises(InvalidProof) as refused:
        validate_proof(header, method=method, url=url, now=now(), access_token=access_token)
    assert refused.value.code == "invalid_dpop_proof"
    return refused.value.description


def test_example_of_the_standard_is_accepted() -> None:
    """RFC 9449 sections 4.1 and 6.1."""
    then = datetime.fromtimestamp(1562262616, UTC)
    proof = validate_proof(EXAMPLE, method="POST", url="https://server.example.com/token", now=then)
    assert (proof.jkt, proof.jti) == ("0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I", "-BwC3ESc6acc2lTc")
    assert proof.until == then + timedelta(seconds=60)


@each("algorithm", ALGORITHMS)
def test_valid_proof_returns_its_key(algorithm: str) -> None:
    prover = Prover(algorithm)
    proof = validate_proof(prover.proof("POST", URL, nonce="n"), method="POST", url=URL, now=now())
    assert (proof.jkt, proof.nonce) == (prover.jkt, "n")


@each(
    ("changes", "words"),
    [
        ({"header": {"typ": "JWT"}}, "typ"),
        ({"header": {"typ": None}}, "typ"),
        ({"header": {"alg": "none"}}, "alg"),
        ({"header": {"alg": "HS256"}}, "alg"),
        ({"header": {"alg": "RS256"}}, "alg"),
        ({"header": {"alg": "PS256"}}, "does not match"),
        ({"header": {"alg": ["ES256"]}}, "alg"),
        ({"header": {"jwk": None}}, "jwk is missing"),
        ({"header": {"jwk": "key"}}, "jwk is missing"),
        ({"header": {"jwk": EC.key.as_dict(private=True)}}, "public"),
        ({"header": {"jwk": {"kty": "oct", "k": "c2VjcmV0"}}}, "public"),
        ({"header": {"jwk": {"kty": "EC", "crv": "P-256", "x": "A" * 43, "y": "A" * 43}}}, "signature"),
        ({"header": {"crit": ["exp"]}}, "extension"),
        ({"key": new_key()}, "signature"),
        ({"jti": None}, "jti"),
        ({"jti": ""}, "jti"),
        ({"jti": "j" * 257}, "jti"),
        ({"htm": None}, "htm"),
        ({"htm": "GET"}, "htm"),
        ({"htm": "post"}, "htm"),
        ({"htu": None}, "htu"),
        ({"htu": "https://login.example/oauth/introspect"}, "htu"),
        ({"htu": "https://other.example/oauth/token"}, "htu"),
        ({"htu": "http://login.example/oauth/token"}, "htu"),
        ({"htu": "https://login.example:8443/oauth/token"}, "htu"),
        ({"htu": "https://login.example:x/oauth/token"}, "htu"),
        ({"htu": "/oauth/token"}, "htu"),
        ({"iat": None}, "iat"),
        ({"iat": "now"}, "iat"),
        ({"iat": True}, "iat"),
        ({"iat": now().timestamp() * 1000}, "number of seconds"),
        ({"nonce": 7}, "nonce"),
    ],
)
def test_invalid_proof_is_rejected(changes: dict[str, Any], words: str) -> None:
    assert words in refusal_of(EC.proof("POST", URL, **changes))


def test_rsa_key_size_is_limited() -> None:
    """Large moduli and exponents would make verification slow."""
    public = RSA.key.as_dict(private=False)
    for changed in ({"n": "A" * 341}, {"n": "A" * 684}, {"e": "A" * 7}, {"e": 65537}):
        assert "does not match" in refusal_of(RSA.proof("POST", URL, header={"jwk": public | changed}))


@each(
    "header",
    [
        "",
        "proof",
        "a.b",
        "a.b.c.d",
        "e30.e30.e30",
        "bnVsbA.bnVsbA.AA",
        "a.b.c",
        EC.proof("POST", URL, x="y" * 4096),
    ],
)
def test_malformed_proof_is_rejected(header: str) -> None:
    refusal_of(header)


def test_two_proofs_are_rejected() -> None:
    """Servers join two headers of the same name."""
    assert "one DPoP proof" in refusal_of(f"{EC.proof('POST', URL)}, {EC.proof('POST', URL)}")


@each("changes", [{"ath": None}, {"ath": "wrong"}, {"ath": "é"}, {"ath": 1}])
def test_wrong_ath_is_rejected(changes: dict[str, Any]) -> None:
    proof = EC.proof("GET", URL, access_token=TOKEN, **changes)
    assert "ath" in refusal_of(proof, access_token=TOKEN, method="GET")


def test_ath_of_another_token_is_rejected() -> None:
    proof = EC.proof("GET", URL, access_token="another")
    assert "ath" in refusal_of(proof, access_token=TOKEN, method="GET")


@each(
    "changes",
    [
        {"extra": {"any": ["thing"]}},
        {"header": {"kid": "k"}},
        {"htu": f"{URL}?a=b#c"},
        {"htu": "HTTPS://Login.Example/oauth/token"},
        {"htu": "https://login.example:443/oauth/token"},
        {"htu": "https://login.example/oauth/%74oken"},
    ],
)
def test_unusual_proof_is_accepted(changes: dict[str, Any]) -> None:
    assert validate_proof(EC.proof("POST", URL, **changes), method="POST", url=URL, now=now()).jkt == EC.jkt


@each("seconds", [10.5, -10, -50, 0.5])
def test_small_clock_difference_is_accepted(seconds: float) -> None:
    proof = EC.proof("POST", URL, iat=now().timestamp() + seconds)
    assert validate_proof(proof, method="POST", url=URL, now=now()).jkt == EC.jkt


@each("seconds", [15, -65, 3600, -3600, 1e300])
def test_large_clock_difference_is_rejected(seconds: float) -> None:
    assert "iat" in refusal_of(EC.proof("POST", URL, iat=now().timestamp() + seconds))


def test_matching_ath_is_accepted_and_the_query_ignored() -> None:
    proof = EC.proof("GET", URL, access_token=TOKEN)
    assert (
        validate_proof(proof, method="GET", url=f"{URL}?page=2", now=now(), access_token=TOKEN).jkt == EC.jkt
    )
