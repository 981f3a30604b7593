"""What background jobs do to an organization that has moved away: delete what has expired, and purge it in the end."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import update

from app.models.audit import RevocationReceipt
from app.models.base import Base
from app.models.client import DELETED as DELETED_CLIENT
from app.models.client import Client, Credential
from app.models.organization import PURGED, Organization
from app.models.token import SigningKey
from app.operations.audit.chain import seal_all_events
from app.operations.grants.key_rotation import rotate_due_keys
from app.operations.maintenance import decided_moves, janitor, move, move_peer
from app.operations.maintenance.purge_rules import organization_tables
from app.operations.store import clock
from app.operations.store.transactions import count_changed, transaction
from app.operations.users.import_runner import process_due_imports
from app.rules.actor import Actor
from app.rules.identifiers import parse_client_id
from tests.factories import Factory
from tests.support.caches import clear_directory_cache
from tests.support.registering import register
from tests.support.world import Corner, build

SYSTEM = Actor.system("", "test")
_DAY = timedelta(days=1)


class Before(move_peer.Peer):
    """A target that has the rows of an earlier time."""

    def __init__(self, organization_id: str) -> None:
        self.rows = {
            table.name: move_peer.list_digests(organization_id, table)
            for table in move_peer.compared_tables()
        }

    def call(self, command: str, **arguments: Any) -> Any:
        return self.rows[arguments["table"]]


def let_pass(monkeypatch: pytest.MonkeyPatch, days: int) -> None:
    now = clock.now
    monkeypatch.setattr(clock, "now", lambda: now() + timedelta(days=days))


def give_work(app: Flask, corner: Corner, at: datetime) -> None:
    """Let one job of each kind be due for the organization at that time."""
    here = corner.organization.id

    @transaction
    def change(model: Any, *conditions: Any, **values: Any) -> None:
        statement = update(model).where(*conditions).values(**values)
        assert count_changed(statement) > 0, model

    open_to_all = {"oauth": {"dynamic_registration": {"mode": "open"}}}
    change(Organization, Organization.id == here, settings=open_to_all)
    clear_directory_cache()
    for number in range(2):
        told = register(app.test_client(), corner.organization, client_name=f"App {number}").get_json()
    is_last = (Client.organization_id == here) & (Client.id == parse_client_id(told["client_id"])[1])
    change(Client, is_last, status=DELETED_CLIENT, deleted_at=at - timedelta(days=99))
    change(
        RevocationReceipt, RevocationReceipt.organization_id == here, settled_at=None, expires_at=at + _DAY
    )
    of_client = Credential.client_id == corner.client.registered.client.id
    change(
        Credential, Credential.organization_id == here, of_client, expires_at=at + _DAY / 2, last_used_at=at
    )
    change(SigningKey, SigningKey.organization_id == here, remove_at=at - _DAY)
    seal_all_events(Actor.system(here, "test"), here)


@pytest.mark.slow
@pytest.mark.parametrize("state", ["moved away", "not yet here"])
def test_jobs_change_no_row_that_a_move_compares(
    app: Flask, context: Flask, make: Factory, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    make.root()
    moved, stayed = build(app, make)
    later = clock.now() + 400 * _DAY
    for corner in (moved, stayed):
        give_work(app, corner, later)
    here = moved.organization.id
    before = [Before(corner.organization.id) for corner in (moved, stayed)]
    if state == "moved away":
        move._decide(here, "b", move._pause(here, 3600))
    else:
        tombstone = {"status": PURGED, "data_key": None, "settings": {}}
        transaction(count_changed)(update(Organization).where(Organization.id == here).values(**tombstone))
    let_pass(monkeypatch, 400)
    for _ in range(2):
        janitor.purge_expired(SYSTEM, pause=0)
    rotate_due_keys(SYSTEM)
    process_due_imports(SYSTEM, holder="test")
    changed = move_peer.compare_rows(before[1], stayed.organization)
    assert changed.keys() >= {"audit_events", "clients", "client_credentials", "client_registrations"}
    assert move_peer.compare_rows(before[0], moved.organization) == {}
    assert not move_peer.list_digests(here, Base.metadata.tables["access_tokens"])
    if state == "moved away":
        # What is left goes with the organization.
        decided_moves.confirm(here)
        let_pass(monkeypatch, 31)
        janitor.purge_expired(SYSTEM, pause=0)
        assert {table.name for table in organization_tables() if move_peer.list_digests(here, table)} == set()
