"""Caches of workers: entries become stale at once here, within a second elsewhere, and never after a rollback."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from flask import Flask
from sqlalchemy import delete, select

from app.config import current
from app.extensions import db
from app.fast_path import cache_invalidation
from app.models.audit import CacheInvalidation
from app.models.organization import Organization
from app.operations.clients.client_authentication import AuthenticatedClient
from app.operations.clients.clients import update_client
from app.operations.clients.credential_revocation import revoke_credentials
from app.operations.directory import lookups
from app.operations.directory.lookups import find_client, get_organization_by_id, touch_organization
from app.operations.maintenance.janitor import PURGE_RULES
from app.operations.store.transactions import read, transaction
from app.operations.tokens import tokens
from tests.factories import Factory, MadeClient


@pytest.fixture
def machine(make: Factory) -> MadeClient:
    return make.machine(make.organization(), "clients:read")


@pytest.fixture(autouse=True)
def unheard() -> None:
    """Clear the poll state, so that no test depends on another one."""
    cache_invalidation._known_changes.clear()
    for state in cache_invalidation._poll_states.values():
        state.polled_at = 0.0


@contextmanager
def on_another_machine(app: Flask) -> Iterator[None]:
    """Commit a change of another machine: the caches and stamps of this process don't learn of it directly."""
    board = cache_invalidation._stamps_of(current().instance)
    stamps = bytes(board)
    kept = [dict(views._entries._values) for views in (lookups._clients, lookups._organizations)]
    yield
    board[:] = stamps
    for views, before in zip((lookups._clients, lookups._organizations), kept, strict=True):
        views._entries.clear()
        views._entries._values.update(before)


def rename(app: Flask, make: Factory, machine: MadeClient, name: str) -> None:
    update_client(make.system(machine.organization), machine.client_id, {"name": name})


def name_of(machine: MadeClient) -> str:
    view = find_client(machine.client_id)
    assert view is not None
    return view.name


def test_entry_is_valid_without_changes(
    app: Flask, machine: MadeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    with app.app_context():
        view = find_client(machine.client_id)
        monkeypatch.setattr(lookups, "_read_client", lambda *_: pytest.fail("it was read again"))
        assert find_client(machine.client_id) is view


def test_change_is_visible_at_once(app: Flask, make: Factory, machine: MadeClient) -> None:
    with app.app_context():
        assert name_of(machine) == "Harvester"
        rename(app, make, machine, "Reaper")
        assert name_of(machine) == "Reaper"


def test_change_on_another_machine_is_found_by_polling(
    app: Flask, make: Factory, machine: MadeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Invalidation arrives within a second, whatever the age of the cached entry."""
    with app.app_context():
        cache_invalidation.poll()
        assert name_of(machine) == "Harvester"
        with on_another_machine(app):
            rename(app, make, machine, "Reaper")
        assert name_of(machine) == "Harvester", "this machine must not know of the change yet"
        cache_invalidation.poll()
        assert name_of(machine) == "Reaper"


def test_change_invalidates_an_entry_only_once(app: Flask, make: Factory, machine: MadeClient) -> None:
    with app.app_context():
        rename(app, make, machine, "Reaper")
        cache_invalidation.poll()
        view = find_client(machine.client_id)
        cache_invalidation.poll()
        assert find_client(machine.client_id) is view


def test_old_entries_are_invalid_a_second_after_the_last_poll(
    app: Flask, make: Factory, machine: MadeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    with app.app_context():
        assert name_of(machine) == "Harvester"
        with on_another_machine(app):
            rename(app, make, machine, "Reaper")
        later = time.monotonic() + cache_invalidation.TRUSTED_SECONDS + 0.01
        monkeypatch.setattr(time, "monotonic", lambda: later)
        assert name_of(machine) == "Reaper"


def test_polling_keeps_old_entries_valid(
    app: Flask, machine: MadeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    with app.app_context():
        cache_invalidation.poll()
        view = find_client(machine.client_id)
        began = time.monotonic()
        for later in range(2, 60, 2):
            monkeypatch.setattr(time, "monotonic", lambda later=later: began + later)
            cache_invalidation.poll()
            assert find_client(machine.client_id) is view


def test_change_during_an_outage_is_not_missed(
    app: Flask, make: Factory, machine: MadeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database was unreachable for longer than the poll interval, so no earlier entry is valid."""

    @transaction
    def nobody_finds_it_any_more() -> None:
        db.session.execute(delete(CacheInvalidation))

    with app.app_context():
        cache_invalidation.poll()
        assert name_of(machine) == "Harvester"
        with on_another_machine(app):
            rename(app, make, machine, "Reaper")
            nobody_finds_it_any_more()
        later = time.monotonic() + cache_invalidation.MAX_SILENCE_SECONDS + 0.1
        monkeypatch.setattr(time, "monotonic", lambda: later)
        cache_invalidation.poll()
        assert name_of(machine) == "Reaper"


def test_transaction_with_old_snapshot_caches_nothing(app: Flask, make: Factory, machine: MadeClient) -> None:
    """A transaction on SQLite reads the state of its first statement, whatever was committed since."""

    def change() -> None:
        with app.app_context():
            rename(app, make, machine, "Reaper")

    @read
    def begun_before_the_change() -> None:
        db.session.execute(select(Organization.id)).all()
        changing = threading.Thread(target=change)
        changing.start()
        changing.join()
        find_client(machine.client_id, fresh=True)

    with app.app_context():
        begun_before_the_change()
        assert name_of(machine) == "Reaper"


def test_uncommitted_change_is_not_cached(app: Flask, make: Factory, machine: MadeClient) -> None:
    @transaction
    def changed_and_given_up() -> None:
        rename(app, make, machine, "Reaper")
        touch_organization(machine.organization.id)
        assert find_client(machine.client_id, fresh=True).name == "Reaper"  # type: ignore[union-attr]
        get_organization_by_id(machine.organization.id)
        raise ValueError

    with app.app_context():
        with pytest.raises(ValueError):
            changed_and_given_up()
        assert name_of(machine) == "Harvester"


def test_change_during_a_read_makes_the_entry_stale(
    app: Flask, make: Factory, machine: MadeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stamp is taken before the database is read."""
    read = lookups._read_client

    def overtaken(*arguments: object) -> object:
        view = read(*arguments)  # type: ignore[arg-type]
        monkeypatch.setattr(lookups, "_read_client", read)
        rename(app, make, machine, "Reaper")
        return view

    with app.app_context():
        monkeypatch.setattr(lookups, "_read_client", overtaken)
        find_client(machine.client_id, fresh=True)
        assert name_of(machine) == "Reaper"


def test_token_issued_after_its_secret_was_revoked_is_inactive(
    app: Flask, make: Factory, machine: MadeClient
) -> None:
    """IT-3: a machine that has not polled yet may issue one, but no worker accepts it. Earlier tokens stay active."""
    with app.app_context():
        view = find_client(machine.client_id)
        assert view is not None
        authenticated = AuthenticatedClient(view, view.secrets[0].id)
        before = tokens.issue_to_client(authenticated, ("clients:read",))
        revoke_credentials(make.system(machine.organization), machine.client_id)
        after = tokens.issue_to_client(authenticated, ("clients:read",))
        assert tokens.find_token(before.access_token) is not None
        assert tokens.find_token(after.access_token) is None


def test_process_without_the_shared_file_uses_own_stamps(
    app: Flask, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with app.app_context():
        (tmp_path / "file").write_text("no folder")
        board = cache_invalidation._map(tmp_path / "file" / "instance")
        assert len(board) == 4096 * 8
    assert "not shared" in caplog.text


def test_changes_are_deleted_after_every_machine_has_polled() -> None:
    sweep = next(each for each in PURGE_RULES if each.table.name == "view_changes")
    assert timedelta(seconds=cache_invalidation.WINDOW_SECONDS) < sweep.retention < timedelta(hours=1)
