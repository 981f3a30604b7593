"""Who is asked for a second factor, who may put it off until when, and what a sign-in is worth by it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.rules.authorization.interaction import MULTI_FACTOR, PASSWORD, context_of, reached_by
from app.rules.organizations.settings import effective
from app.rules.sign_in.second_factors import (
    MfaGraceStart,
    MfaRequirement,
    allowed_methods,
    combine_amr,
    decide_mfa,
    update_mfa_required_since,
    used_second_factor,
)

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
DAY = timedelta(days=1)
LONG_AGO = NOW - 100 * DAY


def settings(policy: str, **mfa: Any) -> Any:
    return effective({"authentication": {"mfa": {"policy": policy, **mfa}}})


def member(**moments: datetime) -> MfaGraceStart:
    return MfaGraceStart(**({"created_at": LONG_AGO} | moments))


@pytest.mark.parametrize(
    ("policy", "enrolled", "amr", "standing", "demand"),
    [
        ("off", ("totp",), ("pwd",), member(), MfaRequirement.NOTHING),
        ("optional", (), ("pwd",), member(), MfaRequirement.NOTHING),
        ("optional", ("totp",), ("pwd",), member(), MfaRequirement.VERIFY),
        ("optional", ("totp",), ("pwd", "otp", "mfa"), member(), MfaRequirement.NOTHING),
        ("optional", ("passkey",), ("hwk", "user", "mfa"), member(), MfaRequirement.NOTHING),
        ("required_for_admins", (), ("pwd",), member(), MfaRequirement.NOTHING),
        ("required_for_admins", (), ("pwd",), member(admin_since=LONG_AGO), MfaRequirement.ENROL),
        ("required_for_admins", (), ("pwd",), member(admin_since=NOW - DAY), MfaRequirement.OFFER),
        ("required", (), ("pwd",), member(), MfaRequirement.ENROL),
        ("required", (), ("pwd",), member(demanded_of_all_from=NOW - DAY), MfaRequirement.OFFER),
        (
            "required",
            (),
            ("pwd",),
            MfaGraceStart(NOW - DAY, demanded_of_all_from=LONG_AGO),
            MfaRequirement.OFFER,
        ),
        ("required", ("totp",), ("pwd",), member(), MfaRequirement.VERIFY),
        # Of an administrator it was demanded before everybody's turn came.
        (
            "required",
            (),
            ("pwd",),
            member(admin_since=LONG_AGO, demanded_of_admins_from=LONG_AGO, demanded_of_all_from=NOW),
            MfaRequirement.ENROL,
        ),
    ],
)
def test_what_a_sign_in_still_needs(
    policy: str,
    enrolled: tuple[str, ...],
    amr: tuple[str, ...],
    standing: MfaGraceStart,
    demand: MfaRequirement,
) -> None:
    """MF-6: whoever has a second factor is asked for it, whatever the policy, unless there are none here."""
    found = decide_mfa(settings(policy), enrolled=enrolled, amr=amr, standing=standing, now=NOW)
    assert found.demand is demand


def test_the_grace_is_counted_from_the_later_moment_and_ends_on_the_second() -> None:
    standing = MfaGraceStart(NOW - 3 * DAY, demanded_of_all_from=NOW - 2 * DAY)
    asked = settings("required", grace_period_seconds=2 * 86400)

    def at(now: datetime) -> Any:
        return decide_mfa(asked, enrolled=(), amr=("pwd",), standing=standing, now=now)

    before = at(NOW - timedelta(microseconds=1))
    assert (before.demand, before.until) == (MfaRequirement.OFFER, NOW)
    assert at(NOW).demand is MfaRequirement.ENROL


def test_a_method_that_counts_no_more_is_still_asked_for_and_another_is_demanded() -> None:
    narrowed = settings("required", methods=["passkey"], grace_period_seconds=0)
    asked = decide_mfa(narrowed, enrolled=("totp",), amr=("pwd",), standing=member(), now=NOW)
    assert asked.demand is MfaRequirement.VERIFY
    given = decide_mfa(narrowed, enrolled=("totp",), amr=("pwd", "otp", "mfa"), standing=member(), now=NOW)
    assert given.demand is MfaRequirement.ENROL


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
    assert update_mfa_required_since(before, after, moments, NOW) == expected


def test_amr_says_what_was_used_and_acr_what_it_is_worth() -> None:
    """OI-1: RFC 8176; each class is one that the sign-in reached."""
    both = combine_amr(("pwd",), ("otp",))
    assert both == ("pwd", "otp", "mfa") and combine_amr(both, ("hwk", "user"))[-1] == "mfa"
    assert used_second_factor(both) and not used_second_factor(("pwd",))
    assert reached_by(("pwd",)) == (PASSWORD,) and reached_by(("hwk", "user", "mfa")) == (MULTI_FACTOR,)
    assert reached_by(both) == (MULTI_FACTOR, PASSWORD)
    assert context_of(both) == MULTI_FACTOR
    assert context_of(both, ("urn:other", PASSWORD)) == PASSWORD
    assert context_of(("pwd",), (MULTI_FACTOR,)) == PASSWORD
