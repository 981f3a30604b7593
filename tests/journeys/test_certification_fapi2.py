"""The conditions of the certification plan FAPI 2.0 Security Profile.

The variant is private_key_jwt, DPoP, OpenID Connect and plain responses. The clients belong to the organization of
``test_certification``.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import requests

from app.models.grant import AuthorizationCode
from app.models.token import PushedRequest
from app.rules.tokens.claims import PROFILE_CLAIMS
from tests.journeys.certification import (
    PROFILE,
    REDIRECT_URI,
    VERIFIER,
    Suite,
    is_invalid_grant,
)
from tests.journeys.fapi_party import FapiParty, ago, expire, is_error_page, is_refused, of_profile
from tests.support.dpop import Prover
from tests.support.signer import new_key

pytestmark = pytest.mark.live

Module = Callable[["FapiParty"], None]
SECURITY_PROFILE: dict[str, Module] = {}


def module(name: str, table: dict[str, Module] = SECURITY_PROFILE) -> Callable[[Module], Module]:
    """Register a module, whose name lacks the plan's prefix."""

    def register(check: Module) -> Module:
        table[name] = check
        return check

    return register


def succeeds(**changes: str | None) -> Module:
    """Return a module whose changed request must succeed."""

    def check(party: FapiParty) -> None:
        party.flow(party.request(**changes))

    return check


def push_fails(*errors: str, **how: Any) -> Module:
    """Return a module whose pushed request is rejected with one of the errors."""

    def check(party: FapiParty) -> None:
        changes = how.get("parameters", {})
        rest = {name: value for name, value in how.items() if name != "parameters"}
        assert is_refused(party.push(party.request(**changes), **rest), *errors)

    return check


def assertion_fails(**changes: Any) -> Module:
    """Return a module whose client assertion is rejected at both endpoints; functions of the party are called."""

    def check(party: FapiParty) -> None:
        made = {name: value(party) if callable(value) else value for name, value in changes.items()}
        assert is_refused(party.push(**made), "invalid_client", "invalid_request")
        code = party.came_back(party.pushed())
        assert is_refused(party.exchange(code, **made), "invalid_client", "invalid_request")

    return check


SECURITY_PROFILE |= {
    "ensure-authorization-request-without-state-success": succeeds(state=None),
    "ensure-authorization-request-without-nonce-success": succeeds(nonce=None),
    "ensure-authorization-request-with-64-char-nonce-success": succeeds(nonce="n" * 64),
    "ensure-authorization-request-with-long-nonce": succeeds(nonce="n" * 384),
    "ensure-authorization-request-with-long-state": succeeds(state="s" * 1000),
    "ensure-other-scope-order-succeeds": succeeds(scope="profile openid"),
    "ensure-redirect-uri-in-authorization-request": push_fails(
        "invalid_request", "invalid_request_object", parameters={"redirect_uri": None}
    ),
    "tolerate-unregistered-redirect-uri": push_fails(
        "invalid_request", "invalid_request_object", parameters={"redirect_uri": f"{REDIRECT_URI}/other"}
    ),
    "ensure-response-type-code-idtoken-fails": push_fails(
        "unsupported_response_type", "invalid_request", parameters={"response_type": "code id_token"}
    ),
    "ensure-response-type-token-fails": push_fails(
        "unsupported_response_type", "invalid_request", parameters={"response_type": "token"}
    ),
    "par-ensure-pkce-required": push_fails("invalid_request", parameters={"code_challenge": None}),
    "par-ensure-plain-pkce-rejected": push_fails(
        "invalid_request", parameters={"code_challenge": VERIFIER, "code_challenge_method": "plain"}
    ),
    "par-authorization-request-containing-request_uri-form-param": push_fails(
        "invalid_request", outside={"request_uri": "urn:ietf:params:oauth:request_uri:bad"}
    ),
    "ensure-mismatched-dpop-jkt-fails": push_fails(
        "invalid_request", "invalid_dpop_proof", parameters={"dpop_jkt": "x" * 43}, proof={}
    ),
    "ensure-client-assertion-with-exp-is-5-minutes-in-past-fails": assertion_fails(
        exp=lambda _: ago(300), iat=lambda _: ago(360)
    ),
    "ensure-client-assertion-with-wrong-aud-fails": assertion_fails(audience="https://other.example"),
    "ensure-client-assertion-with-no-sub-fails": assertion_fails(sub=None),
    "par-test-par-endpoint-as-audience-for-client-assertion-fails": assertion_fails(
        audience=lambda party: party.suite.metadata["pushed_authorization_request_endpoint"]
    ),
    "par-test-token-endpoint-as-audience-for-client-assertion-fails": assertion_fails(
        audience=lambda party: party.suite.metadata["token_endpoint"]
    ),
    "par-test-array-as-audience-for-client-assertion-fails": assertion_fails(
        audience=lambda party: [party.suite.issuer, party.suite.metadata["token_endpoint"]]
    ),
    "par-ensure-jwt-client-assertions-nbf-over-60-seconds-in-the-future-fails": assertion_fails(
        nbf=lambda _: ago(-80), iat=lambda _: ago(-80), exp=lambda _: ago(-140)
    ),
    "ensure-signed-client-assertion-with-RS256-fails": assertion_fails(header={"alg": "RS256"}),
}


@module("discovery-end-point-verification")
def discovery(party: FapiParty) -> None:
    told = party.suite.metadata
    # The profile implies PS256, which is published as soon as such a client exists.
    assert "PS256" in {key["alg"] for key in party.suite.published_keys()}
    for name in (
        "dpop_signing_alg_values_supported",
        "id_token_signing_alg_values_supported",
        "userinfo_signing_alg_values_supported",
        "token_endpoint_auth_signing_alg_values_supported",
        "request_object_signing_alg_values_supported",
    ):
        assert {"PS256", "ES256", "EdDSA"} & set(told[name]), name
    assert "code" in told["response_types_supported"] and "openid" in told["scopes_supported"]
    assert "private_key_jwt" in told["token_endpoint_auth_methods_supported"]
    assert "S256" in told["code_challenge_methods_supported"]
    assert told["authorization_response_iss_parameter_supported"] is True
    assert told["pushed_authorization_request_endpoint"].startswith("https://")
    assert isinstance(told["require_pushed_authorization_requests"], bool)


@module("happy-flow")
def happy_flow(party: FapiParty) -> None:
    tokens = party.flow()
    assert not set(tokens["claims"]) & set(PROFILE_CLAIMS) - {"sub"}, "only requested claims"
    for accept in ("application/json; charset=utf-8", "application/json, application/*+json, */*"):
        assert party.resource(tokens, sends={"Accept": accept}).status_code == 200
    url = party.suite.metadata["userinfo_endpoint"]
    in_query = {"access_token": tokens["access_token"]}
    assert party.suite.http.get(url, params=in_query, timeout=30).status_code in {400, 401}
    second = party.other
    second.flow(second.request(state="s" * 128, nonce="n" * 43, dpop_jkt=second.prover.jkt))


@module("user-rejects-authentication")
def user_rejects(party: FapiParty) -> None:
    request_uri = party.pushed(party.request(prompt="consent"))
    url = requests.Request(
        "GET",
        party.suite.metadata["authorization_endpoint"],
        params={"client_id": party.client_id, "request_uri": request_uri},
    ).prepare()
    page = party.browser.visit(str(url.url))
    page = party.browser.sign_in(page, party.suite.user.email, party.suite.user.password)
    answer = party.browser.press(page, "consent-deny").query
    assert answer["error"] == "access_denied"
    assert (answer["state"], answer["iss"]) == (party.sent["state"], party.suite.issuer)


@module("test-claims-parameter-identity-claims")
def claims_parameter(party: FapiParty) -> None:
    wanted = [name for name in party.suite.metadata["claims_supported"] if name in PROFILE_CLAIMS]
    claims = dict.fromkeys(wanted) | {"unheard_of": {"essential": True}}
    tokens = party.flow(party.request(claims=json.dumps({"userinfo": claims, "id_token": claims})))
    found = party.resource(tokens).json()
    assert set(found) == set(wanted) >= set(PROFILE)
    sign_in = {"iss", "aud", "exp", "iat", "nonce", "auth_time", "acr", "amr", "at_hash"}
    assert set(tokens["claims"]) == sign_in | set(wanted), "no claim that the client does not know"


@module("access-token-type-header-case-sensitivity")
def scheme_in_any_case(party: FapiParty) -> None:
    tokens = party.flow()
    sends = {"Authorization": f"dPoP {tokens['access_token']}"}
    assert party.resource(tokens, sends=sends).status_code == 200


@module("check-dpop-proof-nbf-exp")
def proof_with_nbf_and_exp(party: FapiParty) -> None:
    times = {"nbf": ago(0), "exp": ago(-300)}
    assert party.resource(party.flow(proof=times), **times).status_code == 200


@module("ensure-dpopproof-with-iat-10seconds-before-succeeds")
def proof_of_the_past(party: FapiParty) -> None:
    assert party.resource(party.flow(proof={"iat": ago(10)}), iat=ago(10)).status_code == 200


@module("ensure-dpopproof-with-iat-10seconds-after-succeeds")
def proof_of_the_future(party: FapiParty) -> None:
    tokens = party.tokens_of(party.exchange(party.came_back(party.pushed()), proof={"iat": ago(-10)}))
    assert party.resource(tokens, iat=ago(-10)).status_code == 200


@module("ensure-token-endpoint-fails-with-mismatched-dpop-proof-jkt")
def another_key_than_at_par(party: FapiParty) -> None:
    code = party.came_back(party.pushed(proof={}))
    party.prover = Prover()
    assert is_refused(party.exchange(code), "invalid_request", "invalid_grant", "invalid_dpop_proof")


@module("ensure-token-endpoint-fails-with-mismatched-dpop-jkt")
def another_key_than_announced(party: FapiParty) -> None:
    code = party.came_back(party.pushed(party.request(dpop_jkt=Prover().jkt)))
    assert is_refused(party.exchange(code), "invalid_request", "invalid_grant", "invalid_dpop_proof")


@module("ensure-dpop-proof-at-par-endpoint-binding-success")
def bound_by_proof(party: FapiParty) -> None:
    party.tokens_of(party.exchange(party.came_back(party.pushed(proof={}))))


@module("ensure-dpop-auth-code-binding-success")
def bound_by_thumbprint(party: FapiParty) -> None:
    parameters = party.request(dpop_jkt=party.prover.jkt)
    party.tokens_of(party.exchange(party.came_back(party.pushed(parameters, proof={}))))


@module("ensure-different-nonce-inside-and-outside-request-object")
def nonce_outside(party: FapiParty) -> None:
    code = party.came_back(party.pushed(), nonce="outside")
    tokens = party.tokens_of(party.exchange(code))
    party.verified(tokens["id_token"], tokens["access_token"])


@module("ensure-different-state-inside-and-outside-request-object")
def state_outside(party: FapiParty) -> None:
    party.came_back(party.pushed(), state="outside")


@module("state-only-outside-request-object-not-used")
def state_only_outside(party: FapiParty) -> None:
    party.came_back(party.pushed(party.request(state=None)), state="outside")


@module("ensure-unsigned-authorization-request-without-using-par-fails")
def request_without_par(party: FapiParty) -> None:
    party.refused("invalid_request")


@module("ensure-client-id-in-token-endpoint")
def client_id_of_another(party: FapiParty) -> None:
    code, impostor = party.came_back(party.pushed()), party.other
    impostor.signer = party.signer
    assert is_refused(impostor.exchange(code), "invalid_client", "invalid_grant")


@module("ensure-holder-of-key-required")
def without_a_proof(party: FapiParty) -> None:
    form = {"grant_type": "authorization_code", "code": party.came_back(party.pushed())}
    form |= {"redirect_uri": REDIRECT_URI, "code_verifier": VERIFIER}
    answer = party.post("token_endpoint", form, proof=None)
    assert is_refused(answer, "invalid_request", "invalid_grant", "invalid_dpop_proof")


@module("ensure-authorization-code-is-bound-to-client")
def code_of_another(party: FapiParty) -> None:
    assert is_invalid_grant(party.other.exchange(party.came_back(party.pushed())))


@module("attempt-reuse-authorization-code-after-one-second")
def code_reuse(party: FapiParty) -> None:
    code = party.came_back(party.pushed())
    tokens = party.tokens_of(party.exchange(code))
    assert is_invalid_grant(party.exchange(code))
    assert party.resource(tokens).status_code == 401


@module("attempt-to-use-expired-auth-code")
def expired_code(party: FapiParty) -> None:
    code = party.came_back(party.pushed())
    expire(party, AuthorizationCode)
    assert is_invalid_grant(party.exchange(code))


@module("ensure-client-assertion-in-token-endpoint")
def without_an_assertion(party: FapiParty) -> None:
    code = party.came_back(party.pushed())
    party.method = "none"
    assert is_refused(party.exchange(code), "invalid_client", "invalid_request")


@module("dpop-negative-tests")
def wrong_proofs(party: FapiParty) -> None:
    tokens, url = party.flow(), party.suite.metadata["userinfo_endpoint"]
    right = party.proof("GET", url, access_token=tokens["access_token"])["DPoP"]
    jti = {"jti": "used twice"}
    others = Prover("PS256")
    wrong: dict[str, dict[str, Any]] = {
        "two proofs": {"sends": {"DPoP": f"{right}, {right}"}},
        "malformed": {"sends": {"DPoP": "not.a.proof"}},
        "no typ": {"header": {"typ": None}},
        "no alg": {"header": {"alg": None}},
        "no jwk": {"header": {"jwk": None}},
        **{f"no {name}": {name: None} for name in ("jti", "htm", "htu", "iat", "ath")},
        "wrong typ": {"header": {"typ": "JWT"}},
        "RS256": {"header": {"alg": "RS256", "jwk": others.key.as_dict(private=False)}},
        "alg none": {"header": {"alg": "none"}},
        "signed by another key": {"key": new_key("ES256")},
        "private key": {"header": {"jwk": party.prover.key.as_dict(private=True)}},
        "wrong method": {"htm": "PUT"},
        "wrong URL": {"htu": f"{url}/other"},
        "an hour ahead": {"iat": ago(-3600)},
        "an hour ago": {"iat": ago(3600)},
        "wrong hash": {"ath": "x" * 43},
        "another key": {"header": {"jwk": others.key.as_dict(private=False)}},
        "none": {"sends": {"DPoP": None}},
        "bearer": {"sends": {"DPoP": None, "Authorization": f"Bearer {tokens['access_token']}"}},
    }
    for name, changes in wrong.items():
        assert party.resource(tokens, **changes).status_code in {400, 401}, name
    scheme, _, rest = url.partition("://")
    host, _, path = rest.partition("/")
    accepted: dict[str, dict[str, Any]] = {
        "query and fragment": {"htu": f"{url}?query#fragment"},
        "case": {"htu": f"{scheme.upper()}://{host.upper()}/{path}"},
        "further claims": {"header": {"extra": "header"}, "extra": "claim"},
        "a jti": jti,
        "upper case": {
            "sends": {
                "DPOP": party.proof("GET", url, access_token=tokens["access_token"])["DPoP"],
                "DPoP": None,
            }
        },
        "as before": {},
    }
    for name, changes in accepted.items():
        assert party.resource(tokens, **changes).status_code == 200, name
    assert party.resource(tokens, **jti).status_code in {400, 401}, "a proof is used once"


@module("refresh-token")
def refresh(party: FapiParty) -> None:
    for client in (party, other := party.other):
        scope = "openid offline_access"
        first = client.flow(client.request(scope=scope, prompt="consent"))
        form = {"grant_type": "refresh_token", "refresh_token": first["refresh_token"]}
        if client is party:
            form |= {"scope": scope}
        # A refresh token of a confidential client is not bound to the key (RFC 9449 section 5).
        client.prover = Prover()
        second = client.tokens_of(client.post("token_endpoint", form, proof={}))
        assert second["access_token"] != first["access_token"]
        assert second.get("refresh_token", first["refresh_token"]) == first["refresh_token"], "no rotation"
        if "id_token" in second:
            client.verified(second["id_token"], second["access_token"], is_refreshed=True)
        assert client.resource(second).status_code == 200
        assert is_refused(
            client.post("token_endpoint", form), "invalid_client", "invalid_grant", "invalid_request"
        )
    assert other.client_id != party.client_id
    assert is_invalid_grant(party.post("token_endpoint", form, proof={}))


@module("par-ensure-reused-request-uri-prior-to-auth-completion-succeeds")
def request_uri_visited_twice(party: FapiParty) -> None:
    request_uri = party.pushed()
    address = party.suite.metadata["authorization_endpoint"]
    page = party.browser.visit(f"{address}?client_id={party.client_id}&request_uri={request_uri}")
    assert page.has("login-submit")
    party.came_back(request_uri)


@module("par-attempt-reuse-request_uri")
def request_uri_used_twice(party: FapiParty) -> None:
    request_uri = party.pushed()
    party.came_back(request_uri)
    is_error_page(party.go(request_uri))


@module("par-attempt-to-use-expired-request_uri")
def expired_request_uri(party: FapiParty) -> None:
    request_uri = party.pushed()
    expire(party, PushedRequest)
    is_error_page(party.go(request_uri))


@module("par-attempt-to-use-request_uri-for-different-client")
def request_uri_of_another(party: FapiParty) -> None:
    is_error_page(party.other.go(party.pushed()))


@module("par-ensure-jwt-client-assertions-nbf-8-seconds-in-the-future-is-accepted")
def assertion_of_the_future(party: FapiParty) -> None:
    party.came_back(party.pushed(nbf=ago(-8), iat=ago(-8)))


@module("par-attempt-invalid-http-method")
def put_at_par(party: FapiParty) -> None:
    url = party.suite.metadata["pushed_authorization_request_endpoint"]
    assert party.suite.http.put(url, data=party.request(), timeout=30).status_code == 405


@module("par-ensure-pkce-code-verifier-required")
def without_a_verifier(party: FapiParty) -> None:
    answer = party.exchange(party.came_back(party.pushed()), form={"code_verifier": None})
    assert is_refused(answer, "invalid_grant", "invalid_request")


@module("par-incorrect-pkce-code-verifier-rejected")
def wrong_verifier(party: FapiParty) -> None:
    answer = party.exchange(party.came_back(party.pushed()), form={"code_verifier": VERIFIER[::-1]})
    assert is_invalid_grant(answer)


@pytest.mark.parametrize("name", SECURITY_PROFILE)
def test_security_profile_plan(suite: Suite, name: str) -> None:
    """FAPI 2.0 Security Profile: with requests that are not signed."""
    SECURITY_PROFILE[name](of_profile(suite, is_signing=False))
