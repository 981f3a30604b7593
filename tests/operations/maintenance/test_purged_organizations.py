"""Purging of deleted clients and deleted organizations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import Table, delete, func, select, update

from app.extensions import db
from app.models.audit import AuditEvent
from app.models.client import Client, Scope
from app.models.organization import PURGED, Organization
from app.operations.audit.chain import seal_pending_events
from app.operations.clients.clients import delete_client
from app.operations.directory.lookups import OrganizationSnapshot
from app.operations.maintenance import janitor
from app.operations.maintenance.janitor import purge_expired
from app.operations.maintenance.purge_rules import organization_tables
from app.operations.organizations import organizations
from app.operations.organizations.organizations import delete_organization, restore_organization
from app.operations.organizations.settings import update_settings
from app.operations.store import clock
from app.rules.errors import Conflict
from tests.factories import Factory
from tests.operations.maintenance.test_janitor import SYSTEM, tokens, write
from tests.support.databases import Database
from tests.support.world_rows import refused


def test_deleted_client_is_purged_after_a_month(context: Flask, make: Factory, database: Database) -> None:
    organization = make.organization()
    client = make.machine(organization)
    tokens(client, timedelta(hours=1))
    delete_client(make.system(organization), client.client_id)
    assert purge_expired(SYSTEM, pause=0) == {}
    write(update(Client).values(deleted_at=clock.now() - timedelta(days=31)))
    gone = purge_expired(SYSTEM, pause=0)
    assert gone is not None
    assert gone.keys() == {"access_tokens", "client_credentials", "clients"}
    assert database.count("clients") == 0


def test_purged_organization_leaves_a_tombstone(context: Flask, make: Factory, database: Database) -> None:
    """Also if the audit log is sealed meanwhile."""

    def seal() -> bool:
        seal_pending_events(SYSTEM, holder="sealer")
        return False

    root, doomed, other = make.root(), make.organization("doomed"), make.organization("other")
    for organization in (doomed, other):
        make.user(organization, role="admin")
        tokens(make.machine(organization), timedelta(hours=-1))
    update_settings(make.actor(doomed), "doomed", {"branding": {"display_name": "Doomed & Sons"}})
    delete_organization(make.system(root), "doomed")
    seal()
    assert purge_expired(SYSTEM, pause=0) == {}
    write(update(Organization).where(Organization.slug == "doomed").values(purge_at=clock.now()))
    assert purge_expired(SYSTEM, pause=0, should_stop=seal)
    left = {
        table.name: db.session.scalar(
            select(func.count()).select_from(table).where(table.c.organization_id == doomed.id)
        )
        for table in organization_tables()
    }
    assert set(left.values()) == {0}
    (row,) = db.session.execute(select(Organization).where(Organization.slug == "doomed")).scalars()
    assert (row.status, row.data_key, row.settings) == ("purged", None, {})
    assert (row.name, row.created_by, row.settings_updated_by) == ("", None, None)
    events = db.session.scalars(select(AuditEvent.action).where(AuditEvent.organization_id == root.id)).all()
    assert "organization.purged" in events
    assert database.query("SELECT COUNT(*) FROM access_tokens") == [(1,)]


def test_purge_by_the_release_before_is_completed(context: Flask, make: Factory) -> None:
    """During an upgrade it leaves the name of the organization, and rows of tables that it does not know."""
    make.user(doomed := make.organization(), role="admin")
    values = {"status": PURGED, "deleted_at": clock.now(), "data_key": None}
    write(update(Organization).where(Organization.id == doomed.id).values(**values))
    purge_expired(SYSTEM, pause=0)
    assert (purge_expired(SYSTEM, pause=0) or {})["users"] == 1
    row = db.session.scalars(select(Organization).where(Organization.id == doomed.id)).one()
    assert (row.status, row.name, row.created_by, row.purge_at) == ("purged", "", None, None)


def test_organization_that_an_old_host_created_gets_the_scopes_of_groups_and_roles(
    context: Flask, make: Factory
) -> None:
    """During an upgrade release 0.1 creates it without them, or it had a scope of this name."""
    acme = make.organization()
    with_texts = select(Scope.title).where(Scope.organization_id == acme.id).order_by(Scope.name)
    before = db.session.scalars(with_texts).all()
    write(delete(Scope).where(Scope.name == "roles"))
    write(update(Scope).where(Scope.name == "groups").values(title="Ours"))
    purge_expired(SYSTEM, pause=0)
    after = db.session.scalars(with_texts).all()
    assert after == [{"See your groups": "Ours"}.get(title, title) for title in before]


def test_late_row_does_not_prevent_the_purge(
    context: Flask, make: Factory, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed request is stored after its table was emptied and refers to a client that is deleted next."""
    root, doomed = make.root(), make.organization("doomed")
    client = make.machine(doomed)
    late = iter([True])

    all_tables = organization_tables

    def tables() -> Iterator[Table]:
        for table in all_tables():
            yield table
            if table.name == "failed_requests" and next(late, False):
                monkeypatch.setattr(OrganizationSnapshot, "is_deleted", False)
                refused(client, clock.now())

    monkeypatch.setattr(janitor, "organization_tables", tables)
    delete_organization(make.system(root), "doomed")
    write(update(Organization).where(Organization.slug == "doomed").values(purge_at=clock.now()))
    assert purge_expired(SYSTEM, pause=0)
    assert next(late, None) is None and database.count("failed_requests") == 0
    assert db.session.scalar(select(Organization.status).where(Organization.slug == "doomed")) == "purged"


def test_organization_restored_before_its_first_batch_keeps_its_rows(
    context: Flask, make: Factory, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, doomed = make.root(), make.organization("doomed")
    make.user(doomed)
    delete_organization(make.system(root), "doomed")
    write(update(Organization).where(Organization.slug == "doomed").values(purge_at=clock.now()))
    all_tables, users = organization_tables, database.count("users")

    def tables() -> list[Table]:
        write(update(Organization).where(Organization.slug == "doomed").values(purge_at=_later()))
        restore_organization(make.system(root), "doomed")
        return all_tables()

    monkeypatch.setattr(janitor, "organization_tables", tables)
    assert purge_expired(SYSTEM, pause=0) == {}
    assert database.count("users") == users
    assert db.session.scalar(select(Organization.status).where(Organization.slug == "doomed")) == "active"


def test_organization_made_active_between_two_batches_loses_no_more_rows(
    context: Flask, make: Factory, database: Database
) -> None:
    root, doomed = make.root(), make.organization("doomed")
    for _ in range(4):
        make.user(doomed)
    delete_organization(make.system(root), "doomed")
    write(update(Organization).where(Organization.slug == "doomed").values(purge_at=clock.now()))
    batches: list[int] = []

    def between() -> bool:
        batches.append(database.count("users"))
        if batches[-1] == 3:
            write(
                update(Organization)
                .where(Organization.slug == "doomed")
                .values(status="active", purge_at=None)
            )
        return False

    purge_expired(SYSTEM, pause=0, batch=1, should_stop=between)
    assert database.count("users") == 3
    assert db.session.scalar(select(Organization.status).where(Organization.slug == "doomed")) == "active"


@pytest.mark.parametrize("behind", [timedelta(), timedelta(minutes=5)])
def test_restore_between_two_batches_of_the_purge_is_refused(
    context: Flask, make: Factory, monkeypatch: pytest.MonkeyPatch, behind: timedelta
) -> None:
    """Also by a process whose clock is behind."""
    root, doomed = make.root(), make.organization("doomed")
    make.user(doomed)
    delete_organization(make.system(root), "doomed")
    an_hour_ago = clock.now() - timedelta(hours=1)
    write(
        update(Organization)
        .where(Organization.slug == "doomed")
        .values(deleted_at=an_hour_ago, purge_at=clock.now())
    )
    refusals = []
    now = clock.now

    def between() -> bool:
        with monkeypatch.context() as patch:
            patch.setattr(clock, "now", lambda: now() - behind)
            with pytest.raises(Conflict) as refusal:
                restore_organization(make.system(root), "doomed")
        refusals.append(refusal.value.code)
        return len(refusals) == 2

    purge_expired(SYSTEM, pause=0, batch=1, should_stop=between)
    purge_expired(SYSTEM, pause=0)
    assert len(refusals) > 1 and set(refusals) == {"purged"}
    assert db.session.scalar(select(Organization.status).where(Organization.slug == "doomed")) == "purged"


def test_restore_that_read_the_organization_before_the_purge_began_is_refused(
    context: Flask, make: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, doomed = make.root(), make.organization("doomed")
    delete_organization(make.system(root), "doomed")
    monkeypatch.setattr(organizations, "parse_organization_changes", _begin_purge_then(doomed.id))
    with pytest.raises(Conflict, match="being changed by others"):
        restore_organization(make.system(root), "doomed")


def _begin_purge_then(organization_id: str) -> Callable[[Any], Any]:
    """Return a parser of changes that moves the organization's purge first, as the janitor's first batch does."""
    parse = organizations.parse_organization_changes

    def begin(fields: Any) -> Any:
        db.session.execute(
            update(Organization)
            .where(Organization.id == organization_id)
            .values(purge_at=Organization.deleted_at)
            .execution_options(synchronize_session=False)
        )
        return parse(fields)

    return begin


def _later() -> datetime:
    return clock.now() + timedelta(days=1)
