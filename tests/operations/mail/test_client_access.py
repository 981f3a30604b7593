"""Emails about access to APIs: to the owner of the API, and to the developer about the decision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from app.operations.audit.leaked_secrets import report_leaks
from app.operations.clients import access_decisions, access_requests, ownership, resources
from app.operations.users.user_changes import update_user
from app.rules.actor import Actor
from tests.support.mail_server import Mailbox, plain

pytestmark = pytest.mark.usefixtures("context")
Deliver = Callable[[], int]
MACHINE: dict[str, Any] = {"type": "machine", "redirect_uris": [], "scopes": []}


@pytest.mark.parametrize(
    ("owner_role", "status"), [("developer", "active"), ("developer", "disabled"), (None, "active")]
)
def test_owner_or_administrators_are_asked_and_the_developer_is_told(
    make: Any, box: Mailbox, deliver: Deliver, owner_role: str | None, status: str
) -> None:
    """A creator who may not manage the API any more is not asked."""
    acme = make.organization(name="Acme")
    make.user(acme, email="boss@acme.example", role="admin")
    user = make.user(acme, email="owner@acme.example", role=owner_role)
    owner = make.actor(acme, user=user)
    writing = ("clients:read:own", "clients:write:own")
    developer = make.actor(acme, *writing, user=make.user(acme, email="dev@acme.example"))
    api = resources.define_resource(owner, {"identifier": "urn:payroll", "name": "Payroll"}).public_id
    client = make.client(acme, by=developer, **MACHINE).client_id
    update_user(make.actor(acme), user.public_id, {"status": status})
    deliver()
    box.mails.clear()
    asked = {"scopes": [], "reason": "For the pay slips\n\nhttps://evil.example/button"}
    request = access_requests.request_access(developer, client, api, asked)
    deliver()
    [mail] = box.mails
    may_decide = owner_role is not None and status == "active"
    assert mail["To"] == ("owner@acme.example" if may_decide else "boss@acme.example")
    assert mail["Subject"] == "Request for access to Payroll"
    assert "For the pay slips https://evil.example/button" in plain(mail), "no button is made of it"
    assert f"/portal/{acme.slug}/access-requests" in plain(mail)
    access_decisions.approve_access(owner, request.public_id, {"message": "Welcome"})
    access_decisions.withdraw_access(owner, request.public_id)
    deliver()
    granted, withdrawn = box.mails[1:]
    assert granted["To"] == withdrawn["To"] == "dev@acme.example"
    assert granted["Subject"] == "Orchard has access to Payroll" and "Welcome" in plain(granted)
    assert withdrawn["Subject"] == "Orchard no longer has access to Payroll"
    assert "Those that users allowed stay valid." in plain(withdrawn)
    assert f"/clients/{client}/apis" in plain(withdrawn)


def test_disabled_owner_of_a_client_is_told_nothing_about_it(
    make: Any, box: Mailbox, deliver: Deliver
) -> None:
    make.root()
    acme = make.organization(name="Acme")
    boss = make.actor(acme, user=make.user(acme, email="boss@acme.example", role="admin"))
    user = make.user(acme, email="dev@acme.example", role="developer")
    client = make.client(acme, by=make.actor(acme, user=user))
    api = resources.define_resource(boss, {"identifier": "urn:payroll", "name": "Payroll"}).public_id
    given = access_decisions.give_access(boss, api, client.client_id, {"scopes": []})
    update_user(boss, user.public_id, {"status": "disabled"})
    deliver()
    box.mails.clear()
    access_decisions.withdraw_access(boss, given.public_id, {"message": "It was used for something else."})
    report_leaks(Actor.anonymous("", "192.0.2.7"), {"token": client.secret})
    deliver()
    assert [mail["To"] for mail in box.mails] == ["boss@acme.example"]


def test_decision_is_told_to_the_new_owner_of_the_client(make: Any, box: Mailbox, deliver: Deliver) -> None:
    acme = make.organization(name="Acme")
    boss = make.actor(acme, user=make.user(acme, email="boss@acme.example", role="admin"))
    make.user(acme, email="linus@acme.example", role="developer")
    own = ("clients:read:own", "clients:write:own")
    grace = make.actor(acme, *own, user=make.user(acme, email="grace@acme.example", role="developer"))
    api = resources.define_resource(boss, {"identifier": "urn:payroll", "name": "Payroll"}).public_id
    client = make.client(acme, by=grace, **MACHINE).client_id
    request = access_requests.request_access(
        grace, client, api, {"scopes": [], "reason": "For the pay slips"}
    )
    ownership.change_client_owner(boss, client, {"email": "linus@acme.example"})
    deliver()
    box.mails.clear()
    access_decisions.decline_access(boss, request.public_id, {})
    deliver()
    assert [mail["To"] for mail in box.mails] == ["linus@acme.example"]
