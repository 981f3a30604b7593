"""Client metadata: defaults by type, bounds of each field, and contradictions between fields."""

from __future__ import annotations

import pytest

from app.rules.clients.client_coherence import ClientPolicy
from app.rules.clients.client_documents import from_document, to_document
from app.rules.clients.client_metadata import change, changed_fields, complete
from app.rules.clients.client_types import AUTH_METHODS, GRANT_TYPES
from app.rules.errors import InvalidInput
from tests.support.cases import each

POLICY = ClientPolicy(GRANT_TYPES, AUTH_METHODS)
WEB = {
    "name": "Acme Web",
    "redirect_uris": ["https://app.acme.example/callback"],
    "scopes": ["openid", "email"],
}
RSA_KEY = {"kty": "RSA", "kid": "1", "n": "u" * 342, "e": "AQAB"}
EC_KEY = {"kty": "EC", "crv": "P-256", "x": "x" * 43, "y": "y" * 43}


def refusals(sent, policy=POLICY, current=None):
    with pytest.raises(InvalidInput) as refusal:
        complete(sent, policy) if current is None else change(current, sent, policy)
    return {error.field: error.code for error in refusal.value.errors}


def test_three_required_fields_are_enough():
    client = complete(WEB, POLICY)
    assert client.type == "web"
    assert client.grant_types == ("authorization_code", "refresh_token")
    assert client.response_types == ("code",)
    assert client.token_endpoint_auth_method == "client_secret_basic"
    assert client.trust == "unverified"
    assert client.status == "active"
    assert client.scopes == ("openid", "email")
    assert not client.is_public


@each(
    ("field", "value", "where", "code"),
    [
        ("name", None, "name", "required"),
        ("name", 3, "name", "wrong_type"),
        ("name", True, "name", "wrong_type"),
        ("name", "", "name", "too_short"),
        ("name", " Acme", "name", "surrounding_space"),
        ("name", "x" * 101, "name", "too_long"),
        ("name", "Ac\u202eme", "name", "forbidden_character"),
        ("name", "Ac\u200bme", "name", "forbidden_character"),
        ("name", "Ac\nme", "name", "forbidden_character"),
        ("name", "Ame\u0301lie", "name", "not_normalized"),
        ("type", "server", "type", "not_allowed"),
        ("type", ["web"], "type", "wrong_type"),
        ("redirect_uris", "https://a.example/", "redirect_uris", "wrong_type"),
        ("redirect_uris", {}, "redirect_uris", "wrong_type"),
        ("redirect_uris", [], "redirect_uris", "required"),
        ("redirect_uris", None, "redirect_uris", "required"),
        ("redirect_uris", ["https://a.example/", 3], "redirect_uris[1]", "wrong_type"),
        ("redirect_uris", ["https://a.example/", "https://a.example/"], "redirect_uris[1]", "duplicate"),
        ("redirect_uris", ["http://a.example/"], "redirect_uris[0]", "not_https"),
        ("redirect_uris", ["com.example:/cb"], None, None),
        ("redirect_uris", [f"https://a.example/{n}" for n in range(51)], "redirect_uris", "too_many"),
        ("post_logout_redirect_uris", ["http://a.example/"], "post_logout_redirect_uris[0]", "not_https"),
        ("post_logout_redirect_uris", "x", "post_logout_redirect_uris", "wrong_type"),
        ("scopes", "openid email", "scopes", "wrong_type"),
        ("scopes", ["openid email"], "scopes[0]", "invalid_scope"),
        ("scopes", ["openid", "openid"], "scopes[1]", "duplicate"),
        ("scopes", [f"s{n}" for n in range(101)], "scopes", "too_many"),
        ("scopes", [f"s{n}" + "x" * 120 for n in range(40)], "scopes", "too_long"),
        ("optional_scopes", ["phone"], "optional_scopes", "inconsistent"),
        ("optional_scopes", ["openid"], "optional_scopes", "inconsistent"),
        ("grant_types", [], "grant_types", "required"),
        ("grant_types", ["password"], "grant_types[0]", "not_allowed"),
        ("grant_types", ["implicit"], "grant_types[0]", "not_allowed"),
        ("grant_types", ["refresh_token"], "grant_types", "not_allowed"),
        ("response_types", ["token"], "response_types[0]", "not_allowed"),
        ("response_types", [], "response_types", "inconsistent"),
        ("token_endpoint_auth_method", "client_secret_jwt", "token_endpoint_auth_method", "not_allowed"),
        ("token_endpoint_auth_method", ["none"], "token_endpoint_auth_method", "wrong_type"),
        ("token_endpoint_auth_method", "private_key_jwt", "jwks", "required"),
        ("jwks", {"keys": []}, "jwks", "invalid_jwks"),
        ("jwks", [RSA_KEY], "jwks", "wrong_type"),
        ("jwks", {"keys": [{**RSA_KEY, "d": "x"}]}, "jwks", "invalid_jwks"),
        ("jwks", {"keys": [{"kty": "oct", "k": "x"}]}, "jwks", "invalid_jwks"),
        ("jwks", {"keys": [{**RSA_KEY, "n": "u" * 171}]}, "jwks", "invalid_jwks"),
        ("jwks", {"keys": [{**EC_KEY, "y": 3}]}, "jwks", "invalid_jwks"),
        ("jwks", {"keys": [{**EC_KEY, "crv": "P-192"}]}, "jwks", "invalid_jwks"),
        ("jwks", {"keys": [RSA_KEY, {**EC_KEY, "kid": "1"}]}, "jwks", "invalid_jwks"),
        ("jwks_uri", "https://169.254.169.254/keys", "jwks_uri", "ip_address"),
        ("jwks_uri", "http://a.example/keys", "jwks_uri", "not_https"),
        ("client_uri", "javascript:alert(1)", "client_uri", "not_https"),
        ("logo_uri", 3, "logo_uri", "wrong_type"),
        ("policy_uri", "", "policy_uri", "required"),
        ("tos_uri", "https://localhost/tos", "tos_uri", "loopback"),
        ("contacts", ["nobody"], "contacts[0]", "not_an_email"),
        ("contacts", "a@b.example", "contacts", "wrong_type"),
        ("backchannel_logout_uri", "http://a.example/out", "backchannel_logout_uri", "not_https"),
        ("backchannel_logout_uri", "https://localhost/out", "backchannel_logout_uri", "loopback"),
        ("id_token_signed_response_alg", "none", "id_token_signed_response_alg", "not_allowed"),
        ("id_token_signed_response_alg", "HS256", "id_token_signed_response_alg", "not_allowed"),
        ("access_token_format", "JWT", "access_token_format", "not_allowed"),
        ("dpop_bound_access_tokens", "true", "dpop_bound_access_tokens", "wrong_type"),
        ("require_pushed_authorization_requests", 1, "require_pushed_authorization_requests", "wrong_type"),
        ("resources", ["api"], "resources[0]", "invalid_resource"),
        ("resources", ["https://api.example/#x"], "resources[0]", "invalid_resource"),
        ("trust", "trusted", "trust", "not_allowed"),
        ("description", "x" * 1001, "description", "too_long"),
        ("metadata", ["x"], "metadata", "wrong_type"),
        ("metadata", {"team": 3}, "metadata.team", "wrong_type"),
        ("metadata", {"a b": "x"}, "metadata.a b", "invalid_key"),
        ("metadata", {f"k{n}": "x" for n in range(51)}, "metadata", "too_many"),
        ("client_id", "cli_x", "client_id", "read_only"),
        ("organization_id", "acme", "organization_id", "read_only"),
        ("created_at", "2026-01-01T00:00:00Z", "created_at", "read_only"),
        ("status", "disabled", "status", "read_only"),
        ("colour", "red", "colour", "unknown_field"),
    ],
)
def test_invalid_value_is_named(field, value, where, code):
    sent = {**WEB, field: value}
    if where is None:
        assert complete(sent, POLICY)
    else:
        assert refusals(sent).get(where) == code


@each(
    ("sent", "expected"),
    [
        ({"type": "spa", "token_endpoint_auth_method": "client_secret_basic"}, "token_endpoint_auth_method"),
        ({"type": "web", "token_endpoint_auth_method": "none"}, "token_endpoint_auth_method"),
        ({"type": "spa", "grant_types": ["client_credentials"], "redirect_uris": []}, "grant_types"),
        ({"type": "machine", "scopes": []}, "redirect_uris"),
        ({"type": "machine", "redirect_uris": [], "scopes": ["openid"]}, "scopes"),
        ({"type": "machine", "redirect_uris": [], "scopes": [], "response_types": ["code"]}, "response_types"),
        ({"grant_types": ["authorization_code"], "scopes": ["openid", "offline_access"]}, "scopes"),
        ({"jwks": {"keys": [RSA_KEY]}, "jwks_uri": "https://a.example/keys"}, "jwks_uri"),
        ({"type": "device", "redirect_uris": [], "post_logout_redirect_uris": ["https://a.example/"]},
         "post_logout_redirect_uris"),
        ({"type": "spa", "redirect_uris": ["com.example.app:/cb"]}, "redirect_uris[0]"),
    ],
)  # fmt: skip
def test_contradicting_fields_are_rejected(sent, expected):
    assert list(refusals({**WEB, **sent})) == [expected]


@each("kind", ["website", 7, ["web"]])
def test_other_fields_are_validated_despite_an_invalid_type(kind):
    """RU-1: all errors are reported at once, so that the next attempt does not fail for another one."""
    found = refusals({**WEB, "type": kind, "redirect_uris": ["https://app.acme.example/#part", "http://x"]})
    assert set(found) == {"type", "redirect_uris[0]", "redirect_uris[1]"}


def test_all_invalid_fields_are_named():
    found = refusals({"nmae": "x", "redirect_uris": ["http://a.example/"], "scopes": "openid", "trust": 1})
    assert set(found) == {"nmae", "name", "redirect_uris[0]", "scopes", "trust"}


@each(
    ("typed", "meant"),
    [
        ("client_name", "name"),
        ("redirect_uri", "redirect_uris"),
        ("scope", "scopes"),
        ("grant_type", "grant_types"),
    ],
)
def test_unknown_field_gets_suggestion(typed, meant):
    with pytest.raises(InvalidInput) as refusal:
        complete({**WEB, typed: "x"}, POLICY)
    assert f'Did you mean "{meant}"?' in refusal.value.errors[0].message


def test_all_allowed_values_are_stored():
    sent = {
        **WEB,
        "post_logout_redirect_uris": ["https://app.acme.example/bye"],
        "scopes": ["openid", "email", "offline_access"],
        "optional_scopes": ["email"],
        "token_endpoint_auth_method": "private_key_jwt",
        "jwks": {"keys": [RSA_KEY, EC_KEY, {"kty": "OKP", "crv": "Ed25519", "x": "x" * 43}]},
        "client_uri": "https://acme.example",
        "contacts": ["dev@acme.example"],
        "id_token_signed_response_alg": "ES256",
        "access_token_format": "jwt",
        "resources": ["https://api.acme.example", "urn:acme:orders"],
        "trust": "first_party",
        "description": "Two\nlines",
        "metadata": {"team": "checkout"},
    }
    client = complete(sent, POLICY)
    for name, value in sent.items():
        stored = getattr(client, name)
        assert (list(stored) if isinstance(stored, tuple) else stored) == value


def test_values_forbidden_by_the_organization_are_rejected():
    strict = ClientPolicy(("client_credentials",), ("client_secret_post",), ("acme.example",), 1)
    assert refusals(WEB, strict) == {"grant_types": "not_allowed", "redirect_uris[0]": "host_not_allowed"}
    machine = {"name": "Job", "type": "machine"}
    assert complete(machine, strict).token_endpoint_auth_method == "client_secret_post"
    assert refusals({**machine, "token_endpoint_auth_method": "client_secret_basic"}, strict) == {
        "token_endpoint_auth_method": "not_allowed"
    }


def test_update_replaces_sent_fields_and_null_restores_the_default():
    before = complete({**WEB, "description": "x", "scopes": ["openid", "phone"]}, POLICY)
    after = change(before, {"name": "New", "description": None, "scopes": None}, POLICY)
    assert after.redirect_uris == before.redirect_uris
    assert after.description == ""
    assert after.scopes == ("openid", "profile", "email")
    assert changed_fields(before, after) == ["name", "scopes", "description"]
    assert changed_fields(before, change(before, {"name": before.name}, POLICY)) == []


def test_client_can_be_disabled():
    before = complete(WEB, POLICY)
    assert change(before, {"status": "disabled"}, POLICY).status == "disabled"
    assert refusals({"status": "deleted"}, current=before) == {"status": "not_allowed"}


@each(
    ("sent", "expected"),
    [
        ({"name": None}, {"name": "required"}),
        ({"redirect_uris": []}, {"redirect_uris": "required"}),
        ({"redirect_uris": None}, {"redirect_uris": "required"}),
        ({"type": "spa"}, {"token_endpoint_auth_method": "not_allowed"}),
        ({"client_secret": "x"}, {"client_secret": "read_only"}),
    ],
)
def test_update_that_contradicts_other_fields_is_rejected(sent, expected):
    assert refusals(sent, current=complete(WEB, POLICY)) == expected


def test_client_can_be_renamed_after_a_setting_was_tightened():
    before = complete(WEB, POLICY)
    strict = ClientPolicy(("client_credentials",), ("none",), ("other.example",), 1)
    assert change(before, {"name": "New"}, strict).name == "New"
    assert "redirect_uris[0]" in refusals({"redirect_uris": ["https://a.example/"]}, strict, before)


def test_stored_metadata_round_trips():
    client = complete({**WEB, "metadata": {"a": "b"}, "jwks": {"keys": [EC_KEY]}}, POLICY)
    columns = {"name": client.name, "type": client.type, "trust": client.trust, "status": client.status}
    assert from_document(to_document(client), **columns) == client


ANY = {"name": "x", "redirect_uris": ["https://rp.example/cb"]}


@each(
    ("sent", "expected"),
    [
        ({}, True),
        ({"type": "machine"}, True),
        ({"type": "spa"}, False),
        ({"token_endpoint_auth_method": "client_secret_basic"}, False),
        ({"token_endpoint_auth_method": "client_secret_post"}, False),
        ({"token_endpoint_auth_method": "client_secret_post", "any_secret_method": True}, True),
        ({"any_secret_method": False}, False),
    ],
)
def test_any_secret_method_is_accepted_until_one_is_chosen(sent: dict[str, object], expected: bool) -> None:
    fields: dict[str, object] = ANY | sent
    if sent.get("type") == "machine":
        del fields["redirect_uris"]
    assert complete(fields, POLICY).any_secret_method is expected


def test_choice_of_the_method_ends_and_null_restores_any_secret_method() -> None:
    client = complete(ANY, POLICY)
    assert change(client, {"name": "y"}, POLICY).any_secret_method
    chosen = change(client, {"token_endpoint_auth_method": "client_secret_basic"}, POLICY)
    assert not chosen.any_secret_method
    assert not change(chosen, {"name": "y"}, POLICY).any_secret_method
    assert change(chosen, {"token_endpoint_auth_method": None}, POLICY).any_secret_method
    wrong = refusals({**ANY, "type": "spa", "any_secret_method": True})
    assert wrong == {"any_secret_method": "inconsistent"}
