"""The policy of second factors, live: whom it asks, from when, and who may not get rid of one."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from app.models.organization import Organization
from app.models.user import RoleAssignment, User
from app.operations.directory.lookups import get_organization_by_id
from app.operations.organizations.settings import update_settings
from app.operations.sign_in import factor_enrollment
from app.operations.sign_in.factor_enrollment import SecondFactorRequired
from app.operations.sign_in.pending_sign_ins import get_pending_sign_in
from app.operations.sign_in.reauthentication import FreshSignInRequired, require_fresh_sign_in
from app.operations.sign_in.sign_in import Browser, SecondStepRequired, SignedIn, postpone_enrollment, sign_in
from app.operations.store import clock
from app.operations.users.factor_resets import count_users_without_factor, reset_user_factors
from app.rules.actor import Actor
from app.rules.authorization.interaction import MULTI_FACTOR
from app.rules.errors import Forbidden
from app.rules.organizations.lockout_prevention import WouldLockOut
from app.rules.sign_in.second_factors import MfaRequirement
from tests.factories import PASSWORD
from tests.oauth.conftest import audited
from tests.support.authenticator import person, set_rows, with_app
from tests.support.databases import Database

pytestmark = pytest.mark.usefixtures("context")
BOTH = ("pwd", "otp", "mfa")
DAY = 86400


@pytest.fixture
def acme(make: Any) -> Any:
    return make.organization(name="Acme")


def demand(make: Any, acme: Any, policy: str, **more: Any) -> None:
    """The organization's policy, set by a program."""
    document = {"authentication": {"mfa": {"policy": policy, **more}}}
    update_settings(make.system(acme), acme.slug, document)


def asked(user: Any) -> Any:
    """What the password leads to."""
    outcome = sign_in(user.organization.id, user.email, PASSWORD, browser_id="b")
    return outcome.purpose if isinstance(outcome, SecondStepRequired) else type(outcome)


def test_a_change_of_policy_counts_at_the_next_sign_in_and_grace_from_the_change(
    make: Any, acme: Any
) -> None:
    ada = make.user(acme)
    set_rows(User, created_at=clock.now() - timedelta(days=400))
    assert asked(ada) is SignedIn
    demand(make, acme, "required", grace_period_seconds=DAY)
    step = sign_in(acme.id, ada.email, PASSWORD)
    assert (
        isinstance(step, SecondStepRequired)
        and step.purpose is MfaRequirement.OFFER
        and step.until is not None
    )
    assert abs((step.until - clock.now()).total_seconds() - DAY) < 60
    # Another change that leaves the demand as it is gives no new grace, and a shorter one counts at once.
    set_rows(Organization, factor_demanded_at=clock.now() - timedelta(hours=2))
    demand(make, acme, "required", grace_period_seconds=3600)
    assert asked(ada) is MfaRequirement.ENROL
    demand(make, acme, "optional")
    assert asked(ada) is SignedIn


def test_administrators_are_asked_since_they_are_some(make: Any, acme: Any) -> None:
    boss, ada = make.user(acme, role="admin"), make.user(acme)
    set_rows(User, created_at=clock.now() - timedelta(days=400))
    demand(make, acme, "required_for_admins", grace_period_seconds=DAY)
    set_rows(Organization, admins_factor_demanded_at=clock.now() - timedelta(days=300))
    assert (asked(boss), asked(ada)) == (MfaRequirement.OFFER, SignedIn)
    set_rows(RoleAssignment, created_at=clock.now() - timedelta(days=2))
    assert (asked(boss), asked(ada)) == (MfaRequirement.ENROL, SignedIn)


def test_who_may_put_it_off_signs_in_and_who_may_not_is_asked_again(
    make: Any, acme: Any, database: Database
) -> None:
    """MF-6: the button is no way around the policy."""
    ada, browser = make.user(acme), Browser("b")
    demand(make, acme, "required", grace_period_seconds=DAY)
    step = sign_in(acme.id, ada.email, PASSWORD, browser_id="b")
    assert isinstance(step, SecondStepRequired)
    pending = get_pending_sign_in(acme, step.token, "b")
    demand(make, acme, "required", grace_period_seconds=0)
    again = postpone_enrollment(Actor.anonymous(acme.id), get_organization_by_id(acme.id), pending, browser)
    assert isinstance(again, SecondStepRequired) and again.purpose is MfaRequirement.ENROL
    assert database.count("sessions") == 0
    demand(make, acme, "required", grace_period_seconds=DAY)
    later = get_pending_sign_in(acme, again.token, "b")
    after = postpone_enrollment(Actor.anonymous(acme.id), get_organization_by_id(acme.id), later, browser)
    assert isinstance(after, SignedIn)


def test_whoever_sets_a_demand_meets_it(make: Any, app: Any, acme: Any) -> None:
    """Nobody locks themselves out: with a factor of one's own, or with a grace."""
    boss = make.user(acme, role="admin")
    actor = make.actor(acme, user=boss)
    document = {"authentication": {"mfa": {"policy": "required", "grace_period_seconds": 0}}}
    with pytest.raises(WouldLockOut):
        update_settings(actor, acme.slug, document)
    with_app(app, boss)
    assert update_settings(actor, acme.slug, document).changed


def test_the_last_factor_stays_while_it_is_demanded(make: Any, app: Any, acme: Any) -> None:
    ada = make.user(acme)
    with_app(app, ada)
    with pytest.raises(FreshSignInRequired) as refused:
        factor_enrollment.remove_authenticator_app(person(ada))
    assert refused.value.acr_values == MULTI_FACTOR
    demand(make, acme, "required", grace_period_seconds=0)
    with pytest.raises(SecondFactorRequired):
        factor_enrollment.remove_authenticator_app(person(ada, amr=BOTH))
    assert asked(ada) is MfaRequirement.VERIFY
    demand(make, acme, "optional")
    factor_enrollment.remove_authenticator_app(person(ada, amr=BOTH))
    assert asked(ada) is SignedIn


def test_what_is_sensitive_asks_for_the_factor_that_the_person_has(make: Any, app: Any, acme: Any) -> None:
    """SE-3: a fresh password is not enough; where nobody may have a factor it is."""
    ada = make.user(acme)
    require_fresh_sign_in(person(ada))
    with_app(app, ada)
    with pytest.raises(FreshSignInRequired) as refused:
        require_fresh_sign_in(person(ada))
    assert refused.value.acr_values == MULTI_FACTOR
    require_fresh_sign_in(person(ada, amr=BOTH))
    with pytest.raises(FreshSignInRequired):
        require_fresh_sign_in(person(ada, amr=BOTH, ago_seconds=DAY))
    demand(make, acme, "off")
    require_fresh_sign_in(person(ada))


def test_an_administrator_takes_factors_away_and_ends_what_hung_from_them(
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
    assert phone.codes and asked(ada) is SignedIn


def test_nobody_takes_them_from_who_holds_more(make: Any, app: Any, acme: Any) -> None:
    boss = make.user(acme, role="admin")
    with_app(app, boss)
    with pytest.raises(Forbidden):
        reset_user_factors(make.actor(acme, "users:read", "users:write"), boss.public_id)


def test_who_has_none_is_counted(make: Any, app: Any, acme: Any) -> None:
    boss, ada = make.user(acme, role="admin"), make.user(acme)
    make.user(make.organization())
    assert (
        count_users_without_factor(acme.id) == 2
        and count_users_without_factor(acme.id, admins_alone=True) == 1
    )
    with_app(app, ada)
    assert count_users_without_factor(acme.id) == 1
    with_app(app, boss)
    assert count_users_without_factor(acme.id, admins_alone=True) == 0
