"""Request objects: their claims are parsed like separate parameters."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import pytest

from app.rules.authorization.request_object import (
    InvalidRequestObject,
    read_request_object,
    validate_request_object,
)
from app.rules.errors import AuthorizationError
from tests.support.cases import each
from tests.support.signer import Signer

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
SECONDS = int(NOW.timestamp())
ISSUER = "https://id.example/organizations/acme"
TIMES = {"iat": SECONDS, "nbf": SECONDS, "exp": SECONDS + 300}
# RFC 6749 section 5.2.
SPEAKABLE = re.compile(r"[\x20-\x21\x23-\x5b\x5d-\x7e]+")


def validated(
    parameters: dict[str, Any] | None = None,
    audience: Any = ISSUER,
    *,
    is_bounded: bool = False,
    **changes: Any,
):
    text = Signer().request_object(
        {"client_id": "cli_x", **(parameters or {})}, audience, **(TIMES | changes)
    )
    return validate_request_object(
        read_request_object(text, must_be_signed=True),
        client_id="cli_x",
        issuer=ISSUER,
        algorithms=("ES256",),
        is_bounded=is_bounded,
        now=NOW,
    )


def refusal(*args: Any, **changes: Any) -> str:
    with pytest.raises(InvalidRequestObject) as refused:
        validated(*args, **changes)
    assert refused.value.code == "invalid_request_object"
    assert SPEAKABLE.fullmatch(refused.value.description)
    return refused.value.description


def test_jwt_claims_are_not_parameters() -> None:
    assert validated({"scope": "openid", "state": "s"}, jti="j") == {
        "client_id": "cli_x",
        "scope": "openid",
        "state": "s",
    }


@each(
    ("value", "parameter"),
    [
        ({"max_age": 0}, "0"),
        ({"claims": {"userinfo": {"näme": None}}}, '{"userinfo":{"näme":null}}'),
        ({"resource": ["https://a.example", "https://b.example"]}, "https://a.example https://b.example"),
        ({"resource": "https://a.example"}, "https://a.example"),
        ({"state": "ü"}, "ü"),
    ],
)
def test_values_are_parsed_like_form_fields(value: dict[str, Any], parameter: str) -> None:
    assert validated(value)[next(iter(value))] == parameter


@each("value", [{"state": ""}, {"unknown": [1, 2]}, {"unknown": True}, {"unknown": 1.5}])
def test_empty_and_unknown_parameters_are_ignored(value: dict[str, Any]) -> None:
    assert next(iter(value)) not in validated(value)


@each("value", [{"state": True}, {"scope": ["openid"]}, {"max_age": 1.5}, {"resource": [1]}])
def test_parameter_of_another_type_is_rejected(value: dict[str, Any]) -> None:
    assert "must be a string" in refusal(value)


@each("audience", [ISSUER, [ISSUER], ["https://other.example", ISSUER]])
def test_issuer_is_the_audience(audience: Any) -> None:
    assert validated(audience=audience)


@each("audience", [None, "", ISSUER + "/", [], ["https://other.example"], {"x": ISSUER}, 7, [[ISSUER]]])
def test_other_audiences_are_rejected(audience: Any) -> None:
    refusal(audience=audience)


@each(
    "changes",
    [
        {"iss": None},
        {"iss": ISSUER},
        {"client_id": "cli_y"},
        {"client_id": None},
        {"exp": SECONDS - 31},
        {"nbf": SECONDS + 31},
        {"iat": SECONDS + 31},
        {"exp": "soon"},
        {"nbf": True},
        {"request": "x"},
        {"request_uri": ""},
    ],
)
def test_invalid_claim_is_rejected(changes: dict[str, Any]) -> None:
    refusal(**changes)


def test_expiry_is_optional_for_most_clients() -> None:
    assert validated(exp=None, nbf=None, iat=None)


@each(
    "changes",
    [{"exp": None}, {"nbf": None}, {"exp": SECONDS + 3631}, {"nbf": SECONDS - 3601}, {"exp": SECONDS - 31}],
)
def test_lifetime_is_at_most_an_hour_if_limited(changes: dict[str, Any]) -> None:
    """FAPI 2.0 Message Signing section 5.3.1."""
    assert validated(is_bounded=True)
    refusal(is_bounded=True, **changes)


def test_unreadable_objects_have_different_errors() -> None:
    for text, code in (
        ("a.b.c.d.e", "request_not_supported"),
        ("a.b.c", "invalid_request_object"),
        ("", None),
    ):
        with pytest.raises(AuthorizationError) as refused:
            read_request_object(text, must_be_signed=True)
        assert refused.value.code == (code or "invalid_request_object")
