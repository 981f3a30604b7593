"""When a second factor is required or offered, and the resulting ``amr`` and ``acr``."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from app.rules.authorization.interaction import MULTI_FACTOR, PASSWORD, contexts_reached, select_context
from app.rules.organizations.settings import effective_settings
from app.rules.sign_in.second_factors import (
    MfaGraceStart,
    MfaRequirement,
    allowed_methods,
    combine_amr,
    decide_mfa,
    update_mfa_required_since,
    used_second_factor,
)
from tests.support.cases import each

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
DAY = timedelta(days=1)
LONG_AGO = NOW - 100 * DAY


def settings(policy: str, **mfa: Any) -> Any:
    return effective_settings({"authentication": {"mfa": {"policy": policy, **mfa}}})


def member(**since: datetime) -> MfaGraceStart:
    return MfaGraceStart(**({"created_at": LONG_AGO} | since))


@each(
    ("policy", "enrolled", "amr", "grace_start", "requirement"),
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
        ("required", (), ("pwd",), member(required_of_all_since=NOW - DAY), MfaRequirement.OFFER),
        (
            "required",
            (),
            ("pwd",),
            MfaGraceStart(NOW - DAY, required_of_all_since=LONG_AGO),
            MfaRequirement.OFFER,
        ),
        ("required", ("totp",), ("pwd",), member(), MfaRequirement.VERIFY),
        # Second factors were required of administrators before they were required of all users.
        (
            "required",
            (),
            ("pwd",),
            member(admin_since=LONG_AGO, required_of_admins_since=LONG_AGO, required_of_all_since=NOW),
            MfaRequirement.ENROL,
        ),
    ],
)
def test_sign_in_requirement(
    policy: str,
    enrolled: tuple[str, ...],
    amr: tuple[str, ...],
    grace_start: MfaGraceStart,
    requirement: MfaRequirement,
) -> None:
    """MF-6: an enrolled second factor is requested under every policy except ``off``."""
    decision = decide_mfa(settings(policy), enrolled=enrolled, amr=amr, grace_start=grace_start, now=NOW)
    assert decision.requirement is requirement


def test_grace_period_starts_at_latest_time_and_ends_exactly() -> None:
    grace_start = MfaGraceStart(NOW - 3 * DAY, required_of_all_since=NOW - 2 * DAY)
    document = settings("required", grace_period_seconds=2 * 86400)

    def at(now: datetime) -> Any:
        return decide_mfa(document, enrolled=(), amr=("pwd",), grace_start=grace_start, now=now)

    before = at(NOW - timedelta(microseconds=1))
    assert (before.requirement, before.until) == (MfaRequirement.OFFER, NOW)
    assert at(NOW).requirement is MfaRequirement.ENROL


def test_disallowed_method_is_still_requested_and_another_required() -> None:
    narrowed = settings("required", methods=["passkey"], grace_period_seconds=0)
    document = decide_mfa(narrowed, enrolled=("totp",), amr=("pwd",), grace_start=member(), now=NOW)
    assert document.requirement is MfaRequirement.VERIFY
    given = decide_mfa(narrowed, enrolled=("totp",), amr=("pwd", "otp", "mfa"), grace_start=member(), now=NOW)
    assert given.requirement is MfaRequirement.ENROL


def test_disabled_passkeys_are_not_an_allowed_method() -> None:
    document = effective_settings({"authentication": {"passkeys": {"enabled": False}}})
    assert allowed_methods(document) == ("totp",)
    assert allowed_methods(settings("off")) == ()


@each(
    ("before", "after", "since", "expected"),
    [
        ("optional", "required", (None, None), (NOW, NOW)),
        ("optional", "required_for_admins", (None, None), (None, NOW)),
        ("required_for_admins", "required", (None, LONG_AGO), (NOW, LONG_AGO)),
        ("required", "required_for_admins", (LONG_AGO, LONG_AGO), (None, LONG_AGO)),
        ("required", "optional", (LONG_AGO, LONG_AGO), (None, None)),
        ("required", "required", (None, None), (None, None)),
    ],
)
def test_requirement_keeps_its_start_time(before: str, after: str, since: Any, expected: Any) -> None:
    assert update_mfa_required_since(before, after, since, NOW) == expected


def test_amr_lists_used_methods_and_acr_the_level() -> None:
    """OI-1: RFC 8176. Each class is one that the sign-in reached."""
    both = combine_amr(("pwd",), ("otp",))
    assert both == ("pwd", "otp", "mfa") and combine_amr(both, ("hwk", "user"))[-1] == "mfa"
    assert used_second_factor(both) and not used_second_factor(("pwd",))
    assert contexts_reached(("pwd",)) == (PASSWORD,) and contexts_reached(("hwk", "user", "mfa")) == (
        MULTI_FACTOR,
    )
    assert contexts_reached(both) == (MULTI_FACTOR, PASSWORD)
    assert select_context(both) == MULTI_FACTOR
    assert select_context(both, ("urn:other", PASSWORD)) == PASSWORD
    assert select_context(("pwd",), (MULTI_FACTOR,)) == PASSWORD
