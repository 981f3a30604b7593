"""Limits on requests per minute, and on the numbers of users and clients."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import update

from app.extensions import db
from app.models.user import DELETED, User
from app.operations.clients.clients import TooManyClients
from app.operations.directory.users import create_user
from app.operations.maintenance import janitor
from app.operations.organizations import instance_limits, settings
from app.operations.store import clock, request_limits
from app.operations.store.request_limits import RequestCounts, require_request_allowed
from app.operations.store.transactions import transaction
from app.rules.actor import Actor
from app.rules.errors import Conflict, Forbidden, TooManyRequests, Unavailable
from app.rules.identifiers import new_routing_key
from app.rules.sign_in.passwords import IPV6_SITE_FACTOR
from tests.factories import Factory
from tests.support.databases import Database
from tests.support.threads import at_once

START = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)
ACME, OTHER = "acme0001", "other001"
Advance = Callable[[float], None]


@pytest.fixture
def advance(monkeypatch: pytest.MonkeyPatch) -> Advance:
    """Stop the time at the beginning of a minute and return what sets it to so many seconds later."""
    now = [START]
    monkeypatch.setattr(clock, "now", lambda: now[0])

    def later(seconds: float) -> None:
        now[0] = START + timedelta(seconds=seconds)

    return later


def take(counts: RequestCounts, times: int, *, limit: int = 100, key: Any = (ACME, "client", "cli_1")) -> int:
    """Return how many of so many requests were allowed."""
    return sum(counts.take([(key, limit)]) is None for _ in range(times))


def test_limit_holds_for_any_sixty_seconds(advance: Advance) -> None:
    counts = RequestCounts()
    assert take(counts, 120) == 100
    advance(59)
    assert take(counts, 10) == 0
    # Half of the last minute's hundred still lies within sixty seconds.
    advance(90)
    assert take(counts, 120) == 50
    advance(150)
    assert take(counts, 120) == 75
    advance(400)
    assert take(counts, 120) == 100


@pytest.mark.parametrize("at", [0, 20, 59.5, 61, 75, 119])
def test_retry_after_is_when_a_request_is_allowed_again(advance: Advance, at: float) -> None:
    counts = RequestCounts()
    take(counts, 60)
    advance(at)
    take(counts, 200)
    refused = counts.take([((ACME, "client", "cli_1"), 100)])
    assert refused is not None
    kind, limit, wait = refused
    assert (kind, limit) == ("client", 100) and 1 <= wait <= 61
    advance(at + wait)
    assert take(counts, 1) == 1


def test_request_without_room_in_one_limit_counts_in_none(advance: Advance) -> None:
    counts = RequestCounts()
    wanted = [((ACME, "client", "cli_1"), 100), ((ACME, "organization", ""), 10)]
    assert sum(counts.take(wanted) is None for _ in range(50)) == 10
    assert take(counts, 200) == 90


def test_limits_of_organizations_are_separate(advance: Advance) -> None:
    counts = RequestCounts()
    assert take(counts, 120) == 100
    assert take(counts, 120, key=(OTHER, "client", "cli_1")) == 100


def test_request_that_proved_nothing_counts_for_its_network_alone(advance: Advance) -> None:
    limits = dict.fromkeys(
        ("client_requests_per_minute", "network_requests_per_minute", "organization_requests_per_minute"), 10
    )
    organization_id = new_routing_key()

    def send(client_id: str | None, address: str) -> None:
        require_request_allowed(organization_id, limits, client_id, address)

    for _ in range(10):
        send(None, "192.0.2.1")
    with pytest.raises(TooManyRequests, match="from this network"):
        send(None, "192.0.2.1")
    for _ in range(10):
        send("cli_1", "198.51.100.1")
    with pytest.raises(TooManyRequests, match="This client"):
        send("cli_1", "203.0.113.1")
    with pytest.raises(TooManyRequests, match="This organization"):
        send("cli_2", "203.0.113.1")


def test_processes_share_what_they_counted(context: Flask, advance: Advance, database: Database) -> None:
    here, there, idle = RequestCounts(), RequestCounts(), RequestCounts()
    assert take(here, 60) == 60
    assert take(there, 30) == 30
    assert take(idle, 1) == 1
    assert here.share() == there.share() == here.share() == 1
    assert idle.share() == 0
    assert take(here, 60) == 10
    assert here.share() == there.share() == 1
    assert take(there, 60) == 0
    rows = database.query("SELECT count FROM request_counts ORDER BY count")
    assert [int(count) for (count,) in rows] == [30, 70]
    # In the next minute each knows what all did in the last one.
    advance(90)
    assert take(there, 60) == 50


def test_counts_of_processes_that_share_at_once_are_all_stored(
    context: Flask, advance: Advance, database: Database
) -> None:
    processes = [RequestCounts() for _ in range(4)]
    for process in processes:
        take(process, 20)

    at_once(context, [process.share for process in processes])
    assert int(database.query("SELECT SUM(count) FROM request_counts")[0][0]) == 80


@pytest.mark.parametrize("more", [0, 5])
def test_counts_whose_commit_was_not_confirmed_are_shared_again(
    context: Flask, advance: Advance, database: Database, monkeypatch: pytest.MonkeyPatch, more: int
) -> None:
    counts, exchange = RequestCounts(), request_limits._exchange
    take(counts, 20)

    def commit_and_lose_the_answer(*args: Any) -> Any:
        exchange(*args)
        raise Unavailable

    with monkeypatch.context() as patch:
        patch.setattr(request_limits, "_exchange", commit_and_lose_the_answer)
        with pytest.raises(ExceptionGroup):
            counts.share()
    take(counts, more)
    assert counts.share() == 1
    assert [int(count) for (count,) in database.query("SELECT count FROM request_counts")] == [20 + more]


def test_fault_of_one_organization_does_not_keep_others_from_sharing(
    context: Flask, advance: Advance, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there, exchange = RequestCounts(), RequestCounts(), request_limits._exchange
    for organization_id in (ACME, OTHER):
        take(here, 60, key=(organization_id, "client", "cli_1"))
        take(there, 60, key=(organization_id, "client", "cli_1"))

    def fail_for_acme(organization_id: str, *args: Any) -> Any:
        if organization_id == ACME:
            raise Unavailable
        return exchange(organization_id, *args)

    monkeypatch.setattr(request_limits, "_exchange", fail_for_acme)
    for process in (here, there):
        with pytest.raises(ExceptionGroup) as failed:
            process.share()
        assert len(failed.value.exceptions) == 1
    assert take(there, 1, key=(OTHER, "client", "cli_1")) == 0
    assert take(there, 1) == 1


def test_keys_in_memory_are_bounded(advance: Advance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_limits, "MAX_KEYS", 10)
    counts = RequestCounts()
    for number in range(35):
        take(counts, 1, key=(ACME, "network", str(number)))
    assert len(counts._counts) <= 10


def test_requests_from_many_networks_lift_no_other_limit(
    advance: Advance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_limits, "MAX_KEYS", 100)
    counts, busy = RequestCounts(), (ACME, "network", "192.0.2.0/24")
    assert take(counts, 120) == take(counts, 120, key=busy) == 100
    for number in range(350):
        take(counts, 1, key=(ACME, "network", str(number)))
    assert take(counts, 1) == take(counts, 1, key=busy) == 0
    for number in range(350):
        take(counts, 10, key=(ACME, "network", str(number)))
    assert take(counts, 1) == 0


def test_site_of_many_networks_has_a_limit(advance: Advance) -> None:
    limits = dict.fromkeys(("client_requests_per_minute", "organization_requests_per_minute"))
    organization_id = new_routing_key()

    def send(number: int) -> None:
        address = f"2001:db8:1:{number:x}::9"
        require_request_allowed(organization_id, limits | {"network_requests_per_minute": 2}, None, address)

    for number in range(2 * IPV6_SITE_FACTOR):
        send(number)
    with pytest.raises(TooManyRequests, match="from this network"):
        send(4711)


def test_shared_counts_are_purged(context: Flask, make: Factory, database: Database) -> None:
    root = make.root()
    counts = RequestCounts()
    take(counts, 50)
    counts.share()
    database.query("UPDATE request_counts SET expires_at = '2020-01-01 00:00:00'")
    janitor.purge_expired(Actor.system(root.id), pause=0)
    assert database.count("request_counts") == 0


def test_instance_limit_holds_for_an_organization_that_chose_nothing(context: Flask, make: Factory) -> None:
    acme = make.organization()
    root = make.actor(make.root())
    instance_limits.update_instance_limits(root, {"limits.max_users": {"max": 1}})
    make.user(acme)
    with pytest.raises(Conflict, match="at most 1 users") as refused:
        make.user(acme)
    assert refused.value.code == "too_many_users"


def test_only_administrators_of_the_instance_change_limits(context: Flask, make: Factory) -> None:
    acme = make.organization()
    with pytest.raises(Forbidden) as refused:
        settings.update_settings(make.actor(acme), acme.slug, {"limits": {"max_users": 5}})
    assert refused.value.field == "limits.max_users"
    changed = settings.update_settings(make.actor(make.root()), acme.slug, {"limits": {"max_users": 5}})
    assert changed.changed == ("limits.max_users",)


def test_deleted_users_take_no_place(context: Flask, make: Factory, database: Database) -> None:
    acme = make.organization(settings={"limits": {"max_users": 2}})
    make.user(acme)
    make.user(acme)
    with pytest.raises(Conflict):
        create_user(acme.id, email="third@example.com")
    _delete_all()
    make.user(acme)


@transaction
def _delete_all() -> None:
    db.session.execute(update(User).values(status=DELETED))


def test_clients_beyond_the_limit_are_not_registered(context: Flask, make: Factory) -> None:
    acme = make.organization(settings={"limits": {"max_clients": 2}})
    make.client(acme)
    make.client(acme)
    with pytest.raises(TooManyClients, match="at most 2 clients"):
        make.client(acme)
