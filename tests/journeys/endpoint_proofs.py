"""Proofs that the endpoints of an organization's metadata do what their fields promise.

Those of other fields are in ``test_discovery``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import requests

from app.operations.clients.resources import define_resource
from app.operations.tokens.access_tokens import unverified_claims
from app.rules.organizations.settings_table import TOKEN_EXCHANGE
from tests.journeys.certification import POST_LOGOUT_URI, REDIRECT_URI, Callback, RelyingParty, Suite
from tests.support.back_channel import set_client_urls
from tests.support.form_browser import Page

API = "https://orders.example"
_DEVICE = "urn:ietf:params:oauth:grant-type:device_code"
_ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"
REFRESHING = {"grant_types": ["authorization_code", "refresh_token"]}


def url_of(issuer: str, kind: str = "openid-configuration") -> str:
    return f"{issuer}/.well-known/{kind}"


def error_of(answer: requests.Response) -> str:
    """Return the error code of a refusal."""
    assert answer.status_code in {400, 401}, answer.text
    return str(answer.json()["error"])


def call(party: RelyingParty, endpoint: str, **form: str) -> requests.Response:
    """Post the form to an endpoint as the client."""
    headers, own = party.credentials()
    url = party.suite.metadata[endpoint]
    return party.suite.http.post(url, data=form | own, headers=headers, timeout=30)


def is_active(party: RelyingParty, token: str) -> bool:
    """Return whether introspection calls the token active."""
    answer = call(party, "introspection_endpoint", token=token)
    assert answer.status_code == 200, answer.text
    return bool(answer.json()["active"])


def signs_in(suite: Suite, _value: Any) -> None:
    """The code flow uses the endpoint; ``sign_in`` verifies the ID token by the keys and calls userinfo."""
    suite.register().sign_in()


def issuer(suite: Suite, value: str) -> None:
    base, path = suite.server.url, urlsplit(value).path
    documents = [
        suite.http.get(url, timeout=30).json()
        for kind in ("openid-configuration", "oauth-authorization-server")
        for url in (url_of(value, kind), f"{url_of(base, kind)}{path}")
    ]
    assert documents == [suite.metadata] * 4
    for kind in ("openid-configuration", "oauth-authorization-server"):
        assert suite.http.get(url_of(base, kind), timeout=30).json()["issuer"] == base
    assert suite.register().sign_in().claims["iss"] == value


def introspection(suite: Suite, _value: str) -> None:
    party = suite.register()
    tokens = party.sign_in().tokens
    assert is_active(party, tokens["access_token"]) and not is_active(party, "unknown")


def revocation(suite: Suite, _value: str) -> None:
    party = suite.register()
    token = party.sign_in().tokens["access_token"]
    assert call(party, "revocation_endpoint", token=token).status_code == 200
    assert not is_active(party, token)


def end_session(suite: Suite, url: str) -> None:
    party = suite.register(post_logout_redirect_uris=[POST_LOGOUT_URI])
    hint = party.sign_in().tokens["id_token"]
    sent = {"id_token_hint": hint, "post_logout_redirect_uri": POST_LOGOUT_URI, "state": "out"}
    assert party.open(url, sent) == Callback("GET", {"state": "out"})
    party.refused("login_required", prompt="none")


def back_channel_logout(suite: Suite, value: bool) -> None:
    assert value is True
    party = suite.register(
        backchannel_logout_uri="https://suite.example/logout", post_logout_redirect_uris=[POST_LOGOUT_URI]
    )
    path = f"/told/{party.client_id}"
    set_client_urls(suite.server.app, party.client_id, backchannel_logout_uri=suite.site.address(path))
    signed_in = party.sign_in()
    party.open(suite.metadata["end_session_endpoint"], {"id_token_hint": signed_in.tokens["id_token"]})
    _, told = suite.opened(parse_qs(suite.site.posted(path))["logout_token"][0])
    assert {name: told[name] for name in ("sub", "sid")} == {
        name: signed_in.claims[name] for name in ("sub", "sid")
    }


def device(suite: Suite, url: str) -> None:
    party = suite.register(grant_types=[_DEVICE], redirect_uris=None, response_types=None)
    asked = call(party, "device_authorization_endpoint", scope="openid").json()
    form = {"grant_type": _DEVICE, "device_code": asked["device_code"]}
    assert error_of(party.token_request(**form)) in {"authorization_pending", "slow_down"}
    page = party.open(asked["verification_uri_complete"], {})
    assert isinstance(page, Page) and page.has("device-allowed")
    answer, deadline = party.token_request(**form), time.monotonic() + 60
    while answer.status_code == 400 and answer.json()["error"] == "slow_down":
        assert time.monotonic() < deadline
        time.sleep(asked["interval"])
        answer = party.token_request(**form)
    party.userinfo(party.tokens_of(answer))


def by_refresh(suite: Suite) -> None:
    party = suite.register(**REFRESHING)
    first = party.sign_in(scope="openid offline_access").tokens
    form = {"grant_type": "refresh_token", "refresh_token": first["refresh_token"]}
    party.userinfo(party.tokens_of(party.token_request(**form)))


def machine(suite: Suite, **fields: Any) -> RelyingParty:
    """Return a client without users, which only an administrator can register."""
    grants = {"type": "machine", "redirect_uris": [], "scopes": ["orders:read"]}
    return suite.configure(**(grants | {"grant_types": ["client_credentials"]} | fields))


def by_client_credentials(suite: Suite) -> None:
    party = machine(suite)
    token = party.tokens_of(party.token_request(grant_type="client_credentials"))["access_token"]
    assert is_active(party, token)


def by_exchange(suite: Suite) -> None:
    owner = suite.register(scope="openid orders:read")
    token = owner.sign_in(scope="openid orders:read", resource=API).tokens["access_token"]
    fields = {"resources": [API], "token_exchange": "delegation"}
    api = machine(suite, name="Orders API", grant_types=["client_credentials", TOKEN_EXCHANGE], **fields)
    form = {"subject_token": token, "subject_token_type": _ACCESS_TOKEN, "scope": "orders:read"}
    answer = api.token_request(grant_type=TOKEN_EXCHANGE, **form)
    assert api.tokens_of(answer)["issued_token_type"] == _ACCESS_TOKEN


GRANTS: dict[str, Callable[[Suite], None]] = {
    "authorization_code": lambda suite: signs_in(suite, None),
    "refresh_token": by_refresh,
    "client_credentials": by_client_credentials,
    _DEVICE: lambda suite: device(suite, ""),
    TOKEN_EXCHANGE: by_exchange,
}


def grant_types(suite: Suite, value: list[str]) -> None:
    for each in value:
        GRANTS[each](suite)
    assert error_of(suite.register().token_request(grant_type="password")) == "unsupported_grant_type"


def pushed(suite: Suite, _value: str) -> None:
    party = suite.register()
    party.sent = party.request()
    answer = call(party, "pushed_authorization_request_endpoint", **party.sent)
    assert answer.status_code == 201, answer.text
    asked = {"client_id": party.client_id, "request_uri": answer.json()["request_uri"]}
    callback = party.open(suite.metadata["authorization_endpoint"], asked)
    assert isinstance(callback, Callback)
    party.tokens_of(party.redeem(callback.parameters["code"]))


def metadata_documents(suite: Suite, value: bool) -> None:
    assert value is True
    address = suite.site.address("/offer.json")
    document = {"client_id": address, "client_name": "Offer", "redirect_uris": [REDIRECT_URI]}
    suite.site.publish("/offer.json", document | {"token_endpoint_auth_method": "none"})
    RelyingParty(suite, address, None, "none", pkce=True).sign_in()


def lists_of_status_lists(suite: Suite, url: str) -> None:
    fields = {"access_token_format": "jwt", "access_token_storage": "status_list"}
    with suite.server.app.app_context():
        define_resource(
            suite.make.actor(suite.organization),
            {
                "identifier": "https://listed.example",
                "name": "Listed",
                "scopes": [{"name": "listed:read"}],
                **fields,
            },
        )
    client = suite.make.machine(suite.organization, "listed:read")
    answer = suite.http.post(
        suite.metadata["token_endpoint"],
        data={"grant_type": "client_credentials"},
        headers=client.basic,
        timeout=30,
    )
    claims = unverified_claims(answer.json()["access_token"])
    assert claims["status"]["status_list"]["uri"] in suite.http.get(url, timeout=30).json()["status_lists"]


ENDPOINTS: dict[str, Callable[[Suite, Any], None]] = {
    "issuer": issuer,
    "authorization_endpoint": signs_in,
    "token_endpoint": signs_in,
    "userinfo_endpoint": signs_in,
    "jwks_uri": signs_in,
    "registration_endpoint": signs_in,
    "introspection_endpoint": introspection,
    "revocation_endpoint": revocation,
    "end_session_endpoint": end_session,
    "backchannel_logout_supported": back_channel_logout,
    "backchannel_logout_session_supported": back_channel_logout,
    "device_authorization_endpoint": device,
    "grant_types_supported": grant_types,
    "pushed_authorization_request_endpoint": pushed,
    "client_id_metadata_document_supported": metadata_documents,
    "status_list_aggregation_endpoint": lists_of_status_lists,
}
