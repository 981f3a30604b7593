"""Only POST, PUT, PATCH and DELETE change state: every other method, at every route, by a signed-in administrator."""

from __future__ import annotations

import re
from collections import Counter
from urllib.parse import quote

import pytest
from flask import Flask
from flask.testing import FlaskClient
from werkzeug.routing import Rule

from app.operations.sign_in.second_factors import create_first_recovery_codes, store_authenticator_app
from app.operations.sign_in.sessions import start_session
from app.rules.identifiers import public_id
from tests.factories import Factory, bearer_header
from tests.support.databases import Database
from tests.support.stored_state import read_state
from tests.support.world import Corner, build

pytestmark = pytest.mark.either
METHODS = ("HEAD", "OPTIONS", "TRACE", "BREW")
_TOKEN = re.compile(r'name="csrf_token" value="([^"]+)"')
_VARIABLE = re.compile(r"<(?:[^:>]+:)?([^>]+)>")


def path_of(rule: Rule, corner: Corner, own: dict[str, str]) -> str:
    """Return the route's path with ids of the corner, and of what belongs to the administrator."""
    names = _VARIABLE.findall(rule.rule)
    is_page = rule.rule.startswith("/portal/")
    known = own | {
        "organization": corner.ids["id"],
        "organization_id": corner.organization.id,
        "slug": corner.ids["id"],
        "role": corner.ids["roleId"],
        "file_format": "csv",
        "topic": "authentication",
        "setting": "oauth.access_token.ttl_seconds",
        "algorithm": "ES256",
        "event_id": corner.ids["auditEventId"],
        "access_token_id": corner.ids["tokenId"],
        "api_id": corner.ids["resourceId"],
        "request_id": corner.ids["clientRequestId"],
        "token_id": corner.ids["registrationTokenId" if is_page else "tokenId"],
    }
    values = {name: known.get(name) or corner.ids.get(camel_case(name)) or "x" for name in names}
    return _VARIABLE.sub(lambda match: quote(values[match[1]]), rule.rule)


def camel_case(name: str) -> str:
    """Return the name of an id in the corner: ``client_id`` is ``clientId``."""
    first, *others = name.split("_")
    return first + "".join(word.title() for word in others)


def sign_in_with_everything(app: Flask, make: Factory, corner: Corner, http: FlaskClient) -> dict[str, str]:
    """Sign an administrator with a second factor in, just now; return the ids of the administrator and the session."""
    user = make.user(corner.organization, role="admin")
    with app.app_context():
        store_authenticator_app(corner.organization.id, user.id, b"s" * 20, 1)
        create_first_recovery_codes(corner.organization, user.id)
        token, session_id = start_session(
            corner.organization,
            user.id,
            amr="pwd otp mfa",
            ip_address="127.0.0.1",
            user_agent="tests",
            replaces=None,
        )
    http.set_cookie(make.cookie_name(corner.organization), token, domain="localhost")
    return {"user_id": user.public_id, "session_id": public_id("ses", session_id)}


def test_other_methods_change_nothing_at_any_route(app: Flask, make: Factory, database: Database) -> None:
    """CF-1: a HEAD request runs the view of GET, and CSRF protection does not look at it."""
    acme, _ = build(app, make)
    http = app.test_client()
    own = sign_in_with_everything(app, make, acme, http)
    headers = bearer_header(make.bearer(acme.organization)) | {"Sec-Fetch-Site": "same-origin"}
    token = _TOKEN.search(http.get("/organizations/acme-corner/login?reauthenticate=1").text)
    assert token is not None
    fields = {"csrf_token": token[1], "name": "Taken over", "email": "mallory@example.com", "role": "admin"}
    fields |= {"decision": "allow", "password": "x" * 20, "code": "123456", "confirm": "acme-corner"}
    # Signing keys and the WebAuthn user handle are created when they are first shown.
    for path in ("oauth/jwks", "account/security/passkeys/add"):
        assert http.get(f"/organizations/acme-corner/{path}").status_code == 200, path
    sent = {path_of(rule, acme, own) for rule in app.url_map.iter_rules()}
    assert len(sent) > 250, len(sent)
    before = read_state(database)
    answered: Counter[str] = Counter()
    for path in sorted(sent):
        for method in METHODS:
            answer = http.open(path, method=method, data=fields, headers=headers)
            is_not_implemented = answer.status_code == 501 and (method == "BREW" or "/scim/v2/" in path)
            assert answer.status_code < 500 or is_not_implemented, (path, method, answer.status_code)
            answered[f"{method} {answer.status_code}"] += 1
    after = read_state(database)
    changed = {table: set(after[table].items()) ^ set(rows.items()) for table, rows in before.items()}
    assert after == before, {table: list(rows)[:4] for table, rows in changed.items() if rows}
    assert http.get("/portal/acme-corner/clients").status_code == 200, "the administrator is signed out"
    assert answered["HEAD 200"] > 100, answered
