"""Users: list, create, update, disable, delete, end sessions, password reset links."""

from __future__ import annotations

from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from app.extensions import db
from app.models.user import User
from app.operations.directory.lookups import OrganizationSnapshot
from app.operations.sign_in.password_sign_in import SignInRefused, sign_in
from app.operations.sign_in.sign_in import SignedIn
from app.operations.users.password_resets import reset_password
from app.rules.identifiers import new_public_id
from tests.factories import PASSWORD, Factory, bearer_header
from tests.support.world_rows import linked


class Desk:
    """The users of Acme, with a token that can read and change them."""

    def __init__(self, app: Flask, http: FlaskClient, make: Factory) -> None:
        self.app, self.http, self.make = app, http, make
        self.organization: OrganizationSnapshot = make.organization(name="Acme")
        self.headers = bearer_header(make.bearer(self.organization))

    def call(self, method: str, path: str, **options: Any) -> TestResponse:
        headers = self.headers | options.pop("headers", {})
        return self.http.open(path, method=method, headers=headers, **options)

    def listed(self, **query: str) -> list[str]:
        answer = self.call("GET", "/users", query_string=query)
        assert answer.status_code == 200, answer.text
        return [entry["email"] for entry in answer.get_json()["data"]]

    def sign_in(self, email: str, password: str = PASSWORD) -> SignedIn | SignInRefused:
        with self.app.app_context():
            return sign_in(self.organization.id, email, password)

    def actions(self) -> list[str]:
        answer = self.call("GET", "/audit-events", query_string={"action": "user", "limit": "100"})
        return [event["action"] for event in answer.get_json()["data"]]


@pytest.fixture
def desk(app: Flask, http: FlaskClient, make: Factory) -> Desk:
    return Desk(app, http, make)


def test_user_is_created_without_password_and_chooses_one_with_link(desk: Desk) -> None:
    """PW-4: an administrator creates a link and never sets a password."""
    profile = {"given_name": "Ada", "address": {"country": "CH"}}
    made = desk.call("POST", "/users", json={"email": "Ada@acme.example", "name": "Ada", "profile": profile})
    assert made.status_code == 201, made.text
    user = made.get_json()["data"]
    assert (user["email"], user["email_verified"], user["has_password"]) == ("Ada@acme.example", False, False)
    assert user["profile"] == profile and user["roles"] == [] and user["status"] == "active"
    assert made.headers["Location"] == f"/users/{user['id']}"
    assert desk.call("GET", f"/users/{user['id']}").get_json()["data"] == user
    answer = desk.call("POST", f"/users/{user['id']}/reset")
    link = answer.get_json()["data"]["link"]
    with desk.app.app_context():
        reset_password(desk.organization, link.rsplit("/", 1)[1], "four quiet otters sing")
    assert isinstance(desk.sign_in("ada@acme.example", "four quiet otters sing"), SignedIn)
    assert "password" not in desk.call("POST", "/users", json={"email": "b@acme.example"}).get_json()["data"]
    refused = desk.call("PUT", f"/users/{user['id']}", json={"password": "four quiet otters sing"})
    assert refused.get_json()["errors"][0]["code"] == "read_only"


def test_invalid_fields_are_named_and_no_user_is_created(desk: Desk) -> None:
    sent = {"email": "nobody", "name": "A\u202eB", "profile": {"birthdate": "soon", "shoe": "42"}, "role": 1}
    answer = desk.call("POST", "/users", json=sent)
    assert answer.status_code == 400
    fields = {error["field"] for error in answer.get_json()["errors"]}
    assert fields == {"email", "name", "profile.birthdate", "profile.shoe", "role"}
    assert desk.listed() == []
    for body in ({}, {"email": None}, {"email": 7}, {"email": "a@b.example", "name": 0}):
        assert desk.call("POST", "/users", json=body).status_code == 400, body


def test_email_of_another_user_is_rejected(desk: Desk) -> None:
    """The same email address in another organization is another user."""
    first = desk.make.user(desk.organization, email="ada@acme.example")
    other = desk.make.user(desk.organization, email="bob@acme.example")
    desk.make.user(desk.make.organization(), email="carol@acme.example")
    taken = desk.call("POST", "/users", json={"email": "ADA@acme.example"})
    assert (taken.status_code, taken.get_json()["error"]) == (409, "email_taken")
    moved = desk.call("PUT", f"/users/{other.public_id}", json={"email": "Ada@acme.example"})
    assert (moved.status_code, moved.get_json()["error"]) == (409, "email_taken")
    free = desk.call("PUT", f"/users/{first.public_id}", json={"email": "carol@acme.example"})
    assert free.status_code == 200 and free.get_json()["meta"]["changed"] == ["email"]


def test_new_email_is_unverified_but_other_spelling_is_the_same(desk: Desk) -> None:
    user = desk.make.user(desk.organization, email="ada@acme.example")
    path = f"/users/{user.public_id}"
    spelled = desk.call("PUT", path, json={"email": "Ada@Acme.example"}).get_json()["data"]
    assert (spelled["email"], spelled["email_verified"]) == ("Ada@Acme.example", True)
    moved = desk.call("PUT", path, json={"email": "ada@new.example"}).get_json()["data"]
    assert (moved["email"], moved["email_verified"]) == ("ada@new.example", False)
    assert isinstance(desk.sign_in("ada@new.example"), SignedIn)
    assert isinstance(desk.sign_in("ada@acme.example"), SignInRefused)


def test_update_of_stale_version_is_rejected(desk: Desk) -> None:
    path = f"/users/{desk.make.user(desk.organization).public_id}"
    tag = desk.call("GET", path).headers["ETag"]
    renamed = desk.call("PUT", path, json={"name": "Countess"}, headers={"If-Match": tag})
    assert renamed.headers["ETag"] != tag
    for method, sent in (("PUT", {"name": "Late"}), ("DELETE", None)):
        late = desk.call(method, path, json=sent, headers={"If-Match": tag})
        assert late.status_code == 412, method
    assert desk.call("GET", path).get_json()["data"]["name"] == "Countess"


def test_disabling_ends_sessions_and_enabling_restores_none(desk: Desk) -> None:
    """SS-6: the status field shows it."""
    user = desk.make.user(desk.organization)
    path = f"/users/{user.public_id}"
    desk.make.sign_in(user)
    assert len(desk.call("GET", f"{path}/sessions").get_json()["data"]) == 1
    disabled = desk.call("PUT", path, json={"status": "disabled"})
    assert disabled.get_json()["data"]["status"] == "disabled"
    assert desk.call("GET", f"{path}/sessions").get_json()["data"] == []
    refused = desk.sign_in(user.email)
    assert isinstance(refused, SignInRefused) and refused.reason == "disabled"
    assert desk.call("POST", f"{path}/reset").get_json()["error"] == "user_disabled"
    assert desk.call("PUT", path, json={"status": None}).get_json()["meta"]["changed"] == ["status"]
    assert desk.call("GET", f"{path}/sessions").get_json()["data"] == []
    assert isinstance(desk.sign_in(user.email), SignedIn)
    assert desk.actions()[:2] == ["user.enabled", "user.disabled"]


def test_revoked_sessions_are_counted_and_audited(desk: Desk) -> None:
    user = desk.make.user(desk.organization)
    path = f"/users/{user.public_id}/sessions"
    for _ in range(2):
        desk.sign_in(user.email)
    [newest, oldest] = desk.call("GET", path).get_json()["data"]
    assert newest["last_seen_at"] >= oldest["last_seen_at"]
    assert desk.call("DELETE", path).get_json()["data"]["sessions_revoked"] == 2
    assert desk.call("DELETE", path).get_json()["data"]["sessions_revoked"] == 0
    assert desk.actions().count("user.signed_out") == 1


def test_deleted_user_is_erased_and_email_can_be_reused(desk: Desk) -> None:
    """OI-1: the row remains without personal data, so that ``sub`` is never reused."""
    user = desk.make.user(desk.organization, email="ada@acme.example", role="auditor")
    desk.sign_in(user.email)
    path = f"/users/{user.public_id}"
    deleted = desk.call("DELETE", path).get_json()["data"]
    assert deleted["revoked"] == {"sessions": 1, "grants": 0, "consents": 0, "roles": 1}
    for method, more in (("GET", ""), ("PUT", ""), ("DELETE", ""), ("POST", "/reset"), ("GET", "/sessions")):
        assert desk.call(method, path + more, json={}).status_code == 404, (method, more)
    assert desk.listed() == []
    refused = desk.sign_in("ada@acme.example")
    assert isinstance(refused, SignInRefused) and refused.reason == "mismatch"
    with desk.app.app_context():
        row = db.session.get_one(User, (desk.organization.id, user.id))
        assert (row.email, row.name, row.profile, row.password_hash) == ("", "", {}, None)
        assert row.last_sign_in_at is None and "ada" not in row.email_canonical
    again = desk.call("POST", "/users", json={"email": "ada@acme.example"}).get_json()["data"]
    assert again["id"] != user.public_id
    assert "ada@" not in str(desk.call("GET", "/audit-events?action=user.deleted").get_json()["data"])


def test_last_administrator_cannot_be_disabled_or_deleted(desk: Desk) -> None:
    path = f"/users/{desk.make.user(desk.organization, role='admin').public_id}"
    for method, body in (("PUT", {"status": "disabled"}), ("DELETE", None)):
        answer = desk.call(method, path, json=body)
        assert (answer.status_code, answer.get_json()["error"]) == (409, "last_administrator"), method
    assert desk.call("GET", path).get_json()["data"]["roles"] == ["admin"]


def test_user_with_more_permissions_cannot_be_changed(desk: Desk) -> None:
    """TN-11: ``users:write`` is not enough to take over an administrator's account."""
    desk.make.user(desk.organization, role="admin")
    path = f"/users/{desk.make.user(desk.organization, role='admin').public_id}"
    desk.headers = bearer_header(desk.make.bearer(desk.organization, "users:read", "users:write"))
    for method, more in (("PUT", ""), ("DELETE", ""), ("POST", "/reset"), ("DELETE", "/sessions")):
        answer = desk.call(
            method, path + more, json={"email": "mine@evil.example"} if method == "PUT" else {}
        )
        assert answer.status_code == 403, (method, more)


def test_list_is_searched_filtered_sorted_and_paged(desk: Desk) -> None:
    ada = desk.make.user(desk.organization, email="ada@x.example", name="Ada Lovelace", role="auditor")
    desk.make.user(desk.organization, email="bob@x.example", name="100% Bob_")
    desk.make.user(desk.organization, email="cleo@y.example", name="Cleo")
    desk.make.user(desk.make.organization(), email="dora@x.example")
    everybody = ["ada@x.example", "bob@x.example", "cleo@y.example"]
    assert desk.listed() == everybody
    assert desk.listed(sort="-email") == desk.listed(sort="-created_at") == everybody[::-1]
    assert desk.listed(q="X.EXAMPLE") == everybody[:2]
    assert desk.listed(q="lovelace") == desk.listed(q=ada.public_id) == everybody[:1]
    assert desk.listed(q="0%") == desk.listed(q="b_") == everybody[1:2]
    assert desk.listed(role="auditor") == everybody[:1] and desk.listed(role="admin") == []
    with desk.app.app_context():
        provider, _ = linked(desk.make.actor(desk.organization), "example", ada.public_id)
    assert desk.listed(identity_provider=provider) == everybody[:1]
    assert desk.listed(identity_provider=new_public_id("idp")) == []
    desk.call("PUT", f"/users/{ada.public_id}", json={"status": "disabled"})
    assert desk.listed(status="disabled") == everybody[:1]
    for query in (
        {"status": "deleted"},
        {"role": "pope"},
        {"sort": "name"},
        {"rolle": "admin"},
        {"identity_provider": "x"},
    ):
        refused = desk.call("GET", "/users", query_string=query)
        assert refused.status_code == 400, query
    assert "This is not a valid identity provider ID." in refused.text
    for sort in ("email", "-email", "created_at", "-created_at"):
        found: list[str] = []
        query = {"limit": "1", "sort": sort}
        while True:
            answer = desk.call("GET", "/users", query_string=query).get_json()
            found += [entry["email"] for entry in answer["data"]]
            if answer["meta"]["next_cursor"] is None:
                break
            query["cursor"] = answer["meta"]["next_cursor"]
        assert sorted(found) == everybody and found == desk.listed(sort=sort), sort


def test_apps_of_a_user_require_consents_permission(desk: Desk) -> None:
    path = f"/users/{desk.make.user(desk.organization).public_id}/consents"
    assert desk.call("GET", path).get_json()["data"] == []
    desk.headers = bearer_header(desk.make.bearer(desk.organization, "users:read"))
    assert desk.call("GET", path).get_json()["required_scope"] == "consents:read"


def test_idempotency_key_creates_one_user_and_hides_link(desk: Desk) -> None:
    """JS-9: the link is a secret and is not stored for repeated requests."""
    headers = {"Idempotency-Key": "one"}
    sent = {"email": "ada@acme.example"}
    first, second = (desk.call("POST", "/users", json=sent, headers=headers) for _ in range(2))
    assert first.get_json()["data"] == second.get_json()["data"] and len(desk.listed()) == 1
    path = f"/users/{first.get_json()['data']['id']}/reset"
    links = [desk.call("POST", path, headers=headers).get_json()["data"].get("link") for _ in range(2)]
    assert links[0] is not None and links[1] is None
