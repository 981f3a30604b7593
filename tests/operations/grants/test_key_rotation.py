"""Manual and scheduled key rotation, and what verifiers and the audit log see of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from flask import Flask
from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jwk import KeySet
from sqlalchemy import select

from app.extensions import db
from app.models.audit import AuditEvent
from app.models.token import SigningKey
from app.operations.directory.lookups import OrganizationSnapshot, get_organization_by_id
from app.operations.grants.key_rotation import (
    PUBLISHED_AFTER_RETIREMENT,
    PUBLISHED_BEFORE_USE,
    advance_rotation,
    replace_key_immediately,
)
from app.operations.grants.signing_keys import get_active_key, list_public_keys, sign_jwt
from app.operations.maintenance.janitor import purge_expired
from app.operations.sign_in.reauthentication import FreshSignInRequired
from app.operations.store import clock
from app.operations.tokens.signing_key_lists import get_signing_key, list_signing_keys, rotate_signing_key
from app.rules.actor import Actor
from app.rules.errors import Forbidden, InvalidInput, NotFound
from tests.factories import Factory
from tests.support.cases import each

HOUR = timedelta(hours=1)


@pytest.fixture
def organization(context: Flask, make: Factory) -> OrganizationSnapshot:
    """An organization without keys."""
    return make.organization("acme", settings={"oauth": {"signing": {"algorithm": "ES256"}}})


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch, context: Flask) -> Iterator[Any]:
    """``later(delta)`` sets the time to this long after the start."""
    begun: datetime = clock.now()

    def move(by: timedelta) -> None:
        monkeypatch.setattr(clock, "now", lambda: begun + by)

    move(timedelta())
    return move


def fresh(organization: OrganizationSnapshot) -> OrganizationSnapshot:
    return get_organization_by_id(organization.id)


def signing(organization: OrganizationSnapshot) -> str:
    return get_active_key(fresh(organization), "ES256").kid


def signed(organization: OrganizationSnapshot) -> str:
    return sign_jwt(fresh(organization), "ES256", {"sub": "x"}, token_type="JWT")


def published(organization: OrganizationSnapshot) -> set[str]:
    return {key["kid"] for key in list_public_keys(organization.id)}


def verifies(organization: OrganizationSnapshot, token: str) -> bool:
    try:
        keys = KeySet.import_key_set({"keys": list_public_keys(organization.id)})
        jws.deserialize_compact(token, keys, algorithms=["ES256"])
    except (JoseError, ValueError):
        return False
    return True


def states(organization: OrganizationSnapshot) -> dict[str, str]:
    db.session.remove()
    rows = db.session.scalars(select(SigningKey).where(SigningKey.organization_id == organization.id))
    return {row.kid: row.state for row in rows}


def events(organization: OrganizationSnapshot) -> list[tuple[str, str | None]]:
    """Return (action, kid) of the audit events about keys."""
    db.session.remove()
    rows = db.session.scalars(
        select(AuditEvent)
        .where(AuditEvent.organization_id == organization.id, AuditEvent.target_type == "signing_key")
        .order_by(AuditEvent.id)
    )
    return [(row.action.removeprefix("signing_key."), row.target_id) for row in rows]


def test_key_is_next_then_active_then_retired_then_removed(
    make: Factory, organization: OrganizationSnapshot, later: Any
) -> None:
    """KY-1: published a day before use, and afterwards for the maximum lifetime of what it signed."""
    system = make.system(organization)
    old, token = signing(organization), signed(organization)
    new = advance_rotation(system, "ES256")
    assert states(organization) == {old: "active", new: "next"}
    assert published(organization) == {old, new}
    later(PUBLISHED_BEFORE_USE - HOUR)
    assert advance_rotation(system, "ES256") == new
    assert signing(organization) == old, "it has not been published for a day"
    later(PUBLISHED_BEFORE_USE)
    assert advance_rotation(system, "ES256") == new
    assert signing(organization) == new
    assert states(organization) == {old: "retired", new: "active"}
    last = signed(organization)
    assert verifies(organization, token) and verifies(organization, last)
    later(PUBLISHED_BEFORE_USE + PUBLISHED_AFTER_RETIREMENT - HOUR)
    purge_expired(Actor.system("", "test"), pause=0)
    assert verifies(organization, token)
    later(PUBLISHED_BEFORE_USE + PUBLISHED_AFTER_RETIREMENT + HOUR)
    assert published(organization) == {new}
    purge_expired(Actor.system("", "test"), pause=0)
    assert states(organization) == {new: "active"}
    assert sorted(events(organization)) == sorted(
        [("created", old), ("created", new), ("retired", old), ("activated", new), ("removed", old)]
    )


def test_key_is_published_as_long_as_its_signatures_are_valid() -> None:
    """KY-1: the time after retirement covers the maximum lifetimes in the settings."""
    from app.rules.organizations.settings_table import SETTINGS, Number

    for path in ("oauth.id_token_ttl_seconds", "oauth.access_token.jwt_ttl_seconds"):
        kind = SETTINGS[path].kind
        assert isinstance(kind, Number)
        assert timedelta(seconds=kind.maximum) < PUBLISHED_AFTER_RETIREMENT


def test_immediate_replacement_removes_every_key(
    make: Factory, organization: OrganizationSnapshot, later: Any
) -> None:
    """KY-5: the retired and the next key were stored beside the leaked one."""
    system = make.system(organization)
    retired = signing(organization)
    active = advance_rotation(system, "ES256")
    later(PUBLISHED_BEFORE_USE)
    advance_rotation(system, "ES256")
    announced = advance_rotation(system, "ES256")
    token = signed(organization)
    other = get_active_key(fresh(organization), "EdDSA").kid

    fresh_kid = replace_key_immediately(system, "ES256")

    assert signing(organization) == fresh_kid
    assert published(organization) == {fresh_kid, other}, "keys of another algorithm stay"
    assert not verifies(organization, token)
    assert verifies(organization, signed(organization))
    removed = {kid for what, kid in events(organization) if what == "removed"}
    assert removed == {retired, active, announced}


@pytest.mark.mariadb
def test_concurrent_callers_take_one_step(app: Flask, make: Factory, later: Any) -> None:
    """KY-1, KY-2: a key that was just activated is not retired."""
    organization = make.organization()
    with app.app_context():
        system = make.system(organization)
        old = signing(organization)
        new = advance_rotation(system, "ES256")
    later(PUBLISHED_BEFORE_USE)
    gate = threading.Barrier(12)
    said: list[str] = []

    def worker() -> None:
        with app.app_context():
            gate.wait(20)
            said.append(advance_rotation(system, "ES256"))

    threads = [threading.Thread(target=worker) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    with app.app_context():
        standing = states(organization)
        assert {kid: state for kid, state in standing.items() if state != "next"} == {
            old: "retired",
            new: "active",
        }
        rows = db.session.scalars(
            select(SigningKey).where(SigningKey.organization_id == organization.id, SigningKey.kid == new)
        )
        assert [row.remove_at for row in rows] == [None]
        assert [kid for what, kid in events(organization) if what == "activated"] == [new]
    assert len(said) == 12


@pytest.mark.mariadb
def test_concurrent_replacements_leave_one_key(app: Flask, make: Factory) -> None:
    """KY-5."""
    organization = make.organization()
    with app.app_context():
        signing(organization)
        system = make.system(organization)
    gate = threading.Barrier(4)
    said: list[str | None] = []

    def worker() -> None:
        with app.app_context():
            gate.wait(20)
            said.append(replace_key_immediately(system, "ES256"))

    threads = [threading.Thread(target=worker) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    with app.app_context():
        [(kid, state)] = states(organization).items()
        assert state == "active" and kid in said


def test_list_shows_the_next_step(make: Factory, organization: OrganizationSnapshot, later: Any) -> None:
    begun = clock.now()
    admin = make.actor(organization)
    first = signing(organization)
    [alone] = list_signing_keys(admin, "acme")
    assert alone.changes_at == begun + timedelta(days=90)
    second = rotate_signing_key(admin, "acme").kid
    nxt, active = list_signing_keys(admin, "acme")
    assert (nxt.kid, nxt.state, nxt.changes_at) == (second, "next", begun + PUBLISHED_BEFORE_USE)
    assert (active.kid, active.state, active.changes_at) == (first, "active", nxt.changes_at)
    later(PUBLISHED_BEFORE_USE)
    assert rotate_signing_key(admin, "acme").state == "active"
    retired = get_signing_key(admin, "acme", first)
    assert (retired.state, retired.changes_at) == (
        "retired",
        begun + PUBLISHED_BEFORE_USE + PUBLISHED_AFTER_RETIREMENT,
    )
    assert "d" not in retired.public_jwk
    later(PUBLISHED_BEFORE_USE + PUBLISHED_AFTER_RETIREMENT)
    with pytest.raises(NotFound):
        get_signing_key(admin, "acme", first)
    assert [key.kid for key in list_signing_keys(admin, "acme")] == [second]
    # Its rotation is overdue, and its successor is not even published.
    later(timedelta(days=200))
    [overdue] = list_signing_keys(admin, "acme")
    assert overdue.changes_at == clock.now() + PUBLISHED_BEFORE_USE


def test_default_algorithm_is_the_organizations(make: Factory, organization: OrganizationSnapshot) -> None:
    admin = make.actor(organization)
    assert rotate_signing_key(admin, "acme").algorithm == "ES256"
    assert rotate_signing_key(admin, "acme", {"algorithm": "EdDSA"}).algorithm == "EdDSA"


@each("body", [{"algorithm": "HS256"}, {"algorithm": "none"}, {"algorithm": 1}, {"emergency": "yes"}])
def test_every_invalid_field_is_named(
    make: Factory, organization: OrganizationSnapshot, body: dict[str, Any]
) -> None:
    with pytest.raises(InvalidInput) as refused:
        rotate_signing_key(make.actor(organization), "acme", body)
    assert refused.value.field in body
    assert states(organization) == {} and events(organization) == []


def test_rotation_requires_permission(make: Factory, organization: OrganizationSnapshot) -> None:
    auditor = make.actor(organization, "settings:read")
    assert list_signing_keys(auditor, "acme") == []
    for emergency in (False, True):
        with pytest.raises(Forbidden):
            rotate_signing_key(auditor, "acme", {"emergency": emergency})
    with pytest.raises(NotFound):
        rotate_signing_key(make.actor(make.organization()), "acme")
    with pytest.raises(Forbidden):
        list_signing_keys(Actor.anonymous(organization.id), "acme")
    assert states(organization) == {} and events(organization) == []


def test_immediate_replacement_requires_a_recent_sign_in(
    make: Factory, organization: OrganizationSnapshot, later: Any
) -> None:
    """PO-4: it invalidates the tokens of every app of the organization."""
    administrator = make.actor(organization, user=make.user(organization))
    before = signing(organization)
    later(timedelta(days=1))
    with pytest.raises(FreshSignInRequired):
        rotate_signing_key(administrator, "acme", {"emergency": True})
    assert set(states(organization)) == {before}
    assert rotate_signing_key(administrator, "acme").state == "next"
