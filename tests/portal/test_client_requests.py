"""Client requests: the queue, the decision, and the approval of a client."""

from __future__ import annotations

import re
from typing import Any

import pytest
from flask import Flask

from app.operations.authorization.approval_requests import create_client_request
from app.operations.clients.clients import get_client, update_client
from app.operations.directory import lookups
from tests.factories import Factory
from tests.portal.conftest import Person


@pytest.fixture
def acme(make: Factory) -> Any:
    return make.organization(settings={"oauth": {"consent": {"members_may_allow": "verified"}}})


@pytest.fixture
def client(make: Factory, acme: Any) -> Any:
    return make.client(acme, name="Calendar <Bot>")


@pytest.fixture
def boss(app: Flask, make: Factory, acme: Any) -> Person:
    return Person(app, make, make.user(acme, role="admin"))


def ask(app: Flask, make: Factory, client: Any, user: Any, reason: str = "To plan <b>harvests</b>") -> None:
    with app.app_context():
        view = lookups.find_client(client.client_id, fresh=True)
        assert view is not None
        create_client_request(
            make.actor(client.organization, "users:read", user=user), view, ("openid",), reason
        )


def stored(app: Flask, make: Factory, client: Any) -> Any:
    with app.app_context():
        return get_client(make.actor(client.organization), client.client_id)


def test_request_is_listed_and_approved(
    app: Flask, make: Factory, acme: Any, client: Any, boss: Person
) -> None:
    ask(app, make, client, make.user(acme, email="grace@acme.example"))
    boss.get("")
    assert "Needs attention 1 open client request" in boss.text
    boss.get("/clients")
    assert "Requests 1 open" in boss.text
    page = boss.get("/client-requests")
    assert "Calendar <Bot>" in boss.text and "grace@acme.example" in boss.text
    assert "To plan <b>harvests</b>" in boss.text and "&lt;b&gt;harvests" in page.text
    path = page.text.split("/approve")[0].rsplit('href="', 1)[1]
    boss.get(f"{path}/approve")
    assert "Approve Calendar <Bot>?" in boss.text
    boss.send(f"{path}/approve", verified="1")
    boss.follow()
    assert "Client approved" in boss.text and "No open requests" in boss.text
    assert (stored(app, make, client).approval, stored(app, make, client).trust) == (
        "allowed",
        "verified",
    )
    boss.get("/client-requests?status=approved")
    assert "grace@acme.example" in boss.text
    late = boss.send(f"{path}/decline")
    assert (
        late.status_code == 409
        and "Another administrator has already approved or declined this request" in boss.text
    )


def test_approval_of_changed_client_is_rejected(
    app: Flask, make: Factory, acme: Any, client: Any, boss: Person
) -> None:
    ask(app, make, client, make.user(acme))
    path = boss.get("/client-requests").text.split("/approve")[0].rsplit('href="', 1)[1]
    seen = re.search(r'name="version" value="(\d+)"', boss.get(f"{path}/approve").text)
    assert seen is not None
    with app.app_context():
        update_client(make.actor(acme), client.client_id, {"name": "Payroll"})
    assert boss.send(f"{path}/approve", version=seen[1]).status_code == 409
    assert "Review it again" in boss.text and "Payroll" in boss.text
    assert stored(app, make, client).approval is None


def test_invalid_message_keeps_input_and_valid_one_is_sent(
    app: Flask, make: Factory, acme: Any, client: Any, boss: Person
) -> None:
    ask(app, make, client, make.user(acme))
    path = boss.get("/client-requests").text.split("/decline")[0].rsplit('href="', 1)[1]
    boss.get(f"{path}/decline")
    answer = boss.send(f"{path}/decline", message="x" * 301)
    assert answer.status_code == 400 and "x" * 301 in answer.text and 'aria-invalid="true"' in answer.text
    boss.send(f"{path}/decline", message="We have another one")
    boss.follow()
    assert "Request declined" in boss.text
    boss.get("/client-requests?status=declined")
    assert "We have another one" in boss.text


def test_auditor_can_read_but_not_decide(app: Flask, make: Factory, acme: Any, client: Any) -> None:
    ask(app, make, client, make.user(acme))
    auditor = Person(app, make, make.user(acme, role="auditor"))
    page = auditor.get("/client-requests")
    assert "Calendar <Bot>" in auditor.text and "/approve" not in page.text
    boss = Person(app, make, make.user(acme, role="admin"))
    path = boss.get("/client-requests").text.split("/approve")[0].rsplit('href="', 1)[1]
    assert auditor.get(f"{path}/approve").status_code == 403


def test_client_is_blocked_on_access_tab(app: Flask, make: Factory, client: Any, boss: Person) -> None:
    path = f"/clients/{client.client_id}/access"
    page = boss.get(path)
    assert "Requires administrator approval" in boss.text
    version = page.text.split('name="version" value="')[1].split('"')[0]
    scopes = ["openid", "profile", "email", "offline_access"]
    boss.send(path, version=version, scopes=scopes, approval="blocked")
    boss.follow()
    assert "Saved. The change is live." in boss.text and "Blocked" in boss.text
    assert stored(app, make, client).approval == "blocked"
    assert "Blocked" in boss.get("/clients").text


def test_pre_approval_of_unreviewed_client_is_rejected(
    app: Flask, make: Factory, client: Any, boss: Person
) -> None:
    path = f"/clients/{client.client_id}/access"
    version = boss.get(path).text.split('name="version" value="')[1].split('"')[0]
    sent = {"scopes": ["openid"], "approval": "pre_approved", "approved_scopes": ["openid"]}
    answer = boss.send(path, version=version, **sent)
    assert answer.status_code == 400 and "Mark the client as reviewed" in boss.text
    assert stored(app, make, client).approval is None


def test_developer_sees_approval_without_field(app: Flask, make: Factory, acme: Any) -> None:
    user = make.user(acme, role="developer")
    mine = make.client(acme, by=make.actor(acme, "clients:write", "clients:read", user=user))
    boss = Person(app, make, make.user(acme, role="admin"))
    path = f"/clients/{mine.client_id}/access"
    version = boss.get(path).text.split('name="version" value="')[1].split('"')[0]
    boss.send(path, version=version, scopes=["openid", "profile"], approval="review")
    developer = Person(app, make, user)
    page = developer.get(path)
    assert "Approval: Requires administrator approval" in developer.text
    assert 'name="approval"' not in page.text


def test_api_page_warns_about_scopes_without_title(
    app: Flask, make: Factory, acme: Any, boss: Person
) -> None:
    from app.operations.clients.resources import define_resource

    with app.app_context():
        fields = {"identifier": "urn:w", "name": "Words", "scopes": [{"name": "w:read"}]}
        api = define_resource(make.actor(acme), fields).public_id
    boss.get(f"/apis/{api}")
    assert "Some scopes have no title" in boss.text


def test_decision_page_shows_redirect_hosts(app: Flask, make: Factory, acme: Any, boss: Person) -> None:
    """CO-1: anyone can copy a name, but not a host."""
    client = make.client(
        acme,
        name="Calendar",
        redirect_uris=[
            "https://calendar.example/cb",
            "https://evil.example/cb",
            "https://evil.example/other",
        ],
        client_uri="https://calendar.example/about",
    )
    ask(app, make, client, make.user(acme))
    page = boss.get("/client-requests")
    assert "calendar.example, evil.example" in boss.text
    path = page.text.split("/approve")[0].rsplit('href="', 1)[1]
    for decision in ("approve", "decline"):
        page = boss.get(f"{path}/{decision}")
        assert "Redirects to calendar.example , evil.example" in boss.text
        assert 'href="https://calendar.example/about" rel="noreferrer noopener"' in page.text
        assert "Self-registered" not in boss.text
