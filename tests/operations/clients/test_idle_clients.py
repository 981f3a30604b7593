"""Idle self-registered clients are deleted (DC-1)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import select, update

from app.extensions import db
from app.models.audit import AuditEvent
from app.models.client import DELETED, Client, ClientRegistration
from app.models.organization import Organization
from app.operations.clients.clients import update_client
from app.operations.directory.lookups import OrganizationSnapshot
from app.operations.maintenance.janitor import purge_expired
from app.operations.maintenance.restore import RestoreReport, cutoffs_of
from app.operations.organizations.organizations import update_organization
from app.operations.store import clock
from app.operations.store.transactions import transaction
from app.rules.actor import Actor
from app.rules.identifiers import format_client_id
from tests.factories import Factory
from tests.support.registration import register

DAY = timedelta(days=1)
METADATA: dict[str, Any] = {
    "client_name": "Weather Bot",
    "redirect_uris": ["https://weather.example/callback"],
}


@pytest.fixture
def organization(context: Flask, make: Factory) -> OrganizationSnapshot:
    make.root()
    rules = {"mode": "open", "idle_ttl_seconds": 10 * 86_400}
    return make.organization(settings={"oauth": {"dynamic_registration": rules}})


def age(*, made: timedelta, used: timedelta | None) -> None:
    """Set the age of every organization and client, its last use, and make its check due."""

    @transaction
    def act() -> None:
        now = clock.now()
        last = None if used is None else now - used
        db.session.execute(update(Organization).values(updated_at=now - made))
        times = {"created_at": now - made, "updated_at": now - made, "last_used_at": last}
        db.session.execute(update(Client).values(times))
        db.session.execute(update(ClientRegistration).values(idle_check_at=now - timedelta(seconds=1)))

    act()


def run_janitor() -> int:
    gone = purge_expired(Actor.system("", "janitor"), pause=0)
    assert gone is not None
    return gone["idle clients"]


def check_again() -> None:
    db.session.execute(update(ClientRegistration).values(idle_check_at=clock.now() - DAY))
    db.session.commit()
    assert run_janitor() == 0


def statuses() -> dict[str, str]:
    return {row.name: row.status for row in db.session.scalars(select(Client))}


@pytest.mark.parametrize(
    ("made", "used", "ends"),
    [
        (11 * DAY, None, True),
        (9 * DAY, None, False),
        (100 * DAY, 11 * DAY, True),
        (100 * DAY, 9 * DAY, False),
    ],
)
def test_client_is_deleted_after_the_idle_time_of_the_organization(
    context: Flask, organization: OrganizationSnapshot, made: timedelta, used: timedelta | None, ends: bool
) -> None:
    register(Actor.anonymous(organization.id), METADATA, None)
    age(made=made, used=used)
    assert run_janitor() == (1 if ends else 0)
    assert statuses()["Weather Bot"] == (DELETED if ends else "active")
    actions = list(db.session.scalars(select(AuditEvent.action)))
    assert actions.count("client.deleted") == (1 if ends else 0)


def test_client_registered_by_a_user_is_never_deleted_as_idle(
    context: Flask, organization: OrganizationSnapshot, make: Factory
) -> None:
    make.client(organization)
    age(made=3650 * DAY, used=3000 * DAY)
    assert run_janitor() == 0
    assert statuses()["Orchard"] == "active"


def test_client_is_checked_once_a_day(context: Flask, organization: OrganizationSnapshot) -> None:
    register(Actor.anonymous(organization.id), METADATA, None)
    age(made=9 * DAY, used=None)
    run_janitor()
    due = db.session.scalars(select(ClientRegistration.idle_check_at)).one()
    assert due is not None and timedelta(hours=23) < due - clock.now() <= DAY


@pytest.mark.parametrize("change", [{"status": "disabled"}, {"approval": "blocked"}])
def test_client_that_is_kept_out_is_not_deleted_as_idle(
    context: Flask, organization: OrganizationSnapshot, make: Factory, change: dict[str, str]
) -> None:
    """Once deleted, it could be registered again from its URL. It was not idle by itself until it is let in again."""
    registration = register(Actor.anonymous(organization.id), METADATA, None)
    update_client(make.actor(organization), registration.client.client_id, change)
    age(made=100 * DAY, used=None)
    assert run_janitor() == 0
    assert statuses()["Weather Bot"] != DELETED
    restored = {"status": "active", "approval": None}
    update_client(make.actor(organization), registration.client.client_id, {k: restored[k] for k in change})
    check_again()
    assert statuses()["Weather Bot"] == "active"


def test_client_is_not_idle_by_a_suspension_or_restore_of_its_organization(
    context: Flask, organization: OrganizationSnapshot, make: Factory
) -> None:
    register(Actor.anonymous(organization.id), METADATA, None)
    age(made=100 * DAY, used=11 * DAY)
    for status in ("suspended", "active"):
        update_organization(make.actor(make.root()), organization.slug, {"status": status})
        check_again()
    age(made=100 * DAY, used=11 * DAY)
    # As after a restore, or a recovery from a lost cell.
    report = RestoreReport(at=clock.now(), blocks_secrets=False, resets_passwords=False)
    db.session.execute(update(Organization).values(cutoffs_of(report)))
    check_again()
    assert statuses()["Weather Bot"] == "active"


def test_rows_of_a_deleted_client_are_purged(context: Flask, organization: OrganizationSnapshot) -> None:
    registration = register(Actor.anonymous(organization.id), METADATA, None)
    age(made=11 * DAY, used=None)
    run_janitor()
    row_id = registration.client.id
    assert format_client_id(organization.id, row_id) == registration.client.client_id

    @transaction
    def long_ago() -> None:
        db.session.execute(
            update(Client).where(Client.id == row_id).values(deleted_at=clock.now() - 31 * DAY)
        )

    long_ago()
    run_janitor()
    assert db.session.scalars(select(ClientRegistration)).all() == []
    assert "Weather Bot" not in statuses()
