"""The failed-request log: client, cause, what was received and what was expected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from app.operations.audit.failed_requests import list_failed_requests
from app.operations.clients.clients import update_client
from app.operations.clients.credential_revocation import revoke_credentials
from app.operations.clients.credentials import create_credential
from app.rules.audit.request_fixes import FIXES
from app.rules.clients.client_assertions import TYPE as ASSERTION_TYPE
from app.rules.identifiers import ACCESS_TOKEN, CLIENT_SECRET, new_token
from tests.factories import basic_header
from tests.oauth.conftest import REDIRECT_URI, VERIFIER, Flow, change_rows, clock_ago, query_of
from tests.oauth.failure_log import kept, only
from tests.support.signer import Signer, compact, new_key


def test_refused_token_request_is_recorded_with_its_cause(flow: Flow) -> None:
    refused = flow.redeem(flow.code(), code_verifier="w" * 43)
    entry = only(flow)
    assert refused.status_code == 400
    assert entry.request_id == refused.headers["X-Request-Id"]
    assert (entry.endpoint, entry.method, entry.status) == ("token", "POST", 400)
    assert (entry.error, entry.cause) == ("invalid_grant", "verifier_mismatch")
    assert (
        entry.client_id == flow.client.client_id and entry.client_name == flow.client.registered.client.name
    )
    assert entry.address == "127.0.0.1"
    assert entry.explanation.fix


def test_entry_contains_no_secrets(flow: Flow) -> None:
    """LG-1: code, verifier, secret and state are named but redacted."""
    code = flow.code()
    flow.token(
        {},
        grant_type="authorization_code",
        client_id=flow.client.client_id,
        client_secret="canary-secret-0123456789",
        code=code,
        code_verifier="canary" + VERIFIER,
        state="canary-state",
        redirect_uri=f"{REDIRECT_URI}?access_token=canary-in-a-uri",
        **{"canary-" + "n" * 100: "canary-value"},
    )
    entry = only(flow)
    told = repr((entry.parameters, entry.received, entry.expected, entry.description))
    assert code not in told
    assert "canary" not in told.replace("canary-nnn", "")
    assert entry.parameters["code"] == "[an authorization code, removed]"
    assert entry.parameters["grant_type"] == "authorization_code"
    assert all(len(name) <= 64 for name in entry.parameters)


def test_error_response_reveals_no_more_than_before(flow: Flow) -> None:
    """CA-3: the sender of a wrong secret does not see what the log records."""
    wrong = flow.token(basic_header(flow.client.client_id, "x"), grant_type="client_credentials")
    unknown = flow.token(
        basic_header("cli_00000000_00000000000000000000000000", "x"), grant_type="client_credentials"
    )
    assert wrong.get_json() == unknown.get_json()


def test_refused_request_of_an_unknown_client_is_not_recorded(flow: Flow) -> None:
    flow.token(basic_header("cli_00000000_00000000000000000000000000", "x"), grant_type="client_credentials")
    flow.http.post("/oauth/token", data={"grant_type": "client_credentials", "client_id": "nobody"})
    flow.http.get("/oauth/authorize?client_id=nobody")
    assert kept(flow) == []


def test_revoked_secret_is_named_with_its_revoker(flow: Flow) -> None:
    system = flow.make.actor(flow.organization, user=flow.user)
    with flow.app.app_context():
        added = create_credential(system, flow.client.client_id, {"name": "2026-05"})
        revoke_credentials(system, flow.client.client_id, credential_id=added.credential.public_id)
    flow.token(basic_header(flow.client.client_id, added.secret), grant_type="client_credentials")
    entry = only(flow)
    assert entry.cause == "secret_revoked"
    assert entry.received is not None
    assert entry.received.startswith(f"secret 2026-05 (…{added.credential.hint}), revoked ")
    assert entry.received.endswith(f" by {flow.user.email}")
    assert added.secret not in repr(entry)


def test_wrong_secret_is_reported_with_the_active_secrets(flow: Flow) -> None:
    flow.token(basic_header(flow.client.client_id, "x"), grant_type="client_credentials")
    entry = only(flow)
    assert entry.cause == "secret_unknown"
    assert [value.split(" (")[0] for value in entry.expected] != []


@pytest.mark.parametrize(
    ("change", "received"),
    [
        (lambda secret: f"{secret}\n", "a client secret with quotes, spaces or a line break around it"),
        (lambda secret: f'"{secret}"', "a client secret with quotes, spaces or a line break around it"),
        (lambda secret: secret[:-1], "a client secret that is incomplete or was changed"),
        (
            lambda _: new_token(CLIENT_SECRET, "k3v9q2xm"),
            "a complete client secret, but not one of this client",
        ),
        (lambda _: new_token(ACCESS_TOKEN, "k3v9q2xm"), "an access token"),
        (lambda _: "secret", "not a client secret"),
    ],
)
def test_wrong_secret_is_described(flow: Flow, change: Callable[[str], str], received: str) -> None:
    assert flow.client.secret is not None
    sent = change(flow.client.secret)
    flow.token(basic_header(flow.client.client_id, sent), grant_type="client_credentials")
    entry = only(flow)
    assert (entry.cause, entry.received) == ("secret_unknown", received)


@pytest.mark.parametrize(
    ("header", "received"),
    [
        ("Bearer x", "another Authorization header"),
        ("Basic cli:secret", "a malformed Basic header"),
        ("x", "another Authorization header"),
    ],
)
def test_header_without_basic_credentials_is_not_a_wrong_secret(
    flow: Flow, header: str, received: str
) -> None:
    sent = {"grant_type": "client_credentials", "client_id": flow.client.client_id}
    answer = flow.http.post("/oauth/token", data=sent, headers={"Authorization": header})
    assert answer.get_json()["error"] == "invalid_client"
    entry = only(flow)
    assert (entry.cause, entry.received) == ("parameter_malformed", received)


def test_correct_secret_by_the_wrong_method_is_a_method_mismatch(flow: Flow) -> None:
    flow = flow.other_client(token_endpoint_auth_method="client_secret_basic")
    flow.token(
        {}, grant_type="client_credentials", client_id=flow.client.client_id, client_secret=flow.client.secret
    )
    entry = only(flow)
    assert (entry.cause, entry.received) == ("auth_method_mismatch", "client_secret_post")
    assert entry.expected == ("client_secret_basic",)


@pytest.mark.parametrize(
    ("fields", "method"),
    [
        ({"type": "spa", "redirect_uris": [REDIRECT_URI]}, "none"),
        ({"token_endpoint_auth_method": "private_key_jwt"}, "private_key_jwt"),
    ],
)
def test_secret_of_a_client_without_secrets_is_a_method_mismatch(
    flow: Flow, signer: Signer, fields: dict[str, Any], method: str
) -> None:
    """To copy the secret again would be wrong advice: an app in a browser must not have one."""
    keys = {"jwks": signer.jwks} if method == "private_key_jwt" else {}
    flow = flow.other_client(**fields, **keys)
    flow.token(basic_header(flow.client.client_id, "x"), grant_type="client_credentials")
    entry = only(flow)
    assert (entry.cause, entry.received) == ("auth_method_mismatch", "client_secret_basic")
    assert entry.expected == (method,)


@pytest.mark.parametrize(
    ("assertion", "is_logged"),
    [
        (lambda client_id: unsigned(sub=client_id), True),
        (lambda client_id: f"{unsigned(sub=client_id)}A.A", True),
        (lambda client_id: unsigned(sub=client_id, more="x" * 40_000), False),
        (lambda client_id: unsigned(sub=[client_id]), False),
        (lambda client_id: unsigned(iss=client_id), False),
        (lambda _: unsigned(sub="\ud800" * 39), False),
        (lambda client_id: client_id, False),
        (lambda _: "a.b.c", False),
    ],
)
def test_malformed_client_assertion_is_recorded_for_the_client_that_it_names(
    flow: Flow, assertion: Callable[[str], str], is_logged: bool
) -> None:
    """RFC 7523 section 3: its sub is the client_id, which therefore need not be sent beside it."""
    answer = flow.token(
        {},
        grant_type="client_credentials",
        client_assertion=assertion(flow.client.client_id),
        client_assertion_type=ASSERTION_TYPE,
    )
    assert (answer.status_code, answer.get_json()["error"]) == (401, "invalid_client")
    assert [entry.cause for entry in kept(flow)] == ["client_assertion_malformed"] * is_logged


def unsigned(**claims: Any) -> str:
    return compact({"alg": "none"}, claims, None)


@pytest.mark.parametrize(
    ("sends", "cause", "received"),
    [
        ({"aud": "https://id.example/"}, "client_assertion_audience", "https://id.example/"),
        ({"aud": ["a", "b"]}, "client_assertion_audience", 'aud: ["a", "b"]'),
        ({"header": {"kid": "two"}}, "client_assertion_signature", "alg ES256, kid two"),
        ({"key": new_key()}, "client_assertion_signature", "alg ES256, kid one"),
    ],
)
def test_rejected_assertion_is_compared_with_what_would_be_accepted(
    flow: Flow, signer: Signer, sends: dict[str, Any], cause: str, received: str
) -> None:
    flow = flow.other_client(type="machine", redirect_uris=[], scopes=[], **signer.registration)
    fields = signer.fields(flow.client.client_id, flow.issuer, **sends)
    assert flow.token({}, grant_type="client_credentials", **fields).status_code == 401
    entry = only(flow)
    assert (entry.cause, entry.received) == (cause, received)
    assert entry.expected == ((flow.issuer,) if "aud" in sends else ("a key of type EC, kid one",))


def test_parameters_in_the_url_are_reported_to_the_client_that_the_body_names(flow: Flow) -> None:
    flow.http.post("/oauth/token?grant_type=x", data={"client_id": flow.client.client_id})
    assert only(flow).cause == "parameters_in_address"


@pytest.mark.parametrize("is_in_header", [False, True])
def test_missing_or_empty_secret_is_reported(flow: Flow, is_in_header: bool) -> None:
    named = {} if is_in_header else {"client_id": flow.client.client_id}
    header = basic_header(flow.client.client_id, "") if is_in_header else {}
    flow.token(header, grant_type="client_credentials", **named)
    assert only(flow).cause == "credentials_missing"


def test_wrong_issuer_is_reported_to_the_clients_developers(flow: Flow) -> None:
    """MX-3: at the other issuer the client is unknown, but its own log explains it."""
    other = flow.make.organization()
    flow.token(path=f"/organizations/{other.slug}/oauth/token", grant_type="client_credentials")
    entry = only(flow)
    assert entry.cause == "wrong_organization" and entry.expected == (flow.issuer,)
    with flow.app.app_context():
        assert list_failed_requests(flow.make.system(other)).items == ()


def test_disabled_client_is_reported(flow: Flow) -> None:
    with flow.app.app_context():
        update_client(flow.make.system(flow.organization), flow.client.client_id, {"status": "disabled"})
    flow.token(grant_type="client_credentials")
    assert only(flow).cause == "client_disabled"


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"redirect_uri": REDIRECT_URI + "/"}, "redirect_uri_mismatch"),
        ({"code_verifier": None}, "verifier_mismatch"),
        ({"code_verifier": "v/+" * 14 + "v="}, "verifier_malformed"),
        ({"code": "x"}, "code_unknown"),
        ({"code": None}, "parameter_missing"),
        ({"grant_type": "password"}, "grant_type_unsupported"),
        ({"grant_type": None}, "parameter_missing"),
        ({"grant_type": "client_credentials"}, "grant_type_not_allowed"),
    ],
)
def test_every_rejected_redemption_has_a_cause(
    flow: Flow, changes: dict[str, str | None], cause: str
) -> None:
    flow.redeem(**({"code": flow.code()} | changes))
    assert only(flow).cause == cause


def test_used_and_expired_codes_are_distinguished(flow: Flow) -> None:
    from app.models.grant import AuthorizationCode

    code = flow.code()
    flow.redeem(code)
    flow.redeem(code)
    late = flow.code()
    change_rows(flow, AuthorizationCode, issued_at=clock_ago(flow, 74), expires_at=clock_ago(flow, 14))
    flow.redeem(late)
    ended, reused = kept(flow)
    assert reused.cause == "code_reused"
    assert ended.cause == "code_expired" and ended.received == "74 s after it was issued"
    assert ended.expected == ("at most 60 s",)


def test_unknown_reused_and_expired_refresh_tokens_are_distinguished(flow: Flow) -> None:
    first = flow.tokens()["refresh_token"]
    second = flow.refresh(first).get_json()["refresh_token"]
    flow.refresh(second)
    flow.refresh(first)
    flow.refresh("x")
    assert [entry.cause for entry in kept(flow)] == ["refresh_unknown", "refresh_reuse"]


def test_scopes_that_the_user_did_not_allow_cannot_be_added_to_the_client(flow: Flow) -> None:
    """Such a change would widen the client, and the refresh would still fail."""
    token = flow.tokens(scope="openid offline_access")["refresh_token"]
    assert flow.refresh(token, scope="openid orders:read").get_json()["error"] == "invalid_scope"
    entry = only(flow)
    assert (entry.cause, entry.received) == ("scope_beyond_token", "orders:read")
    assert entry.cause not in FIXES


def test_refreshed_scope_that_the_client_lost_is_a_scope_of_the_client(flow: Flow) -> None:
    token = flow.tokens(scope="openid email offline_access")["refresh_token"]
    with flow.app.app_context():
        scopes = ["openid", "offline_access"]
        update_client(flow.make.system(flow.organization), flow.client.client_id, {"scopes": scopes})
    flow.refresh(token, scope="openid email")
    entry = only(flow)
    assert (entry.cause, entry.received) == ("scope_not_allowed", "email")


def test_unregistered_redirect_uri_is_reported_with_the_registered_ones(flow: Flow) -> None:
    """The user's error page shows the request ID under which developers find the entry."""
    page = flow.authorize(redirect_uri=REDIRECT_URI + "/")
    entry = only(flow)
    assert page.status_code == 400 and page.headers["X-Request-Id"] == entry.request_id
    assert entry.request_id in page.text
    assert (entry.endpoint, entry.cause) == ("authorize", "redirect_uri_not_registered")
    assert entry.received == REDIRECT_URI + "/" and entry.expected == (REDIRECT_URI,)


@pytest.mark.parametrize(
    ("changes", "cause", "received"),
    [
        ({"redirect_uri": None}, "redirect_uri_missing", None),
        ({"code_challenge": None}, "pkce_missing", None),
        ({"code_challenge": None, "code_challenge_method": None}, "pkce_or_nonce_missing", None),
        ({"code_challenge_method": "plain"}, "pkce_method_unsupported", "plain"),
        ({"scope": "openid orders:read"}, "scope_not_allowed", "orders:read"),
        ({"resource": "https://api.example"}, "resource_not_allowed", "https://api.example"),
        ({"response_type": "token"}, "response_type_unsupported", "token"),
        ({"prompt": "none", "max_age": "0"}, "login_required", None),
    ],
)
def test_every_rejected_authorization_request_has_a_cause(
    flow: Flow, changes: dict[str, str | None], cause: str, received: str | None
) -> None:
    flow.authorize(**changes)
    entry = only(flow)
    assert (entry.endpoint, entry.cause, entry.received) == ("authorize", cause, received)


def test_repeated_parameter_is_named(flow: Flow) -> None:
    flow.http.post(
        "/oauth/token",
        data="grant_type=client_credentials&scope=a&scope=b&client_id=" + flow.client.client_id,
        content_type="application/x-www-form-urlencoded",
    )
    entry = only(flow)
    assert (entry.cause, entry.received) == ("parameter_repeated", "scope")


def test_rejected_introspection_and_revocation_are_recorded(flow: Flow) -> None:
    bad = basic_header(flow.client.client_id, "x")
    for endpoint in ("introspect", "revoke", "device_authorization"):
        flow.http.post(f"/oauth/{endpoint}", data={"token": "x"}, headers=bad)
    assert {entry.endpoint for entry in kept(flow)} == {"introspect", "revoke", "device_authorization"}


def test_wrong_registration_access_token_is_recorded(flow: Flow) -> None:
    path = f"/organizations/{flow.organization.slug}/oauth/register/{flow.client.client_id}"
    answer = flow.http.get(path, headers={"Authorization": "Bearer x"})
    entry = only(flow)
    assert answer.status_code == entry.status == 401
    assert (entry.endpoint, entry.cause) == ("register", "registration_token_invalid")


def test_refused_pushed_request_is_recorded(flow: Flow) -> None:
    flow.http.post("/oauth/par", data=flow.parameters(code_challenge=None), headers=flow.client.basic)
    entry = only(flow)
    assert (entry.endpoint, entry.cause) == ("par", "pkce_missing")


def test_pending_device_poll_is_not_recorded(flow: Flow) -> None:
    from tests.oauth.device import Device

    device = Device(flow.http, flow.make, flow.user)
    code = device.code()["device_code"]
    assert device.poll(code).get_json()["error"] == "authorization_pending"
    assert kept(flow) == []
    device.poll(code)
    assert only(flow).cause == "device_too_fast"


def test_denial_by_the_user_is_recorded(asking: Flow) -> None:
    page = asking.consent()
    assert query_of(asking.decide(page, "consent-deny"))["error"] == "access_denied"
    assert only(asking).cause == "user_refused"
