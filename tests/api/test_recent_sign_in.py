"""RFC 9470: what a user's token cannot do after the user signed in too long ago, while a machine client has none."""

from __future__ import annotations

from typing import Any

from flask import Flask
from flask.testing import FlaskClient

from tests.api.test_dpop import refused_as, sign_in_was
from tests.factories import Factory, bearer_header
from tests.support.user_tokens import user_token


def test_old_sign_in_gets_challenge_before_anything_is_given(
    app: Flask, http: FlaskClient, make: Factory
) -> None:
    acme = make.organization("acme")
    ada, bob = make.user(acme, role="admin"), make.user(acme, email="bob@acme.example")
    made = make.client(acme)
    client = f"/clients/{made.client_id}"
    robot = {"name": "Robot", "type": "machine", "scopes": ["users:read"]}
    sessions = {"authentication": {"sessions": {"reauthentication_seconds": 86_400}}}
    requests: tuple[tuple[str, str, dict[str, Any]], ...] = (
        ("POST", "/clients", robot),
        ("PUT", client, {"scopes": ["openid", "users:read"]}),
        ("PUT", "/organizations/acme/settings", sessions),
        ("POST", "/organizations/acme/admins", {"email": "boss@acme.example"}),
        ("POST", "/roles", {"id": "clerk", "permissions": ["users:read"]}),
        ("POST", f"/users/{bob.public_id}/reset", {}),
        ("PUT", f"/users/{bob.public_id}", {"email": "bobby@acme.example"}),
        ("DELETE", f"{client}/credentials", {}),
    )
    by_user = bearer_header(user_token(app, make, ada))
    sign_in_was(app, minutes_ago=11)
    for method, path, body in requests:
        answer = http.open(path, method=method, json=body or None, headers=by_user)
        assert 'max_age="600"' in refused_as(answer, "insufficient_user_authentication"), path
    by_machine = bearer_header(make.bearer(acme))
    for method, path, body in requests:
        assert http.open(path, method=method, json=body or None, headers=by_machine).status_code < 300, path


def test_old_sign_in_changes_everything_else(app: Flask, http: FlaskClient, make: Factory) -> None:
    acme = make.organization("acme")
    by_user = bearer_header(user_token(app, make, make.user(acme, role="admin")))
    sign_in_was(app, minutes_ago=11)
    assert http.post("/clients", json={"name": "A", "type": "machine"}, headers=by_user).status_code == 201
    preview = "/organizations/acme/settings?dry_run=true"
    weaker = {"authentication": {"mfa": {"policy": "off"}}}
    assert http.put(preview, json=weaker, headers=by_user).status_code == 200
