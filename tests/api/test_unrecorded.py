"""No operation changes anything if its audit event can't be written (AU-1)."""

from __future__ import annotations

from typing import Any

import pytest
from flask import Flask

from app.models import Base
from app.operations.clients import credentials
from app.operations.store import audit
from app.rules.errors import Unavailable
from tests.factories import Factory
from tests.support.databases import Database
from tests.support.matrix import BODIES, World
from tests.support.rights import ROOT
from tests.support.rights.calls import call, ids_for
from tests.support.rights.role_users import spare_of, things_of, user_with_role

# Rate limits count failed attempts, too.
COUNTING = {"attempts"}

NOTHING_TO_DO = {
    "confirmCredential": "the secret is not blocked: tests/oauth/test_restored_backups.py",
    "removeLogo": "there is none: tests/operations/organizations/test_organization_logos.py",
}


class _Broken:
    """A statement for audit events that always fails."""

    def write_later(self, **_: Any) -> None:
        raise Unavailable("The audit log cannot be written.")


@pytest.mark.slow
def test_au1_operation_without_audit_event_changes_nothing(
    app: Flask, world: World, make: Factory, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every write operation fails without its event, and its transaction is rolled back."""
    role_user = user_with_role(app, make, world.acme, ROOT)
    ids = things_of(app, make, world.acme, role_user.user)
    spare = spare_of(app, make, world.acme)
    revoked: dict[str, Any] = {
        **dict(BODIES["revokeToken"] or {}),
        "token": make.bearer(world.acme.organization),
    }
    with app.app_context():
        credentials.rotate_credential(
            make.actor(world.acme.organization, user=role_user.user), ids["clientId"]
        )
    monkeypatch.setattr(audit, "_INSERT", _Broken())
    before = _rows(database)
    for operation in world.operations:
        if operation.method == "get" or operation.id in NOTHING_TO_DO:
            continue
        body = revoked if operation.id == "revokeToken" else None
        answer = call(
            world, role_user, operation, {**ids_for(operation.id, ids), **spare.get(operation.id, {})}, body
        )
        assert answer.status_code == 503, (operation.id, "was done unrecorded, or not at all", answer.text)
        after = _rows(database)
        assert [table for table in after if after[table] != before[table]] == [], operation.id


def _rows(database: Database) -> dict[str, list[str]]:
    """Return every row, except times of last use, which requests update in any case."""
    rows = {}
    for name, table in Base.metadata.tables.items():
        columns = [f"`{column.name}`" for column in table.columns if not column.name.startswith("last_used")]
        if name not in COUNTING:
            rows[name] = sorted(map(repr, database.query(f"SELECT {', '.join(columns)} FROM {name}")))
    return rows
