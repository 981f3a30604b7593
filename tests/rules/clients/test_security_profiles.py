"""The FAPI 2.0 Security Profile of a client: what it implies and rejects, with one message per field."""

from __future__ import annotations

from typing import Any

import pytest

from app.rules.clients.client_coherence import ClientPolicy
from app.rules.clients.client_metadata import change, complete
from app.rules.clients.client_types import AUTH_METHODS, DEVICE_CODE, GRANT_TYPES
from app.rules.errors import InvalidInput
from tests.support.cases import each

POLICY = ClientPolicy(GRANT_TYPES, AUTH_METHODS)
KEY = {"kty": "EC", "crv": "P-256", "x": "x" * 43, "y": "y" * 43}
BANK = {
    "name": "Bank",
    "redirect_uris": ["https://bank.example/callback"],
    "security_profile": "fapi2",
    "jwks": {"keys": [KEY]},
}


def refusals(sent: dict[str, Any]) -> dict[str, str]:
    with pytest.raises(InvalidInput) as refusal:
        complete(sent, POLICY)
    return {error.field: error.code for error in refusal.value.errors}


def test_profile_needs_only_itself_and_keys() -> None:
    client = complete(BANK, POLICY)
    assert (client.token_endpoint_auth_method, client.security_profile) == ("private_key_jwt", "fapi2")


def test_machine_client_can_have_the_profile() -> None:
    client = complete(
        {"name": "Bank", "type": "machine", "security_profile": "fapi2", "jwks": {"keys": [KEY]}}, POLICY
    )
    assert client.token_endpoint_auth_method == "private_key_jwt"


@each(
    ("changes", "field", "code"),
    [
        ({"token_endpoint_auth_method": "client_secret_basic"}, "token_endpoint_auth_method", "inconsistent"),
        ({"jwks": None}, "jwks", "required"),
        ({"type": "spa", "jwks": None}, "token_endpoint_auth_method", "inconsistent"),
        ({"type": "native", "jwks": None}, "token_endpoint_auth_method", "inconsistent"),
        ({"grant_types": ["authorization_code", DEVICE_CODE]}, "grant_types", "inconsistent"),
        ({"redirect_uris": ["http://localhost/callback"]}, "redirect_uris", "inconsistent"),
        ({"id_token_signed_response_alg": "RS256"}, "id_token_signed_response_alg", "inconsistent"),
        ({"userinfo_signed_response_alg": "RS256"}, "userinfo_signed_response_alg", "inconsistent"),
        ({"introspection_signed_response_alg": "RS256"}, "introspection_signed_response_alg", "inconsistent"),
        ({"request_object_signing_alg": "RS256"}, "request_object_signing_alg", "inconsistent"),
        ({"token_endpoint_auth_signing_alg": "RS256"}, "token_endpoint_auth_signing_alg", "inconsistent"),
        ({"security_profile": "fapi1"}, "security_profile", "not_allowed"),
    ],
)
def test_metadata_that_violates_the_profile_is_rejected(
    changes: dict[str, Any], field: str, code: str
) -> None:
    """FAPI 2.0 Security Profile sections 5.3.2 and 5.4.1; the field that has to change is named."""
    assert refusals(BANK | changes) == {field: code}


@each("algorithm", ["PS256", "ES256", "EdDSA"])
def test_metadata_within_the_profile_is_accepted(algorithm: str) -> None:
    complete(BANK | {"id_token_signed_response_alg": algorithm}, POLICY)


def test_all_violations_are_reported_together() -> None:
    sent = BANK | {
        "token_endpoint_auth_method": "client_secret_post",
        "id_token_signed_response_alg": "RS256",
    }
    assert set(refusals(sent)) == {"token_endpoint_auth_method", "id_token_signed_response_alg"}


def test_existing_client_is_validated_when_it_gets_the_profile() -> None:
    client = complete(
        BANK | {"security_profile": None, "token_endpoint_auth_method": "client_secret_basic"}, POLICY
    )
    with pytest.raises(InvalidInput) as refusal:
        change(client, {"security_profile": "fapi2"}, POLICY)
    assert [error.field for error in refusal.value.errors] == ["token_endpoint_auth_method"]
    changed = change(
        client, {"security_profile": "fapi2", "token_endpoint_auth_method": "private_key_jwt"}, POLICY
    )
    assert changed.security_profile == "fapi2"


def test_profile_rules_do_not_apply_without_the_profile() -> None:
    complete(BANK | {"security_profile": None, "id_token_signed_response_alg": "RS256"}, POLICY)
