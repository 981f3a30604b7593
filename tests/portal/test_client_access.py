"""Pages about the access of clients to APIs: request, decide, give, withdraw."""

from __future__ import annotations

from typing import Any

import pytest
from flask import Flask

from app.operations.clients import resources
from tests.factories import Factory, MadeClient
from tests.portal.conftest import PortalUser

pytestmark = pytest.mark.either
MACHINE: dict[str, Any] = {"type": "machine", "redirect_uris": [], "grant_types": ["client_credentials"]}


@pytest.fixture
def payroll(app: Flask, make: Factory, acme: Any) -> str:
    """The id of an API of the administrators."""
    fields = {
        "identifier": "urn:payroll",
        "name": "Payroll",
        "scopes": [{"name": "payroll:read", "title": "Read <pay> slips"}],
    }
    with app.app_context():
        return resources.define_resource(make.actor(acme), fields).public_id


@pytest.fixture
def grace(acme: Any, portal_user: Any) -> PortalUser:
    """A developer."""
    found: PortalUser = portal_user(acme, "developer", email="grace@acme.example")
    return found


@pytest.fixture
def slips(make: Factory, acme: Any, payroll: str, grace: PortalUser) -> MadeClient:
    """A client of the developer with the API's scope, but without access."""
    by = make.actor(acme, "clients:write:own", "clients:read:own", user=grace.user)
    return make.client(acme, by=by, name="Slips", **MACHINE, scopes=["payroll:read"])


def test_request_is_approved_and_withdrawn(
    ada: PortalUser, grace: PortalUser, slips: MadeClient, payroll: str
) -> None:
    tab = f"/clients/{slips.client_id}/apis"
    grace.get(tab)
    assert "No access to APIs yet" in grace.text and "Payroll" in grace.text
    page = grace.get(f"{tab}/{payroll}")
    assert "Request access to Payroll" in grace.text and "Read &lt;pay&gt; slips" in page.text
    assert 'value="payroll:read" checked' in page.text
    assert grace.send(f"{tab}/{payroll}", scopes="payroll:read", reason="").status_code == 400
    grace.send(f"{tab}/{payroll}", scopes="payroll:read", reason="For <b>slips</b>")
    grace.follow()
    assert "The owner of the API decides" in grace.text and "Requested" in grace.text

    assert "Cancel request" in grace.text
    grace.send(f"{tab}/{payroll}/cancel")
    grace.follow()
    assert "Request cancelled" in grace.text and "No access to APIs yet" in grace.text
    grace.send(f"{tab}/{payroll}", scopes="payroll:read", reason="For <b>slips</b>")

    ada.get("")
    assert "1 open access request" in ada.text
    ada.get("/apis")
    assert "Access requests (1)" in ada.text
    page = ada.get("/access-requests")
    assert "For <b>slips</b>" in ada.text and "&lt;b&gt;slips" in page.text
    path = page.text.split("/approve")[0].rsplit('href="', 1)[1]
    ada.get(f"{path}/approve")
    assert "Approve access of Slips?" in ada.text
    ada.send(f"{path}/approve", message="Welcome")
    ada.follow()
    assert "Access given" in ada.text and "Has access" in ada.text
    late = ada.send(f"{path}/decline")
    assert late.status_code == 409 and "already decided" in ada.text
    grace.get(tab)
    assert "Has access" in grace.text and "Message: Welcome" in grace.text

    ada.get(f"{path}/withdraw")
    assert "Withdraw access of Slips?" in ada.text and "no active access tokens" in ada.text
    ada.send(f"{path}/withdraw")
    ada.follow()
    assert "Access withdrawn" in ada.text


def test_administrator_gives_access(ada: PortalUser, slips: MadeClient, payroll: str) -> None:
    page = f"/apis/{payroll}/clients"
    ada.get(page)
    assert "No client has access yet" in ada.text and "only clients with access get tokens" in ada.text
    assert ada.send(page, client_id="cli_x", scopes="payroll:read").status_code == 400
    assert "no client with this ID" in ada.text
    ada.send(page, client_id=slips.client_id, scopes="payroll:read")
    ada.follow()
    assert "Slips" in ada.text and "Has access" in ada.text


def test_page_of_the_api_shows_who_loses_access_before_the_policy_is_narrowed(
    app: Flask,
    make: Factory,
    ada: PortalUser,
    grace: PortalUser,
    slips: MadeClient,
    payroll: str,
    acme: Any,
) -> None:
    make.client(acme, name="Unrelated", **MACHINE, scopes=[])
    make.client(
        acme,
        by=make.actor(acme, "clients:write:own", "clients:read:own", user=grace.user),
        name="Orchard",
        redirect_uris=["https://orchard.example/cb"],
        grant_types=["authorization_code"],
        scopes=["payroll:read"],
    )

    def save(policy: str, **more: str) -> None:
        ada.get(f"/apis/{payroll}")
        fields = {"name": "Payroll", "scopes-0-name": "payroll:read", "is_active": "1"} | more
        ada.send(f"/apis/{payroll}", **fields, version=ada.hidden("version"), access_policy=policy)

    save("open")
    ada.follow()
    assert "Saved" in ada.text
    save("approval")
    assert "1 client will lose access" in ada.text and "Slips" in ada.text and "Orchard" not in ada.text
    save("listed")
    assert "2 clients will lose access" in ada.text and "Orchard" in ada.text and "Unrelated" not in ada.text
    with app.app_context():
        assert resources.get_resource(make.actor(acme), payroll).access_policy == "open"
    ada.send(f"/apis/{payroll}/clients", client_id=slips.client_id, scopes="payroll:read")
    save("listed")
    assert "1 client will lose access" in ada.text and "Slips" not in ada.text
    save("listed", policy_confirmed="1")
    ada.follow()
    assert "Saved" in ada.text


def test_policy_is_changed_on_the_page_of_the_api(
    ada: PortalUser, grace: PortalUser, slips: MadeClient, payroll: str
) -> None:
    page = ada.get(f"/apis/{payroll}")
    assert 'value="approval" required checked' in page.text
    fields = {"name": "Payroll", "scopes-0-name": "payroll:read", "is_active": "1"}
    ada.send(f"/apis/{payroll}", **fields, version=ada.hidden("version"), access_policy="listed")
    ada.follow()
    assert "Saved" in ada.text
    grace.get(f"/clients/{slips.client_id}/apis")
    assert "Payroll" not in grace.text
    assert grace.get(f"/clients/{slips.client_id}/apis/{payroll}").status_code == 404
    assert grace.get(f"/apis/{payroll}/clients").status_code == 404
    grace.get("/scopes?q=payroll")
    assert "No scopes found" in grace.text
    grace.get("/access-requests")
    assert "No open requests" in grace.text
