"""The hash chain of audit events: sealing, retention and detection of changes (AU-2, AU-3, AU-4)."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from flask import Flask
from msgspec.structs import replace
from sqlalchemy import delete, event, insert, select, update
from sqlalchemy.exc import IntegrityError

from app.extensions import db
from app.models.audit import AuditEvent, InstanceFact, Lease
from app.models.organization import Organization
from app.operations.audit import chain, chain_verification
from app.operations.audit.chain import ChainHead, remove_events_before, seal_all_events, seal_pending_events
from app.operations.audit.chain_verification import (
    ChainVerification,
    matches_checkpoint,
    remember_heads,
    verify_audit_log,
)
from app.operations.directory.lookups import OrganizationSnapshot
from app.operations.store import checkpoints, clock, leases
from app.operations.store.checkpoints import advance, begin_epoch
from app.operations.store.keyring import clear_cached_keys
from app.operations.store.leases import Shard
from app.operations.store.transactions import MAX_ATTEMPTS, transaction
from app.rules.actor import Actor
from app.rules.errors import Conflict, Forbidden
from app.rules.identifiers import first_id_at
from tests.factories import Factory
from tests.support.databases import Database
from tests.support.intruder import CHAINS, EVENTS, LINKS, Intruder, put_back, snapshot, write

SEALER = Actor.system("", "tests")


def seal() -> dict[str, ChainHead]:
    grown = seal_pending_events(SEALER, holder="tests")
    assert grown is not None
    return grown


def verified(organization: OrganizationSnapshot, **more: int) -> ChainVerification:
    return verify_audit_log(Actor.system(organization.id), **more)


def kinds(organization: OrganizationSnapshot) -> list[str]:
    return [problem.kind for problem in verified(organization).problems]


def happen(organization: OrganizationSnapshot, count: int, hours_ago: float = 0, days_ahead: int = 0) -> None:
    """Record events in the past, a second apart, by a machine whose clock is ahead."""
    rows = []
    for number in range(count):
        at = clock.now() - timedelta(hours=hours_ago) + timedelta(seconds=number * bool(hours_ago))
        row_id = UUID(int=first_id_at(at + timedelta(days=days_ahead)).int | random.getrandbits(60))
        common = {"actor_kind": "system", "actor_label": "tests", "actor_organization": organization.id}
        after = {"name": f"é{number}", "on": bool(number % 2), "n": None}
        rows.append(
            {"organization_id": organization.id, "id": row_id, "at": at, "action": "thing.made", **common}
            | {"target_id": f"thg_{number}", "before": None, "after": after}
        )
    write(insert(AuditEvent).values(rows))


@contextlib.contextmanager
def counted_statements() -> Iterator[list[str]]:
    seen: list[str] = []

    def note(*told: Any) -> None:
        seen.append(told[2])

    event.listen(db.engine, "before_cursor_execute", note)
    yield seen
    event.remove(db.engine, "before_cursor_execute", note)


def test_events_are_sealed_once_and_verify(context: Flask, make: Factory) -> None:
    acme, globex = make.organization(), make.organization()
    happen(acme, 5)
    grown = seal()
    assert set(grown) >= {acme.id, globex.id}
    assert seal() == {}
    found = verified(acme)
    assert found.is_intact and found.checked == found.length == grown[acme.id].length >= 6
    happen(acme, 2)
    assert verified(acme).pending == 2 and verified(acme).is_intact
    assert set(seal()) == {acme.id}
    assert verified(acme).checked == found.checked + 2


def test_late_commit_is_sealed(context: Flask, make: Factory) -> None:
    acme = make.organization()
    seal()
    happen(acme, 1, hours_ago=1 / 60)
    assert set(seal()) == {acme.id} and verified(acme).is_intact


def test_events_are_sealed_after_the_clock_of_the_database_was_set_back(
    context: Flask, make: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In new processes: those that run do not go back. Nobody waits for a lease that a clock ahead has made longer."""
    acme = make.organization()
    for ahead in (timedelta(days=1000), timedelta(hours=12), timedelta(minutes=5)):
        with monkeypatch.context() as patch:
            later = clock.now() + ahead
            for name in ("now", "measured_now"):
                patch.setattr(clock, name, lambda later=later: later)
            seal()
            name = f"{chain.LEASE}-{Shard.of(acme.id).number}"
            assert ahead < timedelta(hours=1) or leases.acquire(name, "killed", 30)
        happen(acme, 1)
        assert set(seal()) == {acme.id}
    assert verified(acme).is_intact and not verified(acme).pending


def test_many_events_are_sealed_in_batches(
    context: Flask, make: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chain, "BATCH", 3)
    acme = make.organization()
    happen(acme, 20)
    seal()
    assert verified(acme).is_intact and verified(acme).length == 21


def test_only_one_worker_seals_a_shard(context: Flask, make: Factory) -> None:
    acme = make.organization()
    seal()
    happen(acme, 2)
    lease = f"{chain.LEASE}-{Shard.of(acme.id).number}"
    assert leases.acquire(lease, "first", 60)
    assert seal_pending_events(SEALER, holder="second") is None
    assert verified(acme).pending == 2
    # A sealer that was killed does not hold the others up for longer than its lease.
    write(update(Lease).where(Lease.name == lease).values(expires_at=clock.now() - timedelta(seconds=1)))
    assert set(seal_pending_events(SEALER, holder="second") or ()) == {acme.id}


def test_shard_of_another_sealer_keeps_no_other_waiting(
    context: Flask, make: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when what waits for that one fills a batch, and its events are found by the next run."""
    monkeypatch.setattr(chain, "BATCH", 3)
    acme = make.organization()
    while Shard.of((globex := make.organization()).id) == Shard.of(acme.id):
        pass
    seal()
    happen(acme, 7)
    happen(globex, 2)
    lease = f"{chain.LEASE}-{Shard.of(acme.id).number}"
    assert leases.acquire(lease, "another", 60)
    assert set(seal() or ()) == {globex.id} and verified(globex).pending == 0
    leases.release(lease, "another")
    assert set(seal()) == {acme.id} and verified(acme).pending == 0


def test_concurrent_sealers_make_one_chain(
    context: Flask, make: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even without the lease, the chain accepts only one sealer."""
    acme, globex = make.organization(), make.organization()
    happen(acme, 3)
    monkeypatch.setattr(leases, "SHARDS", 1)
    waiting = chain._group_by_organization(chain._find_unsealed(chain._Run(), Shard(0)))
    keys, _ = chain._find_keys(waiting)
    assert chain._try_append(keys, {acme.id: waiting[acme.id]}).keys() == {acme.id}
    assert acme.id not in chain._try_append(keys, waiting), (
        "what is sealed already keeps no other chain waiting"
    )
    for organization in (acme, globex):
        assert verified(organization).is_intact and not verified(organization).pending


def test_sealing_executes_the_same_statements_for_many_organizations(
    context: Flask, make: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "SHARDS", 1)
    organizations = [make.organization() for _ in range(5)]
    seal()
    counts = []
    for chosen in (organizations[:1], organizations):
        for organization in chosen:
            happen(organization, 2)
            clear_cached_keys(organization.id)
        with counted_statements() as statements:
            assert set(seal()) == {organization.id for organization in chosen}
        counts.append(len(statements))
    assert counts[0] == counts[1]


def test_unreadable_key_of_one_organization_keeps_no_other_waiting(context: Flask, make: Factory) -> None:
    acme, globex = make.organization(), make.organization()
    [key] = db.session.scalars(select(Organization.data_key).where(Organization.id == acme.id))
    write(update(Organization).where(Organization.id == acme.id).values(data_key=b"damaged"))
    clear_cached_keys(acme.id)
    assert acme.id not in (grown := seal()) and globex.id in grown
    write(update(Organization).where(Organization.id == acme.id).values(data_key=key))
    assert set(seal()) == {acme.id} and verified(acme).is_intact


def test_chain_without_room_keeps_no_other_waiting(context: Flask, make: Factory) -> None:
    """Such a number can only come from a changed database or archive."""
    acme, globex = make.organization(), make.organization()
    seal()
    write(update(CHAINS).where(CHAINS.c.organization_id == acme.id).values(length=2**63 - 1))
    for organization in (acme, globex):
        happen(organization, 1)
    assert set(seal()) == {globex.id}
    assert verified(globex).is_intact and not verified(globex).pending
    with pytest.raises(Conflict, match="its chain is damaged"):
        seal_all_events(SEALER, acme.id)


def test_stalled_sealer_adds_nothing_after_another_took_over(
    context: Flask, make: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has read what waits, and resumes after its lease ended."""
    acme = make.organization()
    happen(acme, 3)
    resumed: list[dict[str, ChainHead] | None] = []
    real = chain._find_keys

    def stall(waiting: Any) -> Any:
        monkeypatch.setattr(chain, "_find_keys", real)
        write(update(Lease).values(expires_at=clock.now() - timedelta(seconds=1)))
        resumed.append(seal_pending_events(SEALER, holder="second"))
        happen(acme, 2)
        return real(waiting)

    monkeypatch.setattr(chain, "_find_keys", stall)
    assert seal_pending_events(SEALER, holder="first") is None
    [other] = resumed
    assert other is not None and other[acme.id].length == verified(acme).length
    assert verified(acme).is_intact and verified(acme).pending == 2


def test_events_that_could_not_be_sealed_are_sealed_in_the_next_run(
    context: Flask, make: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However old they are, waiting events are not reported as inserted."""
    acme, globex = make.organization(), make.organization()
    happen(acme, 3, hours_ago=1)
    with monkeypatch.context() as busy:
        real = chain._append

        def append(keys: Any, rows: Any, holder: Any) -> Any:
            if acme.id in rows:
                raise IntegrityError("INSERT", {}, Exception("Duplicate entry"))
            return real(keys, rows, holder)

        busy.setattr(chain, "_append", append)
        assert globex.id in seal()
    assert not verified(acme).problems and verified(acme).pending == 4
    assert set(seal()) == {acme.id}
    assert verified(acme).is_intact and verified(acme).length == 4


def test_chain_verifies_after_retention(context: Flask, make: Factory) -> None:
    """AU-2, CK-1: only the oldest events are deleted, by the database's clock."""
    acme = make.organization()
    happen(acme, 10, hours_ago=48, days_ahead=3650)
    seal()
    bound = clock.now() - timedelta(hours=24)
    assert [remove_events_before(acme.id, bound, limit) for limit in (4, 100, 100)] == [4, 6, 0]
    found = verified(acme)
    assert found.is_intact and (found.removed, found.checked) == (10, found.length - 10)
    happen(acme, 1)
    seal()
    assert verified(acme).is_intact
    write(update(AuditEvent).where(AuditEvent.organization_id == acme.id).values(at=bound))
    # A changed time proves nothing.
    assert remove_events_before(acme.id, bound + timedelta(hours=1), 100) == 0


def test_unsealed_event_is_not_deleted_by_retention(context: Flask, make: Factory) -> None:
    acme = make.organization()
    seal()
    happen(acme, 1, hours_ago=48)
    seal()
    assert remove_events_before(acme.id, clock.now() - timedelta(hours=24), 100) == 0
    assert kinds(acme) == ["inserted"]


def test_retention_during_verification_is_not_a_problem(
    context: Flask, make: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    acme = make.organization()
    happen(acme, 10, hours_ago=48)
    seal()
    real = chain_verification._mac_at

    def meanwhile(*given: Any) -> bytes:
        mac = real(*given)
        remove_events_before(acme.id, clock.now() - timedelta(hours=24), 5)
        return mac

    monkeypatch.setattr(chain_verification, "_mac_at", meanwhile)
    assert verified(acme).is_intact


def test_long_chain_is_verified_in_parts(context: Flask, make: Factory) -> None:
    acme = make.organization()
    happen(acme, 10)
    seal()
    found, checked = verified(acme, limit=4), 0
    while True:
        assert found.is_intact
        checked += found.checked
        if found.next_position is None:
            break
        found = verified(acme, after=found.next_position, limit=4)
    assert checked == found.length


def test_missing_chain_is_reported(context: Flask, make: Factory, monkeypatch: pytest.MonkeyPatch) -> None:
    acme = make.organization()
    seal()
    monkeypatch.setattr(chain_verification, "MAX_COMMIT_DELAY", timedelta(seconds=-1))
    write(*(delete(table).where(table.c.organization_id == acme.id) for table in (EVENTS, LINKS, CHAINS)))
    assert kinds(acme) == ["chain_missing"]


def test_sealing_everything_of_a_damaged_chain_ends(context: Flask, make: Factory) -> None:
    acme = make.organization()
    seal()
    write(delete(CHAINS).where(CHAINS.c.organization_id == acme.id))
    happen(acme, 1)
    with pytest.raises(Conflict, match="its chain is damaged"):
        seal_all_events(SEALER, acme.id)


def test_sealing_everything_beside_faster_sealers_ends(
    context: Flask, make: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each time it has read what waits, another sealer adds the oldest of it."""
    acme = make.organization()
    seal()
    happen(acme, MAX_ATTEMPTS + 2)
    real, keys = chain._find_unsealed_of, {acme.id: chain.chain_key(acme.id)}

    def lose(organization_id: str) -> Any:
        if rows := real(organization_id):
            chain._append(keys, {organization_id: rows[:1]}, lambda: None)
        return rows

    monkeypatch.setattr(chain, "_find_unsealed_of", lose)
    seal_all_events(SEALER, acme.id)
    assert verified(acme).is_intact and not verified(acme).pending


def test_checkpoint_detects_a_restored_log(context: Flask, make: Factory) -> None:
    acme = make.organization()
    seal()
    earlier = snapshot(acme)
    happen(acme, 3)
    head = seal()[acme.id]
    actor = Actor.system(acme.id)
    assert matches_checkpoint(actor, head.length, head.mac)
    put_back(earlier)
    assert verified(acme).is_intact
    assert not matches_checkpoint(actor, head.length, head.mac)
    happen(acme, 3)
    seal()
    assert not matches_checkpoint(actor, head.length, head.mac)


def test_rolled_back_end_is_detected_by_the_host_that_sealed_it(context: Flask, make: Factory) -> None:
    """AU-5: the log is consistent in itself; a restore of a backup by the command is accepted."""
    root = make.root()
    advance()
    acme = make.organization()
    seal()
    earlier = snapshot(acme)
    happen(acme, 3)
    heads = seal()
    remember_heads(heads.values())
    assert verified(acme).is_intact and verified(acme).head == heads[acme.id].mac.hex()
    put_back(earlier)
    assert kinds(acme) == ["rolled_back"]
    happen(acme, 4)
    seal()
    assert kinds(acme) == ["rolled_back"], "other events in its place"
    [fact] = db.session.scalars(select(InstanceFact.value).where(InstanceFact.name == "checkpoint"))
    set_checkpoint({**fact, "epochs": [*fact["epochs"], "forged"]})
    assert kinds(acme) == ["rolled_back"], "an epoch without the instance's keys"
    set_checkpoint(fact)
    begin_epoch(root.id)
    assert kinds(acme) == []


def test_log_that_another_worker_seals_during_verification_is_intact(
    context: Flask, make: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    make.root()
    advance()
    acme = make.organization()
    remember_heads(seal().values())
    find_chain = chain_verification.find_chain

    def find_and_seal(organization_id: str) -> Any:
        found = find_chain(organization_id)
        monkeypatch.undo()
        happen(acme, 3)
        remember_heads(seal().values())
        return found

    monkeypatch.setattr(chain_verification, "find_chain", find_and_seal)
    assert "rolled_back" not in kinds(acme)


def test_checkpoint_that_another_worker_raises_meanwhile_is_no_rollback(
    context: Flask, make: Factory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    root = make.root()
    advance()
    find_checkpoint = checkpoints.find_checkpoint

    def find_and_raise() -> Any:
        found = find_checkpoint()
        assert found is not None
        checkpoints._write_file(root.id, replace(found, sequence=found.sequence + 1))
        return found

    monkeypatch.setattr(checkpoints, "find_checkpoint", find_and_raise)
    advance()
    assert caplog.messages == []


def test_first_checkpoint_of_another_worker_is_not_replaced(
    context: Flask, make: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    make.root()
    advance()
    first = checkpoints.find_checkpoint()
    # What a worker reads that begins at the same moment.
    with monkeypatch.context() as patch:
        patch.setattr(type(db.session()), "get", lambda *_, **__: None)
        advance()
    assert checkpoints.find_checkpoint() == first


@transaction
def set_checkpoint(value: dict[str, Any]) -> None:
    """Write the checkpoint as someone with access to the database alone."""
    db.session.execute(update(InstanceFact).where(InstanceFact.name == "checkpoint").values(value=value))


def test_verification_requires_audit_read(context: Flask, make: Factory) -> None:
    with pytest.raises(Forbidden):
        verify_audit_log(make.actor(make.organization(), "clients:read"))


@pytest.mark.slow
def test_au4_each_of_hundreds_of_mutations_is_detected(
    context: Flask, make: Factory, database: Database
) -> None:
    """Edit, delete, insert, reorder, truncate and swap between organizations, with and without the chain.

    Each engine tries half of them: about two dozen of each kind for the few events of a log.
    """
    acme, globex = make.organization(), make.organization()
    for organization in (acme, globex):
        happen(organization, 6, hours_ago=1)
    # An event with the current time would be sealed unchanged, and no event here is that recent.
    write(update(EVENTS).values(at=clock.now() - timedelta(hours=1)))
    seal()
    untouched = snapshot(acme, globex)
    missed = []
    for seed in range(database.engine == "sqlite", 300, 2):
        Intruder(acme, globex, untouched, seed).mutate()
        if not kinds(acme) and not kinds(globex):
            missed.append(seed)
        put_back(untouched)
    assert missed == []
    assert kinds(acme) == kinds(globex) == []


def test_kind_and_position_of_damage_are_reported(context: Flask, make: Factory) -> None:
    acme = make.organization()
    happen(acme, 10, hours_ago=1)
    seal()
    links = snapshot(acme)[LINKS]
    third = next(row for row in links if row["position"] == 3)
    fifth = next(row for row in links if row["position"] == 5)
    write(
        update(EVENTS).where(EVENTS.c.id == third["id"]).values(action="thing.kept"),
        delete(EVENTS).where(EVENTS.c.id == fifth["id"]),
    )
    found = [(problem.kind, problem.position) for problem in verified(acme).problems]
    assert found == [("changed", 3), ("missing", 5)]
    assert verified(acme).problems[0].message
