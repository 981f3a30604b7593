"""Requests for access to APIs: who asks, who decides, what each change writes, who is notified."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from flask import Flask

from app.operations.clients import access_decisions, access_records, access_requests, clients, resources
from app.operations.clients.access_records import AlreadyDecided
from app.operations.directory.lookups import OrganizationSnapshot
from app.rules.actor import Actor
from app.rules.directory.permissions import BUILT_IN_ROLES
from app.rules.errors import Conflict, DomainError, Forbidden, InvalidInput, NotFound, TooManyRequests
from tests.factories import Factory
from tests.oauth.conftest import audited
from tests.support.cases import each
from tests.support.databases import Database

MACHINE: dict[str, Any] = {"type": "machine", "redirect_uris": [], "grant_types": ["client_credentials"]}
ASKED = {"scopes": ["payroll:read"], "reason": "For the pay slips."}


@dataclass(frozen=True, slots=True)
class Place:
    """An API of one developer, and a client of another."""

    organization: OrganizationSnapshot
    owner: Actor
    api: str
    developer: Actor
    client: str

    def request(self, **changes: Any) -> access_records.AccessRecord:
        return access_requests.request_access(self.developer, self.client, self.api, ASKED | changes)


@pytest.fixture
def place(app: Flask, make: Factory) -> Iterator[Place]:
    organization = make.organization()
    held = BUILT_IN_ROLES["developer"].permissions
    owner, developer = (
        make.actor(organization, *held, user=make.user(organization, email=email, role="developer"))
        for email in ("owner@example.com", "developer@example.com")
    )
    with app.app_context():
        fields = {
            "identifier": "urn:payroll",
            "name": "Payroll",
            "scopes": [{"name": "payroll:read"}, {"name": "payroll:write"}],
        }
        api = resources.define_resource(owner, fields).public_id
        registered = clients.register_client(
            developer, {"name": "Slips", **MACHINE, "scopes": ["payroll:read"]}
        )
        yield Place(organization, owner, api, developer, registered.client.client_id)


def test_owner_of_the_api_approves_a_request(place: Place, database: Database) -> None:
    request = place.request()
    assert (request.status, request.reason) == ("requested", "For the pay slips.")
    assert access_records.count_pending_requests(place.owner) == 1
    assert access_records.count_pending_requests(place.developer) == 0
    granted = access_decisions.approve_access(place.owner, request.public_id, {"message": "Welcome"})
    assert (granted.id, granted.status, granted.scopes) == (request.id, "granted", ("payroll:read",))
    [seen] = access_records.list_access_of_client(place.developer, place.client).items
    assert seen == granted
    assert audited(database, "client_access.requested") == audited(database, "client_access.granted") == 1


def test_declined_request_can_be_made_again(place: Place, database: Database) -> None:
    declined = access_decisions.decline_access(place.owner, place.request().public_id, {"message": "Why?"})
    assert (declined.status, declined.message) == ("declined", "Why?")
    with pytest.raises(AlreadyDecided):
        access_decisions.approve_access(place.owner, declined.public_id)
    again = place.request(reason="For the pay slips of August.")
    access_decisions.approve_access(place.owner, again.public_id)
    statuses = [item.status for item in access_records.list_client_access(place.owner).items]
    assert statuses == ["granted"]
    assert audited(database, "client_access.declined") == 1


def test_second_approval_adds_its_scopes(place: Place) -> None:
    access_decisions.approve_access(place.owner, place.request().public_id)
    more = place.request(scopes=["payroll:write"])
    granted = access_decisions.approve_access(place.owner, more.public_id)
    assert granted.scopes == ("payroll:read", "payroll:write")
    assert len(access_records.list_client_access(place.owner).items) == 1


def test_pending_request_is_replaced(place: Place) -> None:
    place.request()
    place.request(scopes=["payroll:write"])
    [pending] = access_records.list_client_access(place.owner, filters={"status": "requested"}).items
    assert pending.scopes == ("payroll:write",)


def test_cancelled_request_is_deleted_and_keeps_the_access(place: Place, database: Database) -> None:
    access_decisions.approve_access(place.owner, place.request().public_id)
    pending = place.request(scopes=["payroll:write"])
    assert access_requests.cancel_request(place.developer, place.client, place.api) == pending
    [left] = access_records.list_access_of_client(place.developer, place.client).items
    assert (left.status, left.scopes) == ("granted", ("payroll:read",))
    assert access_records.count_pending_requests(place.owner) == 0
    with pytest.raises(NotFound):
        access_requests.cancel_request(place.developer, place.client, place.api)
    with pytest.raises(NotFound):
        access_decisions.approve_access(place.owner, pending.public_id)
    assert audited(database, "client_access.cancelled") == 1


def test_request_of_another_developer_cannot_be_cancelled(place: Place, database: Database) -> None:
    pending = place.request()
    with pytest.raises(NotFound):
        access_requests.cancel_request(place.owner, place.client, place.api)
    [left] = access_records.list_client_access(place.owner).items
    assert left == pending
    assert audited(database, "client_access.cancelled") == 0


def test_withdrawn_access_cannot_be_withdrawn_again(place: Place, database: Database) -> None:
    granted = access_decisions.approve_access(place.owner, place.request().public_id)
    access_decisions.withdraw_access(place.owner, granted.public_id, {"message": "No longer needed"})
    with pytest.raises(AlreadyDecided):
        access_decisions.withdraw_access(place.owner, granted.public_id)
    assert audited(database, "client_access.withdrawn") == 1


@pytest.mark.parametrize("decide", ["approve_access", "decline_access", "withdraw_access"])
def test_only_those_who_manage_the_api_decide(place: Place, decide: str) -> None:
    """The developer who asks cannot see the API, so the decision does not exist for them."""
    request = place.request()
    with pytest.raises(NotFound):
        getattr(access_decisions, decide)(place.developer, request.public_id)
    reader = Actor("user", place.organization.id, place.organization.id, frozenset({"resources:read"}))
    with pytest.raises(Forbidden):
        getattr(access_decisions, decide)(reader, request.public_id)


@each(
    ("changes", "error", "field"),
    [
        ({"reason": " "}, InvalidInput, "reason"),
        ({"scopes": ["stock:read"]}, InvalidInput, "scopes[0]"),
        ({"scopes": "payroll:read"}, InvalidInput, "scopes"),
        ({"until": "tomorrow"}, InvalidInput, "until"),
    ],
)
def test_invalid_request_is_rejected(
    place: Place, database: Database, changes: dict[str, Any], error: type[DomainError], field: str
) -> None:
    with pytest.raises(error) as rejected:
        place.request(**changes)
    assert rejected.value.field == field
    assert database.count("client_access") == 0


def test_open_api_needs_no_request(place: Place) -> None:
    resources.update_resource(place.owner, place.api, {"access_policy": "open"})
    assert access_requests.list_requestable_resources(place.developer, place.client) == []
    with pytest.raises(Conflict, match="open to all"):
        place.request()


def test_owner_gives_access_to_a_client_of_others(place: Place) -> None:
    given = access_decisions.give_access(place.owner, place.api, place.client, {"scopes": ["payroll:read"]})
    assert given.status == "granted"
    resources.update_resource(place.owner, place.api, {"access_policy": "listed"})
    [known] = access_requests.list_requestable_resources(place.developer, place.client)
    assert known.public_id == place.api


def test_request_of_whoever_manages_the_api_gives_access_at_once(place: Place, make: Factory) -> None:
    administrator = make.actor(place.organization)
    given = access_requests.request_access(administrator, place.client, place.api, ASKED)
    assert (given.status, given.scopes) == ("granted", ("payroll:read",))
    assert access_records.count_pending_requests(place.owner) == 0


def test_access_is_deleted_with_the_api(place: Place, database: Database) -> None:
    place.request()
    resources.delete_resource(place.owner, place.api, confirmed=True)
    assert database.count("client_access") == 0


def test_pending_requests_of_deleted_clients_do_not_count(
    place: Place, make: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access_requests, "MAX_PENDING", 1)
    place.request()
    other = clients.register_client(
        place.developer, {"name": "Other", **MACHINE, "scopes": []}
    ).client.client_id
    with pytest.raises(TooManyRequests):
        access_requests.request_access(place.developer, other, place.api, ASKED)
    clients.delete_client(place.developer, place.client)
    access_requests.request_access(place.developer, other, place.api, ASKED)
