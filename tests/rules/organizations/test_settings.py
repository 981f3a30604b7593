"""The settings document: table rows, merging, contradictions and lockout prevention."""

from __future__ import annotations

from typing import Any

import pytest

from app.rules.errors import InvalidInput
from app.rules.organizations import instance_limits, settings
from app.rules.organizations.lockout_prevention import Caller, WouldLockOut, require_no_lockout
from app.rules.organizations.settings_table import (
    SETTINGS,
    AttributeList,
    Boolean,
    Choice,
    Number,
    ServerManaged,
    StringList,
    Text,
)
from tests.support.cases import each


def nested(path: str, value: Any) -> dict[str, Any]:
    for part in reversed(path.split(".")):
        value = {part: value}
    return value


def refused(partial: dict[str, Any], overrides: dict[str, Any] | None = None) -> dict[str, str]:
    with pytest.raises(InvalidInput) as caught:
        settings.merge_settings(overrides or {}, partial)
    return {error.field: error.code for error in caught.value.errors}


WRONG: dict[type, list[tuple[Any, str]]] = {
    Boolean: [("true", "wrong_type"), (1, "wrong_type"), ([], "wrong_type"), ({}, "wrong_type")],
    Number: [
        ("60", "wrong_type"),
        (True, "wrong_type"),
        (1.5, "wrong_type"),
        (-1, "too_small"),
        (2**50, "too_large"),
    ],
    Choice: [("sometimes", "not_allowed"), (0, "wrong_type"), ("", "not_allowed"), (["off"], "wrong_type")],
    Text: [
        (5, "wrong_type"),
        ("", "too_short"),
        ("a\u202eb", "forbidden_character"),
        ("x" * 600, "too_long"),
    ],
    ServerManaged: [("https://evil.example/logo.png", "read_only"), (5, "read_only")],
    AttributeList: [("a", "wrong_type"), ({"a": 1}, "wrong_type"), ([{}] * 51, "too_many")],
    StringList: [("a", "wrong_type"), ({"a": 1}, "wrong_type"), (["x"] * 101, "too_many")],
}


@each("path", SETTINGS)
def test_each_setting_rejects_invalid_values_by_name(path: str) -> None:
    for value, code in WRONG.get(type(SETTINGS[path].kind), [("x", "not_allowed")]):
        assert refused(nested(path, value)) == {path: code}


@each("path", SETTINGS)
def test_each_setting_has_a_description_and_accepts_its_default(path: str) -> None:
    row = SETTINGS[path]
    assert row.description.endswith(".")
    if row.default is not None:
        assert list(row.kind.check(path, row.default)) == []
    assert settings.merge_settings({}, nested(path, row.default)) == {}


@each("path", [path for path, row in SETTINGS.items() if isinstance(row.kind, Number)])
def test_each_number_accepts_only_its_range(path: str) -> None:
    kind = SETTINGS[path].kind
    assert isinstance(kind, Number)
    assert list(kind.check(path, kind.minimum)) == list(kind.check(path, kind.maximum)) == []
    assert [error.code for error in kind.check(path, kind.minimum - 1)] == ["too_small"]
    assert [error.code for error in kind.check(path, kind.maximum + 1)] == ["too_large"]
    assert instance_limits.setting_limits({})[path] == {"min": kind.minimum, "max": kind.maximum}


def test_whole_document_can_be_sent_back_unchanged() -> None:
    assert settings.merge_settings({}, settings.default_settings()) == {}
    stored = settings.merge_settings({}, nested("oauth.access_token.ttl_seconds", 900))
    assert settings.merge_settings(stored, settings.effective_settings(stored)) == stored


def test_all_invalid_fields_are_named() -> None:
    assert refused(
        {
            "oath": {},
            "oauth": {"acess_token": {}, "grant_types": ["implicit"], "access_token": {"ttl_seconds": 59}},
            "branding": {"accent_color": "red", "support_uri": "http://example.com"},
            "audit": 5,
            "localization": None,
            "oauth.require_par": True,
        }
    ) == {
        "oath": "unknown_field",
        "oauth.acess_token": "unknown_field",
        "oauth.grant_types[0]": "not_allowed",
        "oauth.access_token.ttl_seconds": "too_small",
        "branding.accent_color": "invalid_format",
        "branding.support_uri": "invalid_format",
        "audit": "wrong_type",
        "localization": "wrong_type",
        "oauth.require_par": "unknown_field",
    }


def test_misspelled_setting_gets_a_suggestion() -> None:
    with pytest.raises(InvalidInput) as caught:
        settings.merge_settings({}, {"authentication": {"password": {"min_lenght": 15}}})
    assert 'Did you mean "min_length"?' in caught.value.errors[0].message


def test_omitted_fields_are_kept_and_null_resets_to_the_default() -> None:
    first = settings.merge_settings(
        {}, {"oauth": {"id_token_ttl_seconds": 60, "access_token": {"ttl_seconds": 120}}}
    )
    second = settings.merge_settings(first, {"oauth": {"id_token_ttl_seconds": None}})
    assert second == {"oauth": {"access_token": {"ttl_seconds": 120}}}
    assert settings.overridden_paths(second) == ["oauth.access_token.ttl_seconds"]
    assert settings.merge_settings(second, {"oauth": {"access_token": {"ttl_seconds": 3600}}}) == {}
    assert settings.changed_paths(
        settings.effective_settings(first), settings.effective_settings(second)
    ) == ["oauth.id_token_ttl_seconds"]


def test_merge_does_not_modify_its_arguments() -> None:
    stored = {"branding": {"theme": "dark"}}
    sent = {"oauth": {"grant_types": ["authorization_code"]}}
    merged = settings.merge_settings(stored, sent)
    merged["oauth"]["grant_types"].append("x")
    assert stored == {"branding": {"theme": "dark"}} and sent == {
        "oauth": {"grant_types": ["authorization_code"]}
    }


@each(
    ("partial", "blamed"),
    [
        (
            {"authentication": {"sessions": {"absolute_timeout_seconds": 600}}},
            "authentication.sessions.absolute_timeout_seconds",
        ),
        ({"authentication": {"lockout": {"delay_seconds": 1000}}}, "authentication.lockout.delay_seconds"),
        ({"oauth": {"refresh_token": {"ttl_seconds": 3600}}}, "oauth.refresh_token.ttl_seconds"),
        (
            {"oauth": {"refresh_token": {"ttl_seconds": 3600, "idle_ttl_seconds": 7200}}},
            "oauth.refresh_token.idle_ttl_seconds",
        ),
    ],
)
def test_contradiction_names_the_sent_field(partial: dict[str, Any], blamed: str) -> None:
    assert refused(partial) == {blamed: "contradiction"}


ROLES = "user_permissions.roles"


@each(
    ("roles", "wrong"),
    [
        ({"admin": {"permissions": []}}, {f"{ROLES}.admin": "not_allowed"}),
        ({"Ops": {"permissions": []}}, {f"{ROLES}.Ops": "invalid_format"}),
        ({"ops": []}, {f"{ROLES}.ops": "wrong_type"}),
        ({"ops": {}}, {f"{ROLES}.ops.permissions": "required"}),
        ({"ops": {"name": "Ops"}}, {f"{ROLES}.ops.permissions": "required"}),
        ({"ops": {"permissions": ["clients:raed"]}}, {f"{ROLES}.ops.permissions[0]": "invalid_format"}),
        (
            {"ops": {"permissions": ["organizations:write"]}},
            {f"{ROLES}.ops.permissions[0]": "invalid_format"},
        ),
        ({"ops": {"permissions": [], "rank": 1}}, {f"{ROLES}.ops.rank": "unknown_field"}),
        (
            {"developer": {"permissions": ["settings:write"]}},
            {f"{ROLES}.developer.permissions[0]": "not_allowed"},
        ),
        ([], {ROLES: "wrong_type"}),
        (None, {ROLES: "wrong_type"}),
    ],
)
def test_invalid_roles_are_rejected(roles: Any, wrong: dict[str, str]) -> None:
    assert refused({"user_permissions": {"roles": roles}}) == wrong


def test_role_is_added_restricted_and_removed() -> None:
    added = settings.merge_settings(
        {},
        {
            "user_permissions": {
                "roles": {"ops": {"name": "Ops", "permissions": ["clients:read", "invoices:approve"]}}
            }
        },
    )
    narrowed = settings.merge_settings(
        added, {"user_permissions": {"roles": {"developer": {"permissions": ["clients:read:own"]}}}}
    )
    roles = settings.effective_settings(narrowed)["user_permissions"]["roles"]
    assert roles["ops"]["permissions"] == ["clients:read", "invoices:approve"]
    assert (
        roles["developer"]["permissions"] == ["clients:read:own"]
        and roles["developer"]["name"] == "Developer"
    )
    removed = settings.merge_settings(
        narrowed, {"user_permissions": {"roles": {"ops": None, "developer": None}}}
    )
    assert removed == {}


def test_default_roles_exist_and_have_limited_permissions() -> None:
    path = "authentication.registration.default_roles"
    assert refused(nested(path, ["auditor"])) == {f"{path}[0]": "not_allowed"}
    assert refused(nested(path, ["member", "admin"])) == {f"{path}[1]": "not_allowed"}
    assert settings.merge_settings({}, nested(path, ["developer"])) == nested(path, ["developer"])


ADMIN = Caller(("admin",), has_password=True)


@each(
    ("partial", "caller", "field"),
    [
        (
            {"authentication": {"password": {"enabled": False}, "passkeys": {"passwordless": False}}},
            None,
            "authentication.password.enabled",
        ),
        ({"authentication": {"password": {"enabled": False}}}, ADMIN, "authentication.password.enabled"),
        # Clients can change settings too; here no user has a passkey to sign in with.
        ({"authentication": {"password": {"enabled": False}}}, None, "authentication.password.enabled"),
        (
            {"authentication": {"mfa": {"policy": "required", "methods": []}}},
            None,
            "authentication.mfa.methods",
        ),
        (
            {"authentication": {"mfa": {"policy": "required_for_admins", "grace_period_seconds": 0}}},
            ADMIN,
            "authentication.mfa.policy",
        ),
        (
            {"user_permissions": {"roles": {"boss": {"permissions": ["settings:read"]}}}},
            Caller(("boss",)),
            "user_permissions.roles",
        ),
    ],
)
def test_change_that_locks_out_is_rejected(
    partial: dict[str, Any], caller: Caller | None, field: str
) -> None:
    stored = settings.merge_settings(
        {}, {"user_permissions": {"roles": {"boss": {"permissions": ["settings:read", "settings:write"]}}}}
    )
    before, after = settings.effective_settings(stored), settings.effective_settings(stored | partial)
    with pytest.raises(WouldLockOut) as caught:
        require_no_lockout(before, after, caller)
    assert (caught.value.status, caught.value.code, caught.value.field) == (409, "would_lock_out", field)


WITHOUT_PASSWORD = {"authentication": {"password": {"enabled": False}}}


@each(
    ("caller", "passkeys", "has_passkey", "passes"),
    [
        (Caller(("admin",), has_passkey=True), {}, True, True),
        (ADMIN, {}, True, False),
        (None, {}, True, True),
        (None, {}, False, False),
        (Caller(("admin",), is_root=True), {}, True, True),
        (Caller(("admin",), has_passkey=True), {"passwordless": False}, True, False),
        (Caller(("admin",), has_passkey=True), {"enabled": False}, True, False),
    ],
)
def test_passwords_can_be_disabled_with_passkeys(
    caller: Caller | None, passkeys: dict[str, bool], has_passkey: bool, passes: bool
) -> None:
    before, after = (
        settings.default_settings(),
        settings.effective_settings(
            settings.merge_settings(
                {}, {"authentication": {**WITHOUT_PASSWORD["authentication"], "passkeys": passkeys}}
            )
        ),
    )
    if passes:
        require_no_lockout(before, after, caller, any_user_has_passkey=has_passkey)
        return
    with pytest.raises(WouldLockOut) as caught:
        require_no_lockout(before, after, caller, any_user_has_passkey=has_passkey)
    assert caught.value.field == "authentication.password.enabled"


def test_same_changes_are_accepted_for_a_caller_who_can_sign_in() -> None:
    before = settings.default_settings()
    for partial, caller in (
        ({"authentication": {"mfa": {"policy": "required"}}}, ADMIN),
        ({"branding": {"theme": "dark"}}, None),
    ):
        require_no_lockout(before, settings.effective_settings(partial), caller)
