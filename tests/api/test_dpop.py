"""Bound access tokens at the management API, and callers whose sign-in is too old (RFC 9449, RFC 9470)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient
from sqlalchemy import update
from werkzeug.test import TestResponse

from app.extensions import db
from app.models.grant import Grant
from app.operations.store import clock
from app.operations.store.transactions import transaction
from app.rules.clients.dpop import ALGORITHMS
from tests.factories import Factory, MadeClient, bearer_header
from tests.support.dpop import Prover
from tests.support.user_tokens import user_token

URL = "http://localhost/clients"


@pytest.fixture
def machine(make: Factory) -> MadeClient:
    return make.machine(make.organization(), "clients:read")


@pytest.fixture
def token(http: FlaskClient, machine: MadeClient, prover: Prover) -> str:
    """Return a management token that is bound to the prover's key."""
    headers = machine.basic | prover.headers("POST", "http://localhost/oauth/token")
    answer = http.post("/oauth/token", data={"grant_type": "client_credentials"}, headers=headers)
    assert answer.get_json()["token_type"] == "DPoP"
    return str(answer.get_json()["access_token"])


def refused_as(answer: TestResponse, error: str) -> str:
    """Return the challenge of a 401 response in the envelope."""
    assert answer.status_code == 401, answer.text
    body = answer.get_json()
    assert (body["success"], body["error"]) == (False, error), body
    assert f'error="{error}"' in answer.headers["WWW-Authenticate"]
    return answer.headers["WWW-Authenticate"]


def test_challenge_offers_dpop(http: FlaskClient, make: Factory) -> None:
    """RFC 9728 section 2, RFC 9449 section 7.1: an app finds out before it requests a token."""
    make.root()
    document = http.get("/.well-known/oauth-protected-resource/management").get_json()
    assert document["dpop_signing_alg_values_supported"] == list(ALGORITHMS)


def test_bound_token_is_accepted_with_proof(http: FlaskClient, prover: Prover, token: str) -> None:
    """The query string is not part of the proof (DC-6)."""
    answer = http.get("/clients?limit=5", headers=prover.headers("GET", URL, access_token=token))
    assert answer.status_code == 200, answer.text
    assert answer.headers["DPoP-Nonce"]


def test_bound_token_as_bearer_is_unauthorized(http: FlaskClient, prover: Prover, token: str) -> None:
    """DC-6."""
    challenge = refused_as(http.get("/clients", headers=bearer_header(token)), "invalid_token")
    assert challenge.startswith('Bearer realm="http://localhost/management"')
    both = prover.headers("GET", URL, access_token=token) | bearer_header(token)
    refused_as(http.get("/clients", headers=both), "invalid_token")


def test_unbound_token_as_dpop_is_unauthorized(http: FlaskClient, make: Factory, prover: Prover) -> None:
    token = make.bearer(make.organization(), "clients:read")
    answer = http.get("/clients", headers=prover.headers("GET", URL, access_token=token))
    assert refused_as(answer, "invalid_token").startswith("DPoP ")


@pytest.mark.parametrize(
    "changes",
    [
        {"ath": "wrong"},
        {"htm": "DELETE"},
        {"htu": "http://localhost/organizations"},
        {"jti": None},
        {"iat": 1},
    ],
    ids=str,
)
def test_invalid_proof_is_unauthorized(
    http: FlaskClient, prover: Prover, token: str, changes: dict[str, Any]
) -> None:
    answer = http.get("/clients", headers=prover.headers("GET", URL, access_token=token, **changes))
    challenge = refused_as(answer, "invalid_dpop_proof")
    assert challenge.startswith('DPoP realm="http://localhost/management"') and 'algs="ES256 ' in challenge


def test_proof_with_another_key_is_unauthorized(http: FlaskClient, token: str) -> None:
    answer = http.get("/clients", headers=Prover().headers("GET", URL, access_token=token))
    refused_as(answer, "invalid_token")


def test_two_proofs_are_unauthorized(http: FlaskClient, prover: Prover, token: str) -> None:
    proofs = [("DPoP", prover.proof("GET", URL, access_token=token)) for _ in range(2)]
    answer = http.get("/clients", headers=[("Authorization", f"DPoP {token}"), *proofs])
    refused_as(answer, "invalid_dpop_proof")


def test_proof_cannot_be_replayed(http: FlaskClient, prover: Prover, token: str) -> None:
    headers = prover.headers("GET", URL, access_token=token)
    assert http.get("/clients", headers=headers).status_code == 200
    refused_as(http.get("/clients", headers=headers), "invalid_dpop_proof")


def test_stale_nonce_returns_fresh_nonce(http: FlaskClient, prover: Prover, token: str) -> None:
    headers = prover.headers("GET", URL, access_token=token, nonce="old")
    answer = http.get("/clients", headers=headers)
    refused_as(answer, "use_dpop_nonce")
    nonce = answer.headers["DPoP-Nonce"]
    again = http.get("/clients", headers=prover.headers("GET", URL, access_token=token, nonce=nonce))
    assert again.status_code == 200


def test_forbidden_dpop_request_gets_dpop_challenge(http: FlaskClient, prover: Prover, token: str) -> None:
    url = "http://localhost/organizations"
    answer = http.get("/organizations", headers=prover.headers("GET", url, access_token=token))
    assert answer.status_code == 403
    challenge = answer.headers["WWW-Authenticate"]
    assert challenge.startswith('DPoP realm="http://localhost/management"')
    assert 'error="insufficient_scope"' in challenge


def test_old_sign_in_gets_step_up_challenge(
    app: Flask, http: FlaskClient, make: Factory, machine: MadeClient
) -> None:
    """RFC 9470: an app asks the user to sign in again with this max_age. A machine client cannot sign in again."""
    organization = machine.organization
    headers = bearer_header(user_token(app, make, make.user(organization, role="admin")))
    path = f"/clients/{machine.client_id}/credentials"
    assert http.post(path, json={"name": "fresh"}, headers=headers).status_code == 201
    sign_in_was(app, minutes_ago=11)
    answer = http.post(path, json={"name": "stale"}, headers=headers)
    challenge = refused_as(answer, "insufficient_user_authentication")
    assert 'max_age="600"' in challenge
    own = bearer_header(make.bearer(organization, "clients:read", "credentials:write"))
    assert http.post(path, json={"name": "by a machine"}, headers=own).status_code == 201


def sign_in_was(app: Flask, minutes_ago: int) -> None:
    @transaction
    def move() -> None:
        db.session.execute(update(Grant).values(auth_time=clock.now() - timedelta(minutes=minutes_ago)))

    with app.app_context():
        move()
