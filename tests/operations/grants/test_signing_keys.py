"""Signing keys: creation at first use, algorithms, sealing, and concurrent callers."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from flask import Flask
from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jwk import KeySet
from sqlalchemy import select, update

from app.extensions import db
from app.models.token import SigningKey
from app.operations.directory.lookups import OrganizationSnapshot, get_organization_by_id
from app.operations.grants import signing_keys
from app.operations.grants.signing_keys import get_active_key, list_public_keys, sign_jwt
from app.operations.store.transactions import transaction
from app.rules.errors import Conflict
from tests.factories import Factory
from tests.support.databases import Database


@pytest.fixture
def organization(context: Flask, make: Factory) -> OrganizationSnapshot:
    """An organization without keys."""
    return make.organization()


def fresh(organization: OrganizationSnapshot) -> OrganizationSnapshot:
    return get_organization_by_id(organization.id)


def signed(organization: OrganizationSnapshot) -> str:
    return sign_jwt(fresh(organization), "ES256", {"sub": "x"}, token_type="JWT")


def verifies(organization: OrganizationSnapshot, token: str) -> bool:
    try:
        keys = KeySet.import_key_set({"keys": list_public_keys(organization.id)})
        jws.deserialize_compact(token, keys, algorithms=["ES256"])
    except (JoseError, ValueError):
        return False
    return True


def rows(organization: OrganizationSnapshot) -> list[SigningKey]:
    db.session.remove()
    statement = (
        select(SigningKey).where(SigningKey.organization_id == organization.id).order_by(SigningKey.id)
    )
    return list(db.session.scalars(statement))


def rows_within(organization: OrganizationSnapshot) -> list[SigningKey]:
    return list(db.session.scalars(select(SigningKey).where(SigningKey.organization_id == organization.id)))


def test_key_is_created_at_first_use_and_reused(organization: OrganizationSnapshot) -> None:
    """KY-1."""
    first = get_active_key(organization, "ES256")
    assert get_active_key(organization, "ES256").kid == first.kid
    [row] = rows(organization)
    assert (row.kid, row.state, row.slot) == (first.kid, "active", "active")
    assert verifies(organization, signed(organization))


def test_each_algorithm_has_its_own_key(organization: OrganizationSnapshot) -> None:
    kids = {get_active_key(organization, algorithm).kid for algorithm in ("ES256", "EdDSA", "RS256", "PS256")}
    assert len(kids) == len(list_public_keys(organization.id)) == 4


def test_private_key_is_never_stored_in_clear(organization: OrganizationSnapshot, database: Database) -> None:
    """KY-3."""
    key = get_active_key(organization, "ES256").key
    dump = database.dump()
    assert b"PRIVATE KEY" not in dump
    assert str(key.as_dict(private=True)["d"]).encode() not in dump
    assert all("d" not in published for published in list_public_keys(organization.id))
    assert str(key.as_dict(private=True)["d"]) not in repr(get_active_key(organization, "ES256"))


@pytest.mark.mariadb
def test_concurrent_workers_create_one_key(app: Flask, make: Factory) -> None:
    """KY-2: threads with separate sessions on MariaDB. SQLite would run them one by one."""
    view = make.organization()
    gate = threading.Barrier(20)
    kids: list[str] = []

    def worker() -> None:
        with app.app_context():
            gate.wait(20)
            kids.append(get_active_key(view, "ES256").kid)

    threads = [threading.Thread(target=worker) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(kids) == 20 and len(set(kids)) == 1
    with app.app_context():
        assert [row.kid for row in rows(view)] == kids[:1]


@pytest.mark.mariadb
def test_concurrent_threads_generate_one_key(
    app: Flask, make: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An RSA key takes a second of CPU time, so concurrent requests must not generate one each."""
    view = make.organization()
    gate = threading.Barrier(8)
    generate, generated = signing_keys._generate_pair, []

    def counted(algorithm: str) -> Any:
        generated.append(algorithm)
        return generate(algorithm)

    def caller() -> None:
        with app.app_context():
            gate.wait(20)
            get_active_key(view, "RS256")

    monkeypatch.setattr(signing_keys, "_generate_pair", counted)
    threads = [threading.Thread(target=caller) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert generated == ["RS256"]


def test_key_of_a_rolled_back_transaction_is_not_used(organization: OrganizationSnapshot) -> None:
    """RF-7: it would sign from memory although no verifier could find it."""

    @transaction
    def unit() -> None:
        assert get_active_key(organization, "ES256") == get_active_key(organization, "ES256")
        raise Conflict("no")

    with pytest.raises(Conflict):
        unit()
    assert rows(organization) == []
    assert verifies(organization, signed(organization))


def test_sealed_key_cannot_be_opened_in_another_row(
    make: Factory, organization: OrganizationSnapshot
) -> None:
    """SE-6, TN-15: moved into another organization's row, it cannot be opened."""
    from app.rules.sealing import UnsealError

    there = make.organization()
    mine, theirs = get_active_key(organization, "ES256").kid, get_active_key(there, "ES256").kid

    @transaction
    def swap() -> None:
        [row] = [row for row in rows_within(organization) if row.kid == mine]
        values: dict[str, Any] = {"sealed_private_key": row.sealed_private_key}
        db.session.execute(update(SigningKey).where(SigningKey.kid == theirs).values(values))

    swap()
    signing_keys._cache.clear()
    with pytest.raises(UnsealError):
        get_active_key(there, "ES256")
