"""Discovery is true: a client that knows only the metadata uses each value of each field.

``PROOFS`` has one proof for each field of the organization's metadata (RFC 8414, OpenID Connect Discovery) and of the
management API's (RFC 9728). It calls what the field promises, for every listed value, and where a list is complete
also with a value that is not listed. A field without a proof fails ``test_every_field_has_a_proof``.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests
from authlib.oauth2.rfc8414 import AuthorizationServerMetadata
from authlib.oidc.discovery import OpenIDProviderMetadata

from app.operations.clients.resources import define_resource
from app.rules.organizations.settings_table import GRANT_TYPES, TOKEN_EXCHANGE
from app.rules.tokens.claims import PROFILE_CLAIMS
from tests.journeys.certification import REDIRECT_URI, Callback, RelyingParty, Suite
from tests.journeys.endpoint_proofs import (
    API,
    ENDPOINTS,
    REFRESHING,
    call,
    error_of,
    pushed,
    url_of,
)
from tests.journeys.node_clients import Site
from tests.support.authenticator import with_app
from tests.support.dpop import Prover
from tests.support.form_browser import Page
from tests.support.servers import LiveServer
from tests.support.signer import Signer

pytestmark = [pytest.mark.live, pytest.mark.filterwarnings("ignore:EdDSA is deprecated")]

SETTINGS = {
    "authentication": {"registration": {"mode": "open", "verify_email": False}},
    "oauth": {
        "grant_types": [*GRANT_TYPES, TOKEN_EXCHANGE],
        "dynamic_registration": {
            "mode": "open",
            "client_id_metadata_documents": True,
            "max_per_hour": 10_000,
        },
        "consent": {"remember_self_registered": True},
        "access_token": {"allow_unstored": True},
        "device_poll_interval_seconds": 1,
    },
}
# The same with keys that are generated fast.
OTHERWISE = SETTINGS["oauth"] | {"signing": {"algorithm": "ES256"}}


@pytest.fixture(scope="session")
def offer(node_server: LiveServer, node_site: Site) -> Suite:
    """An organization that offers everything."""
    suite = Suite(node_server, node_site, SETTINGS)
    with node_server.app.app_context():
        fields = {"identifier": API, "name": "Orders", "scopes": [{"name": "orders:read"}]}
        define_resource(suite.make.actor(suite.organization), fields)
    suite.metadata = suite.http.get(url_of(suite.issuer), timeout=30).json()
    return suite


def with_key(suite: Suite, algorithm: str, **metadata: Any) -> RelyingParty:
    """Register a relying party whose key is for the algorithm."""
    signer = Signer(algorithm)
    party = suite.register(jwks=signer.jwks, **metadata)
    party.signer = signer
    return party


def scopes(suite: Suite, value: list[str]) -> None:
    party = suite.register(**REFRESHING, scope=" ".join(value))
    tokens = party.sign_in(scope=" ".join(value)).tokens
    assert set(tokens["scope"].split()) == set(value) and "refresh_token" in tokens
    party.refused("invalid_scope", prompt="none", scope="openid unlisted")


def response_types(suite: Suite, value: list[str]) -> None:
    party = suite.register()
    for each in value:
        party.code(response_type=each)
    party.refused("unsupported_response_type", prompt="none", response_type="token")


def response_modes(suite: Suite, value: list[str]) -> None:
    party = suite.register()
    for each in value:
        party.response_mode = each
        party.sign_in()
    party.response_mode = None
    party.refused("invalid_request", prompt="none", response_mode="fragment")


def subject_types(suite: Suite, value: list[str]) -> None:
    def subject(kind: str, host: str) -> str:
        uri = REDIRECT_URI.replace("suite.example", host)
        party = suite.register(subject_type=kind, redirect_uris=[uri])
        return str(party.sign_in(redirect_uri=uri).claims["sub"])

    hosts = {"public": 1, "pairwise": 2}
    for each in value:
        assert len({subject(each, host) for host in ("a.example", "b.example")}) == hosts[each]
    assert error_of(suite.registration(subject_type="unlisted")) == "invalid_client_metadata"


def id_token_algorithms(suite: Suite, value: list[str]) -> None:
    for each in value:
        token = suite.register(id_token_signed_response_alg=each).sign_in().tokens["id_token"]
        assert suite.opened(token)[0]["alg"] == each
    assert error_of(suite.registration(id_token_signed_response_alg="HS256")) == "invalid_client_metadata"


def userinfo_algorithms(suite: Suite, value: list[str]) -> None:
    for each in value:
        party = suite.register(userinfo_signed_response_alg=each)
        tokens = party.tokens_of(party.redeem(party.code()))
        answer = party.call(tokens)
        assert answer.headers["Content-Type"] == "application/jwt"
        header, claims = suite.opened(answer.text)
        assert (header["alg"], claims["aud"], claims["iss"]) == (each, party.client_id, suite.issuer)


def contexts(suite: Suite, value: list[str]) -> None:
    """Also the one with two factors, as a user with an authenticator app."""
    user, known = suite.make.user(suite.organization), suite.user
    phone = with_app(suite.server.app, user)
    suite.user = user
    try:
        for each in value:
            party = suite.register()
            party.second_factor = phone.code
            claims = json.dumps({"id_token": {"acr": {"essential": True, "values": [each]}}})
            assert party.sign_in(claims=claims, acr_values=each).claims["acr"] in value[value.index(each) :]
    finally:
        suite.user = known
    unlisted = json.dumps({"id_token": {"acr": {"essential": True, "values": ["unlisted"]}}})
    page = suite.register().visit(claims=unlisted)
    assert isinstance(page, Page) and "unmet_authentication_requirements" in page.text


def displays(suite: Suite, value: list[str]) -> None:
    for each in value:
        suite.register().sign_in(display=each)


def must_push(suite: Suite, value: bool) -> None:
    """Both values, the other one in another organization."""
    strict = Suite(suite.server, suite.site, {"oauth": OTHERWISE | {"require_par": True}})
    for each in (suite, strict):
        party = each.register()
        if each.metadata["require_pushed_authorization_requests"]:
            party.refused("invalid_request", prompt="none")
            pushed(each, "")
        else:
            party.sign_in()
    assert (value, strict.metadata["require_pushed_authorization_requests"]) == (False, True)


def authenticate(endpoint: str) -> Callable[[Suite, list[str]], None]:
    """Return the proof that each method authenticates a client at the endpoint."""

    def prove(suite: Suite, value: list[str]) -> None:
        for each in value:
            party = suite.register(token_endpoint_auth_method=each)
            party.pkce = each == "none"
            token = party.sign_in().tokens["access_token"]
            if endpoint != "token":
                assert call(party, f"{endpoint}_endpoint", token=token).status_code == 200
            if each != "none":
                party.method = "none"
                form = {"token": token} if endpoint != "token" else {"grant_type": "refresh_token"}
                assert error_of(call(party, f"{endpoint}_endpoint", **form)) == "invalid_client"
        unlisted = {"token_endpoint_auth_method": "client_secret_jwt"}
        assert error_of(suite.registration(**unlisted)) == "invalid_client_metadata"

    return prove


def sign_assertions(endpoint: str) -> Callable[[Suite, list[str]], None]:
    """Return the proof that assertions by each algorithm authenticate a client at the endpoint."""

    def prove(suite: Suite, value: list[str]) -> None:
        for each in value:
            party = with_key(suite, each, token_endpoint_auth_method="private_key_jwt")
            token = party.sign_in().tokens["access_token"]
            if endpoint != "token":
                assert call(party, f"{endpoint}_endpoint", token=token).status_code == 200
        symmetric = {"token_endpoint_auth_signing_alg": "HS256"}
        assert error_of(suite.registration(**symmetric)) == "invalid_client_metadata"

    return prove


def introspection_algorithms(suite: Suite, value: list[str]) -> None:
    for each in value:
        party = suite.register(introspection_signed_response_alg=each)
        token = party.sign_in().tokens["access_token"]
        headers, own = party.credentials()
        answer = suite.http.post(
            suite.metadata["introspection_endpoint"],
            data={"token": token} | own,
            headers=headers | {"Accept": "application/token-introspection+jwt"},
            timeout=30,
        )
        assert answer.headers["Content-Type"] == "application/token-introspection+jwt"
        header, claims = suite.opened(answer.text)
        assert header["alg"] == each and claims["token_introspection"]["active"] is True


def code_challenges(suite: Suite, value: list[str]) -> None:
    assert value == ["S256"]
    party = suite.register()
    party.pkce = True
    assert error_of(party.redeem(party.code(), code_verifier="x" * 43)) == "invalid_grant"
    party.sign_in()
    party.refused("invalid_request", prompt="none", code_challenge_method="plain")


def pkce_policy(suite: Suite, value: str) -> None:
    """Each policy in an organization of its own: who is refused without PKCE."""
    # With a nonce, without one, and a public client.
    refused = {
        "required": [True, True, True],
        "required_or_nonce": [False, True, True],
        "public_clients": [False, False, True],
    }
    assert value in refused
    for policy, expected in refused.items():
        other = Suite(suite.server, suite.site, {"oauth": OTHERWISE | {"pkce": policy}})
        assert other.metadata["pkce_policy"] == policy
        public = other.register(token_endpoint_auth_method="none")
        for is_refused, party, nonce in zip(
            expected,
            (other.register(), other.register(), public),
            ("n-0S6_WzA2Mj", None, "n-0S6_WzA2Mj"),
            strict=True,
        ):
            answer = party.visit(nonce=nonce)
            assert isinstance(answer, Callback) is not is_refused
            party.pkce = True
            party.sign_in(nonce=nonce)


def dpop_algorithms(suite: Suite, value: list[str]) -> None:
    url = suite.metadata["token_endpoint"]
    for each in (*value, "RS256"):
        prover, party = Prover(each), suite.register()
        form = {"grant_type": "authorization_code", "code": party.code(), "redirect_uri": REDIRECT_URI}
        headers = party.credentials()[0] | prover.headers("POST", url)
        answer = suite.http.post(url, data=form, headers=headers, timeout=30)
        if each not in value:
            assert error_of(answer) == "invalid_dpop_proof"
            continue
        tokens = answer.json()
        assert tokens["token_type"] == "DPoP"
        address = suite.metadata["userinfo_endpoint"]
        proof = prover.headers("GET", address, access_token=tokens["access_token"])
        assert party.call(tokens, headers=proof).status_code == 200
        assert party.call(tokens).status_code == 401, "not as a bearer token"


def claims(suite: Suite, value: list[str]) -> None:
    wanted = [name for name in value if name in PROFILE_CLAIMS]
    asked = json.dumps({place: dict.fromkeys(wanted) for place in ("userinfo", "id_token")})
    by_scope = {"groups", "roles"}
    scope = "openid profile email address phone groups roles"
    # A sid is only in ID tokens of clients that get logout tokens.
    uri = "https://suite.example/logout"
    party = suite.register(scope=scope, id_token_claims="full", backchannel_logout_uri=uri)
    signed_in = party.sign_in(claims=asked, scope="openid groups roles")
    assert set(party.userinfo(signed_in.tokens)) == {*wanted, *by_scope}
    assert set(value) <= set(signed_in.claims)


def claim_types(suite: Suite, value: list[str]) -> None:
    assert value == ["normal"]
    party = suite.register(scope="openid profile")
    told = party.userinfo(party.sign_in(scope="openid profile").tokens)
    assert not {"_claim_names", "_claim_sources"} & set(told)


def prompts(suite: Suite, value: list[str]) -> None:
    party = suite.register()
    shown = {
        "none": lambda: party.refused("login_required", prompt="none"),
        "create": lambda: _shows(party, "create", "register-submit"),
        "login": lambda: _presses(party, "login", "login-submit"),
        "consent": lambda: _presses(party, "consent", "consent-allow"),
        "select_account": lambda: _shows(party, "select_account", "account-continue"),
    }
    # In this order: the user signs in at the third.
    assert set(shown) == set(value)
    for prove in shown.values():
        prove()


def _shows(party: RelyingParty, prompt: str, button: str) -> None:
    page = party.visit(prompt=prompt)
    assert isinstance(page, Page) and page.has(button), page


def _presses(party: RelyingParty, prompt: str, button: str) -> None:
    party.sign_in(prompt=prompt)
    assert button in party.pressed


def issuer_in_responses(suite: Suite, value: bool) -> None:
    assert value is True
    party = suite.register()
    assert party.answered()["iss"] == party.answered(scope="unknown", prompt="none")["iss"] == suite.issuer


def claims_parameter(suite: Suite, value: bool) -> None:
    assert value is True
    party = suite.register()
    tokens = party.sign_in(claims=json.dumps({"userinfo": {"nickname": None}})).tokens
    assert set(party.userinfo(tokens)) == {"sub", "nickname"}


def request_objects(suite: Suite, value: list[str]) -> None:
    for each in value:
        party = with_key(suite, each)
        party.sent = party.request()
        signed = party.signer.request_object(party.sent, suite.issuer)
        sent = {name: party.sent[name] for name in ("client_id", "response_type", "scope")}
        callback = party.open(suite.metadata["authorization_endpoint"], sent | {"request": signed})
        assert isinstance(callback, Callback) and callback.parameters["state"] == party.sent["state"]
        party.tokens_of(party.redeem(callback.parameters["code"]))


def request_uris(suite: Suite, value: bool) -> None:
    assert value is False
    party = suite.register()
    party.refused("request_uri_not_supported", prompt="none", request_uri="https://suite.example/object.jwt")


def request_uri_registration(suite: Suite, value: bool) -> None:
    """A pushed request needs no registered ``request_uris``."""
    assert value is False
    pushed(suite, "")


def languages(suite: Suite, value: list[str]) -> None:
    address = suite.metadata["authorization_endpoint"]
    for each in value:
        party = suite.register()
        url = requests.Request("GET", address, params=party.request(ui_locales=each)).prepare().url
        assert f'lang="{each}"' in party.browser.visit(str(url)).text


PROOFS: dict[str, Callable[[Suite, Any], None]] = {
    **ENDPOINTS,
    "scopes_supported": scopes,
    "response_types_supported": response_types,
    "response_modes_supported": response_modes,
    "subject_types_supported": subject_types,
    "id_token_signing_alg_values_supported": id_token_algorithms,
    "userinfo_signing_alg_values_supported": userinfo_algorithms,
    "acr_values_supported": contexts,
    "display_values_supported": displays,
    "require_pushed_authorization_requests": must_push,
    **{
        f"{name}_endpoint_auth_methods_supported": authenticate(name)
        for name in ("token", "introspection", "revocation")
    },
    **{
        f"{name}_endpoint_auth_signing_alg_values_supported": sign_assertions(name)
        for name in ("token", "introspection", "revocation")
    },
    "introspection_signing_alg_values_supported": introspection_algorithms,
    "code_challenge_methods_supported": code_challenges,
    "pkce_policy": pkce_policy,
    "dpop_signing_alg_values_supported": dpop_algorithms,
    "claims_supported": claims,
    "claim_types_supported": claim_types,
    "prompt_values_supported": prompts,
    "authorization_response_iss_parameter_supported": issuer_in_responses,
    "claims_parameter_supported": claims_parameter,
    "request_parameter_supported": lambda suite, _: request_objects(suite, ["ES256"]),
    "request_object_signing_alg_values_supported": request_objects,
    "request_uri_parameter_supported": request_uris,
    "require_request_uri_registration": request_uri_registration,
    "ui_locales_supported": languages,
}


@pytest.mark.parametrize("field", PROOFS)
def test_field_of_the_metadata_is_honored(offer: Suite, field: str) -> None:
    PROOFS[field](offer, offer.metadata[field])


def test_every_field_has_a_proof(offer: Suite) -> None:
    """Also in an organization with the defaults, whose fields are no others."""
    assert set(offer.metadata) == set(PROOFS)
    plain = Suite(offer.server, offer.site, {})
    assert set(plain.metadata) <= set(PROOFS)


@pytest.mark.parametrize("kind", [OpenIDProviderMetadata, AuthorizationServerMetadata])
def test_metadata_is_valid_according_to_the_standards(offer: Suite, kind: Any) -> None:
    kind(offer.metadata).validate()


def test_metadata_of_the_management_api_is_honored(offer: Suite) -> None:
    """RFC 9728: each field, found through the challenge of a request without a token."""
    base = offer.server.url
    refused = offer.http.get(f"{base}/clients", timeout=30)
    assert refused.status_code == 401
    url = refused.headers["WWW-Authenticate"].partition('resource_metadata="')[2].partition('"')[0]
    told = offer.http.get(url, timeout=30).json()
    assert set(told) == {
        *("resource", "resource_name", "authorization_servers", "scopes_supported"),
        *("bearer_methods_supported", "dpop_signing_alg_values_supported"),
    }
    assert urlsplit(url).path.endswith(urlsplit(told["resource"]).path) and told["resource_name"]
    [server] = told["authorization_servers"]
    endpoint = offer.http.get(url_of(server), timeout=30).json()["token_endpoint"]
    root = offer.make.root()
    client = offer.make.machine(root, *told["scopes_supported"])
    form = {"grant_type": "client_credentials", "scope": " ".join(told["scopes_supported"])}
    form |= {"resource": told["resource"]}

    def token(**headers: str) -> dict[str, Any]:
        answer = offer.http.post(endpoint, data=form, headers=client.basic | headers, timeout=30)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    granted = token()
    assert set(granted["scope"].split()) == set(told["scopes_supported"])
    address, bearer = f"{base}/organizations", f"Bearer {granted['access_token']}"
    assert told["bearer_methods_supported"] == ["header"]
    assert offer.http.get(address, headers={"Authorization": bearer}, timeout=30).status_code == 200
    in_query = {"access_token": granted["access_token"]}
    assert offer.http.get(address, params=in_query, timeout=30).status_code in {400, 401}
    for algorithm in told["dpop_signing_alg_values_supported"]:
        prover = Prover(algorithm)
        bound = token(**prover.headers("POST", endpoint))["access_token"]
        proof = prover.headers("GET", address, access_token=bound)
        assert offer.http.get(address, headers=proof, timeout=30).status_code == 200
