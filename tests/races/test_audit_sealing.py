"""Sealers of several nodes at once, imports and retention never fork or break a chain (AU-3)."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import update

from app.models.audit import Lease
from app.operations.audit import chain
from app.operations.audit.chain import remove_events_before, seal_all_events
from app.operations.audit.chain_verification import verify_audit_log
from app.operations.directory.lookups import OrganizationSnapshot
from app.operations.store import audit, clock, leases
from app.operations.store.transactions import transaction
from app.rules.actor import Actor
from app.rules.errors import Unavailable
from tests.factories import Factory
from tests.operations.audit.test_audit_chain import happen
from tests.support.intruder import write

pytestmark = pytest.mark.mariadb
ORGANIZATIONS, ROUNDS, EVENTS, SEALERS = 6, 8, 4, 4
OLD_EVENTS = 60
SEALER = Actor.system("", "tests")


@transaction
def record(organization: OrganizationSnapshot) -> None:
    for number in range(EVENTS):
        audit.record(Actor.system(organization.id), "thing.made", target_type="thing", target_id=f"{number}")


class Repeated(threading.Thread):
    """Call the function on each organization in turn until ``done`` is set."""

    def __init__(self, app: Flask, done: threading.Event, act: Callable[..., Any], *given: Any) -> None:
        super().__init__()
        self.app, self.done, self.act, self.given = app, done, act, given
        self.error: BaseException | None = None

    def run(self) -> None:
        with self.app.app_context():
            for one in itertools.cycle(self.given):
                if self.done.is_set():
                    return
                try:
                    self.act(one)
                except Unavailable:
                    continue
                except BaseException as error:  # noqa: BLE001 - the test reports it
                    self.error = error
                    return


def seal(holder: str) -> Any:
    return chain.seal_pending_events(SEALER, holder=holder)


def test_sealers_that_ignore_the_lease_never_fork_a_chain(
    app: Flask, make: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each believes that it holds the lease, beside an import and the janitor."""
    monkeypatch.setattr(leases, "acquire", lambda *_: True)
    monkeypatch.setattr(leases, "renew", lambda *_: True)
    monkeypatch.setattr(chain, "BATCH", 7)
    organizations = [make.organization() for _ in range(ORGANIZATIONS)]
    ids = [organization.id for organization in organizations]
    done = threading.Event()

    with app.app_context():
        for organization in organizations[:3]:
            happen(organization, OLD_EVENTS, hours_ago=48)
            seal_all_events(SEALER, organization.id)

    def retain(organization_id: str) -> None:
        # One at a time from the beginning, while the other end grows.
        remove_events_before(organization_id, clock.now() - timedelta(hours=24), 1)

    threads = [
        *(Repeated(app, done, seal, f"sealer {number}") for number in range(SEALERS)),
        Repeated(app, done, retain, *ids[:3]),
        Repeated(app, done, lambda organization_id: seal_all_events(SEALER, organization_id), *ids[2:4]),
    ]
    for thread in threads:
        thread.start()
    with app.app_context():
        for _ in range(ROUNDS):
            for organization in organizations:
                record(organization)
    done.set()
    for thread in threads:
        thread.join()
    assert [thread.error for thread in threads if thread.error] == []
    with app.app_context():
        seal("last")
        for organization_id in ids[:3]:
            # On a busy machine the thread may not have come to all of them.
            retain(organization_id)
        for organization_id in ids:
            found = verify_audit_log(Actor.system(organization_id))
            assert found.problems == [] and found.pending == 0
            assert found.length >= ROUNDS * EVENTS and found.checked == found.length - found.removed
            assert bool(found.removed) == (organization_id in ids[:3])


def test_sealer_that_stalls_in_its_transaction_and_resumes_makes_one_chain(
    app: Flask, make: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has written its links when it stalls; its lease has ended when another wants to seal."""
    organization = make.organization()
    stalled, resume = threading.Event(), threading.Event()
    real = chain._replace_chains
    heads: list[Any] = []

    def stall(*given: Any) -> None:
        if threading.current_thread() is first:
            stalled.set()
            resume.wait(20)
        real(*given)

    def run() -> None:
        with app.app_context():
            heads.append(seal("first"))

    monkeypatch.setattr(chain, "_replace_chains", stall)
    first = threading.Thread(target=run)
    with app.app_context():
        record(organization)
        first.start()
        assert stalled.wait(20)
        with pytest.raises(Unavailable):
            expire_lease()
        resume.set()
        first.join()
        expire_lease()
        record(organization)
        assert seal("second")[organization.id].length == heads[0][organization.id].length + EVENTS
        found = verify_audit_log(Actor.system(organization.id))
    assert found.is_intact and found.pending == 0


def expire_lease() -> None:
    write(update(Lease).values(expires_at=clock.now() - timedelta(seconds=1)))
