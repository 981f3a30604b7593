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
from tests.portal.conftest import PortalUser


@pytest.fixture
def acme(make: Factory) -> Any:
    return make.organization(settings={"oauth": {"consent": {"members_may_allow": "verified"}}})


@pytest.fixture
def client(make: Factory, acme: Any) -> Any:
    return make.client(acme, name="Calendar <Bot>")


@pytest.fixture
def administrator(app: Flask, make: Factory, acme: Any) -> PortalUser:
    return PortalUser(app, make, make.user(acme, role="admin"))


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
    app: Flask, make: Factory, acme: Any, client: Any, administrator: PortalUser
) -> None:
    ask(app, make, client, make.user(acme, email="grace@acme.example"))
    administrator.get("")
    assert "Needs attention 1 1 open client request" in administrator.text
    administrator.get("/clients")
    assert "Requests 1 open" in administrator.text
    page = administrator.get("/client-requests")
    assert "Calendar <Bot>" in administrator.text and "grace@acme.example" in administrator.text
    assert "To plan <b>harvests</b>" in administrator.text and "&lt;b&gt;harvests" in page.text
    path = page.text.split("/approve")[0].rsplit('href="', 1)[1]
    administrator.get(f"{path}/approve")
    assert "Approve Calendar <Bot>?" in administrator.text
    administrator.send(f"{path}/approve", verified="1")
    administrator.follow()
    assert "Client approved" in administrator.text and "No open requests" in administrator.text
    assert (stored(app, make, client).approval, stored(app, make, client).trust) == (
        "allowed",
        "verified",
    )
    administrator.get("/client-requests?status=approved")
    assert "grace@acme.example" in administrator.text
    late = administrator.send(f"{path}/decline")
    assert (
        late.status_code == 409
        and "Another administrator has already approved or declined this request" in administrator.text
    )


def test_approval_of_changed_client_is_rejected(
    app: Flask, make: Factory, acme: Any, client: Any, administrator: PortalUser
) -> None:
    ask(app, make, client, make.user(acme))
    path = administrator.get("/client-requests").text.split("/approve")[0].rsplit('href="', 1)[1]
    seen = re.search(r'name="version" value="(\d+)"', administrator.get(f"{path}/approve").text)
    assert seen is not None
    with app.app_context():
        update_client(make.actor(acme), client.client_id, {"name": "Payroll"})
    assert administrator.send(f"{path}/approve", version=seen[1]).status_code == 409
    assert "Review it again" in administrator.text and "Payroll" in administrator.text
    assert stored(app, make, client).approval is None


def test_invalid_message_keeps_input_and_valid_one_is_sent(
    app: Flask, make: Factory, acme: Any, client: Any, administrator: PortalUser
) -> None:
    ask(app, make, client, make.user(acme))
    path = administrator.get("/client-requests").text.split("/decline")[0].rsplit('href="', 1)[1]
    administrator.get(f"{path}/decline")
    answer = administrator.send(f"{path}/decline", message="x" * 301)
    assert answer.status_code == 400 and "x" * 301 in answer.text and 'aria-invalid="true"' in answer.text
    administrator.send(f"{path}/decline", message="We have another one")
    administrator.follow()
    # Without a mail server nobody was notified.
    assert "Request declined." in administrator.text and "notified" not in administrator.text
    administrator.get("/client-requests?status=declined")
    assert "We have another one" in administrator.text


def test_auditor_can_read_but_not_decide(app: Flask, make: Factory, acme: Any, client: Any) -> None:
    ask(app, make, client, make.user(acme))
    auditor = PortalUser(app, make, make.user(acme, role="auditor"))
    page = auditor.get("/client-requests")
    assert "Calendar <Bot>" in auditor.text and "/approve" not in page.text
    administrator = PortalUser(app, make, make.user(acme, role="admin"))
    path = administrator.get("/client-requests").text.split("/approve")[0].rsplit('href="', 1)[1]
    assert auditor.get(f"{path}/approve").status_code == 403


def test_client_is_blocked_on_access_tab(
    app: Flask, make: Factory, client: Any, administrator: PortalUser
) -> None:
    path = f"/clients/{client.client_id}/access"
    page = administrator.get(path)
    assert "Requires administrator approval" in administrator.text
    version = page.text.split('name="version" value="')[1].split('"')[0]
    scopes = ["openid", "profile", "email", "offline_access"]
    administrator.send(path, version=version, scopes=scopes, approval="blocked")
    administrator.follow()
    assert "Saved. The change is live." in administrator.text and "Blocked" in administrator.text
    assert stored(app, make, client).approval == "blocked"
    assert "Blocked" in administrator.get("/clients").text


def test_pre_approval_of_unreviewed_client_is_rejected(
    app: Flask, make: Factory, client: Any, administrator: PortalUser
) -> None:
    path = f"/clients/{client.client_id}/access"
    version = administrator.get(path).text.split('name="version" value="')[1].split('"')[0]
    sent = {"scopes": ["openid"], "approval": "pre_approved", "approved_scopes": ["openid"]}
    answer = administrator.send(path, version=version, **sent)
    assert answer.status_code == 400 and "Mark the client as reviewed" in administrator.text
    assert stored(app, make, client).approval is None


def test_developer_sees_approval_without_field(app: Flask, make: Factory, acme: Any) -> None:
    user = make.user(acme, role="developer")
    mine = make.client(acme, by=make.actor(acme, "clients:write", "clients:read", user=user))
    administrator = PortalUser(app, make, make.user(acme, role="admin"))
    path = f"/clients/{mine.client_id}/access"
    version = administrator.get(path).text.split('name="version" value="')[1].split('"')[0]
    administrator.send(path, version=version, scopes=["openid", "profile"], approval="review")
    developer = PortalUser(app, make, user)
    page = developer.get(path)
    assert "Approval: Requires administrator approval" in developer.text
    assert 'name="approval"' not in page.text


def test_api_page_warns_about_scopes_without_title(
    app: Flask, make: Factory, acme: Any, administrator: PortalUser
) -> None:
    from app.operations.clients.resources import define_resource

    with app.app_context():
        fields = {"identifier": "urn:w", "name": "Words", "scopes": [{"name": "w:read"}]}
        api = define_resource(make.actor(acme), fields).public_id
    administrator.get(f"/apis/{api}")
    assert "Some scopes have no title" in administrator.text


def test_decision_page_shows_redirect_hosts(
    app: Flask, make: Factory, acme: Any, administrator: PortalUser
) -> None:
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
    page = administrator.get("/client-requests")
    assert "calendar.example, evil.example" in administrator.text
    path = page.text.split("/approve")[0].rsplit('href="', 1)[1]
    for decision in ("approve", "decline"):
        page = administrator.get(f"{path}/{decision}")
        assert "Redirects to calendar.example , evil.example" in administrator.text
        assert 'href="https://calendar.example/about" rel="noreferrer noopener"' in page.text
        assert "Self-registered" not in administrator.text
