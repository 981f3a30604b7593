"""Leak reports by kind: client secrets, tokens, links and cookies are all revoked."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from app.operations.audit.leaked_secrets import KINDS
from app.operations.clients.initial_access_tokens import create_registration_token
from app.operations.directory.lookups import get_organization_by_slug
from app.operations.sign_in.known_browsers import find_known_browser
from app.operations.sign_in.sessions import find_session
from app.operations.users.invitations import create_invitation, find_invitation
from app.operations.users.password_resets import find_reset, issue_reset_link
from app.operations.users.registrations import find_registration
from app.operations.users.sign_up import register_user
from app.rules import identifiers
from tests.factories import PASSWORD, Factory, bearer_header
from tests.oauth.conftest import Flow, audited
from tests.oauth.device import Device
from tests.oauth.test_leak_reports import report
from tests.oauth.test_pushed_requests import bring, pushed
from tests.scim.conftest import new_directory
from tests.support.databases import Database
from tests.support.mail_server import Mailbox, plain
from tests.support.registering import register


class Case:
    """A secret of one kind, and how to check whether it is still valid."""

    def __init__(self, token: str, lives: Callable[[], bool]) -> None:
        self.token, self.lives = token, lives


def change_settings(flow: Flow, make: Factory, settings: dict[str, Any]) -> None:
    path = f"/organizations/{flow.organization.slug}/settings"
    answer = flow.http.put(path, json=settings, headers=bearer_header(make.bearer(flow.organization)))
    assert answer.status_code == 200, answer.text


def access_token(flow: Flow, make: Factory) -> Case:
    token = flow.tokens()["access_token"]
    return Case(token, lambda: flow.is_alive(token))


def jwt_access_token(flow: Flow, make: Factory) -> Case:
    other = flow.other_client(access_token_format="jwt", trust="first_party")
    token = other.tokens()["access_token"]
    assert token.startswith("eyJ")
    return Case(token, lambda: other.is_alive(token))


def refresh_token(flow: Flow, make: Factory) -> Case:
    told = flow.tokens()
    return Case(told["refresh_token"], lambda: flow.is_alive(told["access_token"]))


def client_secret(flow: Flow, make: Factory) -> Case:
    machine = make.machine(flow.organization, "clients:read")
    form = {"grant_type": "client_credentials"}
    return Case(
        machine.secret,
        lambda: flow.http.post("/oauth/token", data=form, headers=machine.basic).status_code == 200,
    )


def session(flow: Flow, make: Factory) -> Case:
    token = make.sign_in(flow.user).token

    def lives() -> bool:
        with flow.app.app_context():
            return find_session(token) is not None

    return Case(token, lives)


def initial_access(flow: Flow, make: Factory) -> Case:
    with flow.app.app_context():
        token = create_registration_token(make.actor(flow.organization), {"name": "CI"}).token
    settings = {"oauth": {"dynamic_registration": {"mode": "initial_access_token"}}}
    change_settings(flow, make, settings)
    return Case(token, lambda: register(flow.http, flow.organization, token=token).status_code == 201)


def registration_access(flow: Flow, make: Factory) -> Case:
    settings = {"oauth": {"dynamic_registration": {"mode": "open"}}}
    change_settings(flow, make, settings)
    told = register(flow.http, flow.organization).get_json()
    path = told["registration_client_uri"].removeprefix("http://localhost")
    token = told["registration_access_token"]
    return Case(token, lambda: flow.http.get(path, headers=bearer_header(token)).status_code == 200)


def provisioning(flow: Flow, make: Factory) -> Case:
    directory = new_directory(flow.app, make, flow.organization)
    path, headers = f"{directory.path}/Users", bearer_header(directory.token)
    return Case(directory.token, lambda: flow.http.get(path, headers=headers).status_code == 200)


def invitation(flow: Flow, make: Factory) -> Case:
    with flow.app.app_context():
        link = create_invitation(
            make.actor(flow.organization), flow.organization.slug, email="new@example.com"
        ).link
    token = str(link).rpartition("/")[2]

    def lives() -> bool:
        with flow.app.app_context():
            return find_invitation(token) is not None

    return Case(token, lives)


def recognized_browser(flow: Flow, make: Factory) -> Case:
    token = make.sign_in(flow.user).known_cookie

    def lives() -> bool:
        with flow.app.app_context():
            return find_known_browser(flow.organization.id, flow.user.email, token) is not None

    return Case(token, lives)


def password_reset(flow: Flow, make: Factory) -> Case:
    with flow.app.app_context():
        token = issue_reset_link(make.actor(flow.organization), flow.user.id).link.rpartition("/")[2]

    def lives() -> bool:
        with flow.app.app_context():
            return find_reset(flow.organization, token) is not None

    return Case(token, lives)


def authorization_code(flow: Flow, make: Factory) -> Case:
    code = flow.code()
    return Case(code, lambda: flow.redeem(code).status_code == 200)


def pushed_request(flow: Flow, make: Factory) -> Case:
    uri = pushed(flow)
    token = uri.rpartition(":")[2]
    return Case(token, lambda: bring(flow, uri).status_code in {302, 303})


def device_code(flow: Flow, make: Factory) -> Case:
    device = Device(flow.http, make, flow.user)
    code = device.code()["device_code"]
    return Case(code, lambda: device.poll(code).get_json()["error"] == "authorization_pending")


CASES: dict[str, Callable[[Flow, Factory], Case]] = {
    "access token": access_token,
    "JWT access token": jwt_access_token,
    "refresh token": refresh_token,
    "client secret": client_secret,
    "session": session,
    "initial access token": initial_access,
    "registration access token": registration_access,
    "provisioning token": provisioning,
    "invitation": invitation,
    "recognized browser": recognized_browser,
    "password reset": password_reset,
    "authorization code": authorization_code,
    "pushed request": pushed_request,
    "device code": device_code,
}
# Checking consumes these, so they are checked only once, afterwards.
SPENT = {"authorization code", "pushed request", "device code", "initial access token"}
EVENTS = {
    "access token": "token.revoked",
    "client secret": "credential.revoked",
    "session": "session.ended",
    "initial access token": "registration_token.revoked",
    "provisioning token": "provisioning_token.deleted",
    "invitation": "invitation.revoked",
    "recognized browser": "browser.forgotten",
}


@pytest.mark.parametrize("kind", CASES)
def test_every_leaked_secret_is_revoked(flow: Flow, make: Factory, database: Database, kind: str) -> None:
    """P4: it is revoked before the response, and reporting it again changes nothing."""
    make.root()
    case = CASES[kind](flow, make)
    if kind not in SPENT:
        assert case.lives()
    answer = report(flow.http, case.token)
    assert (answer.status_code, answer.get_json()["data"]) == (202, {"accepted": 1})
    assert not case.lives()
    for action in ("secret.leak_reported", EVENTS.get(kind, "secret.leak_reported")):
        assert audited(database, action) == 1
        assert report(flow.http, case.token).status_code == 202
        assert audited(database, action) == 1, "recorded once"


def test_leaked_link_of_a_sign_up_is_revoked(
    flow: Flow, make: Factory, box: Mailbox, deliver: Callable[[], int]
) -> None:
    make.root()
    change_settings(flow, make, {"authentication": {"registration": {"mode": "open"}}})
    with flow.app.app_context():
        organization = get_organization_by_slug(flow.organization.slug)
        sent = {"email": "new@users.example", "name": "New", "password": PASSWORD}
        register_user(organization, **sent, ip_address=None, request_id=None)
        deliver()
        [token] = re.findall(r"/confirm/(\S+)", plain(box.mails[-1]))
        assert find_registration(organization, token) is not None
        report(flow.http, token)
        assert find_registration(organization, token) is None


@pytest.mark.parametrize("kind", sorted(SPENT))
def test_single_use_secret_is_valid_before_its_report(flow: Flow, make: Factory, kind: str) -> None:
    assert CASES[kind](flow, make).lives()


def test_every_kind_of_secret_can_be_revoked() -> None:
    """New kinds must be added to ``operations/audit/leaked_secrets``."""
    kinds = {
        value
        for name, value in vars(identifiers).items()
        if name.isupper() and not name.startswith("_") and isinstance(value, str) and len(value) == 2
    }
    assert kinds == KINDS
