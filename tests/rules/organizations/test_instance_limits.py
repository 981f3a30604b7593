"""Instance limits: validation, and effective values of organizations."""

from __future__ import annotations

from typing import Any

import pytest

from app.rules.errors import InvalidInput
from app.rules.organizations import instance_limits, settings
from app.rules.organizations.settings import NO_BOUNDS, effective_settings, value_at
from app.rules.organizations.settings_table import SETTINGS
from tests.support.cases import each

TTL = "oauth.access_token.ttl_seconds"
MFA = "authentication.mfa.policy"
GRANTS = "oauth.grant_types"
OPEN = "oauth.dynamic_registration.mode"
FOR_EVER = "oauth.clients.secret_ttl_seconds"
PAR = "oauth.require_par"


@each(
    ("path", "bound", "value", "expected"),
    [
        (TTL, {"max": 900}, 3600, 900),
        (TTL, {"max": 900}, 300, 300),
        (TTL, {"min": 900}, 300, 900),
        (TTL, {"min": 900, "max": 900}, 300, 900),
        (FOR_EVER, {"max": 86_400}, None, 86_400),
        (FOR_EVER, {"min": 86_400}, None, None),
        (MFA, {"allowed": ["required_for_admins", "required"]}, "off", "required_for_admins"),
        (MFA, {"allowed": ["required_for_admins", "required"]}, "required", "required"),
        (OPEN, {"allowed": ["off", "initial_access_token"]}, "open", "off"),
        (PAR, {"allowed": [True]}, False, True),
        (
            GRANTS,
            {"allowed": ["authorization_code"]},
            ["authorization_code", "refresh_token"],
            ["authorization_code"],
        ),
        (GRANTS, {"allowed": ["authorization_code"]}, ["refresh_token"], ["authorization_code"]),
        (TTL, None, 3600, 3600),
    ],
)
def test_value_is_limited_to_the_bounds(path: str, bound: Any, value: Any, expected: Any) -> None:
    bounds = {} if bound is None else {path: bound}
    assert instance_limits.apply_bounds(path, value, bounds) == expected
    assert (instance_limits.bounds_problem(path, value, bounds) is None) == (value == expected)


@each(
    ("partial", "field", "code"),
    [
        ({"oauth.nothing": {"max": 1}}, "oauth.nothing", "unknown_field"),
        ({"branding.display_name": {"max": 1}}, "branding.display_name", "not_allowed"),
        (
            {"authentication.password.enabled": {"allowed": [False]}},
            "authentication.password.enabled",
            "not_allowed",
        ),
        ({TTL: {"max": 5}}, f"{TTL}.max", "too_small"),
        ({TTL: {"max": "900"}}, f"{TTL}.max", "wrong_type"),
        ({TTL: {}}, TTL, "required"),
        ({TTL: 900}, TTL, "wrong_type"),
        ({TTL: {"most": 900, "max": 900}}, f"{TTL}.most", "unknown_field"),
        ({TTL: {"min": 900, "max": 300}}, f"{TTL}.min", "contradiction"),
        ({MFA: {"allowed": []}}, f"{MFA}.allowed", "required"),
        ({MFA: {"allowed": ["sometimes"]}}, f"{MFA}.allowed[0]", "not_allowed"),
        ({MFA: {"allowed": ["off", "off"]}}, f"{MFA}.allowed[1]", "duplicate"),
        ({PAR: {"allowed": [1]}}, f"{PAR}.allowed[0]", "not_allowed"),
        ({MFA: {"max": 1, "allowed": ["off"]}}, f"{MFA}.max", "unknown_field"),
    ],
)
def test_invalid_bound_is_named(partial: Any, field: str, code: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        instance_limits.merge_bounds({}, partial)
    assert [(error.field, error.code) for error in refusal.value.errors] == [(field, code)]


def test_contradicting_bounds_are_rejected() -> None:
    idle = "authentication.sessions.idle_timeout_seconds"
    whole = "authentication.sessions.absolute_timeout_seconds"
    with pytest.raises(InvalidInput) as refusal:
        instance_limits.merge_bounds({idle: {"min": 7200}}, {whole: {"max": 3600}})
    assert refusal.value.errors[0].field == whole


def test_bounds_are_replaced_and_removed_by_path() -> None:
    stored = {TTL: {"max": 900}, PAR: {"allowed": [True]}}
    assert instance_limits.merge_bounds(stored, {TTL: {"min": 60}, PAR: None}) == {TTL: {"min": 60}}
    # One of the next release, which runs beside this one during an upgrade.
    later = {"limits.later": {"max": 9}}
    assert instance_limits.merge_bounds(later, {TTL: {"min": 60}}) == {TTL: {"min": 60}} | later


def test_smaller_value_is_lowered_with_the_larger() -> None:
    whole = "authentication.sessions.absolute_timeout_seconds"
    document = effective_settings({}, {whole: {"max": 3600}})
    assert value_at(document, "authentication.sessions.idle_timeout_seconds") == 3600
    # An instance limit that contradicts a setting must not prevent other changes.
    assert settings.merge_settings({}, {"branding": {"theme": "dark"}}, {whole: {"max": 3600}}) == {
        "branding": {"theme": "dark"}
    }


@each(("small", "large"), instance_limits.ORDERED_PAIRS)
def test_larger_value_is_raised_with_the_smaller(small: str, large: str) -> None:
    """A larger value that an organization chose cannot bypass a minimum of the instance."""
    floor = instance_limits.setting_limits({})[small]["max"]
    chosen = chosen_at(large, instance_limits.setting_limits({})[large]["min"])
    assert value_at(effective_settings(chosen), large) < floor
    document = effective_settings(chosen, instance_limits.merge_bounds({}, {small: {"min": floor}}))
    assert value_at(document, small) >= floor and value_at(document, large) >= value_at(document, small)


def chosen_at(path: str, value: Any) -> dict[str, Any]:
    """Return overrides with one value."""
    for part in reversed(path.split(".")):
        value = {part: value}
    return dict(value)


@each("path", instance_limits.BOUNDABLE)
def test_limits_never_produce_an_invalid_document(path: str) -> None:
    """With any single limit, the effective document is valid."""
    words = instance_limits.allowed_values(path)
    limit = instance_limits.setting_limits({}).get(path)
    every = [{"allowed": [word]} for word in words] or [
        {"max": limit["min"]} if limit else {},
        {"min": limit["max"]} if limit else {},
    ]
    for bound in every:
        document = effective_settings({}, instance_limits.merge_bounds({}, {path: bound}))
        value = value_at(document, path)
        assert value is None or not list(SETTINGS[path].kind.check(path, value))


def test_value_beyond_limit_is_rejected_unless_it_was_read() -> None:
    bounds = {TTL: {"max": 900}}
    with pytest.raises(InvalidInput) as refusal:
        settings.merge_settings({}, {"oauth": {"access_token": {"ttl_seconds": 1800}}}, bounds)
    (error,) = refusal.value.errors
    assert (error.field, error.code) == (TTL, "exceeds_instance_limit") and "at most 900" in error.message
    chosen = {"oauth": {"access_token": {"ttl_seconds": 7200}}}
    assert settings.merge_settings(chosen, effective_settings(chosen, bounds), bounds) == chosen
    assert settings.merge_settings({}, effective_settings({}, bounds), bounds) == {}
    assert settings.limited_paths(chosen, bounds) == [TTL]
    assert effective_settings(chosen, NO_BOUNDS)["oauth"]["access_token"]["ttl_seconds"] == 7200, (
        "it counts again"
    )


def test_value_that_the_limit_of_another_produced_can_be_sent_back() -> None:
    chosen = {"authentication": {"sessions": {"idle_timeout_seconds": 1_200_000}}}
    bounds = {"authentication.sessions.absolute_timeout_seconds": {"max": 604_800}}
    read = effective_settings(chosen, bounds)
    assert read["authentication"]["sessions"]["idle_timeout_seconds"] == 604_800
    for sent in (read, {"authentication": {"sessions": {"absolute_timeout_seconds": 604_800}}}):
        assert settings.merge_settings(chosen, sent, bounds) == chosen


def test_contradictions_are_rejected_under_a_limit() -> None:
    wrong = {"authentication": {"sessions": {"idle_timeout_seconds": 7200, "absolute_timeout_seconds": 3600}}}
    with pytest.raises(InvalidInput):
        settings.merge_settings({}, wrong, {TTL: {"max": 900}})
