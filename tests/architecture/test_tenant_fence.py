"""The tenant fence (TN-5): a statement without an organization never reaches the database."""

from __future__ import annotations

import re
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import delete, false, func, insert, select, update
from sqlalchemy.orm import aliased

from app.database import ACROSS, FENCE, Fence, Unfenced
from app.extensions import db
from app.fast_path.compiled_query import CompiledQuery
from app.models.client import Client
from app.models.grant import Grant
from app.models.organization import Organization
from app.models.user import User
from tests.support.cases import each
from tests.support.servers import ROOT

OTHER = aliased(User)
BAD = {
    "no condition": select(User.id),
    "another column": select(User.id).where(User.email_canonical == "a"),
    "a count": select(func.count()).select_from(User),
    "an update": update(User).values(name="x"),
    "a delete": delete(User).where(User.status == "deleted"),
    "half a join": select(User.id).join(Grant, Grant.user_id == User.id).where(User.organization_id == "a"),
    "only joined to each other": select(User.id).join(Grant, Grant.organization_id == User.organization_id),
    "an alias": select(OTHER.id).where(OTHER.name == "x"),
    "the organization asked for, not narrowed by": select(User.organization_id).where(User.name == "x"),
    "a subquery": select(Organization.id).where(
        Organization.id == "a", Organization.name.in_(select(User.name).where(User.status == "x"))
    ),
}
GOOD = {
    "its own": select(User.id).where(User.organization_id == "a"),
    "some named ones": select(User.id).where(User.organization_id.in_(["a", "b"])),
    "a whole join": select(User.id)
    .join(Grant, (Grant.organization_id == User.organization_id) & (Grant.user_id == User.id))
    .where(User.organization_id == "a"),
    "no rows": select(User.id).where(false()),
    "organizations themselves": select(Organization.id),
    "all, and says so": select(User.id).execution_options(**ACROSS),
    "an update": update(User).where(User.organization_id == "a").values(name="x"),
    "a delete": delete(Client).where(Client.organization_id == "a"),
}
# Queries across organizations: jobs of the instance, each reviewed.
MEANT_FOR_ALL = {
    "app/operations/audit/chain.py",
    "app/operations/tokens/cutoffs.py",
    "app/operations/clients/rotations.py",
    "app/operations/clients/dynamic_registration.py",
    "app/operations/clients/scopes.py",
    "app/operations/grants/key_rotation.py",
    "app/operations/maintenance/instance_overview.py",
    "app/operations/maintenance/batches.py",
    "app/operations/maintenance/janitor.py",
    "app/operations/store/outbox.py",
    "app/operations/users/deletion.py",
    "app/operations/users/import_runner.py",
    "app/fast_path/cache_invalidation.py",
    "app/fast_path/compiled_query.py",  # The parameter itself.
}


@pytest.fixture
def strict(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fence as in production: tests are not exempt, and no statement of theirs was let through before."""
    monkeypatch.setattr(FENCE, "refuse", Fence.refuse.__get__(FENCE))
    monkeypatch.setattr(FENCE, "_good", set())


@each("statement", BAD.values(), ids=BAD)
@pytest.mark.usefixtures("strict")
def test_tn5_query_without_an_organization_is_refused(context: Flask, statement: Any) -> None:
    with pytest.raises(Unfenced):
        db.session.execute(statement)
    if statement.is_select:
        with pytest.raises(Unfenced):
            CompiledQuery(statement).rows()
    db.session.rollback()


@each("statement", GOOD.values(), ids=GOOD)
@pytest.mark.usefixtures("strict")
def test_query_with_an_organization_passes(context: Flask, statement: Any) -> None:
    db.session.execute(statement)
    db.session.rollback()


def test_insert_needs_no_condition() -> None:
    FENCE.require(str(insert(User).compile()))


def test_queries_across_organizations_are_listed() -> None:
    meant = re.compile(r"\*\*ACROSS\b|across_organizations=True")
    found = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "app").rglob("*.py")
        if meant.search(path.read_text())
    }
    assert found == MEANT_FOR_ALL
