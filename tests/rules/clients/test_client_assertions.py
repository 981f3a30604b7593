"""Client assertions: a valid one, and every reason to reject one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.rules.clients.client_assertions import read_assertion, subject_of_assertion, validate_assertion
from app.rules.errors import InvalidClient
from tests.support.cases import each
from tests.support.signer import Signer

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
SECONDS = int(NOW.timestamp())
ISSUER = "https://id.example/organizations/acme"
TOKEN = f"{ISSUER}/oauth/token"
CALLED = "https://id.example/oauth/par"
ALGORITHMS = ("RS256", "PS256", "ES256", "EdDSA")
FAPI2 = {"endpoints": (), "algorithms": ("PS256", "ES256", "EdDSA")}
TIMES = {"exp": SECONDS + 60, "iat": SECONDS}


def validated(
    signer: Signer | None = None, audience: Any = ISSUER, terms: dict[str, Any] | None = None, **changes: Any
):
    text = (signer or Signer()).assertion("cli_x", audience, **(TIMES | changes))
    good = {"issuer": ISSUER, "endpoints": (TOKEN, CALLED), "algorithms": ALGORITHMS}
    return validate_assertion(read_assertion(text), client_id="cli_x", now=NOW, **(good | (terms or {})))


def is_refused(*args: Any, **changes: Any) -> str:
    with pytest.raises(InvalidClient) as refusal:
        validated(*args, **changes)
    assert refusal.value.description == "Client authentication failed."
    assert refusal.value.cause is not None
    return refusal.value.cause.code


def test_valid_assertion_is_accepted_until_it_expires() -> None:
    good = validated(jti="j")
    assert good.jti == "j"
    assert good.until == NOW + timedelta(seconds=60 + 30)


@each("audience", [ISSUER, TOKEN, CALLED, [ISSUER], [TOKEN]])
def test_issuer_and_endpoints_are_audiences(audience: Any) -> None:
    assert validated(audience=audience)


@each(
    "audience",
    [
        *("https://id.example", ISSUER + "/", ISSUER.upper(), f"{ISSUER}/oauth/introspect", "", None, 7, {}),
        *([], [ISSUER, TOKEN], [ISSUER, "https://other.example"], [[ISSUER]], [7]),
    ],
)
def test_other_audiences_are_rejected(audience: Any) -> None:
    """CA-6: one audience; a second one could be an attacker's server."""
    assert is_refused(audience=audience) == "client_assertion_audience"


@each("audience", [TOKEN, CALLED, [ISSUER], [ISSUER, TOKEN]])
def test_fapi_client_must_name_the_issuer_as_one_string(audience: Any) -> None:
    """CA-6, rfc7523bis."""
    assert validated(audience=ISSUER, terms=FAPI2)
    assert is_refused(audience=audience, terms=FAPI2) == "client_assertion_audience"


def test_fapi_client_cannot_sign_with_rs256() -> None:
    """CA-6."""
    assert is_refused(Signer("RS256"), terms=FAPI2) == "client_assertion_malformed"
    assert validated(Signer("PS256"), terms=FAPI2)


@each("changes", [{"iss": "cli_y"}, {"sub": "cli_y"}, {"iss": None}, {"sub": 7}, {"iss": ISSUER}])
def test_issuer_and_subject_must_be_the_client(changes: dict[str, Any]) -> None:
    assert is_refused(**changes) == "client_assertion_malformed"


@each("jti", [None, "", 7, "x" * 257, ["a"]])
def test_identifier_is_required(jti: Any) -> None:
    assert is_refused(jti=jti) == "client_assertion_malformed"


@each(
    "changes",
    [
        {"exp": None},
        {"exp": SECONDS - 31},
        {"exp": SECONDS + 331},
        {"iat": SECONDS + 31},
        {"nbf": SECONDS + 31},
    ],
)
def test_lifetime_is_at_most_five_minutes(changes: dict[str, Any]) -> None:
    """CA-6."""
    assert is_refused(**changes) == "client_assertion_clock_skew"


@each("exp", ["soon", True, 1e300])
def test_expiry_must_be_a_number(exp: Any) -> None:
    assert is_refused(exp=exp) == "client_assertion_malformed"


@each("kind", ["JWT", "jwt", "client-authentication+jwt", "application/client-authentication+jwt"])
def test_type_header_is_accepted(kind: str) -> None:
    assert validated(header={"typ": kind})


@each("kind", ["dpop+jwt", "oauth-authz-req+jwt", "at+jwt", "logout+jwt", ""])
def test_jwt_of_another_type_is_rejected(kind: str) -> None:
    with pytest.raises(InvalidClient):
        read_assertion(Signer().assertion("cli_x", ISSUER, header={"typ": kind}))


def test_claimed_client_is_parsed_without_verification() -> None:
    assert subject_of_assertion(Signer().assertion("cli_x", ISSUER)) == "cli_x"
    for text in ("", "a.b.c", Signer().assertion("cli_x", ISSUER, sub=7), "x" * 100_000):
        with pytest.raises(InvalidClient):
            subject_of_assertion(text)
