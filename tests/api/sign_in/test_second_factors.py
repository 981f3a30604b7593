"""Second factors of users: one operation behind the API, the portal and the command line."""

from __future__ import annotations

from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

from app.operations.sign_in.password_sign_in import sign_in
from app.operations.sign_in.sign_in import SignedIn
from tests.factories import PASSWORD, Factory, bearer_header
from tests.support.authenticator import with_app


@pytest.fixture
def acme(make: Factory) -> Any:
    return make.organization()


def test_second_factors_are_listed_and_reset(http: FlaskClient, app: Flask, make: Factory, acme: Any) -> None:
    ada, headers = make.user(acme), bearer_header(make.bearer(acme))
    make.sign_in(ada)
    phone = with_app(app, ada)
    path = f"/users/{ada.public_id}"
    assert http.get(path, headers=headers).get_json()["data"]["second_factors"] == ["totp"]
    (listed,) = http.get("/users", headers=headers).get_json()["data"]
    assert listed["second_factors"] == ["totp"]
    answer = http.get(f"{path}/second-factors", headers=headers)
    shown = answer.get_json()["data"]
    assert [(one["method"], one["name"]) for one in shown["factors"]] == [("totp", None)]
    assert shown["recovery_codes_left"] == 10 and phone.secret not in answer.text
    reset = http.delete(f"{path}/second-factors", headers=headers).get_json()["data"]
    assert reset["removed"] == ["totp"]
    assert http.delete(f"{path}/second-factors", headers=headers).get_json()["data"]["removed"] == []
    with app.app_context():
        assert isinstance(sign_in(acme.id, ada.email, PASSWORD), SignedIn)


def test_reading_permission_cannot_reset(http: FlaskClient, app: Flask, make: Factory, acme: Any) -> None:
    ada = make.user(acme)
    with_app(app, ada)
    headers = bearer_header(make.bearer(acme, "users:read"))
    refused = http.delete(f"/users/{ada.public_id}/second-factors", headers=headers)
    assert (refused.status_code, refused.get_json()["required_scope"]) == (403, "users:write")


def test_mfa_policy_applies_to_the_api(http: FlaskClient, app: Flask, make: Factory, acme: Any) -> None:
    """The effect of every field of ``authentication.mfa``: policy, methods, grace period, number of codes."""
    ada, headers = make.user(acme), bearer_header(make.bearer(acme))
    path = f"/organizations/{acme.slug}/settings"
    mfa = {"policy": "required", "grace_period_seconds": 0, "methods": ["totp"], "recovery_codes": 5}
    body = {"authentication": {"mfa": mfa}}
    tried = http.put(f"{path}?dry_run=true", json=body, headers=headers).get_json()
    assert tried["meta"]["impact"]["users_without_second_factor"] == 1
    changed = http.put(path, json=body, headers=headers).get_json()
    assert changed["success"] and "warnings" not in changed["meta"]
    with app.app_context():
        assert not isinstance(sign_in(acme.id, ada.email, PASSWORD), SignedIn)
    assert len(with_app(app, ada).codes) == 5


def test_command_line_resets_second_factors(app: Flask, make: Factory, acme: Any) -> None:
    ada = make.user(acme)
    with_app(app, ada)
    command = ["users", "reset-second-factors", "--organization", acme.slug, ada.email]
    ran = app.test_cli_runner().invoke(args=command)
    assert (ran.exit_code, ran.output) == (0, f"{ada.public_id} totp\n")
    assert app.test_cli_runner().invoke(args=command).output == f"{ada.public_id} none\n"
