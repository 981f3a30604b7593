"""Purging of deleted clients and deleted organizations."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from flask import Flask
from sqlalchemy import Table, func, select, update

from app.extensions import db
from app.models.audit import AuditEvent
from app.models.client import Client
from app.models.organization import Organization
from app.operations.clients.clients import delete_client
from app.operations.directory.lookups import OrganizationSnapshot
from app.operations.maintenance import janitor
from app.operations.maintenance.janitor import purge_expired
from app.operations.maintenance.purge_rules import organization_tables
from app.operations.organizations.organizations import delete_organization
from app.operations.store import clock
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
    root, doomed, other = make.root(), make.organization("doomed"), make.organization("other")
    for organization in (doomed, other):
        make.user(organization, role="admin")
        tokens(make.machine(organization), timedelta(hours=-1))
    delete_organization(make.system(root), "doomed")
    assert purge_expired(SYSTEM, pause=0) == {}
    write(update(Organization).where(Organization.slug == "doomed").values(purge_at=clock.now()))
    assert purge_expired(SYSTEM, pause=0)
    left = {
        table.name: db.session.scalar(
            select(func.count()).select_from(table).where(table.c.organization_id == doomed.id)
        )
        for table in organization_tables()
    }
    assert set(left.values()) == {0}
    (row,) = db.session.execute(select(Organization).where(Organization.slug == "doomed")).scalars()
    assert (row.status, row.data_key, row.settings) == ("purged", None, {})
    events = db.session.scalars(select(AuditEvent.action).where(AuditEvent.organization_id == root.id)).all()
    assert "organization.purged" in events
    assert database.query("SELECT COUNT(*) FROM access_tokens") == [(1,)]


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
