"""Authorization requests: a valid one, and each invalid one with its error code."""

from __future__ import annotations

import re

import pytest

from app.rules.authorization.authorization_request import parse_authorization_request
from app.rules.errors import AuthorizationError
from tests.support.cases import each

URI = "https://rp.example/cb"
GOOD = {
    "client_id": "cli_x",
    "redirect_uri": URI,
    "response_type": "code",
    "scope": "openid profile",
    "code_challenge": "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM",
    "code_challenge_method": "S256",
    "state": "s",
    "nonce": "n",
}
SCOPES = ("openid", "profile", "email")
ALLOWED_IN_DESCRIPTIONS = re.compile(r"[\x20-\x21\x23-\x5b\x5d-\x7e]+")  # RFC 6749, section 4.1.2.1


def check(repeated: tuple[str, ...] = (), **changes: str | None):
    sent = {name: value for name, value in (GOOD | changes).items() if value is not None}
    return parse_authorization_request(sent, repeated, redirect_uri=URI, client={"scopes": SCOPES})


def test_valid_request_is_parsed_unchanged() -> None:
    request = check(prompt="login consent", max_age="0", login_hint="ada@example.com")
    assert (request.redirect_uri, request.state, request.nonce) == (URI, "s", "n")
    assert request.scopes == ("openid", "profile")
    assert request.code_challenge == GOOD["code_challenge"]
    assert (request.prompts, request.max_age, request.login_hint) == (
        ("login", "consent"),
        0,
        "ada@example.com",
    )


@each(
    "harmless",
    [
        {"unknown": "x"},
        {"display": "popup"},
        {"ui_locales": "zz-ZZ ☃"},
        {"claims_locales": "tlh"},
        {"login_hint": "x" * 5000},
        {"acr_values": "urn:x"},
        {"state": None, "nonce": None},
        {"response_mode": "query"},
        {"state": "x" * 2048},
        {"state": "ü" * 1024},
        {"nonce": "n" * 2048},
        {"max_age": "315360000"},
        {"scope": "email openid email"},
    ],
)
def test_ignored_values_are_accepted(harmless: dict[str, str | None]) -> None:
    check(**harmless)


REFUSED = [
    ("invalid_request", {"response_type": None}),
    ("unsupported_response_type", {"response_type": "token"}),
    ("unsupported_response_type", {"response_type": "code token"}),
    ("unsupported_response_type", {"response_type": "code id_token"}),
    ("unsupported_response_type", {"response_type": "CODE"}),
    ("unsupported_response_type", {"response_type": 'cödé"\\'}),
    ("invalid_request", {"response_mode": "fragment"}),
    # PK-1: required of every client; PK-2: S256 only; PK-3: 43 characters.
    ("invalid_request", {"code_challenge": None}),
    ("invalid_request", {"code_challenge": None, "code_challenge_method": None}),
    ("invalid_request", {"code_challenge_method": None}),
    ("invalid_request", {"code_challenge_method": "plain"}),
    ("invalid_request", {"code_challenge_method": "s256"}),
    ("invalid_request", {"code_challenge": "a" * 42}),
    ("invalid_request", {"code_challenge": "a" * 44}),
    ("invalid_request", {"code_challenge": "a" * 43 + "\n"}),
    ("invalid_request", {"code_challenge": "a" * 42 + "="}),
    ("invalid_scope", {"scope": "openid,profile"}),
    ("invalid_scope", {"scope": "openid address"}),
    ("invalid_scope", {"scope": "openid  profile"}),
    ("invalid_scope", {"scope": ' openid"'}),
    ("invalid_scope", {"scope": "OpenID"}),
    # ST-1: longer than 2 KiB, in bytes.
    ("invalid_request", {"state": "x" * 2049}),
    ("invalid_request", {"state": "ü" * 1025}),
    ("invalid_request", {"nonce": "n" * 2049}),
    ("invalid_request", {"prompt": "none login"}),
    ("invalid_request", {"prompt": "sometimes"}),
    ("invalid_request", {"max_age": "-1"}),
    ("invalid_request", {"max_age": "1.5"}),
    ("invalid_request", {"max_age": "soon"}),
    ("invalid_request", {"max_age": "٣"}),
    ("invalid_request", {"max_age": "9" * 11}),
    ("invalid_request", {"max_age": "315360001"}),
]


@each(("code", "changes"), REFUSED)
def test_invalid_request_has_its_error_code_and_quotes_nothing(
    code: str, changes: dict[str, str | None]
) -> None:
    with pytest.raises(AuthorizationError) as refused:
        check(**changes)
    assert refused.value.code == code
    assert ALLOWED_IN_DESCRIPTIONS.fullmatch(refused.value.description)
    for value in changes.values():
        if value is not None and len(value) > 10:
            assert value not in refused.value.description


@each("name", ["scope", "state", "nonce", "code_challenge", "prompt", "anything"])
def test_repeated_parameter_is_rejected(name: str) -> None:
    """ST-2."""
    with pytest.raises(AuthorizationError) as refused:
        check(repeated=(name,))
    assert refused.value.code == "invalid_request"


def test_client_defaults_apply_to_missing_parameters() -> None:
    """OIDC Registration: default_max_age and default_acr_values apply unless the request has its own."""
    defaults = {"scopes": SCOPES, "default_max_age": 90, "default_acr_values": ("urn:a",)}

    def request(**sent: str):
        return parse_authorization_request(GOOD | sent, (), redirect_uri=URI, client=defaults)

    assert (request().max_age, request().acr_values) == (90, ("urn:a",))
    assert (request(max_age="0").max_age, request(acr_values="urn:b urn:c").acr_values) == (
        0,
        ("urn:b", "urn:c"),
    )
    wish = '{"id_token": {"acr": {"values": ["urn:d"]}}}'
    assert request(acr_values="urn:b", claims=wish).acr_values == ("urn:d",)


def test_only_plausible_hints_are_parsed() -> None:
    request = check(ui_locales="de-CH zz! de de-CH", id_token_hint="a.b.c", login_hint="ada\nx")
    assert request.ui_locales == ("de-CH", "de")
    assert request.id_token_hint == "a.b.c"
    assert request.login_hint is None
    assert (check().id_token_hint, check().ui_locales) == (None, ())


def test_claims_beyond_the_clients_scopes_are_not_requested() -> None:
    """A client that is not registered for the scope address does not get the claim by its name."""
    request = check(claims='{"userinfo": {"email": null, "address": null}}')
    assert request.claims == {"userinfo": {"email": None}}
    assert request.consent_scopes == ("openid", "profile", "email")


@each("scope", [None, ""])
def test_request_without_scope_gets_the_default_scopes(scope: str | None) -> None:
    """RFC 6749 section 3.3."""
    sent = {name: value for name, value in (GOOD | {"scope": scope}).items() if value is not None}
    client = {"scopes": SCOPES}
    asked = parse_authorization_request(
        sent, (), redirect_uri=URI, client=client, default_scopes=("openid", "email")
    )
    assert asked.scopes == ("openid", "email")
    with pytest.raises(AuthorizationError) as refused:
        parse_authorization_request(sent, (), redirect_uri=URI, client={"scopes": ()})
    assert refused.value.code == "invalid_scope"
