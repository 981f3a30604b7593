"""Caches of workers: entries become stale at once here, within a second elsewhere, and never after a rollback."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from flask import Flask
from sqlalchemy import delete, select, update

from app.config import current
from app.database import ACROSS
from app.extensions import db
from app.fast_path import cache_invalidation
from app.fast_path.compiled_query import CompiledQuery
from app.models.audit import CacheInvalidation
from app.models.organization import Organization
from app.operations.clients.client_authentication import AuthenticatedClient
from app.operations.clients.clients import update_client
from app.operations.clients.credential_revocation import revoke_credentials
from app.operations.directory import lookups
from app.operations.directory.lookups import find_client, get_organization_by_id, touch_organization
from app.operations.maintenance.janitor import purge_expired
from app.operations.store.transactions import read, transaction
from app.operations.tokens import tokens
from app.rules.actor import Actor
from app.rules.identifiers import first_id_at
from app.uptime import uptime
from tests.factories import Factory, MadeClient
from tests.support.applications import environment
from tests.support.databases import Database
from tests.support.followers import Others
from tests.support.process import wait_until

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
CHANGES_LEFT = CompiledQuery(
    select(CacheInvalidation.id, CacheInvalidation.is_for_all), across_organizations=True
)


@pytest.fixture
def machine(make: Factory) -> MadeClient:
    return make.machine(make.organization(), "clients:read")


@pytest.fixture(autouse=True)
def unheard(app: Flask) -> None:
    """Forget the changes seen and who led the machine, so that no test depends on another one."""
    cache_invalidation._followers.clear()
    with app.app_context():
        cache_invalidation._machine().write(4096 * 8, bytes(4096))


@contextmanager
def on_another_machine() -> Iterator[None]:
    """Commit a change of another machine: the caches and stamps of this process don't learn of it directly."""
    board = cache_invalidation._stamps_of(current().instance).memory
    stamps = bytes(board)
    kept = [dict(views._entries._values) for views in (lookups._clients, lookups._organizations)]
    yield
    # Not the records behind the stamps: those tell when this machine asked.
    board[: 4096 * 8] = stamps[: 4096 * 8]
    for views, before in zip((lookups._clients, lookups._organizations), kept, strict=True):
        views._entries.clear()
        views._entries._values.update(before)


def rename(make: Factory, machine: MadeClient, name: str) -> None:
    update_client(make.system(machine.organization), machine.client_id, {"name": name})


@transaction
def touch(machine: MadeClient) -> None:
    cache_invalidation.invalidate(machine.organization.id)


def name_of(machine: MadeClient) -> str:
    view = find_client(machine.client_id)
    assert view is not None
    return view.name


def test_entry_is_valid_without_changes(
    context: Flask, machine: MadeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = find_client(machine.client_id)
    monkeypatch.setattr(lookups, "_read_client", lambda *_: pytest.fail("it was read again"))
    assert find_client(machine.client_id) is view


def test_change_is_visible_at_once(context: Flask, make: Factory, machine: MadeClient) -> None:
    assert name_of(machine) == "Harvester"
    rename(make, machine, "Reaper")
    assert name_of(machine) == "Reaper"


def test_change_on_another_machine_is_found_by_polling(
    context: Flask, make: Factory, machine: MadeClient
) -> None:
    """Invalidation arrives within a second, whatever the age of the cached entry."""
    cache_invalidation.poll()
    assert name_of(machine) == "Harvester"
    with on_another_machine():
        rename(make, machine, "Reaper")
    assert name_of(machine) == "Harvester", "this machine must not know of the change yet"
    cache_invalidation.poll()
    assert name_of(machine) == "Reaper"


def test_change_invalidates_an_entry_only_once(context: Flask, make: Factory, machine: MadeClient) -> None:
    rename(make, machine, "Reaper")
    cache_invalidation.poll()
    view = find_client(machine.client_id)
    cache_invalidation.poll()
    assert find_client(machine.client_id) is view


def test_old_entries_are_invalid_a_second_after_the_last_poll(
    context: Flask, make: Factory, machine: MadeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert name_of(machine) == "Harvester"
    with on_another_machine():
        rename(make, machine, "Reaper")
    later = uptime() + cache_invalidation.TRUSTED_SECONDS + 0.01
    monkeypatch.setattr(cache_invalidation, "uptime", lambda: later)
    assert name_of(machine) == "Reaper"


def test_polling_keeps_old_entries_valid(
    context: Flask, machine: MadeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache_invalidation.poll()
    view = find_client(machine.client_id)
    began = uptime()
    for later in range(2, 60, 2):
        monkeypatch.setattr(cache_invalidation, "uptime", lambda later=later: began + later)
        cache_invalidation.poll()
        assert find_client(machine.client_id) is view


@transaction
def delete_changes(*, keep: Sequence[UUID] = ()) -> None:
    db.session.execute(
        delete(CacheInvalidation).where(CacheInvalidation.id.not_in(keep)).execution_options(**ACROSS)
    )


def test_view_is_stale_after_its_changes_have_disappeared(
    context: Flask, make: Factory, machine: MadeClient
) -> None:
    """A restored database has lost changes that this process knows."""
    touch(machine)
    cache_invalidation.poll()
    assert name_of(machine) == "Harvester"
    with on_another_machine():
        rename(make, machine, "Reaper")
        delete_changes()
    cache_invalidation.poll()
    assert name_of(machine) == "Reaper"


def test_view_is_stale_after_the_connection_was_replaced(
    context: Flask, make: Factory, machine: MadeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database behind the new connection may be another one, whose changes this process cannot compare."""
    cache_invalidation.poll()
    assert name_of(machine) == "Harvester"
    with on_another_machine():
        before = [row.id for row in CHANGES_LEFT.rows()]
        rename(make, machine, "Reaper")
        delete_changes(keep=before)
    cache_invalidation.poll()
    assert name_of(machine) == "Harvester", "the stage is wrong: nothing tells of the change"
    monkeypatch.setattr(cache_invalidation, "connection_number", lambda: (0, -1))
    cache_invalidation.poll()
    assert name_of(machine) == "Reaper"


def test_change_that_was_committed_late_is_seen(
    context: Flask, make: Factory, machine: MadeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its row has the id and time of its INSERT, before those of changes that were committed meanwhile."""
    touch(machine)
    touch(machine)
    cache_invalidation.poll()
    assert name_of(machine) == "Harvester"
    with on_another_machine():
        monkeypatch.setattr(cache_invalidation, "new_id", lambda: first_id_at(LONG_AGO))
        rename(make, machine, "Reaper")
        db.session.execute(update(CacheInvalidation).values(at=LONG_AGO).execution_options(**ACROSS))
        db.session.commit()
    cache_invalidation.poll()
    assert name_of(machine) == "Reaper"


def test_pruned_changes_are_not_missed(context: Flask, make: Factory, machine: MadeClient) -> None:
    """Whoever has not read a change before it is deleted reads that there was one."""
    cache_invalidation.poll()
    assert name_of(machine) == "Harvester"
    with on_another_machine():
        rename(make, machine, "Reaper")
        for _ in range(cache_invalidation.MAX_ROWS):
            touch(machine)
        assert purge_expired(Actor.system("", "janitor"), holder="me")["view_changes"] > 200
    [row] = CHANGES_LEFT.rows()
    assert row.is_for_all
    cache_invalidation.poll()
    assert name_of(machine) == "Reaper"


def test_few_changes_are_not_pruned(context: Flask, make: Factory, machine: MadeClient) -> None:
    """Pruning makes every cache read again, so it is not done for each change."""
    touch(machine)
    before = len(CHANGES_LEFT.rows())
    assert "view_changes" not in purge_expired(Actor.system("", "janitor"), holder="me")
    assert len(CHANGES_LEFT.rows()) == before


def test_transaction_with_old_snapshot_caches_nothing(app: Flask, make: Factory, machine: MadeClient) -> None:
    """A transaction on SQLite reads the state of its first statement, whatever was committed since."""

    def change() -> None:
        with app.app_context():
            rename(make, machine, "Reaper")

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
        rename(make, machine, "Reaper")
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
        rename(make, machine, "Reaper")
        return view

    with app.app_context():
        monkeypatch.setattr(lookups, "_read_client", overtaken)
        find_client(machine.client_id, fresh=True)
        assert name_of(machine) == "Reaper"


def test_token_issued_after_its_secret_was_revoked_is_inactive(
    context: Flask, make: Factory, machine: MadeClient
) -> None:
    """IT-3: a machine that has not polled yet may issue one, but no worker accepts it. Earlier tokens stay active."""
    view = find_client(machine.client_id)
    assert view is not None
    authenticated = AuthenticatedClient(view, view.secrets[0].id)
    before = tokens.issue_to_client(authenticated, ("clients:read",))
    revoke_credentials(make.system(machine.organization), machine.client_id)
    after = tokens.issue_to_client(authenticated, ("clients:read",))
    assert tokens.find_token(before.access_token) is not None
    assert tokens.find_token(after.access_token) is None


def test_token_issued_in_a_process_that_was_stopped_is_not_returned(
    app: Flask, make: Factory, machine: MadeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The secret was verified, then the process stopped for 20 seconds, in which another machine revoked it."""
    store = tokens.store_client_token
    request = {"data": {"grant_type": "client_credentials"}, "headers": machine.basic}

    def stop_and_store(*arguments: Any) -> None:
        with on_another_machine():
            revoke_credentials(make.system(machine.organization), machine.client_id)
        later = uptime() + 20
        monkeypatch.setattr(cache_invalidation, "uptime", lambda: later)
        store(*arguments)

    with app.app_context():
        cache_invalidation.poll()
    assert app.test_client().post("/oauth/token", **request).status_code == 200
    monkeypatch.setattr(tokens, "store_client_token", stop_and_store)
    answer = app.test_client().post("/oauth/token", **request)
    assert (answer.status_code, answer.get_json()["error"]) == (401, "invalid_client")


def test_without_the_file_a_process_has_stamps_of_its_own(
    app: Flask, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with app.app_context():
        (tmp_path / "file").write_text("no folder")
        board = cache_invalidation._map(tmp_path / "file" / "instance").memory
        assert len(board) == 4096 * 8 + 4096
    assert "within a second instead of at once" in caplog.text


def test_changes_are_followed_only_while_cached_values_are_used(
    context: Any, machine: MadeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache_invalidation._followers.clear()
    assert not cache_invalidation.is_in_use()
    for _ in range(2):
        find_client(machine.client_id)
    assert cache_invalidation.is_in_use()
    monkeypatch.setattr(cache_invalidation, "uptime", lambda: uptime() + cache_invalidation.IDLE_SECONDS)
    assert not cache_invalidation.is_in_use()
    # What was cached before is not trusted without the changes: it is read again, and then the changes too.
    find_client(machine.client_id)
    assert cache_invalidation.is_in_use()


@pytest.fixture
def others(app: Flask, database: Database) -> Iterator[Others]:
    with app.app_context():
        folder = current().instance
    made = Others(os.environ | environment(database, folder, "http://127.0.0.1:8000"))
    yield made
    made.end()


def is_trusted_after_a_second(machine: MadeClient) -> bool:
    """Return whether a cached client is still used when this process alone would not trust it any more."""
    view, later = find_client(machine.client_id), uptime() + cache_invalidation.TRUSTED_SECONDS
    wait_until(lambda: uptime() > later, "a second")
    return find_client(machine.client_id) is view


@pytest.mark.slow
def test_one_process_of_a_machine_follows_and_another_takes_over(
    app: Flask, make: Factory, machine: MadeClient, others: Others
) -> None:
    """RV-5: whoever leads, a change elsewhere is seen here, where nobody asks, or nothing cached is trusted."""
    lead = others.start()
    others.wait_for(lead)
    with app.app_context():
        for fault, name in ((signal.SIGKILL, "Reaper"), (signal.SIGSTOP, "Gleaner")):
            before = name_of(machine)
            both = {lead, others.start()}
            lead = others.find_lead(*both)
            (second,) = both - {lead}
            os.kill(lead, fault)
            others.wait_for(second)
            with on_another_machine():
                rename(make, machine, name)
            others.wait_for(second)
            others.wait_for(second)
            assert name_of(machine) == name != before
            # What the lead has told is trusted by a process that has never asked.
            wait_until(lambda: is_trusted_after_a_second(machine), "a cached value of more than a second ago")
            lead = second


def test_value_is_not_trusted_a_second_after_the_lead_asked(
    context: Flask, make: Factory, machine: MadeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lead that was killed or stopped leaves a record that grows old."""
    assert name_of(machine) == "Harvester"
    began = uptime()
    cache_invalidation._machine().put(cache_invalidation._LEAD, 1, began, began)
    with on_another_machine():
        rename(make, machine, "Reaper")
    monkeypatch.setattr(cache_invalidation, "uptime", lambda: began + 0.9)
    assert name_of(machine) == "Harvester", "the stage is wrong: nothing was cached"
    monkeypatch.setattr(cache_invalidation, "uptime", lambda: began + 1.01)
    assert name_of(machine) == "Reaper"


def test_idle_machine_has_every_third_turn(context: Flask, monkeypatch: pytest.MonkeyPatch) -> None:
    for is_in_use, turns in ((True, [0, 1, 2, 3]), (False, [0, 3])):
        monkeypatch.setattr(cache_invalidation, "is_in_use", lambda is_in_use=is_in_use: is_in_use)
        assert [turn for turn in range(4) if cache_invalidation.has_turn(turn)] == turns
    monkeypatch.setattr(cache_invalidation, "is_lead", lambda: False)
    assert not cache_invalidation.has_turn(0)


def test_record_of_another_machine_or_time_is_ignored(
    context: Flask, machine: MadeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Machines may share an instance folder, and a file outlives a restart, after which the uptime is less."""
    began, board = uptime(), cache_invalidation._machine()
    board.put(cache_invalidation._LEAD, 1, began + 500, began + 500)
    assert not cache_invalidation._follower_of(current().database_url).has_polled_since(began)
    assert cache_invalidation.is_lead()
    board.put(cache_invalidation._LEAD, 1, began, began)
    assert not cache_invalidation.is_lead()
    monkeypatch.setattr(cache_invalidation, "_machine_key", lambda url: b"another!")
    assert board.find(cache_invalidation._LEAD) is None
    assert cache_invalidation.is_lead()


def test_lead_that_cannot_tell_of_a_change_tells_nothing(
    context: Flask, machine: MadeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk may be full for the stamps and not for the record behind them."""
    cache_invalidation.poll()
    touch(machine)
    told = cache_invalidation._machine().find(cache_invalidation._LEAD)
    monkeypatch.setattr(cache_invalidation, "_renew", lambda organization_id: False)
    cache_invalidation.poll()
    assert cache_invalidation._machine().find(cache_invalidation._LEAD) == told
