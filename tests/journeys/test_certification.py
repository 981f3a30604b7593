"""The conditions of the OpenID certification plans Config, Basic, Form Post, third-party initiated login and logout.

Each module has the name of the plan's module. FAPI 2.0 is in ``test_certification_fapi2`` and
``test_certification_message_signing``.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from urllib.parse import parse_qs, urlsplit

import pytest

from app.operations.audit.failed_requests import list_failed_requests
from app.rules.tokens.claims import CLAIMS_OF_SCOPE, PROFILE_CLAIMS
from tests.journeys.certification import (
    POST_LOGOUT_URI,
    REDIRECT_URI,
    Callback,
    RelyingParty,
    SignIn,
    Suite,
    is_invalid_grant,
    part_of,
)
from tests.support import process
from tests.support.back_channel import set_client_urls
from tests.support.form_browser import Page
from tests.support.signer import Signer, compact

pytestmark = pytest.mark.live

Module = Callable[[RelyingParty], None]
BASIC: dict[str, Module] = {}
# Of prompt=none where a page would be needed (OpenID Connect Core section 3.1.2.6).
INTERACTION_ERRORS = (
    "interaction_required",
    "login_required",
    "account_selection_required",
    "consent_required",
)


def module(name: str) -> Callable[[Module], Module]:
    """Register a module of the Basic plan."""

    def register(check: Module) -> Module:
        BASIC[name] = check
        return check

    return register


def succeeds(**request: str) -> Module:
    """Return a module whose request must succeed."""

    def check(party: RelyingParty) -> None:
        party.sign_in(**request)

    return check


def scope(*scopes: str) -> Module:
    """Return a module that requests scopes and gets all of their claims, from userinfo."""

    def check(party: RelyingParty) -> None:
        signed_in = party.sign_in(scope=" ".join(("openid", *scopes)))
        claims = party.userinfo(signed_in.tokens)
        assert not set(signed_in.claims) & set(PROFILE_CLAIMS) - {"sub"}, "not requested in the ID token"
        assert set(claims) == {name for each in ("openid", *scopes) for name in CLAIMS_OF_SCOPE[each]}
        assert isinstance(claims.get("updated_at", 0), int)
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", claims.get("birthdate", "0000-00-00"))
        assert isinstance(claims.get("address", {}), dict)
        assert {type(claims.get(f"{name}_verified", True)) for name in ("email", "phone_number")} == {bool}

    return check


BASIC |= {
    "oidcc-scope-profile": scope("profile"),
    "oidcc-scope-email": scope("email"),
    "oidcc-scope-address": scope("address"),
    "oidcc-scope-phone": scope("phone"),
    "oidcc-scope-all": scope("profile", "email", "address", "phone"),
    "oidcc-display-page": succeeds(display="page"),
    "oidcc-display-popup": succeeds(display="popup"),
    "oidcc-ensure-request-with-unknown-parameter-succeeds": succeeds(extra="foobar"),
    "oidcc-ui-locales": succeeds(ui_locales="se"),
    "oidcc-claims-locales": succeeds(claims_locales="se"),
    "oidcc-ensure-post-request-succeeds": lambda party: (party.sign_in(by="POST"), None)[1],
}


@module("oidcc-server")
def server(party: RelyingParty) -> None:
    claims = set(party.sign_in().claims)
    expected = {"iss", "sub", "aud", "exp", "iat", "nonce", "auth_time", "acr", "amr", "at_hash"}
    assert claims == expected, "only requested claims, and those of the sign-in"


@module("oidcc-alternate-happy-flow")
def scopes_in_another_order(party: RelyingParty) -> None:
    signed_in = party.sign_in(scope="email openid")
    assert "email" in party.userinfo(signed_in.tokens) and "email" not in signed_in.claims


@module("oidcc-response-type-missing")
def response_type_missing(party: RelyingParty) -> None:
    answer = party.visit(response_type=None)
    if isinstance(answer, Callback):
        assert answer.parameters["error"] in {"invalid_request", "unsupported_response_type"}
    else:
        assert answer.status == 400 and "response_type" in answer.text


@module("oidcc-idtoken-signature")
def id_token_signature(party: RelyingParty) -> None:
    id_token = party.sign_in().tokens["id_token"]
    assert part_of(id_token, 0)["alg"] == "RS256"
    keys = party.suite.published_keys()
    assert len({key["kid"] for key in keys}) == len(keys)
    assert not [key for key in keys if set(key) & {"d", "p", "q", "dp", "dq", "qi", "k"}]


@module("oidcc-idtoken-unsigned")
def id_token_unsigned(party: RelyingParty) -> None:
    # The module runs only where unsigned ID tokens are offered.
    assert "none" not in party.suite.metadata["id_token_signing_alg_values_supported"]


@module("oidcc-userinfo-get")
def userinfo_get(party: RelyingParty) -> None:
    signed_in = party.sign_in()
    assert party.userinfo(signed_in.tokens) == {"sub": signed_in.claims["sub"]}


@module("oidcc-userinfo-post-header")
def userinfo_post_header(party: RelyingParty) -> None:
    party.userinfo(party.sign_in().tokens, "POST")


@module("oidcc-userinfo-post-body")
def userinfo_post_body(party: RelyingParty) -> None:
    tokens = party.sign_in().tokens
    party.userinfo(tokens, "POST", data={"access_token": tokens["access_token"]})


@module("oidcc-ensure-request-without-nonce-succeeds-for-code-flow")
def without_nonce(party: RelyingParty) -> None:
    assert "nonce" not in party.sign_in(nonce=None).claims


def signs_in_again(party: RelyingParty, first: SignIn, **request: str) -> None:
    """Check that the user has to sign in again, later than before."""
    second = party.sign_in(**request)
    assert "login-submit" in party.pressed
    assert second.claims["sub"] == first.claims["sub"]
    assert second.claims["auth_time"] > first.claims["auth_time"]


def goes_on_silently(party: RelyingParty, first: SignIn, **request: str) -> None:
    """Check that the user sees no page and is the same, signed in at the same time."""
    second = party.sign_in(**request)
    assert party.pressed == []
    assert {second.claims[name] == first.claims[name] for name in ("sub", "auth_time")} == {True}


@module("oidcc-prompt-login")
def prompt_login(party: RelyingParty) -> None:
    first = party.sign_in()
    time.sleep(1.1)  # auth_time is in seconds.
    signs_in_again(party, first, prompt="login")


@module("oidcc-prompt-none-not-logged-in")
def prompt_none_not_logged_in(party: RelyingParty) -> None:
    party.refused(*INTERACTION_ERRORS, prompt="none")
    assert party.pressed == []


@module("oidcc-prompt-none-logged-in")
def prompt_none_logged_in(party: RelyingParty) -> None:
    goes_on_silently(party, party.sign_in(), prompt="none")


@module("oidcc-max-age-1")
def max_age_1(party: RelyingParty) -> None:
    first = party.sign_in()
    time.sleep(1.1)
    signs_in_again(party, first, max_age="1")


@module("oidcc-max-age-10000")
def max_age_10000(party: RelyingParty) -> None:
    goes_on_silently(party, party.sign_in(max_age="10000"), max_age="10000")


@module("oidcc-id-token-hint")
def id_token_hint(party: RelyingParty) -> None:
    first = party.sign_in()
    goes_on_silently(party, first, prompt="none", id_token_hint=first.tokens["id_token"])


@module("oidcc-login-hint")
def login_hint(party: RelyingParty) -> None:
    party.sign_in(login_hint=party.suite.user.email)


@module("oidcc-ensure-request-with-acr-values-succeeds")
def acr_values(party: RelyingParty) -> None:
    wanted = party.suite.metadata["acr_values_supported"]
    assert party.sign_in(acr_values=" ".join(wanted)).claims["acr"] in wanted


@module("oidcc-codereuse-30seconds")
def code_reuse(party: RelyingParty) -> None:
    """With oidcc-codereuse, which is the same without a pause: how long ago the first use was makes no difference."""
    signed_in = party.sign_in()
    assert is_invalid_grant(party.redeem(signed_in.code))
    assert party.call(signed_in.tokens).status_code == 401, "the token is revoked"


@module("oidcc-ensure-registered-redirect-uri")
def registered_redirect_uri(party: RelyingParty) -> None:
    assert "redirect_uri" in party.shown_error(redirect_uri=f"{REDIRECT_URI}/unregistered")


@module("oidcc-request-uri-unsigned-supported-correctly-or-rejected-as-unsupported")
def unsigned_request_uri(party: RelyingParty) -> None:
    # The module, and those of unsigned request objects, run only where "none" is offered.
    assert "none" not in party.suite.metadata["request_object_signing_alg_values_supported"]
    assert party.suite.metadata["request_uri_parameter_supported"] is False


@module("oidcc-unsigned-request-object-supported-correctly-or-rejected-as-unsupported")
def unsigned_request_object(party: RelyingParty) -> None:
    inside = party.request() | {"iss": party.client_id, "aud": party.suite.issuer}
    unsigned = compact({"alg": "none"}, inside, None)
    answer = party.visit(state=inside["state"], request=unsigned)
    found = answer.parameters["error"] if isinstance(answer, Callback) else answer.text
    assert "request_not_supported" in found


@module("oidcc-ensure-request-object-with-redirect-uri")
def request_object_redirect_uri(party: RelyingParty) -> None:
    inside = party.request()
    signed = party.signer.request_object(inside, party.suite.issuer)
    party.sent = inside
    outside = {name: inside[name] for name in ("client_id", "response_type", "scope", "state")}
    callback = party.open(
        party.suite.metadata["authorization_endpoint"],
        outside | {"redirect_uri": f"{REDIRECT_URI}/ignored", "request": signed},
    )
    assert isinstance(callback, Callback) and "code" in callback.parameters, callback


@module("oidcc-claims-essential")
def claims_essential(party: RelyingParty) -> None:
    signed_in = party.sign_in(claims=json.dumps({"userinfo": {"name": {"essential": True}}}))
    assert party.userinfo(signed_in.tokens)["name"]
    assert "name" not in signed_in.claims


@module("oidcc-ensure-request-with-valid-pkce-succeeds")
def with_pkce(party: RelyingParty) -> None:
    party.pkce = True
    party.sign_in()


STATIC = {"jwks": Signer("RS256").jwks, "id_token_claims": "minimal"}


@pytest.mark.parametrize(
    ("registration", "response_mode"), [("static", None), ("dynamic", None), ("dynamic", "form_post")]
)
@pytest.mark.parametrize("name", BASIC)
def test_basic_and_form_post_plans(
    suite: Suite, name: str, registration: str, response_mode: str | None
) -> None:
    """OpenID Connect Core: Basic OP with static and dynamic registration, and Form Post Basic OP."""
    party = suite.configure(**STATIC) if registration == "static" else suite.register()
    party.response_mode = response_mode
    BASIC[name](party)


@pytest.mark.parametrize("registration", ["static", "dynamic"])
def test_client_secret_post(suite: Suite, registration: str) -> None:
    """oidcc-server-client-secret-post."""
    method = {"token_endpoint_auth_method": "client_secret_post"}
    party = suite.configure(**method) if registration == "static" else suite.register(**method)
    party.sign_in()


@pytest.mark.parametrize("registration", ["static", "dynamic"])
def test_refresh_tokens_are_bound_to_their_client(suite: Suite, registration: str) -> None:
    """oidcc-refresh-token."""
    assert "refresh_token" in suite.metadata["grant_types_supported"]
    grants = {"grant_types": ["authorization_code", "refresh_token"]}
    parties = [
        suite.configure(name=f"Refreshing {number}") if registration == "static" else suite.register(**grants)
        for number in range(2)
    ]
    for party in parties:
        first = party.sign_in(scope="openid offline_access", prompt="consent")
        form = {"grant_type": "refresh_token", "refresh_token": first.tokens["refresh_token"]}
        # The first client repeats the scope (RFC 6749 section 6).
        more = {"scope": "openid offline_access"} if party is parties[0] else {}
        second = party.tokens_of(party.token_request(**form, **more))
        assert second["access_token"] != first.tokens["access_token"]
        party.userinfo(second)
        if "id_token" in second:
            renewed = party.verified(second["id_token"], second["access_token"], is_refreshed=True)
            # OpenID Connect Core section 12.2.
            for claim in ("iss", "sub", "aud", "auth_time"):
                assert renewed[claim] == first.claims[claim]
    stolen = second.get("refresh_token", form["refresh_token"])
    assert is_invalid_grant(parties[0].token_request(grant_type="refresh_token", refresh_token=stolen))


def test_self_registered_client_is_removed(suite: Suite) -> None:
    """The end of every module with dynamic registration (RFC 7592 section 2.3)."""
    registered = suite.register().registered
    headers = {"Authorization": f"Bearer {registered['registration_access_token']}"}
    url = registered["registration_client_uri"]
    assert suite.http.delete(url, headers=headers, timeout=30).status_code == 204
    assert suite.http.get(url, headers=headers, timeout=30).status_code == 401


def test_config_plan(suite: Suite) -> None:
    """oidcc-discovery-endpoint-verification, and those of the logout plans."""
    url = f"{suite.issuer}/.well-known/openid-configuration"
    answer = suite.http.get(url, timeout=30)
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, "application/json")
    told = answer.json()
    assert told["issuer"] == suite.issuer and not urlsplit(told["issuer"]).query
    assert (
        "code" in told["response_types_supported"] and "authorization_code" in told["grant_types_supported"]
    )
    assert set(told["subject_types_supported"]) == {"public", "pairwise"}
    assert "RS256" in told["id_token_signing_alg_values_supported"]
    assert "RS256" in told["request_object_signing_alg_values_supported"]
    assert "openid" in told["scopes_supported"] and told["claims_supported"]
    assert told["claims_parameter_supported"] and isinstance(told["code_challenge_methods_supported"], list)
    # RFC 6749 section 3.3.
    assert all(re.fullmatch(r"[!#-\[\]-~]+", name) for name in told["scopes_supported"])
    # BCP 47, in its canonical case.
    assert all(re.fullmatch(r"[a-z]{2,3}(-[A-Z]{2})?", tag) for tag in told["ui_locales_supported"])
    endpoints = {name for name in told if name.endswith("_endpoint")} | {"jwks_uri"}
    assert {"authorization_endpoint", "token_endpoint", "userinfo_endpoint"} < endpoints
    assert {"registration_endpoint", "end_session_endpoint", "jwks_uri"} < endpoints
    assert all(told[name].startswith("https://") for name in endpoints)
    assert told["backchannel_logout_supported"] and told["backchannel_logout_session_supported"]
    assert suite.published_keys()


def test_third_party_initiated_login_plan(suite: Suite) -> None:
    """oidcc-3rd_party-init-login and oidcc-3rd_party-init-login-nohttps."""
    uri = "https://suite.example/test/initiate_login"
    registered = suite.register(initiate_login_uri=uri).registered
    assert registered["initiate_login_uri"] == uri
    headers = {"Authorization": f"Bearer {registered['registration_access_token']}"}
    answer = suite.http.get(registered["registration_client_uri"], headers=headers, timeout=30)
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, "application/json")
    assert answer.json()["initiate_login_uri"] == uri
    refused = suite.registration(initiate_login_uri=uri.replace("https", "http"))
    assert (refused.status_code, refused.headers["Content-Type"]) == (400, "application/json")
    assert refused.json()["error"] == "invalid_client_metadata"


def signed_out(party: RelyingParty, **request: str | None) -> Callback | Page:
    """Sign in, send the logout request of the plan, and return where the user arrives, who has then no session."""
    signed_in = party.sign_in()
    good: dict[str, str | None] = {
        "id_token_hint": signed_in.tokens["id_token"],
        "post_logout_redirect_uri": POST_LOGOUT_URI,
        "state": "s" * 128,
    }
    sent = {name: value for name, value in (good | request).items() if value is not None}
    arrived = party.open(party.suite.metadata["end_session_endpoint"], sent)
    party.refused(*INTERACTION_ERRORS, prompt="none")
    return arrived


def alg_none(party: RelyingParty) -> str:
    """Return an ID token of the user that nobody signed."""
    return compact({"alg": "none"}, part_of(party.sign_in().tokens["id_token"], 1), None)


LOGOUT: dict[str, tuple[dict[str, str | None], bool]] = {
    # The changes of the request, and whether the user returns to the client.
    "oidcc-rp-initiated-logout": ({}, True),
    "oidcc-rp-initiated-logout-no-state": ({"state": None}, True),
    "oidcc-rp-initiated-logout-bad-post-logout-redirect-uri": (
        {"post_logout_redirect_uri": f"{POST_LOGOUT_URI}/other"},
        False,
    ),
    "oidcc-rp-initiated-logout-query-added-to-post-logout-redirect-uri": (
        {"post_logout_redirect_uri": f"{POST_LOGOUT_URI}?query=added"},
        False,
    ),
    "oidcc-rp-initiated-logout-modified-id-token-hint": ({"id_token_hint": "alg=none"}, False),
    "oidcc-rp-initiated-logout-bad-id-token-hint": ({"id_token_hint": "not.an.id-token"}, False),
    "oidcc-rp-initiated-logout-no-id-token-hint": ({"id_token_hint": None}, False),
    "oidcc-rp-initiated-logout-no-params": (
        {"id_token_hint": None, "post_logout_redirect_uri": None, "state": None},
        False,
    ),
    "oidcc-rp-initiated-logout-no-post-logout-redirect-uri": ({"post_logout_redirect_uri": None}, False),
    "oidcc-rp-initiated-logout-only-state": (
        {"id_token_hint": None, "post_logout_redirect_uri": None},
        False,
    ),
}


UNREGISTERED = "post_logout_redirect_uri_not_registered"


def causes(party: RelyingParty) -> set[str]:
    """Return the causes that the client's developer reads in the log of failed requests."""
    suite = party.suite
    with suite.server.app.app_context():
        log = list_failed_requests(
            suite.make.system(suite.organization), filters={"client_id": party.client_id}
        )
        return {entry.cause for entry in log.items}


@pytest.mark.parametrize("registration", ["static", "dynamic"])
@pytest.mark.parametrize(("request_changes", "returns"), LOGOUT.values(), ids=LOGOUT)
def test_rp_initiated_logout_plan(
    suite: Suite, request_changes: dict[str, str | None], returns: bool, registration: str
) -> None:
    """RP-Initiated Logout OP: without proof the user confirms and stays here, and the session ends in each case."""
    uris = {"post_logout_redirect_uris": [POST_LOGOUT_URI]}
    party = suite.configure(**uris) if registration == "static" else suite.register(**uris)
    if request_changes.get("id_token_hint") == "alg=none":
        request_changes = {"id_token_hint": alg_none(party)}
    arrived = signed_out(party, **request_changes)
    if not returns:
        assert isinstance(arrived, Page) and arrived.left is None and arrived.status in {200, 400}
        if request_changes.get("post_logout_redirect_uri"):
            process.wait_until(lambda: UNREGISTERED in causes(party), "the log of failed requests")
        return
    assert isinstance(arrived, Callback)
    assert arrived.parameters == ({} if "state" in request_changes else {"state": "s" * 128})


def test_back_channel_logout_plan(suite: Suite) -> None:
    """oidcc-backchannel-rp-initiated-logout."""
    party = suite.register(
        post_logout_redirect_uris=[POST_LOGOUT_URI],
        backchannel_logout_uri="https://suite.example/test/backchannel_logout",
        backchannel_logout_session_required=True,
    )
    path = f"/backchannel_logout/{party.client_id}"
    # The receiver is on this machine, where registration allows no URL.
    set_client_urls(suite.server.app, party.client_id, backchannel_logout_uri=suite.site.address(path))
    claims = party.sign_in().claims
    arrived = signed_out(party)
    assert isinstance(arrived, Callback) and arrived.parameters == {"state": "s" * 128}
    body = parse_qs(suite.site.posted(path))
    assert set(body) == {"logout_token"}
    [token] = body["logout_token"]
    _, told = suite.opened(token)
    assert {name: told[name] for name in ("iss", "aud", "sub", "sid")} == {
        name: claims[name] for name in ("iss", "aud", "sub", "sid")
    }
    assert told["events"] == {"http://schemas.openid.net/event/backchannel-logout": {}}
    assert told["iat"] <= time.time() + 300 and told["jti"] and "nonce" not in told
