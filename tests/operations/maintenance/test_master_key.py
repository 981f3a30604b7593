"""The master key: a wrong one stops the start, and rotation rewraps one organization at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace

import pytest
from flask import Flask
from sqlalchemy import select

from app.cli.maintenance import before_serving
from app.config import EXIT_CONFIGURATION, UnsafeConfiguration
from app.extensions import db
from app.models.organization import Organization
from app.operations.directory.lookups import get_organization_by_id
from app.operations.grants.signing_keys import get_active_key
from app.operations.maintenance import master_key
from app.operations.maintenance.master_key import check_master_key, require_master_key, rewrap_data_keys
from app.operations.store import keyring
from app.rules.actor import Actor
from app.rules.errors import Conflict, Forbidden
from app.rules.sealing import UnsealError
from tests.factories import Factory
from tests.support.databases import Database

SYSTEM = Actor.system("", "test")
Under = Callable[..., AbstractContextManager[None]]


@pytest.fixture
def under(context: Flask) -> Under:
    """``with under(master_key=…, previous_master_key=…)``: the process has these keys."""

    @contextmanager
    def configured(**keys: bytes | None) -> Iterator[None]:
        before = context.config["GATEHOUSE"]
        context.config["GATEHOUSE"] = replace(before, **keys)
        try:
            yield
        finally:
            context.config["GATEHOUSE"] = before

    return configured


def wrapped(database: Database) -> list[bytes]:
    rows = database.query("SELECT data_key FROM organizations ORDER BY id")
    return [bytes(row[0]) for row in rows if row[0] is not None]


def test_new_installation_accepts_any_key(context: Flask) -> None:
    assert check_master_key() == "unset"
    require_master_key()


def test_matching_key_fits(context: Flask, make: Factory) -> None:
    make.root()
    assert check_master_key() == "fits"
    require_master_key()


def test_wrong_key_stops_the_start_and_writes_nothing(
    make: Factory, under: Under, database: Database
) -> None:
    """KY-6."""
    make.root()
    before = database.dump()
    with under(master_key=os.urandom(32)):
        assert check_master_key() == "other"
        with pytest.raises(UnsafeConfiguration) as refused:
            before_serving()
    assert refused.value.code == EXIT_CONFIGURATION != 0
    assert "keys rewrap" in str(refused.value)
    assert database.dump() == before


def test_unreachable_database_does_not_stop_the_start(
    make: Factory, context: Flask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F1: the service responds with 503 until the database is available."""

    class Down:
        def connect(self) -> None:
            raise master_key.exc.OperationalError("", {}, Exception())

        def dispose(self) -> None:
            pass

    monkeypatch.setattr(master_key, "engines", lambda: (Down(), Down()))
    assert check_master_key() == "unknown"
    require_master_key()


def test_rewrapped_keys_open_only_with_the_new_key(
    make: Factory, context: Flask, under: Under, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SE-8: only data keys are rewrapped, and sealed data is unchanged."""
    monkeypatch.setattr(master_key, "_BATCH", 2)
    organizations = [make.root(), *(make.organization() for _ in range(4))]
    sealed = {view.id: keyring.seal(view.id, b"a secret", "row|1") for view in organizations}
    kid = get_active_key(organizations[1], "ES256").kid
    old, new = context.config["GATEHOUSE"].master_key, os.urandom(32)
    before = wrapped(database)
    with under(master_key=new, previous_master_key=old):
        assert check_master_key() == "fits", "servers with both keys start before it has gone through"
        assert keyring.unseal(organizations[0].id, sealed[organizations[0].id], "row|1") == b"a secret"
        done = rewrap_data_keys(SYSTEM)
        assert (done.rewrapped, done.unchanged, done.unreadable) == (
            6,
            0,
            (),
        )  # root comes with the first organization
        assert not set(before) & set(wrapped(database))
        again = rewrap_data_keys(SYSTEM)
        assert (again.rewrapped, again.unchanged) == (0, 6)
    with under(master_key=new):
        assert check_master_key() == "fits"
        for organization_id, what in sealed.items():
            assert keyring.unseal(organization_id, what, "row|1") == b"a secret"
        assert get_active_key(get_organization_by_id(organizations[1].id), "ES256").kid == kid
    keyring.clear_cached_keys(organizations[2].id)
    with pytest.raises(UnsealError):
        keyring.unseal(organizations[2].id, sealed[organizations[2].id], "row|1")


def test_interrupted_rewrap_continues(
    make: Factory, context: Flask, under: Under, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SE-8."""
    monkeypatch.setattr(master_key, "_BATCH", 1)
    views = [make.root(), make.organization(), make.organization()]
    store, stored = master_key._store, []

    def dies(*values: object) -> int:
        if len(stored) == 1:
            raise KeyboardInterrupt
        stored.append(values)
        return store(*values)  # type: ignore[arg-type]

    old, new = context.config["GATEHOUSE"].master_key, os.urandom(32)
    with under(master_key=new, previous_master_key=old):
        with monkeypatch.context() as killed:
            killed.setattr(master_key, "_store", dies)
            with pytest.raises(KeyboardInterrupt):
                rewrap_data_keys(SYSTEM)
        for view in views:
            assert keyring.unseal(view.id, keyring.seal(view.id, b"x", "row|1"), "row|1") == b"x"
        done = rewrap_data_keys(SYSTEM)
        assert (done.rewrapped, done.unchanged) == (3, 1)


def test_unreadable_data_key_is_reported_and_kept(make: Factory, context: Flask, under: Under) -> None:
    make.root()
    lost = make.organization("lost")
    other = keyring.sealing.wrap_data_key(os.urandom(32), lost.id, os.urandom(32))
    row = db.session.scalar(select(Organization).where(Organization.id == lost.id))
    assert row is not None
    row.data_key = other
    db.session.commit()
    with under(master_key=os.urandom(32), previous_master_key=context.config["GATEHOUSE"].master_key):
        done = rewrap_data_keys(SYSTEM)
    assert (done.rewrapped, done.unreadable) == (2, ("lost",))


def test_rewrap_requires_previous_key_and_permission(make: Factory, context: Flask) -> None:
    make.root()
    with pytest.raises(Conflict):
        rewrap_data_keys(SYSTEM)
    with pytest.raises(Forbidden):
        rewrap_data_keys(Actor.anonymous("00000000"))
