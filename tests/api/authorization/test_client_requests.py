"""Requests for clients, and consents."""

from __future__ import annotations

from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

from app.operations.authorization.approval_requests import create_client_request
from app.operations.authorization.consents import store_consent
from app.operations.directory import lookups
from app.operations.sign_in.sessions import find_session
from app.operations.store.transactions import transaction
from tests.factories import Factory, MadeClient, MadeUser, bearer_header


class Place:
    """An organization whose member requests a client, and a token with every permission."""

    def __init__(self, app: Flask, http: FlaskClient, make: Factory) -> None:
        self.app, self.http, self.make = app, http, make
        self.organization = make.organization()
        self.client: MadeClient = make.client(self.organization)
        self.user: MadeUser = make.user(self.organization)
        self.headers = bearer_header(make.bearer(self.organization))

    def ask(self, user: MadeUser | None = None, reason: str = "For work") -> None:
        with self.app.app_context():
            view = lookups.find_client(self.client.client_id, fresh=True)
            assert view is not None
            actor = self.make.actor(self.organization, "users:read", user=user or self.user)
            create_client_request(actor, view, ("openid",), reason)

    def allow(self, user: MadeUser | None = None) -> None:
        with self.app.app_context():
            view = lookups.find_client(self.client.client_id, fresh=True)
            session = find_session(self.make.sign_in(user or self.user).token)
            assert view is not None and session is not None
            transaction(store_consent)(session.actor(), view, session.user_id, ("openid", "email"))

    def call(self, method: str, path: str, body: Any = None, token: str | None = None, **query: str) -> Any:
        headers = bearer_header(token) if token else self.headers
        return self.http.open(path, method=method, json=body, query_string=query, headers=headers)


@pytest.fixture
def place(app: Flask, http: FlaskClient, make: Factory) -> Place:
    return Place(app, http, make)


def test_request_is_listed_and_approved(place: Place) -> None:
    place.ask()
    [waiting] = place.call("GET", "/client-requests", status="open").get_json()["data"]
    stale = place.call("POST", f"/client-requests/{waiting['id']}/approve", {"client_version": 99})
    assert stale.status_code == 409 and "Review it again" in stale.get_json()["error_msg"]
    assert (waiting["user_email"], waiting["client_trust"]) == (place.user.email, "unverified")
    path = f"/client-requests/{waiting['id']}"
    assert place.call("GET", path).get_json()["data"] == waiting
    approved = place.call("POST", f"{path}/approve", {"verified": True})
    assert approved.status_code == 200 and approved.get_json()["data"]["status"] == "approved"
    client = place.call("GET", f"/clients/{place.client.client_id}").get_json()["data"]
    assert (client["approval"], client["trust"]) == ("allowed", "verified")
    again = place.call("POST", f"{path}/approve", {})
    assert (again.status_code, again.get_json()["error"]) == (409, "already_decided")
    assert place.call("GET", "/client-requests", status="open").get_json()["data"] == []


def test_request_contains_redirect_hosts_of_client(place: Place) -> None:
    place.ask()
    [request] = place.call("GET", "/client-requests").get_json()["data"]
    assert request["redirect_hosts"] == ["orchard.example"]
    assert (request["client_uri"], request["client_source"]) == (None, "person")


def test_decision_repeated_with_idempotency_key_is_made_once(place: Place) -> None:
    place.ask()
    [waiting] = place.call("GET", "/client-requests").get_json()["data"]
    headers = place.headers | {"Idempotency-Key": "once"}
    path = f"/client-requests/{waiting['id']}/decline"
    answers = [place.http.post(path, json={"message": "No"}, headers=headers) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert answers[1].get_json()["meta"] == {"repeated": True}
    assert answers[1].get_json()["data"]["message"] == "No"


def test_decision_without_body_is_accepted(place: Place) -> None:
    place.ask()
    [waiting] = place.call("GET", "/client-requests").get_json()["data"]
    answer = place.http.post(f"/client-requests/{waiting['id']}/approve", headers=place.headers)
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("approve", {"verified": 1}, "verified"),
        ("approve", {"verifed": True}, "verifed"),
        ("approve", {"client_version": True}, "client_version"),
        ("decline", {"message": "x" * 301}, "message"),
        ("decline", {"reason": "no"}, "reason"),
    ],
)
def test_invalid_decision_names_the_field(place: Place, path: str, body: Any, field: str) -> None:
    place.ask()
    [waiting] = place.call("GET", "/client-requests").get_json()["data"]
    answer = place.call("POST", f"/client-requests/{waiting['id']}/{path}", body)
    assert answer.status_code == 400
    assert [error["field"] for error in answer.get_json()["errors"]] == [field]


def test_lists_are_paged_and_reject_unknown_filters(place: Place) -> None:
    for _ in range(3):
        user = place.make.user(place.organization)
        place.ask(user)
        place.allow(user)
    for path in ("/client-requests", "/consents"):
        first = place.call("GET", path, limit="2").get_json()
        rest = place.call("GET", path, limit="2", cursor=first["meta"]["next_cursor"]).get_json()
        assert [len(first["data"]), len(rest["data"])] == [2, 1] and rest["meta"]["next_cursor"] is None
        assert place.call("GET", path, colour="red").status_code == 400
        assert place.call("GET", path, client_id="x").status_code == 400
        foreign = place.make.client(place.make.organization()).client_id
        assert place.call("GET", path, client_id=foreign).get_json()["data"] == []
    assert place.call("GET", "/client-requests", status="lost").status_code == 400


def test_consent_is_listed_and_withdrawn_with_its_grants(place: Place) -> None:
    """CO-3, by an administrator."""
    place.allow()
    [consent] = place.call("GET", "/consents", user_id=place.user.public_id).get_json()["data"]
    assert (consent["scopes"], consent["expires_at"]) == (["openid", "email"], None)
    path = f"/consents/{consent['id']}"
    assert place.call("GET", path).get_json()["data"] == consent
    gone = place.call("DELETE", path).get_json()["data"]
    assert gone == {"id": consent["id"], "withdrawn": True, "revoked_grants": 0}
    assert place.call("GET", path).status_code == place.call("DELETE", path).status_code == 404


def test_developer_sees_only_consents_of_own_clients(place: Place, make: Factory) -> None:
    place.allow()
    with place.app.app_context():
        from app.operations.authorization.connected_apps import list_user_consents

        developer = make.actor(place.organization, "consents:read:own", user=make.user(place.organization))
        assert list_user_consents(developer).items == ()
        mine = make.client(place.organization, by=make.actor(place.organization, user=place.user))
    place.client = mine
    place.allow()
    with place.app.app_context():
        owner = make.actor(place.organization, "consents:read:own", user=place.user)
        assert [item.client_id for item in list_user_consents(owner).items] == [mine.client_id]


def test_scope_without_title_causes_warning(place: Place) -> None:
    """The warning is in ``meta.warnings``."""
    body = {
        "identifier": "https://api.example/words",
        "name": "Words",
        "scopes": [{"name": "words:read", "title": "Read your words"}, {"name": "words:write"}],
    }
    made = place.call("POST", "/resources", body).get_json()
    [warning] = made["meta"]["warnings"]
    assert '"words:write"' in warning and "has no title" in warning
    path = f"/resources/{made['data']['id']}"
    scopes = [*body["scopes"][:1], {"name": "words:write", "title": "Change your words"}]
    changed = place.call("PUT", path, {"scopes": scopes}).get_json()
    assert changed["meta"] == {"changed": ["scopes"]}
