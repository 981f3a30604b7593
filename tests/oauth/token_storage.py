"""An API for each way to store tokens, with a token of a user and one of a client."""

from __future__ import annotations

import json
import time
import zlib
from base64 import urlsafe_b64decode
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient
from joserfc import jwt
from joserfc.jwk import KeySet

from app.extensions import db
from app.operations.clients import access_decisions, resources
from app.operations.maintenance import restore
from app.operations.tokens import published_status_lists
from app.rules.actor import Actor
from app.rules.tokens.status_lists import SIZE
from tests.factories import Factory, MadeClient
from tests.oauth.conftest import REDIRECT_URI, Flow

API = "https://api.example"
EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
SETTINGS = {
    "oauth": {
        "signing": {"algorithm": "ES256"},
        "access_token": {"allow_unstored": True},
        "refresh_token": {"reuse_grace_seconds": 0},
        "grant_types": ["authorization_code", "refresh_token", "client_credentials", EXCHANGE],
    }
}


@dataclass
class Case:
    """An organization whose API keeps its tokens in one way, a client with a user, and the API's own client."""

    flow: Flow
    storage: str
    machine: MadeClient
    api: MadeClient
    api_id: str
    user_token: str = ""
    refresh_token: str = ""
    code: str = ""

    @property
    def admin(self) -> Actor:
        """An administrator."""
        return self.flow.make.actor(self.flow.organization)

    def issue_to_user(self, **changes: str | None) -> str:
        """Return a token that the user allowed."""
        self.code = self.flow.code(**({"scope": "read offline_access", "resource": API} | changes))
        answer = self.flow.redeem(self.code)
        assert answer.status_code == 200, answer.text
        self.refresh_token = answer.get_json().get("refresh_token", "")
        return str(answer.get_json()["access_token"])

    def issue_to_client(self, **form: str) -> str:
        """Return a token that the machine got for itself."""
        answer = self.flow.token(self.machine.basic, grant_type="client_credentials", **form)
        assert answer.status_code == 200, answer.text
        return str(answer.get_json()["access_token"])

    def introspect(self, token: str) -> Any:
        """Return what the API learns of the token."""
        return self.flow.http.post("/oauth/introspect", data={"token": token}, headers=self.api.basic)

    def is_alive(self, token: str) -> bool:
        """Return whether introspection and, for a listed token, its status list say that it is valid."""
        answer = self.introspect(token)
        is_active = answer.status_code == 200 and answer.get_json()["active"]
        status = claims_of(token).get("status")
        assert (status is not None) == (self.storage == "status_list")
        if status is not None:
            assert is_revoked(self.flow, status["status_list"]) is not is_active
        return bool(is_active)

    def rows(self, model: Any) -> int:
        """Return how many rows the organization has in a table."""
        with self.flow.app.app_context():
            return db.session.query(model).filter_by(organization_id=self.flow.organization.id).count()


def claims_of(token: str) -> dict[str, Any]:
    payload = token.split(".")[1]
    return dict(json.loads(urlsafe_b64decode(payload + "=" * (-len(payload) % 4))))


def read_list(flow: Flow, uri: str, *, now: bool = True) -> dict[str, Any]:
    """Return the verified claims of a status list, as an API reads it; ``now`` does not wait until it is renewed."""
    if now:
        published_status_lists._signed.clear()
    answer = flow.http.get(uri.removeprefix("http://localhost"))
    assert answer.status_code == 200 and answer.mimetype == "application/statuslist+jwt", answer.text
    keys = KeySet.import_key_set(flow.http.get(f"{flow.issuer}/oauth/jwks").get_json())
    decoded = jwt.decode(answer.text, keys, algorithms=["ES256"])
    assert decoded.header["typ"] == "statuslist+jwt" and decoded.claims["sub"] == uri
    assert decoded.claims["exp"] > time.time()
    return dict(decoded.claims)


def is_revoked(flow: Flow, reference: dict[str, Any]) -> bool:
    """Return the token's bit (section 4.1)."""
    found = read_list(flow, reference["uri"])["status_list"]
    assert found["bits"] == 1
    lst = zlib.decompress(urlsafe_b64decode(found["lst"] + "=" * (-len(found["lst"]) % 4)))
    assert len(lst) * 8 == SIZE
    return bool(lst[reference["idx"] // 8] >> reference["idx"] % 8 & 1)


@pytest.fixture
def make_case(app: Flask, http: FlaskClient, make: Factory) -> Callable[..., Case]:
    def build(storage: str, **api: Any) -> Case:
        organization = make.organization(settings=SETTINGS)
        fields = {
            "identifier": API,
            "name": "API",
            "scopes": [{"name": "read"}],
            "access_token_format": "jwt",
            "access_token_storage": storage,
            **api,
        }
        with app.app_context():
            api_id = resources.define_resource(make.actor(organization), fields).public_id
        client = make.client(
            organization, scopes=["openid", "read", "offline_access"], redirect_uris=[REDIRECT_URI]
        )
        flow = Flow(app, http, make, client, make.user(organization))
        flow.sign_in()
        own = make.machine(organization, name="API", scopes=[], resources=[API])
        return Case(flow, storage, make.machine(organization, "read"), own, api_id)

    return build


def revoke_by_form(case: Case, token: str, client: MadeClient) -> None:
    answer = case.flow.http.post("/oauth/revoke", data={"token": token}, headers=client.basic)
    assert answer.status_code == 200, answer.text


def restore_backup(case: Case) -> None:
    case.flow.make.root()
    restore.invalidate_restored_state(block_secrets=False, reset_passwords=False)


def make_exchanger(case: Case) -> MadeClient:
    grant = {"grant_types": [EXCHANGE], "token_exchange": "delegation"}
    exchanger = case.flow.make.machine(case.flow.organization, "read", resources=[API], **grant)
    with case.flow.app.app_context():
        access_decisions.give_access(case.admin, case.api_id, exchanger.client_id, {"scopes": ["read"]})
    return exchanger


def exchange(case: Case, exchanger: MadeClient, subject: str) -> str:
    kind = "urn:ietf:params:oauth:token-type:access_token"
    answer = case.flow.token(
        exchanger.basic, grant_type=EXCHANGE, subject_token=subject, subject_token_type=kind
    )
    assert answer.status_code == 200, answer.text
    return str(answer.get_json()["access_token"])
