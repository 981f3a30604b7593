"""Organizations: requests, responses, versions, repeated requests."""

from __future__ import annotations

from flask.testing import FlaskClient

from tests.factories import Factory, bearer_header
from tests.support.answers import version_of
from tests.support.databases import Database


def test_organization_is_created_read_updated_and_deleted(http: FlaskClient, make: Factory) -> None:
    headers = bearer_header(make.bearer(make.root()))
    body = {
        "name": "Globex",
        "admin": {"email": "hank@globex.example"},
        "settings": {"branding": {"theme": "dark"}},
    }
    made = http.post("/organizations", json=body, headers=headers)
    assert made.status_code == 201 and made.headers["Location"] == "/organizations/globex"
    data = made.get_json()["data"]
    assert (data["id"], data["status"], data["is_root"]) == ("globex", "active", False)
    assert data["issuer"] == "http://localhost/organizations/globex"
    assert data["invitation"]["link"].startswith("http://localhost/organizations/globex/invite/gth_iv_")
    read = http.get(made.headers["Location"], headers=headers)
    assert version_of(read) == version_of(made) and read.headers["Cache-Control"] == "no-store"
    renamed = http.put("/organizations/globex", json={"name": "Globex Inc"}, headers=headers)
    assert renamed.get_json()["meta"] == {"changed": ["name"]} and version_of(renamed) != version_of(read)
    settings = http.get("/organizations/globex/settings", headers=headers).get_json()
    assert settings["data"]["branding"]["theme"] == "dark"
    deleted = http.delete("/organizations/globex", headers=headers)
    assert deleted.status_code == 200 and deleted.get_json()["data"]["purge_at"] is not None
    again = http.post("/organizations", json={"name": "Globex", "id": "globex"}, headers=headers)
    assert (again.status_code, again.get_json()["error"]) == (409, "id_taken")
    restored = http.put("/organizations/globex", json={"status": "active"}, headers=headers)
    assert (restored.status_code, restored.get_json()["data"]["status"]) == (200, "active")


def test_organizations_are_available_under_both_prefixes(http: FlaskClient, make: Factory) -> None:
    acme = make.organization()
    headers = bearer_header(make.bearer(acme))
    for path in ("/organizations", f"/organizations/{acme.slug}", f"/organizations/{acme.slug}/settings"):
        assert (
            http.get(path, headers=headers).get_json()
            == http.get(f"/api/v1{path}", headers=headers).get_json()
        )


def test_list_is_paged_and_cursor_is_bound_to_it(http: FlaskClient, make: Factory) -> None:
    headers = bearer_header(make.bearer(make.root()))
    for number in range(4):
        make.organization(f"list-{number}")
    first = http.get("/organizations?q=list-&limit=3", headers=headers).get_json()
    cursor = first["meta"]["next_cursor"]
    rest = http.get(f"/organizations?q=list-&limit=3&cursor={cursor}", headers=headers).get_json()
    assert [item["id"] for item in first["data"] + rest["data"]] == [f"list-{number}" for number in range(4)]
    assert rest["meta"] == {"next_cursor": None}
    for query in (f"cursor={cursor}", f"q=list-&sort=-id&cursor={cursor}"):
        assert http.get(f"/organizations?{query}", headers=headers).status_code == 400


def test_stale_if_match_is_rejected(http: FlaskClient, make: Factory) -> None:
    acme = make.organization()
    headers = bearer_header(make.bearer(acme))
    path = f"/organizations/{acme.slug}"
    tag = http.get(path, headers=headers).headers["ETag"]
    assert http.put(path, json={"name": "One"}, headers={**headers, "If-Match": tag}).status_code == 200
    stale = http.put(path, json={"name": "Two"}, headers={**headers, "If-Match": tag})
    assert (stale.status_code, stale.get_json()["error"]) == (412, "precondition_failed")
    assert http.delete(path, headers={**headers, "If-Match": tag}).status_code == 412


def test_js9_idempotency_key_creates_one_organization_and_stores_no_link(
    http: FlaskClient, make: Factory, database: Database
) -> None:
    headers = {**bearer_header(make.bearer(make.root())), "Idempotency-Key": "once-1"}
    body = {"name": "Initech", "admin": {"email": "peter@initech.example"}}
    first, second = (http.post("/organizations", json=body, headers=headers) for _ in range(2))
    assert (first.status_code, second.status_code) == (201, 201)
    assert second.get_json()["data"]["id"] == first.get_json()["data"]["id"]
    assert (
        "link" not in second.get_json()["data"]["invitation"]
        and second.get_json()["meta"]["repeated"] is True
    )
    other = http.post("/organizations", json={"name": "Other"}, headers=headers)
    assert (other.status_code, other.get_json()["error"]) == (409, "idempotency_key_reused")
    assert b"Other" not in database.dump()


def test_only_root_sees_and_creates_other_organizations(http: FlaskClient, make: Factory) -> None:
    acme = make.organization()
    make.organization()
    headers = bearer_header(make.bearer(acme))
    assert [item["id"] for item in http.get("/organizations", headers=headers).get_json()["data"]] == [
        acme.slug
    ]
    refused = http.post("/organizations", json={"name": "Mine"}, headers=headers)
    assert (refused.status_code, refused.get_json()["required_scope"]) == (403, "organizations:write")


def test_suspended_organization_is_visible_only_to_root(http: FlaskClient, make: Factory) -> None:
    acme = make.organization()
    own, root = bearer_header(make.bearer(acme)), bearer_header(make.bearer(make.root()))
    assert (
        http.put(f"/organizations/{acme.slug}", json={"status": "suspended"}, headers=root).status_code == 200
    )
    assert http.get(f"/organizations/{acme.slug}", headers=own).status_code == 401
    assert http.get("/organizations?status=suspended", headers=root).get_json()["data"][0]["id"] == acme.slug
    assert http.get("/organizations?status=purged", headers=root).get_json()["error"] == "invalid_input"
    assert http.put(f"/organizations/{acme.slug}", json={"status": "active"}, headers=root).status_code == 200
    assert http.get(f"/organizations/{acme.slug}", headers=own).status_code == 200
