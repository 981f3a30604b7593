"""The second-factor policy: whom it applies to, from when, and removing factors."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from app.models.organization import Organization
from app.models.user import RoleAssignment, User
from app.operations.directory.lookups import get_organization_by_id
from app.operations.organizations.settings import update_settings
from app.operations.sign_in import factor_enrollment
from app.operations.sign_in.factor_enrollment import SecondFactorRequired
from app.operations.sign_in.password_sign_in import sign_in
from app.operations.sign_in.pending_sign_ins import get_pending_sign_in
from app.operations.sign_in.reauthentication import FreshSignInRequired, require_fresh_sign_in
from app.operations.sign_in.sign_in import Browser, SecondStepRequired, SignedIn, postpone_enrollment
from app.operations.store import clock
from app.operations.users.factor_resets import count_users_without_factor, reset_user_factors
from app.rules.actor import Actor
from app.rules.authorization.interaction import MULTI_FACTOR
from app.rules.errors import Forbidden
from app.rules.organizations.lockout_prevention import WouldLockOut
from app.rules.sign_in.second_factors import MfaRequirement
from tests.factories import PASSWORD
from tests.oauth.conftest import audited
from tests.support.authenticator import set_rows, signed_in_actor, with_app
from tests.support.databases import Database

pytestmark = pytest.mark.usefixtures("context")
BOTH = ("pwd", "otp", "mfa")
DAY = 86400


def set_policy(make: Any, acme: Any, policy: str, **more: Any) -> None:
    """Set the organization's policy."""
    document = {"authentication": {"mfa": {"policy": policy, **more}}}
    update_settings(make.system(acme), acme.slug, document)


def sign_in_step(user: Any) -> Any:
    """Return the result of signing in with the password."""
    outcome = sign_in(user.organization.id, user.email, PASSWORD, browser=Browser("b"))
    return outcome.purpose if isinstance(outcome, SecondStepRequired) else type(outcome)


def test_policy_change_applies_at_next_sign_in_with_grace_period(make: Any, acme: Any) -> None:
    ada = make.user(acme)
    set_rows(User, created_at=clock.now() - timedelta(days=400))
    assert sign_in_step(ada) is SignedIn
    set_policy(make, acme, "required", grace_period_seconds=DAY)
    step = sign_in(acme.id, ada.email, PASSWORD)
    assert (
        isinstance(step, SecondStepRequired)
        and step.purpose is MfaRequirement.OFFER
        and step.until is not None
    )
    assert abs((step.until - clock.now()).total_seconds() - DAY) < 60
    # A change that keeps the requirement gives no new grace period, and a shorter one applies immediately.
    set_rows(Organization, factor_demanded_at=clock.now() - timedelta(hours=2))
    set_policy(make, acme, "required", grace_period_seconds=3600)
    assert sign_in_step(ada) is MfaRequirement.ENROL
    set_policy(make, acme, "optional")
    assert sign_in_step(ada) is SignedIn


def test_grace_period_of_administrators_starts_with_the_role(make: Any, acme: Any) -> None:
    boss, ada = make.user(acme, role="admin"), make.user(acme)
    set_rows(User, created_at=clock.now() - timedelta(days=400))
    set_policy(make, acme, "required_for_admins", grace_period_seconds=DAY)
    set_rows(Organization, admins_factor_demanded_at=clock.now() - timedelta(days=300))
    assert (sign_in_step(boss), sign_in_step(ada)) == (MfaRequirement.OFFER, SignedIn)
    set_rows(RoleAssignment, created_at=clock.now() - timedelta(days=2))
    assert (sign_in_step(boss), sign_in_step(ada)) == (MfaRequirement.ENROL, SignedIn)


def test_enrollment_can_be_postponed_only_during_grace_period(
    make: Any, acme: Any, database: Database
) -> None:
    """MF-6: the button does not bypass the policy."""
    ada, browser = make.user(acme), Browser("b")
    set_policy(make, acme, "required", grace_period_seconds=DAY)
    step = sign_in(acme.id, ada.email, PASSWORD, browser=Browser("b"))
    assert isinstance(step, SecondStepRequired)
    pending = get_pending_sign_in(acme, step.token, "b")
    set_policy(make, acme, "required", grace_period_seconds=0)
    again = postpone_enrollment(Actor.anonymous(acme.id), get_organization_by_id(acme.id), pending, browser)
    assert isinstance(again, SecondStepRequired) and again.purpose is MfaRequirement.ENROL
    assert database.count("sessions") == 0
    set_policy(make, acme, "required", grace_period_seconds=DAY)
    later = get_pending_sign_in(acme, again.token, "b")
    after = postpone_enrollment(Actor.anonymous(acme.id), get_organization_by_id(acme.id), later, browser)
    assert isinstance(after, SignedIn)


def test_administrator_who_requires_a_factor_needs_one(make: Any, app: Any, acme: Any) -> None:
    """No one locks themselves out: they need a factor of their own or a grace period."""
    boss = make.user(acme, role="admin")
    actor = make.actor(acme, user=boss)
    document = {"authentication": {"mfa": {"policy": "required", "grace_period_seconds": 0}}}
    with pytest.raises(WouldLockOut):
        update_settings(actor, acme.slug, document)
    with_app(app, boss)
    assert update_settings(replace(actor, amr=BOTH), acme.slug, document).changed


def test_last_factor_cannot_be_removed_while_required(make: Any, app: Any, acme: Any) -> None:
    ada = make.user(acme)
    with_app(app, ada)
    with pytest.raises(FreshSignInRequired) as refused:
        factor_enrollment.remove_authenticator_app(signed_in_actor(ada))
    assert refused.value.acr_values == MULTI_FACTOR
    set_policy(make, acme, "required", grace_period_seconds=0)
    with pytest.raises(SecondFactorRequired):
        factor_enrollment.remove_authenticator_app(signed_in_actor(ada, amr=BOTH))
    assert sign_in_step(ada) is MfaRequirement.VERIFY
    set_policy(make, acme, "optional")
    factor_enrollment.remove_authenticator_app(signed_in_actor(ada, amr=BOTH))
    assert sign_in_step(ada) is SignedIn


def test_sensitive_operation_requires_the_users_factor(make: Any, app: Any, acme: Any) -> None:
    """SE-3: a fresh password is enough only where second factors are off."""
    ada = make.user(acme)
    require_fresh_sign_in(signed_in_actor(ada))
    with_app(app, ada)
    with pytest.raises(FreshSignInRequired) as refused:
        require_fresh_sign_in(signed_in_actor(ada))
    assert refused.value.acr_values == MULTI_FACTOR
    require_fresh_sign_in(signed_in_actor(ada, amr=BOTH))
    with pytest.raises(FreshSignInRequired):
        require_fresh_sign_in(signed_in_actor(ada, amr=BOTH, ago_seconds=DAY))
    set_policy(make, acme, "off")
    require_fresh_sign_in(signed_in_actor(ada))


def test_administrator_resets_factors_and_ends_sessions_and_grants(
    make: Any, app: Any, acme: Any, database: Database
) -> None:
    """SS-6."""
    ada = make.user(acme)
    phone = with_app(app, ada)
    with pytest.raises(Forbidden):
        reset_user_factors(make.actor(acme, "users:read"), ada.public_id)
    assert reset_user_factors(make.actor(acme), ada.public_id).methods == ("totp",)
    assert reset_user_factors(make.actor(acme), ada.public_id).methods == ()
    assert audited(database, "second_factors.reset") == 1
    assert database.count("recovery_codes") == database.count("authenticator_apps") == 0
    assert phone.codes and sign_in_step(ada) is SignedIn


def test_factors_of_a_more_privileged_user_cannot_be_reset(make: Any, app: Any, acme: Any) -> None:
    boss = make.user(acme, role="admin")
    with_app(app, boss)
    with pytest.raises(Forbidden):
        reset_user_factors(make.actor(acme, "users:read", "users:write"), boss.public_id)


def test_users_without_factor_are_counted(make: Any, app: Any, acme: Any) -> None:
    boss, ada = make.user(acme, role="admin"), make.user(acme)
    make.user(make.organization())
    assert (
        count_users_without_factor(acme.id) == 2
        and count_users_without_factor(acme.id, admins_only=True) == 1
    )
    with_app(app, ada)
    assert count_users_without_factor(acme.id) == 1
    with_app(app, boss)
    assert count_users_without_factor(acme.id, admins_only=True) == 0
