"""ETags: each object has one, and a DELETE with a stale ETag is rejected with 412."""

from __future__ import annotations

import pytest
from flask import Flask
from flask.testing import FlaskClient

from tests.factories import Factory, bearer_header
from tests.support.answers import version_of
from tests.support.world import build

PATHS = (
    "/organizations/{id}/admins/{adminId}",
    "/organizations/{id}/invitations/{invitationId}",
    "/clients/{clientId}/credentials/{credentialId}",
)


@pytest.mark.parametrize("path", PATHS)
def test_delete_with_stale_if_match_is_rejected(
    app: Flask, http: FlaskClient, make: Factory, path: str
) -> None:
    corner, _ = build(app, make)
    headers, url = bearer_header(make.bearer(corner.organization)), path.format(**corner.ids)
    tag = http.get(url, headers=headers).headers["ETag"]
    assert http.get(url, headers=headers).headers["ETag"] == tag
    for stale, status in (('"v1"', 412), ('"other"', 412), ("v1", 400)):
        refused = http.delete(url, headers={**headers, "If-Match": stale})
        assert refused.status_code == status
    assert http.get(url, headers=headers).headers["ETag"] == tag
    assert http.delete(url, headers={**headers, "If-Match": tag}).status_code == 200


def test_rotation_changes_version_of_old_secret(app: Flask, http: FlaskClient, make: Factory) -> None:
    corner, _ = build(app, make)
    headers, url = bearer_header(make.bearer(corner.organization)), PATHS[2].format(**corner.ids)
    tag = http.get(url, headers=headers).headers["ETag"]
    rotated = http.post(url.rsplit("/", 1)[0] + "/rotation", json={}, headers=headers)
    assert rotated.status_code == 201
    assert http.get(url, headers=headers).headers["ETag"] != tag
    whole = url.rsplit("/", 1)[0] + "?credential_id=" + url.rsplit("/", 1)[1]
    for address in (url, whole):
        assert http.delete(address, headers={**headers, "If-Match": tag}).status_code == 412
    assert http.get(url, headers=headers).get_json()["data"]["status"] == "expiring"


def test_revoking_all_secrets_honours_if_match(app: Flask, http: FlaskClient, make: Factory) -> None:
    corner, _ = build(app, make)
    headers = bearer_header(make.bearer(corner.organization))
    url = f"/clients/{corner.ids['clientId']}/credentials"
    tag = http.get(url, headers=headers).headers["ETag"]
    assert http.get(url, headers=headers).headers["ETag"] == tag
    assert http.post(url, json={}, headers=headers).status_code == 201
    refused = http.delete(url, headers={**headers, "If-Match": tag})
    assert refused.status_code == 412
    assert {entry["status"] for entry in http.get(url, headers=headers).get_json()["data"]} == {"active"}
    tag = http.get(url, headers=headers).headers["ETag"]
    assert http.delete(url, headers={**headers, "If-Match": tag}).status_code == 200


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/organizations/{id}/admins", {"email": "new.admin@example.com"}),
        ("/clients/{clientId}/credentials", {}),
        ("/clients/{clientId}/credentials/rotation", {}),
        ("/organizations/{id}/signing-keys/rotations", {"algorithm": "EdDSA"}),
    ],
)
def test_created_object_has_etag_of_later_read(
    app: Flask, http: FlaskClient, make: Factory, path: str, body: dict[str, str]
) -> None:
    corner, _ = build(app, make)
    headers = bearer_header(make.bearer(corner.organization))
    made = http.post(path.format(**corner.ids), json=body, headers=headers)
    assert made.status_code == 201
    read = http.get(made.headers["Location"], headers=headers)
    assert version_of(read) == version_of(made)
