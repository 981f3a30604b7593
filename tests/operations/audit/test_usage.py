"""Figures: what is counted is shown to those who may see it, and only that."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from flask import Flask
from sqlalchemy import update

from app.models.audit import UsageCounter
from app.models.client import Client
from app.operations.audit import usage, usage_counts
from app.operations.clients.credentials import list_credentials
from app.operations.maintenance.janitor import purge_expired
from app.operations.store import clock
from app.operations.store.usage_counters import (
    ACTIVE_USER,
    FAILED,
    NONE,
    REQUESTS,
    SIGN_INS,
    TOKENS,
    Metrics,
    add_past,
)
from app.rules.actor import Actor
from app.rules.errors import Forbidden, InvalidInput, NotFound
from app.rules.identifiers import new_id
from tests.factories import Factory, MadeClient
from tests.operations.maintenance.test_janitor import SYSTEM, write
from tests.support.cases import each
from tests.support.databases import Database
from tests.support.traffic import fill_counters

DEVELOPER = ("clients:read:own", "clients:write:own", "credentials:read:own")
ISSUED: Metrics = ((REQUESTS, "token:succeeded"), (TOKENS, "client_credentials"))
REFUSED: Metrics = ((REQUESTS, "token:failed"), (FAILED, "code_expired"))


class Place:
    """An organization with two clients, one of them a developer's."""

    def __init__(self, make: Factory) -> None:
        self.make = make
        self.organization = make.organization()
        self.user = make.user(self.organization)
        self.admin = make.actor(self.organization)
        self.developer = make.actor(self.organization, *DEVELOPER, user=self.user)
        self.theirs = make.client(self.organization, by=self.developer)
        self.other = make.client(self.organization)
        self.now = clock.now()

    def count(self, client: MadeClient | None, metrics: Metrics, count: int = 1, **ago: float) -> None:
        """Count something that happened so long ago."""
        client_id = None if client is None else client.registered.client.id
        add_past([(self.now - timedelta(**ago), (self.organization.id, metrics, client_id, None), count)])

    def user_signed_in(self, user: UUID, **ago: float) -> None:
        """Count the sign-in of a user."""
        at = self.now - timedelta(**ago)
        add_past([(at, (self.organization.id, ACTIVE_USER, None, user), 1)])
        add_past([(at, (self.organization.id, ((SIGN_INS, "pwd"),), None, None), 1)])


@pytest.fixture
def place(context: Flask, make: Factory) -> Place:
    return Place(make)


def test_day_is_shown_in_hours_beside_the_day_before(place: Place) -> None:
    place.count(place.theirs, ISSUED, 3)
    place.count(place.other, ISSUED, 2, hours=5)
    place.count(place.other, REFUSED, 1, hours=5)
    place.count(place.other, ISSUED, 7, hours=24)
    found = usage.get_traffic(place.admin, hours=24)
    assert (found.interval, len(found.buckets)) == ("hour", 24)
    assert [bucket.service for bucket in found.buckets if bucket.tokens] == [2, 3]
    assert [bucket.failed for bucket in found.buckets if bucket.failed] == [1]
    assert (found.totals.tokens, found.totals.failed, found.totals.requests) == (5, 1, 5)
    assert found.totals.error_rate == pytest.approx(1 / 6)
    assert found.previous.tokens == 7
    assert [(cause.cause, cause.count) for cause in found.causes] == [("code_expired", 1)]


def test_weeks_are_shown_in_days_beside_as_much_of_the_week_before(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At noon the days of last week end at noon, too: half a day is no decline."""
    place.now = place.now.replace(hour=12, minute=30)
    monkeypatch.setattr(clock, "now", lambda: place.now)
    for day in range(14):
        place.count(place.other, ISSUED, 10, days=day)
        place.count(place.other, ISSUED, 1000, days=day, hours=-6)
    found = usage.get_traffic(place.admin, hours=24 * 7)
    assert (found.interval, len(found.buckets)) == ("day", 7)
    assert found.since == place.now.replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=6)
    assert [bucket.tokens for bucket in found.buckets[:6]] == [1010] * 6
    assert found.previous.tokens == 6 * 1010 + 10


def test_each_grant_is_in_its_family(place: Place) -> None:
    details = ("authorization_code", "device_code", "refresh_token", "client_credentials", "token_exchange")
    for number, detail in enumerate(details, 1):
        place.count(place.other, ((TOKENS, detail),), number)
    last = usage.get_traffic(place.admin, hours=24).buckets[-1]
    assert (last.sign_in, last.refresh, last.service, last.exchange) == (3, 3, 4, 5)
    of_client = usage.get_traffic(place.admin, hours=24, client_id=place.other.client_id)
    assert of_client.totals.sign_ins == 3


def test_active_users_are_counted_once_in_a_period(place: Place) -> None:
    ada, grace = new_id(), new_id()
    for hours in (1, 2, 3):
        place.user_signed_in(ada, hours=hours)
    place.user_signed_in(grace, hours=2)
    place.user_signed_in(grace, hours=30)
    found = usage.get_traffic(place.admin, hours=24)
    assert (found.totals.active_users, found.previous.active_users, found.totals.sign_ins) == (2, 1, 4)


def test_many_active_users_are_counted_once_a_minute(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    now = clock.now().replace(second=0)
    monkeypatch.setattr(usage, "_MANY_USER_ROWS", 2)

    def count(seconds: int) -> int | None:
        monkeypatch.setattr(clock, "now", lambda: now + timedelta(seconds=seconds))
        return usage.get_traffic(place.admin, hours=24).totals.active_users

    for seconds, expected in ((0, 1), (1, 2), (59, 2), (60, 4)):
        place.user_signed_in(new_id())
        assert count(seconds) == expected


def test_developer_sees_the_sum_of_their_own_clients(place: Place) -> None:
    place.count(place.theirs, ISSUED, 3)
    place.count(place.other, ISSUED, 5)
    place.user_signed_in(new_id())
    found = usage.get_traffic(place.developer, hours=24)
    assert found.totals.tokens == found.buckets[-1].tokens == 3
    assert found.totals.active_users is None
    assert found.totals.sign_ins == 0
    ids = [place.theirs.client_id, place.other.client_id]
    assert list(usage.get_clients_traffic(place.developer, ids)) == [place.theirs.client_id]
    with pytest.raises(NotFound):
        usage.get_traffic(place.developer, hours=24, client_id=place.other.client_id)
    with pytest.raises(NotFound):
        usage.get_credential_use(place.developer, place.other.client_id)
    whole = usage_counts.get_usage(place.developer, place.organization.slug, {})
    assert {(count.metric, count.count) for count in whole.counts} == {("tokens", 3), ("requests", 3)}
    grouped = usage_counts.get_usage(place.developer, place.organization.slug, {"group_by": "client_id"})
    assert {count.client_id for count in grouped.counts} == {place.theirs.client_id}


def test_organization_sees_nothing_of_another_one(place: Place, make: Factory) -> None:
    place.count(place.other, ISSUED, 3)
    place.user_signed_in(new_id())
    stranger = make.actor(make.organization())
    found = usage.get_traffic(stranger, hours=24)
    assert (found.totals.tokens, found.totals.active_users) == (0, 0)
    assert usage.get_clients_traffic(stranger, [place.other.client_id]) == {}
    for call in (
        lambda: usage.get_traffic(stranger, hours=24, client_id=place.other.client_id),
        lambda: usage.get_credential_use(stranger, place.other.client_id),
        lambda: usage_counts.get_usage(stranger, place.organization.slug, {}),
    ):
        with pytest.raises(NotFound):
            call()


@each(
    "call",
    [
        lambda actor, place: usage.get_traffic(actor, hours=24),
        lambda actor, place: usage.get_clients_traffic(actor, [place.other.client_id]),
        lambda actor, place: usage.get_credential_use(actor, place.other.client_id),
        lambda actor, place: usage_counts.get_usage(actor, place.organization.slug, {}),
    ],
)
def test_figures_need_a_permission(place: Place, call: Callable[[Actor, Place], Any]) -> None:
    actor = place.make.actor(place.organization, "organization:read", "logs:read")
    with pytest.raises(Forbidden):
        call(actor, place)


def test_clients_have_their_days_and_error_rates(place: Place) -> None:
    place.count(place.theirs, ISSUED, 3, days=1)
    place.count(place.theirs, REFUSED, 1)
    found = usage.get_clients_traffic(place.admin, [place.theirs.client_id, place.other.client_id, "unknown"])
    theirs, other = found[place.theirs.client_id], found[place.other.client_id]
    assert [day.tokens for day in theirs.days] == [0, 0, 0, 0, 0, 3, 0]
    assert (theirs.error_rate, other.error_rate) == (0.25, None)


def test_usage_is_grouped_by_detail_client_and_secret(place: Place) -> None:
    secret = list_credentials(place.admin, place.other.client_id).items[0]
    fact = (place.organization.id, ISSUED, place.other.registered.client.id, secret.id)
    add_past([(place.now, fact, 4)])

    def ask(**filters: str) -> list[Any]:
        return list(usage_counts.get_usage(place.admin, place.organization.slug, filters).counts)

    [tokens] = ask(metric="tokens", group_by="detail,client_id")
    assert (tokens.detail, tokens.client_id) == ("client_credentials", place.other.client_id)
    by_secret = {"metric": "requests", "client_id": place.other.client_id, "group_by": "credential_id"}
    [used] = ask(**by_secret)
    assert (used.credential_id, used.count, used.detail) == (secret.public_id, 4, None)
    [hour] = ask(interval="hour", metric="tokens")
    assert hour.start == place.now.replace(minute=0, second=0, microsecond=0)


def test_clients_beyond_the_maximum_are_those_used_longest_ago(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage, "MAX_CLIENTS", 1)
    for client in (place.theirs, place.other):
        place.count(client, ISSUED, 1)
    # The client that was registered first.
    used = update(Client).where(Client.id == place.theirs.registered.client.id)
    write(used.values(last_used_at=place.now))
    asked = {"group_by": "client_id", "metric": "tokens"}
    counts = usage_counts.get_usage(place.admin, place.organization.slug, asked).counts
    assert [count.client_id for count in counts] == [place.theirs.client_id]


def test_usage_of_a_time_has_only_its_days(place: Place) -> None:
    for days in range(5):
        place.count(place.other, ISSUED, 1, days=days)
    since, until = (str((place.now - timedelta(days=days)).isoformat()) for days in (3, 1))
    found = usage_counts.get_usage(
        place.admin,
        place.organization.slug,
        {"since": since, "until": until, "interval": "day", "metric": "tokens"},
    )
    assert len(found.counts) == 3
    assert found.since <= datetime.fromisoformat(since) < datetime.fromisoformat(until) <= found.until


@each(
    ("filters", "fields"),
    [
        ({"interval": "week"}, "interval"),
        ({"metric": "logins"}, "metric"),
        ({"group_by": "user_id"}, "group_by"),
        ({"group_by": "credential_id"}, "group_by"),
        ({"since": "yesterday"}, "since"),
        ({"since": "2026-01-02T00:00:00Z", "until": "2026-01-01T00:00:00Z"}, "since"),
        ({"since": "2026-01-01T00:00:00Z", "until": "2026-06-01T00:00:00Z"}, "since"),
        ({"since": "2026-01-01T00:00:00Z", "until": "2026-03-01T00:00:00Z", "interval": "hour"}, "since"),
        ({"client_id": "unknown"}, "client_id"),
        ({"interval": "week", "group_by": "user_id"}, "interval group_by"),
        ({"group_by": "detail," * 10 + "detail"}, "group_by"),
    ],
)
def test_invalid_filter_is_rejected(place: Place, filters: dict[str, str], fields: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        usage_counts.get_usage(place.admin, place.organization.slug, filters)
    assert [error.field for error in refused.value.errors] == fields.split()


def test_response_has_a_maximum(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage_counts, "MAX_COUNTS", 3)
    for days in range(3):
        place.count(place.other, ISSUED, 1, days=days)
    with pytest.raises(InvalidInput, match="too many counts"):
        usage_counts.get_usage(place.admin, place.organization.slug, {})


def test_active_users_of_each_day_have_a_maximum_for_large_organizations(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert usage_counts.MAX_USER_ROWS > usage_counts.DEFAULT_DAYS * 100_000
    monkeypatch.setattr(usage_counts, "MAX_USER_ROWS", 4)
    for users in (3, 4):
        place.user_signed_in(new_id(), days=users)
    place.user_signed_in(new_id())
    counts = usage_counts.get_usage(place.admin, place.organization.slug, {"metric": "active_users"}).counts
    assert [count.count for count in counts] == [1] * 3
    place.user_signed_in(new_id())
    with pytest.raises(InvalidInput, match="too many counts"):
        usage_counts.get_usage(place.admin, place.organization.slug, {})


def test_janitor_deletes_counters_after_ninety_days(place: Place, database: Database) -> None:
    for days in (0, 88, 92, 200):
        place.count(place.other, ISSUED, 1, days=days)
        place.user_signed_in(new_id(), days=days)
    deleted = purge_expired(SYSTEM, pause=0)
    assert deleted is not None and deleted[UsageCounter.__tablename__] == 2 * 12
    assert database.count("usage_counters") == 2 * 12


def test_clients_add_up_to_the_organization(place: Place, database: Database) -> None:
    """Every token, request and failure is in the counters of its client and of its organization."""
    clients = [place.theirs.registered.client.id, place.other.registered.client.id]
    fill_counters(place.organization.id, clients, place.now, days=2)
    sums: dict[tuple[bool, bytes, bytes], int] = {}
    for client, span, metric, count in database.query(
        "SELECT client_id, span, metric, count FROM usage_counters"
    ):
        if bytes(metric) in {b"tokens", b"requests", b"failed"}:
            key = (bytes(client) == NONE.bytes, bytes(span), bytes(metric))
            sums[key] = sums.get(key, 0) + int(count)
    for metric in (b"tokens", b"requests", b"failed"):
        assert (
            len({sums[(whole, span, metric)] for whole in (True, False) for span in (b"hour", b"day")}) == 1
        )
