"""ETags: each single resource has one, and a DELETE of what was changed since is refused with 412."""

from __future__ import annotations

import pytest
from flask import Flask
from flask.testing import FlaskClient

from tests.factories import Factory, bearer_header
from tests.support.world import build

PATHS = (
    "/organizations/{id}/admins/{adminId}",
    "/organizations/{id}/invitations/{invitationId}",
    "/clients/{clientId}/credentials/{credentialId}",
)


@pytest.mark.parametrize("path", PATHS)
def test_what_was_changed_since_it_was_read_is_not_deleted(
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


def test_a_rotation_is_a_change_of_the_secret_before_it(app: Flask, http: FlaskClient, make: Factory) -> None:
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
