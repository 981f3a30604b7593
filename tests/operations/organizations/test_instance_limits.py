"""Instance limits: immediate in every organization, set only by root, and never locking out root."""

from __future__ import annotations

import functools
import json
from datetime import timedelta
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import select

from app.config import current
from app.extensions import db
from app.fast_path import cache_invalidation
from app.models.organization import InstanceLimits
from app.models.user import User
from app.operations.directory.lookups import get_organization_by_id
from app.operations.organizations.instance_limits import get_instance_limits, update_instance_limits
from app.operations.organizations.settings import get_settings, update_settings
from app.operations.sign_in.reauthentication import FreshSignInRequired
from app.operations.sign_in.second_factors import decide_mfa_of_user
from app.operations.store import clock
from app.rules.actor import Actor
from app.rules.errors import Forbidden, InvalidInput, PreconditionFailed
from app.rules.sign_in.second_factors import MfaRequirement
from tests.factories import Factory
from tests.support.authenticator import set_rows
from tests.support.databases import Database
from tests.support.threads import at_once

TTL = "oauth.access_token.ttl_seconds"


@pytest.fixture
def op(make: Factory) -> Actor:
    root = make.root()
    return make.actor(root, user=make.user(root, role="admin"))


def ttl(organization: Any) -> int:
    found: int = get_organization_by_id(organization.id, fresh=False).settings["oauth"]["access_token"][
        "ttl_seconds"
    ]
    return found


def test_limits_of_the_next_release_are_kept_and_not_shown(context: Flask, op: Actor) -> None:
    update_instance_limits(op, {TTL: {"max": 900}})
    set_rows(InstanceLimits, bounds={TTL: {"max": 900}, "next.setting": {"max": 5}})
    for dry_run in (True, False):
        updated = update_instance_limits(op, {TTL: {"max": 600}}, dry_run=dry_run)
        assert updated.limits.bounds == {TTL: {"max": 600}}
    kept = db.session.scalars(select(InstanceLimits.bounds)).one()
    assert kept == {TTL: {"max": 600}, "next.setting": {"max": 5}}


def test_limit_applies_immediately_and_its_removal_restores_values(
    context: Flask, make: Factory, op: Actor
) -> None:
    """Cached snapshots of all workers are invalidated by the commit."""
    acme = make.organization(settings={"oauth": {"access_token": {"ttl_seconds": 7200}}})
    globex = make.organization()
    assert (ttl(acme), ttl(globex)) == (7200, 3600)
    update_instance_limits(op, {TTL: {"max": 900}})
    assert (ttl(acme), ttl(globex), ttl(make.root())) == (900, 900, 900)
    view = get_settings(make.actor(acme), acme.slug)
    assert view.limited == (TTL,) and view.overridden == (TTL,)
    assert view.limits[TTL] == {"min": 60, "max": 900}
    with pytest.raises(InvalidInput) as refusal:
        update_settings(make.actor(acme), acme.slug, {"oauth": {"access_token": {"ttl_seconds": 1800}}})
    assert (refusal.value.errors[0].field, refusal.value.errors[0].code) == (TTL, "exceeds_instance_limit")
    update_instance_limits(op, {TTL: None})
    assert (ttl(acme), ttl(globex)) == (7200, 3600)


def test_reset_of_a_limited_value_is_stored_and_recorded(
    context: Flask, make: Factory, op: Actor, database: Database
) -> None:
    acme = make.organization(settings={"oauth": {"access_token": {"ttl_seconds": 7200}}})
    update_instance_limits(op, {TTL: {"max": 900}})
    updated = update_settings(make.actor(acme), acme.slug, {"oauth": {"access_token": {"ttl_seconds": None}}})
    assert (updated.changed, updated.settings.overridden) == ((TTL,), ())
    [(before, after)] = database.query(
        "SELECT `before`, `after` FROM audit_events WHERE CAST(action AS CHAR) = 'settings.updated'"
    )
    assert (json.loads(before), json.loads(after)) == ({TTL: 7200}, {TTL: 3600})
    update_instance_limits(op, {TTL: None})
    assert ttl(acme) == 3600


def test_limited_value_is_not_reset_without_what_its_change_requires(
    context: Flask, make: Factory, op: Actor
) -> None:
    """It was stored beside another change, and applied once the instance limit was lifted."""
    policy, own = "authentication.mfa.policy", {"limits": {"max_clients": 10}}
    acme = make.organization(settings=own | {"authentication": {"mfa": {"policy": "required"}}})
    update_instance_limits(op, {"limits.max_clients": {"max": 5}, policy: {"allowed": ["required"]}})
    other = {"branding": {"theme": "dark"}}
    with pytest.raises(Forbidden):
        update_settings(make.actor(acme), acme.slug, {"limits": {"max_clients": None}} | other)
    stale = make.actor(acme, user=make.user(acme, role="admin"), authenticated_ago_seconds=86_400)
    with pytest.raises(FreshSignInRequired):
        update_settings(stale, acme.slug, {"authentication": {"mfa": {"policy": None}}} | other)


def test_other_machines_are_invalidated_with_one_row(context: Flask, make: Factory, op: Actor) -> None:
    make.organization()
    cache_invalidation.poll()
    seen = cache_invalidation._followers[current().database_url].stamps
    update_instance_limits(op, {TTL: {"max": 900}})
    cache_invalidation.poll()
    assert set(seen).isdisjoint(cache_invalidation._followers[current().database_url].stamps)


def test_grace_period_starts_when_a_limit_requires_second_factors(
    context: Flask, make: Factory, op: Actor
) -> None:
    acme = make.organization()
    user = make.user(acme)
    set_rows(User, created_at=clock.now() - timedelta(days=400))
    update_instance_limits(op, {"authentication.mfa.policy": {"allowed": ["required"]}})
    decision = decide_mfa_of_user(get_organization_by_id(acme.id), user.id, ("pwd",))
    assert decision.requirement is MfaRequirement.OFFER


def test_dry_run_counts_affected_organizations_and_stores_nothing(
    context: Flask, make: Factory, op: Actor, database: Database
) -> None:
    make.organization(settings={"oauth": {"access_token": {"ttl_seconds": 300}}})
    make.organization(settings={"oauth": {"access_token": {"ttl_seconds": 7200}}})
    tried = update_instance_limits(op, {TTL: {"max": 3600}}, dry_run=True)
    assert tried.impact is not None and tried.changed == (TTL,)
    assert tried.impact.organizations_limited == 1
    tried = update_instance_limits(op, {TTL: {"max": 600}}, dry_run=True)
    assert tried.impact is not None
    assert tried.impact.organizations_limited == tried.impact.organizations_counted - 1
    assert database.count("settings_ceilings") == 0


def test_limit_that_locks_out_root_is_rejected(context: Flask, make: Factory, op: Actor) -> None:
    from app.rules.organizations.lockout_prevention import WouldLockOut

    demand = {
        "authentication.mfa.policy": {"allowed": ["required"]},
        "authentication.mfa.grace_period_seconds": {"max": 0},
    }
    with pytest.raises(WouldLockOut):
        update_instance_limits(op, demand)
    assert get_instance_limits(op).bounds == {}


def test_only_root_reads_and_sets_limits(context: Flask, make: Factory, op: Actor) -> None:
    """TN-11: a permission in root applies only in root."""
    acme = make.organization()
    everything = make.actor(acme, "instance:read", "instance:write")
    for actor in (make.actor(acme), everything, op.acting_in(acme.id, op.permissions)):
        for call in (get_instance_limits, functools.partial(update_instance_limits, partial={})):
            with pytest.raises(Forbidden):
                call(actor)


def test_stale_version_is_rejected_and_change_is_recorded_in_root(
    context: Flask, make: Factory, op: Actor, database: Database
) -> None:
    first = get_instance_limits(op).version
    update_instance_limits(op, {TTL: {"max": 900}}, expected_version=first)
    with pytest.raises(PreconditionFailed):
        update_instance_limits(op, {TTL: {"max": 600}}, expected_version=first)
    rows = database.query("SELECT action, organization_id FROM audit_events")
    events = [[part.decode() if isinstance(part, bytes) else part for part in row] for row in rows]
    assert ["instance.ceilings_updated", op.organization_id] in events


@pytest.mark.mariadb
@pytest.mark.race
def test_concurrent_updates_are_complete_or_rejected(app: Flask, make: Factory, op: Actor) -> None:
    paths = [
        "oauth.id_token_ttl_seconds",
        TTL,
        "oauth.device_code_ttl_seconds",
        "oauth.refresh_token.ttl_seconds",
    ]
    calls = [functools.partial(update_instance_limits, op, {path: {"min": 3600}}) for path in paths]
    outcomes = at_once(app, calls)
    with app.app_context():
        assert len(get_instance_limits(op).bounds) == outcomes.count("UpdatedInstanceLimits") >= 1
    assert set(outcomes) <= {"UpdatedInstanceLimits", "Conflict"}
