"""Types of clients: their defaults, and how the type is derived."""

from __future__ import annotations

from app.rules.clients.client_coherence import ClientPolicy
from app.rules.clients.client_metadata import complete
from app.rules.clients.client_types import AUTH_METHODS, DEVICE_CODE, GRANT_TYPES, begins_to_require_access
from tests.support.cases import each

POLICY = ClientPolicy(GRANT_TYPES, AUTH_METHODS)


@each(
    ("kind", "grants", "method", "responses", "scopes"),
    [
        (
            "web",
            ("authorization_code", "refresh_token"),
            "client_secret_basic",
            ("code",),
            ("openid", "profile", "email"),
        ),
        ("spa", ("authorization_code", "refresh_token"), "none", ("code",), ("openid", "profile", "email")),
        (
            "native",
            ("authorization_code", "refresh_token"),
            "none",
            ("code",),
            ("openid", "profile", "email"),
        ),
        ("machine", ("client_credentials",), "client_secret_basic", (), ()),
        ("device", (DEVICE_CODE, "refresh_token"), "none", (), ("openid", "profile", "email")),
    ],
)
def test_type_determines_the_defaults(kind, grants, method, responses, scopes):
    sent = {"name": "App", "type": kind}
    if "authorization_code" in grants:
        sent["redirect_uris"] = ["https://app.acme.example/callback"]
    client = complete(sent, POLICY)
    assert client.grant_types == grants
    assert client.token_endpoint_auth_method == method
    assert client.response_types == responses
    assert client.scopes == scopes


@each(
    ("fields", "kind"),
    [
        ({"redirect_uris": ["https://app.acme.example/cb"]}, "web"),
        ({"redirect_uris": ["http://localhost:3000/cb"]}, "web"),
        ({"redirect_uris": ["com.example.app:/cb"]}, "native"),
        ({"redirect_uris": ["http://127.0.0.1/cb"], "token_endpoint_auth_method": "none"}, "native"),
        ({"redirect_uris": ["https://app.acme.example/cb"], "token_endpoint_auth_method": "none"}, "spa"),
        ({"grant_types": ["client_credentials"]}, "machine"),
        ({"grant_types": [DEVICE_CODE], "token_endpoint_auth_method": "none"}, "device"),
    ],
)
def test_missing_type_is_derived(fields, kind):
    assert complete({"name": "App", **fields}, POLICY).type == kind


MACHINE, WEB, BOTH = (
    ("client_credentials",),
    ("authorization_code", "refresh_token"),
    ("authorization_code", "client_credentials"),
)


@each(
    ("before", "after", "losing"),
    [
        ("open", "approval", {MACHINE, BOTH}),
        ("open", "listed", {MACHINE, WEB, BOTH}),
        ("approval", "listed", {WEB, BOTH}),
        ("approval", "open", set()),
        ("listed", "approval", set()),
        ("listed", "listed", set()),
    ],
)
def test_narrower_policy_requires_access_of_the_clients_that_used_the_wider_one(
    before: str, after: str, losing: set[tuple[str, ...]]
) -> None:
    assert {each for each in (MACHINE, WEB, BOTH) if begins_to_require_access(before, after, each)} == losing
