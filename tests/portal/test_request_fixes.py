"""A rejected request, its page, the button on it, and the same request again."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient
from sqlalchemy import update

from app.extensions import db
from app.models.client import Credential
from app.operations.clients.clients import update_client
from app.operations.clients.credential_revocation import revoke_credentials
from app.operations.store import clock
from app.operations.store.transactions import transaction
from app.rules.authorization.authorization_request import challenge_of
from tests.factories import Factory, MadeClient, basic_header
from tests.portal.test_failed_requests import REGISTERED, Log, forms_of
from tests.support.caches import clear_directory_cache

ORIGIN = "https://spa.orchard.example"
API = "https://api.orchard.example"
MACHINE = {"type": "machine", "scopes": [], "redirect_uris": [], "grant_types": ["client_credentials"]}


@dataclass(frozen=True)
class Case:
    """A cause: the client, what happens to it first, the request that fails, and the words of the button."""

    cause: str
    button: str
    send: Callable[[Log, MadeClient], Any]
    client: dict[str, Any] = field(default_factory=dict)
    before: Callable[[Log, MadeClient], Any] | None = None
    works: Callable[[Any], bool] = lambda answer: answer.status_code == 200


def authorize(**changes: str) -> Callable[[Log, MadeClient], Any]:
    """Return an authorization request with these parameters."""

    def send(log: Log, client: MadeClient) -> Any:
        query = {
            "client_id": client.client_id,
            "response_type": "code",
            "redirect_uri": REGISTERED,
            "scope": "openid",
            "code_challenge": challenge_of("v" * 43),
            "code_challenge_method": "S256",
        } | changes
        return log.http.get(
            "/oauth/authorize", query_string={name: value for name, value in query.items() if value}
        )

    return send


def token(headers: dict[str, str] | None = None, **form: str) -> Callable[[Log, MadeClient], Any]:
    """Return a token request of a machine, authenticated by the header."""

    def send(log: Log, client: MadeClient) -> Any:
        sent = {"grant_type": "client_credentials"} | form
        return log.app.test_client().post("/oauth/token", data=sent, headers=client.basic | (headers or {}))

    return send


def token_by_post(log: Log, client: MadeClient) -> Any:
    """Send the secret in the body."""
    form = {"grant_type": "client_credentials", "client_id": client.client_id, "client_secret": client.secret}
    return log.app.test_client().post("/oauth/token", data=form)


def sign_out(log: Log, client: MadeClient) -> Any:
    """Send the user to sign out and back to a page."""
    query = {"client_id": client.client_id, "post_logout_redirect_uri": "https://orchard.example/out"}
    return log.http.get(f"/organizations/{log.organization.slug}/oauth/logout", query_string=query)


def change(**fields: Any) -> Callable[[Log, MadeClient], Any]:
    """Return a change of the client."""

    def act(log: Log, client: MadeClient) -> Any:
        with log.app.app_context():
            return update_client(log.make.system(log.organization), client.client_id, fields)

    return act


def goes_on(answer: Any) -> bool:
    """Return whether the authorization endpoint accepted the request."""
    return answer.status_code == 303 and "error=" not in answer.headers["Location"]


CASES = (
    Case("redirect_uri_not_registered", "Add redirect URI", authorize(redirect_uri=REGISTERED + "/"), works=goes_on),
    Case(
        "post_logout_redirect_uri_not_registered", "Add post-logout redirect URI", sign_out,
        works=lambda answer: 'id="logout-stays"' not in answer.text,
    ),
    Case("scope_not_allowed", "Add scope", authorize(scope="openid email"), {"scopes": ["openid"]}, works=goes_on),
    Case(
        "grant_type_not_allowed", "Add grant type", token(),
        {"grant_types": ["authorization_code"], "scopes": []},
    ),
    Case(
        "auth_method_mismatch", "Change authentication method", token_by_post,
        MACHINE | {"token_endpoint_auth_method": "client_secret_basic"},
    ),
    Case(
        "cors_origin_not_allowed", "Allow origin", token({"Origin": ORIGIN}),
        {"grant_types": ["authorization_code", "client_credentials"], "scopes": []},
        works=lambda answer: answer.headers.get("Access-Control-Allow-Origin") == ORIGIN,
    ),
    Case("resource_not_allowed", "Add API", token(resource=API), MACHINE),
    Case("client_disabled", "Enable client", token(), MACHINE, change(status="disabled")),
    Case("client_blocked", "Unblock client", authorize(), {}, change(approval="blocked"), works=goes_on),
    Case(
        "pkce_or_nonce_missing", "Require PKCE of public clients only",
        authorize(code_challenge="", code_challenge_method=""), works=goes_on,
    ),
)  # fmt: skip


@pytest.fixture
def log(app: Flask, http: FlaskClient, make: Factory) -> Log:
    return Log(app, http, make)


def open_failure(log: Log, cause: str) -> Any:
    """Return the page of the newest failure, which has this cause."""
    log.written()
    entry = log.entries()[0]
    assert entry["cause"] == cause, entry
    page = log.page(f"/logs/{entry['id']}")
    assert page.status_code == 200
    return page


def form_of(page: Any) -> Any:
    """Return the form of the fix."""
    found = [form for form in forms_of(page.text) if form.action.endswith(("/fix", "/credentials/new"))]
    return found[0] if found else None


def press(log: Log, page: Any, **changes: str) -> Any:
    """Press the button of the fix."""
    form = form_of(page)
    return log.http.post(form.action, data=dict(form.values) | changes)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.cause)
def test_button_lets_the_same_request_succeed(log: Log, case: Case) -> None:
    client = log.make.client(log.organization, **case.client)
    if case.before is not None:
        case.before(log, client)
    assert not case.works(case.send(log, client))
    page = open_failure(log, case.cause)
    assert f">{case.button}</button>" in page.text, page.text
    done = press(log, page)
    assert done.status_code == 303, done.text
    after = log.http.get(done.headers["Location"])
    assert "Fixed. The change is live." in after.text and form_of(after) is None
    assert press(log, page).status_code in {409, 412}
    answer = case.send(log, client)
    assert case.works(answer), (answer.status_code, answer.headers, answer.text)


def revoke(log: Log, client: MadeClient) -> None:
    """Revoke the client's secret."""
    secret = client.registered.credential
    assert secret is not None
    revoke_credentials(log.make.actor(log.organization), client.client_id, credential_id=secret.public_id)


@transaction
def expire(log: Log, client: MadeClient) -> None:
    """Let the client's secret expire a minute ago."""
    db.session.execute(
        update(Credential)
        .where(Credential.client_id == client.registered.client.id)
        .values(expires_at=clock.now() - timedelta(minutes=1))
    )
    clear_directory_cache()


@pytest.mark.parametrize(("end", "cause"), [(revoke, "secret_revoked"), (expire, "secret_expired")])
def test_secret_is_replaced_in_one_click(
    log: Log, end: Callable[[Log, MadeClient], None], cause: str
) -> None:
    client = log.make.client(log.organization, **MACHINE)
    with log.app.app_context():
        end(log, client)
    assert token()(log, client).status_code == 401
    page = open_failure(log, cause)
    assert ">Add a secret</button>" in page.text
    shown = press(log, page)
    while shown.status_code == 303:
        shown = log.http.get(shown.headers["Location"])
    new = "gth_cs_" + shown.text.split("gth_cs_")[1].split("<")[0].split('"')[0].strip()
    answer = log.app.test_client().post(
        "/oauth/token", data={"grant_type": "client_credentials"}, headers=basic_header(client.client_id, new)
    )
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize(
    "redirect_uri",
    [
        "https://orchard.example/*",
        "http://orchard.example/callback",
        "javascript:alert(1)",
        "https://orchard.example/#x",
    ],
)
def test_dangerous_redirect_uri_is_not_offered(log: Log, redirect_uri: str) -> None:
    """RU-3, RU-9: the rules of the form decide."""
    authorize(redirect_uri=redirect_uri)(log, log.client)
    page = open_failure(log, "redirect_uri_not_registered")
    assert form_of(page) is None and 'id="fix-problem"' in page.text
    assert "Live at once" not in page.text
    before = log.authorize(REGISTERED + "/")
    assert before.status_code == 400
    entries = log.entries()
    dangerous = entries[1]["id"]
    other = form_of(log.page(f"/logs/{entries[0]['id']}"))
    sent = log.http.post(f"/portal/{log.organization.slug}/logs/{dangerous}/fix", data=dict(other.values))
    assert sent.status_code == 400 and 'role="alert"' in sent.text


def test_redirect_uri_at_another_host_is_offered_with_a_warning(log: Log) -> None:
    """RU-9: anyone who knows the client id can send such a request."""
    authorize(redirect_uri="https://evil.example/callback")(log, log.client)
    page = open_failure(log, "redirect_uri_not_registered")
    assert 'id="fix-host"' in page.text and "evil.example" in page.text


@pytest.mark.parametrize("host", ["evil.example", "orchard.example"])
def test_button_for_a_value_that_anyone_can_send_is_not_the_primary_one(log: Log, host: str) -> None:
    """RU-9: also a new path at a host that is known."""
    authorize(redirect_uri=f"https://{host}/another/callback")(log, log.client)
    page = open_failure(log, "redirect_uri_not_registered")
    assert "Anyone who knows the client ID can send such a request." in page.text
    assert re.search(r'<button class="btn *"[^>]*>Add', page.text), page.text


@pytest.mark.parametrize("scope", ["openid clients:write", "openid made_up"])
def test_management_and_unknown_scopes_are_not_offered(log: Log, scope: str) -> None:
    authorize(scope=scope)(log, log.client)
    assert form_of(open_failure(log, "scope_not_allowed")) is None


def test_button_does_nothing_after_the_client_changed(log: Log) -> None:
    authorize(redirect_uri=REGISTERED + "/")(log, log.client)
    page = open_failure(log, "redirect_uri_not_registered")
    change(name="Orchard Two")(log, log.client)
    stale = press(log, page)
    assert stale.status_code == 412 and "was changed" in stale.text
    assert press(log, page, version="9" * 5_000).status_code == 412
    assert log.authorize(REGISTERED + "/").status_code == 400
    assert press(log, stale).status_code == 303


def test_reader_without_permission_is_told_who_may_fix_it(log: Log) -> None:
    authorize(redirect_uri=REGISTERED + "/")(log, log.client)
    form = form_of(open_failure(log, "redirect_uri_not_registered"))
    log.make.sign_in(log.make.user(log.organization, role="auditor"), log.http)
    page = open_failure(log, "redirect_uri_not_registered")
    assert form_of(page) is None and "clients:write" in page.text and 'id="fix-permission"' in page.text
    token_value = page.text.split('name="csrf_token" value="')[1].split('"')[0]
    refused = log.http.post(form.action, data=dict(form.values) | {"csrf_token": token_value})
    assert refused.status_code == 403
    assert log.authorize(REGISTERED + "/").status_code == 400


def test_page_explains_where_it_stopped_and_each_parameter(log: Log) -> None:
    authorize(redirect_uri=REGISTERED + "/", state="s")(log, log.client)
    page = open_failure(log, "redirect_uri_not_registered").text
    assert "<mark>/</mark>" in page and "“/” is extra." in page
    assert "<h1>Orchard sent a redirect URI that is not registered</h1>" in page
    assert '<li class="bad">' in page and "not reached" in page
    assert f"redirect_uri={REGISTERED}" in page
    assert 'class="dot bad"' in page and page.count('class="dot ok"') >= 3
    assert f"/playground?client={log.client.client_id}" in page


def test_curl_of_token_request_authenticates_as_the_client_did(log: Log) -> None:
    log.app.test_client().post(
        "/oauth/token", data={"grant_type": "authorization_code", "code": "x"}, headers=log.client.basic
    )
    page = open_failure(log, "code_unknown").text
    assert f"-u &#34;{log.client.client_id}:$CLIENT_SECRET&#34;" in page


def test_page_lists_what_changed_before_it_began(log: Log) -> None:
    change(redirect_uris=["https://orchard.example/new"])(log, log.client)
    authorize()(log, log.client)
    page = open_failure(log, "redirect_uri_not_registered").text
    assert "updated a client" in page.split('id="changes"')[1]
