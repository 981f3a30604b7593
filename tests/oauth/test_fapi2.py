"""The FAPI 2.0 Security Profile: what a client of the profile must do and what it gets."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from app.operations.directory import lookups
from app.operations.organizations.settings import update_settings
from tests.factories import Factory
from tests.oauth.conftest import FAST_KEYS, REDIRECT_URI, SCOPES, VERIFIER, Flow, query_of
from tests.support.dpop import Prover
from tests.support.signer import Signer

pytestmark = pytest.mark.either

TOKEN_URL = "http://localhost/oauth/token"


class Bank(Flow):
    """A client of the profile with its signing key and its DPoP key."""

    signer: Signer
    prover: Prover

    def send(self, path: str, form: dict[str, str], **proof: Any) -> TestResponse:
        """Send a request with an assertion and a proof."""
        sent = form | self.signer.fields(self.client.client_id, self.issuer)
        return self.http.post(
            path, data=sent, headers=self.prover.headers("POST", f"http://localhost{path}", **proof)
        )

    def retried(self, path: str, form: dict[str, str]) -> TestResponse:
        """Send a request, and again with the nonce if the server requires one."""
        answer = self.send(path, form)
        if answer.status_code == 400 and answer.get_json()["error"] == "use_dpop_nonce":
            answer = self.send(path, form, nonce=answer.headers["DPoP-Nonce"])
        return answer

    def pushed(self, **changes: str | None) -> str:
        """Return the request_uri of a pushed request."""
        answer = self.retried("/oauth/par", self.parameters(**changes))
        assert answer.status_code == 201, answer.text
        return str(answer.get_json()["request_uri"])

    def pushed_code(self) -> str:
        """Return the code of a pushed request."""
        uri = self.pushed(scope=" ".join(SCOPES))
        return query_of(self.visit(uri))["code"]

    def visit(self, uri: str) -> TestResponse:
        """Open the request_uri in the browser and return the response."""
        asked = {"client_id": self.client.client_id, "request_uri": uri}
        return self.http.get("/oauth/authorize", query_string=asked)

    def redemption(self, code: str) -> dict[str, str]:
        """Return the form that redeems the code."""
        form = {"grant_type": "authorization_code", "code": code, "code_verifier": VERIFIER}
        return form | {"redirect_uri": REDIRECT_URI}


@pytest.fixture
def bank(app: Flask, http: FlaskClient, make: Factory, organization: lookups.OrganizationSnapshot) -> Bank:
    """A first-party client of the profile with a signed-in user."""
    signer = Signer()
    client = make.client(
        organization,
        scopes=SCOPES,
        trust="first_party",
        redirect_uris=[REDIRECT_URI],
        security_profile="fapi2",
        access_token_format="jwt",
        jwks=signer.jwks,
    )
    bank = Bank(app, http, make, client, make.user(organization))
    bank.signer, bank.prover = signer, Prover()
    bank.sign_in()
    return bank


def header_of(jwt: str) -> dict[str, Any]:
    encoded = jwt.split(".")[0]
    return dict(json.loads(urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))))


def test_complete_flow_succeeds(bank: Bank) -> None:
    """Pushed, bound, not signed with RS256, and refreshed without rotation."""
    answer = bank.retried("/oauth/token", bank.redemption(bank.pushed_code()))
    tokens = answer.get_json()
    assert (answer.status_code, tokens["token_type"]) == (200, "DPoP"), answer.text
    assert {header_of(tokens[name])["alg"] for name in ("id_token", "access_token")} == {"ES256"}
    form = {"grant_type": "refresh_token", "refresh_token": tokens["refresh_token"]}
    for _ in range(2):
        renewed = bank.retried("/oauth/token", form)
        assert renewed.status_code == 200, renewed.text
        assert (
            "refresh_token" not in renewed.get_json()
            or renewed.get_json()["refresh_token"] == form["refresh_token"]
        )


def test_profile_client_never_gets_rs256(app: Flask, http: FlaskClient, make: Factory) -> None:
    """FAPI 2.0 Security Profile section 5.4.1, also where the organization signs with RS256."""
    organization, signer, prover = make.organization(), Signer(), Prover()
    client = make.machine(
        organization, "reports:read", security_profile="fapi2", access_token_format="jwt", jwks=signer.jwks
    )
    nonce = None
    for _ in range(2):
        form = {"grant_type": "client_credentials"} | signer.fields(client.client_id, organization.issuer)
        answer = http.post("/oauth/token", data=form, headers=prover.headers("POST", TOKEN_URL, nonce=nonce))
        nonce = answer.headers["DPoP-Nonce"]
    assert header_of(answer.get_json()["access_token"])["alg"] == "PS256"


def test_request_that_was_not_pushed_is_rejected(bank: Bank) -> None:
    """FAPI 2.0 Security Profile section 5.3.2.2; reported to the client, with ``iss``."""
    answer = query_of(bank.authorize())
    assert (answer["error"], answer["iss"]) == ("invalid_request", bank.issuer)


def test_missing_proof_is_rejected(bank: Bank) -> None:
    form = bank.redemption(bank.pushed_code()) | bank.signer.fields(bank.client.client_id, bank.issuer)
    answer = bank.http.post("/oauth/token", data=form)
    assert (answer.status_code, answer.get_json()["error"]) == (400, "invalid_request")


def test_precomputed_proof_is_rejected(bank: Bank) -> None:
    """It must contain a server nonce, at resources too."""
    code = bank.pushed_code()
    assert bank.send("/oauth/token", bank.redemption(code)).get_json()["error"] == "use_dpop_nonce"
    token = bank.retried("/oauth/token", bank.redemption(code)).get_json()["access_token"]
    url = "http://localhost/oauth/userinfo"
    refused = bank.http.get("/oauth/userinfo", headers=bank.prover.headers("GET", url, access_token=token))
    assert refused.status_code == 401 and 'error="use_dpop_nonce"' in refused.headers["WWW-Authenticate"]
    nonce = refused.headers["DPoP-Nonce"]
    good = bank.prover.headers("GET", url, access_token=token, nonce=nonce)
    assert bank.http.get("/oauth/userinfo", headers=good).status_code == 200


def test_code_is_bound_to_the_key_of_the_pushed_request(bank: Bank) -> None:
    """RFC 9449 section 10.1."""
    code, own = bank.pushed_code(), bank.prover
    bank.prover = Prover()
    assert bank.retried("/oauth/token", bank.redemption(code)).get_json()["error"] == "invalid_grant"
    bank.prover = own
    assert bank.retried("/oauth/token", bank.redemption(code)).status_code == 200


def test_token_endpoint_is_not_a_valid_audience(bank: Bank) -> None:
    """FAPI 2.0 Security Profile section 5.3.2.1: only the issuer, as a string."""
    for audience in (f"{bank.issuer}/oauth/token", [bank.issuer]):
        form = bank.redemption("x") | bank.signer.fields(bank.client.client_id, audience)
        answer = bank.http.post("/oauth/token", data=form, headers=bank.prover.headers("POST", TOKEN_URL))
        assert answer.get_json()["error"] == "invalid_client"


@pytest.mark.slow
def test_key_that_the_profile_implies_is_published_before_it_signs(
    app: Flask, http: FlaskClient, make: Factory
) -> None:
    """KY-1: at registration, and when the organization changes to an algorithm that the profile excludes."""

    def published(organization: lookups.OrganizationSnapshot) -> set[str]:
        keys = http.get(f"/organizations/{organization.slug}/oauth/jwks").get_json()["keys"]
        return {key["alg"] for key in keys}

    fields = {"security_profile": "fapi2", "jwks": Signer().jwks, "redirect_uris": [REDIRECT_URI]}
    registered_late, changed_late = make.organization(), make.organization(settings=FAST_KEYS)
    for organization in (registered_late, changed_late):
        make.client(organization, **fields)
    assert published(registered_late) == {"RS256", "PS256"}
    assert published(changed_late) == {"ES256"}
    with app.app_context():
        change = {"oauth": {"signing": {"algorithm": "RS256"}}}
        update_settings(make.system(changed_late), changed_late.slug, change)
    assert published(changed_late) == {"ES256", "RS256", "PS256"}
