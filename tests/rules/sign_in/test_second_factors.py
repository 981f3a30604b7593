"""Who is asked for a second factor, who may put it off until when, and what a sign-in is worth by it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.rules.authorization.interaction import MULTI_FACTOR, PASSWORD, context_of, reached_by
from app.rules.organizations.settings import effective
from app.rules.sign_in.second_factors import (
    Demand,
    Standing,
    allowed_methods,
    decide,
    joined,
    moments_of,
    used_second_factor,
)

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
DAY = timedelta(days=1)
LONG_AGO = NOW - 100 * DAY


def settings(policy: str, **mfa: Any) -> Any:
    return effective({"authentication": {"mfa": {"policy": policy, **mfa}}})


def member(**moments: datetime) -> Standing:
    return Standing(**({"created_at": LONG_AGO} | moments))


@pytest.mark.parametrize(
    ("policy", "enrolled", "amr", "standing", "demand"),
    [
        ("off", ("totp",), ("pwd",), member(), Demand.NOTHING),
        ("optional", (), ("pwd",), member(), Demand.NOTHING),
        ("optional", ("totp",), ("pwd",), member(), Demand.VERIFY),
        ("optional", ("totp",), ("pwd", "otp", "mfa"), member(), Demand.NOTHING),
        ("optional", ("passkey",), ("hwk", "user", "mfa"), member(), Demand.NOTHING),
        ("required_for_admins", (), ("pwd",), member(), Demand.NOTHING),
        ("required_for_admins", (), ("pwd",), member(admin_since=LONG_AGO), Demand.ENROL),
        ("required_for_admins", (), ("pwd",), member(admin_since=NOW - DAY), Demand.OFFER),
        ("required", (), ("pwd",), member(), Demand.ENROL),
        ("required", (), ("pwd",), member(demanded_of_all_from=NOW - DAY), Demand.OFFER),
        ("required", (), ("pwd",), Standing(NOW - DAY, demanded_of_all_from=LONG_AGO), Demand.OFFER),
        ("required", ("totp",), ("pwd",), member(), Demand.VERIFY),
        # Of an administrator it was demanded before everybody's turn came.
        (
            "required",
            (),
            ("pwd",),
            member(admin_since=LONG_AGO, demanded_of_admins_from=LONG_AGO, demanded_of_all_from=NOW),
            Demand.ENROL,
        ),
    ],
)
def test_what_a_sign_in_still_needs(
    policy: str, enrolled: tuple[str, ...], amr: tuple[str, ...], standing: Standing, demand: Demand
) -> None:
    """MF-6: whoever has a second factor is asked for it, whatever the policy, unless there are none here."""
    found = decide(settings(policy), enrolled=enrolled, amr=amr, standing=standing, now=NOW)
    assert found.demand is demand


def test_the_grace_is_counted_from_the_later_moment_and_ends_on_the_second() -> None:
    standing = Standing(NOW - 3 * DAY, demanded_of_all_from=NOW - 2 * DAY)
    asked = settings("required", grace_period_seconds=2 * 86400)

    def at(now: datetime) -> Any:
        return decide(asked, enrolled=(), amr=("pwd",), standing=standing, now=now)

    before = at(NOW - timedelta(microseconds=1))
    assert (before.demand, before.until) == (Demand.OFFER, NOW)
    assert at(NOW).demand is Demand.ENROL


def test_a_method_that_counts_no_more_is_still_asked_for_and_another_is_demanded() -> None:
    narrowed = settings("required", methods=["passkey"], grace_period_seconds=0)
    asked = decide(narrowed, enrolled=("totp",), amr=("pwd",), standing=member(), now=NOW)
    assert asked.demand is Demand.VERIFY
    given = decide(narrowed, enrolled=("totp",), amr=("pwd", "otp", "mfa"), standing=member(), now=NOW)
    assert given.demand is Demand.ENROL


def test_passkeys_that_are_switched_off_are_no_method() -> None:
    document = effective({"authentication": {"passkeys": {"enabled": False}}})
    assert allowed_methods(document) == ("totp",)
    assert allowed_methods(settings("off")) == ()


@pytest.mark.parametrize(
    ("before", "after", "moments", "expected"),
    [
        ("optional", "required", (None, None), (NOW, NOW)),
        ("optional", "required_for_admins", (None, None), (None, NOW)),
        ("required_for_admins", "required", (None, LONG_AGO), (NOW, LONG_AGO)),
        ("required", "required_for_admins", (LONG_AGO, LONG_AGO), (None, LONG_AGO)),
        ("required", "optional", (LONG_AGO, LONG_AGO), (None, None)),
        ("required", "required", (None, None), (None, None)),
    ],
)
def test_a_demand_has_the_moment_when_it_arose(before: str, after: str, moments: Any, expected: Any) -> None:
    assert moments_of(before, after, moments, NOW) == expected


def test_amr_says_what_was_used_and_acr_what_it_is_worth() -> None:
    """OI-1: RFC 8176; each class is one that the sign-in reached."""
    both = joined(("pwd",), ("otp",))
    assert both == ("pwd", "otp", "mfa") and joined(both, ("hwk", "user"))[-1] == "mfa"
    assert used_second_factor(both) and not used_second_factor(("pwd",))
    assert reached_by(("pwd",)) == (PASSWORD,) and reached_by(("hwk", "user", "mfa")) == (MULTI_FACTOR,)
    assert reached_by(both) == (MULTI_FACTOR, PASSWORD)
    assert context_of(both) == MULTI_FACTOR
    assert context_of(both, ("urn:other", PASSWORD)) == PASSWORD
    assert context_of(("pwd",), (MULTI_FACTOR,)) == PASSWORD
