"""Scheduled rotation: published a day before use, by one worker an hour, per the organization's settings."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import update

from app.models.organization import Organization
from app.models.token import SigningKey
from app.operations.directory.lookups import get_organization_by_slug
from app.operations.grants import key_rotation
from app.operations.grants.key_rotation import advance_rotation, rotate_due_keys
from app.operations.grants.signing_keys import get_active_key, list_public_keys
from app.operations.store import clock, keyring
from app.rules.actor import Actor
from app.rules.errors import Forbidden
from app.web import background
from tests.factories import Factory
from tests.operations.maintenance.test_janitor import write

SYSTEM = Actor.system("", "test")
DAY = 86_400


class Later:
    """A database clock that a test moves forward, with leases that have expired since."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun: datetime = clock.now()
        self._patch = monkeypatch

    def days(self, number: float) -> list[str]:
        """Move the clock this many days after the start and run the hourly rotation."""
        self.move(number)
        return rotate_due_keys(SYSTEM)

    def move(self, number: float) -> None:
        """Move the clock this many days after the start."""
        for name in ("now", "measured_now"):
            self._patch.setattr(clock, name, lambda: self.begun + timedelta(days=number))


@pytest.fixture
def later(context: Flask, monkeypatch: pytest.MonkeyPatch) -> Later:
    return Later(monkeypatch)


def signing(slug: str) -> str:
    return get_active_key(get_organization_by_slug(slug), "ES256").kid


def test_old_key_is_replaced_in_two_steps(make: Factory, later: Later) -> None:
    acme = make.organization("acme")
    first = get_active_key(acme, "ES256").kid
    assert later.days(88) == []
    (second,) = later.days(89.1)
    assert signing("acme") == first
    assert {key["kid"] for key in list_public_keys(acme.id)} == {first, second}
    assert later.days(89.9) == [], "it has not been published for a day"
    assert later.days(90.2) == [second]
    assert signing("acme") == second
    assert first in {key["kid"] for key in list_public_keys(acme.id)}
    assert later.days(91) == [], "the new one is young"


def test_rotation_age_is_per_organization(make: Factory, later: Later) -> None:
    settings: dict[str, Any] = {"oauth": {"signing": {"rotation_seconds": 7 * DAY}}}
    quick, slow = make.organization("quick", settings=settings), make.organization("slow")
    for organization in (quick, slow):
        get_active_key(organization, "ES256")
    (successor,) = later.days(6.5)
    assert successor in {key["kid"] for key in list_public_keys(quick.id)}
    assert len(list_public_keys(slow.id)) == 1


def test_rotation_runs_once_an_hour_in_one_worker(make: Factory, later: Later) -> None:
    get_active_key(make.organization(), "ES256")
    assert later.days(100) != []
    write(update(SigningKey).values(created_at=later.begun))
    assert later.days(100 + 0.5 / 24) == []
    assert later.days(100 + 1.1 / 24) != []


def test_keys_are_read_in_pages(make: Factory, later: Later, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_rotation, "_PAGE_SIZE", 2)
    organization = make.organization()
    for algorithm in ("ES256", "EdDSA"):
        get_active_key(organization, algorithm)
        get_active_key(make.organization(), algorithm)
    assert len(later.days(100)) == 4


@pytest.mark.parametrize("at", [None, datetime(9999, 12, 31, tzinfo=UTC)])
def test_damaged_key_of_one_organization_keeps_no_other_from_rotating(
    make: Factory, later: Later, at: datetime | None
) -> None:
    acme, globex = make.organization(), make.organization()
    for organization in (acme, globex):
        get_active_key(organization, "ES256")
    # Such a row can only come from a changed database or archive.
    write(update(SigningKey).where(SigningKey.organization_id == acme.id).values(activated_at=at))
    due = key_rotation.next_rotation_at()
    assert due is not None and due > later.begun
    [successor] = later.days(100)
    assert successor in {key["kid"] for key in list_public_keys(globex.id)}


def test_janitor_that_fails_keeps_no_key_from_rotating(
    app: Flask, make: Factory, later: Later, monkeypatch: pytest.MonkeyPatch
) -> None:
    get_active_key(make.organization(), "ES256")
    later.days(0)

    def fail(*_arguments: Any, **_options: Any) -> None:
        raise OverflowError

    monkeypatch.setattr(background, "purge_expired", fail)
    later.move(100)
    background._purge_and_rotate(app, "tests", 0)
    assert later.days(100.5) == [], "the rotation of this hour was done"


def test_rotation_requires_permission(context: Flask) -> None:
    with pytest.raises(Forbidden):
        rotate_due_keys(Actor.anonymous("00000000"))


def test_manually_created_successor_is_activated_after_a_day(make: Factory, later: Later) -> None:
    """KY-1: no second manual step is needed."""
    acme = make.organization("acme")
    first = get_active_key(acme, "ES256").kid
    announced = advance_rotation(make.system(acme), "ES256")
    assert later.days(0.9) == []
    assert signing("acme") == first
    assert later.days(1.1) == [announced]
    assert signing("acme") == announced


def test_every_algorithm_in_use_is_rotated(make: Factory, later: Later) -> None:
    """KY-1: not only the organization's default algorithm."""
    acme = make.organization("acme")
    before = {get_active_key(acme, algorithm).kid for algorithm in ("ES256", "EdDSA")}
    assert len(later.days(89.1)) == 2
    assert len(later.days(90.2)) == 2
    after = {
        get_active_key(get_organization_by_slug("acme"), algorithm).kid for algorithm in ("ES256", "EdDSA")
    }
    assert not before & after


def test_unreadable_key_does_not_affect_other_organizations(make: Factory, later: Later) -> None:
    broken, fine = make.organization("broken"), make.organization("fine")
    for organization in (broken, fine):
        get_active_key(organization, "ES256")
    write(update(Organization).where(Organization.id == broken.id).values(data_key=b"\x01" * 61))
    keyring.clear_cached_keys(broken.id)
    [successor] = later.days(100)
    assert successor in {key["kid"] for key in list_public_keys(fine.id)}
