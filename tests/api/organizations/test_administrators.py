"""Administrators and invitations."""

from __future__ import annotations

from flask.testing import FlaskClient

from tests.factories import Factory, bearer_header


def test_administrator_can_be_added_listed_read_and_removed(http: FlaskClient, make: Factory) -> None:
    acme = make.organization()
    make.user(acme, role="admin")
    ada = make.user(acme)
    headers, path = bearer_header(make.bearer(acme)), f"/organizations/{acme.slug}/admins"
    added = http.post(path, json={"user_id": ada.public_id, "role": "auditor"}, headers=headers)
    assert added.status_code == 201
    data = added.get_json()["data"]
    assert (data["user_id"], data["role"], data["status"]) == (ada.public_id, "auditor", "active")
    assert added.headers["Location"] == f"{path}/{data['id']}"
    assert http.get(added.headers["Location"], headers=headers).get_json()["data"] == data
    listed = http.get(f"{path}?role=auditor", headers=headers).get_json()
    assert listed == {"success": True, "data": [data], "meta": {"next_cursor": None}}
    for query in (ada.public_id, ada.email[1:].upper()):
        assert http.get(path, query_string={"q": query}, headers=headers).get_json()["data"] == [data]
    for query in ("%", ada.public_id[:-1], "nobody"):
        assert http.get(path, query_string={"q": query}, headers=headers).get_json()["data"] == []
    again = http.post(path, json={"user_id": ada.public_id, "role": "auditor"}, headers=headers)
    assert (again.status_code, again.get_json()["error"]) == (409, "already_administrator")
    assert http.delete(added.headers["Location"], headers=headers).status_code == 200
    assert http.delete(added.headers["Location"], headers=headers).status_code == 404


def test_unknown_email_is_invited_and_response_contains_link(http: FlaskClient, make: Factory) -> None:
    acme = make.organization()
    headers, path = bearer_header(make.bearer(acme)), f"/organizations/{acme.slug}"
    answer = http.post(f"{path}/admins", json={"email": "bob@example.com", "name": "Bob"}, headers=headers)
    data = answer.get_json()["data"]
    assert (answer.status_code, data["status"], data["user_id"]) == (201, "invited", None)
    assert data["invitation_link"].startswith(f"http://localhost/organizations/{acme.slug}/invite/gth_iv_")
    assert answer.headers["Location"] == f"{path}/invitations/{data['id']}"
    read = http.get(answer.headers["Location"], headers=headers).get_json()["data"]
    assert read["email"] == "bob@example.com" and "invitation_link" not in read
    assert http.get(data["invitation_link"].removeprefix("http://localhost")).status_code == 200
    listed = http.get(f"{path}/invitations", headers=headers).get_json()["data"]
    assert [item["id"] for item in listed] == [data["id"]]
    assert http.delete(answer.headers["Location"], headers=headers).status_code == 200
    assert http.get(answer.headers["Location"], headers=headers).status_code == 404
    assert http.get(f"{path}/invitations", headers=headers).get_json()["data"] == []


def test_last_administrator_cannot_be_removed(http: FlaskClient, make: Factory) -> None:
    acme = make.organization()
    make.user(acme, role="admin")
    headers, path = bearer_header(make.bearer(acme)), f"/organizations/{acme.slug}/admins"
    only = http.get(path, headers=headers).get_json()["data"][0]
    refused = http.delete(f"{path}/{only['id']}", headers=headers)
    assert (refused.status_code, refused.get_json()["error"]) == (409, "last_administrator")


def test_tn11_token_cannot_grant_permissions_it_lacks(http: FlaskClient, make: Factory) -> None:
    acme = make.organization()
    headers = bearer_header(make.bearer(acme, "admins:write"))
    refused = http.post(
        f"/organizations/{acme.slug}/admins", json={"email": "bob@example.com"}, headers=headers
    )
    assert refused.status_code == 403 and refused.get_json()["required_scope"] != "admins:write"


def test_me_returns_caller_and_permissions(http: FlaskClient, make: Factory) -> None:
    acme = make.organization()
    client = make.machine(acme, "clients:read", "settings:read")
    token = http.post(
        "/oauth/token", data={"grant_type": "client_credentials"}, headers=client.basic
    ).get_json()
    answer = http.get("/me", headers=bearer_header(token["access_token"]))
    assert answer.get_json()["data"] == {
        "kind": "client",
        "id": client.client_id,
        "name": "Harvester",
        "organization_id": acme.slug,
        "is_root": False,
        "permissions": ["clients:read", "settings:read"],
    }


def test_every_invalid_field_is_named(http: FlaskClient, make: Factory) -> None:
    acme = make.organization()
    path, headers = f"/organizations/{acme.slug}/admins", bearer_header(make.bearer(acme))
    sent = {"email": "nobody", "role": "king", "zz": 1}
    answer = http.post(path, json=sent, headers=headers)
    assert {error["field"] for error in answer.get_json()["errors"]} == sent.keys()
