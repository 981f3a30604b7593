"""Settings forms: saving, previewing, resetting and resolving conflicts."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from app.operations.organizations.settings import update_settings
from app.portal.setting_texts import TOPICS
from app.rules.organizations import settings as rules
from app.rules.organizations.settings_table import SETTINGS, Boolean, Choice, Number, StringList
from tests.support.cases import each

# The logo and the attributes have pages of their own.
API_ALONE = ("branding.logo", "user_profile.attributes")


def test_every_setting_is_on_one_page() -> None:
    listed = [path for topic in TOPICS.values() for path in topic.paths]
    missing = [path for path in SETTINGS if path not in listed and not path.startswith(API_ALONE)]

    assert len(listed) == len(set(listed))
    assert set(listed) <= set(SETTINGS)
    assert missing == []


def _typed(topic: str, values: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of the topic's form as a browser sends them."""
    fields: dict[str, Any] = {}
    for path in TOPICS[topic].paths:
        value, kind = values[path], SETTINGS[path].kind
        if isinstance(kind, Boolean):
            fields |= {path: "1"} if value else {}
        elif isinstance(kind, Number) and path.endswith("_seconds"):
            fields |= {path: "" if value is None else str(value), f"{path}.unit": "1"}
        elif isinstance(kind, StringList):
            fields[path] = value if isinstance(kind.item, Choice) else "\n".join(value)
        else:
            fields[path] = "" if value is None else str(value)
    return fields


def _send(portal_user: Any, topic: str, values: dict[str, Any], **more: str) -> Any:
    path = f"/settings/{topic}"
    state = {"version": portal_user.hidden("version"), "base": portal_user.hidden("base"), "save": "1"}
    return portal_user.send(path, **(_typed(topic, values) | state | more))


def _stored(topic: str) -> dict[str, Any]:
    document = rules.default_settings()
    return {path: rules.value_at(document, path) for path in TOPICS[topic].paths}


def _overrides(database: Any) -> Any:
    (row,) = database.query("SELECT settings FROM organizations WHERE name = 'Acme'")
    return json.loads(row[0])


def test_text_in_number_field_shows_plain_error(ada: Any) -> None:
    ada.get("/settings/sign-in")

    _send(ada, "sign-in", _stored("sign-in") | {"authentication.password.min_length": "many"})

    assert "Enter a whole number" in ada.text and "integer" not in ada.text


def test_duration_that_is_no_number_keeps_its_unit(ada: Any) -> None:
    ada.get("/settings/sessions")
    idle = "authentication.sessions.idle_timeout_seconds"
    answer = _send(ada, "sessions", _stored("sessions"), **{idle: "1.5", f"{idle}.unit": "3600"})
    [units] = re.findall(rf'<select[^>]* name="{idle}\.unit".*?</select>', answer.text, re.DOTALL)
    assert re.findall(r'value="(\d+)" selected', units) == ["3600"]


def test_page_with_durations_explains_shorter_ones(ada: Any) -> None:
    said = "A shorter time also applies to existing sessions"
    for topic, found in TOPICS.items():
        has_times = any(path.endswith("_seconds") for path in found.paths)
        assert (said in ada.get(f"/settings/{topic}").text) is has_times, topic


@each("topic", list(TOPICS))
def test_unchanged_form_changes_nothing(ada: Any, database: Any, topic: str) -> None:
    ada.get(f"/settings/{topic}")

    _send(ada, topic, _stored(topic))
    ada.follow()

    assert "No changes to save" in ada.text
    assert _overrides(database) == {}


def test_saved_setting_can_be_reset(ada: Any, database: Any) -> None:
    ada.get("/settings/sessions")
    idle = "authentication.sessions.idle_timeout_seconds"

    _send(ada, "sessions", _stored("sessions"), **{idle: "12", f"{idle}.unit": "3600"})
    ada.follow()

    assert "Saved. The change is live." in ada.text
    assert _overrides(database) == {"authentication": {"sessions": {"idle_timeout_seconds": 43200}}}
    assert f'name="reset" value="{idle}"' in ada.page.text


def test_switches_choices_and_lists_are_saved(ada: Any, database: Any) -> None:
    ada.get("/settings/clients")

    values = _stored("clients") | {
        "oauth.clients.secret_display": "once",
        "oauth.redirect_uris.allowed_hosts": ["example.com", "*.example.com"],
        "oauth.grant_types": ["authorization_code", "refresh_token"],
        "user_permissions.members_can_register_clients": True,
        "oauth.clients.secret_ttl_seconds": 86400,
    }
    _send(ada, "clients", values)
    ada.follow()

    assert "Saved" in ada.text
    stored = _overrides(database)
    assert stored["oauth"]["clients"] == {"secret_display": "once", "secret_ttl_seconds": 86400}
    assert stored["oauth"]["redirect_uris"] == {"allowed_hosts": ["example.com", "*.example.com"]}
    assert stored["oauth"]["grant_types"] == ["authorization_code", "refresh_token"]
    assert stored["user_permissions"] == {"members_can_register_clients": True}


def test_reset_restores_one_default(make: Any, portal_user: Any, database: Any) -> None:
    own = {"branding": {"theme": "dark", "login_message": "Hello"}}
    ada = portal_user(make.organization("acme", name="Acme", settings=own))
    ada.get("/settings/branding")

    ada.send("/settings/branding", reset="branding.theme")
    ada.follow()

    assert "Reset to the default" in ada.text
    assert _overrides(database) == {"branding": {"login_message": "Hello"}}


@pytest.mark.parametrize(
    ("topic", "path", "wrong"),
    [
        ("sign-in", "authentication.password.min_length", "7"),
        ("sign-in", "authentication.password.min_length", "many"),
        ("sessions", "authentication.sessions.max_per_user", "-1"),
        ("clients", "oauth.redirect_uris.allowed_hosts", "ok.example\nnot a host"),
        ("branding", "branding.accent_color", "blue"),
        ("branding", "branding.support_email", "nobody"),
        ("tokens", "oauth.access_token.format", "paper"),
    ],
)
def test_invalid_value_shows_error_and_keeps_input(
    ada: Any, database: Any, topic: str, path: str, wrong: str
) -> None:
    ada.get(f"/settings/{topic}")

    answer = _send(ada, topic, _stored(topic), **{path: wrong})

    assert answer.status_code == 400
    assert f'href="#{path.replace(".", "-")}"' in answer.text
    if topic != "tokens":
        assert wrong.splitlines()[-1] in answer.text
    assert _overrides(database) == {}


def test_value_that_the_user_may_not_give_is_shown_at_its_field(
    make: Any, acme: Any, portal_user: Any
) -> None:
    narrow = {"name": "Narrow", "permissions": ["organization:read", "settings:read", "settings:write"]}
    values = {
        "authentication": {"registration": {"mode": "open"}},
        "user_permissions": {"roles": {"narrow": narrow}},
    }
    with make.app.app_context():
        update_settings(make.system(acme), "acme", values)
    nat = portal_user(acme, "narrow")
    nat.get("/settings/registration")
    changed = {
        "authentication.registration.mode": "open",
        "authentication.registration.default_roles": ["developer"],
    }
    answer = _send(nat, "registration", _stored("registration") | changed)
    assert answer.status_code == 403 and "developer</textarea>" in answer.text
    assert 'href="#authentication-registration-default_roles"' in answer.text
    assert "Everyone who signs up would get the permission clients:read:own" in nat.text


def test_preview_shows_impact_and_changes_nothing(make: Any, acme: Any, ada: Any, database: Any) -> None:
    ada.get("/settings/sessions")
    idle = "authentication.sessions.idle_timeout_seconds"

    answer = _send(ada, "sessions", _stored("sessions"), preview="1", save="", **{idle: "600"})

    assert answer.status_code == 200
    assert "If you save" in ada.text and "1 setting would change" in ada.text
    assert _overrides(database) == {}
    assert ada.hidden("version") == "1"


def test_concurrent_changes_are_merged_on_conflict_page(
    make: Any, acme: Any, ada: Any, portal_user: Any, database: Any
) -> None:
    grace = portal_user(acme)
    for user in (ada, grace):
        user.get("/settings/sessions")
    idle = "authentication.sessions.idle_timeout_seconds"
    fresh = "authentication.sessions.reauthentication_seconds"
    _send(grace, "sessions", _stored("sessions"), **{idle: "3600"})

    preview = _send(
        ada, "sessions", _stored("sessions"), preview="1", save="", **{idle: "7200", fresh: "300"}
    )
    assert preview.status_code == 200
    answer = _send(ada, "sessions", _stored("sessions"), **{idle: "7200", fresh: "300"})

    assert answer.status_code == 409
    assert f"{grace.user.email} saved these settings" in ada.text
    assert "1 hour" in ada.text and "2 hours" in ada.text and "5 minutes" in ada.text
    state = {name: ada.hidden(name) for name in ("version", "base", "mine")}
    ada.send(
        "/settings/sessions",
        merge="1",
        **state,
        **{f"keep.{idle}": "theirs", f"keep.{fresh}": "mine"},
    )
    ada.follow()
    assert "Saved" in ada.text
    sessions = _overrides(database)["authentication"]["sessions"]
    assert sessions == {"idle_timeout_seconds": 3600, "reauthentication_seconds": 300}


@pytest.mark.parametrize(
    "path",
    [
        "/settings/sessions",
        "/settings/permissions/developer",
        "/revocations",
        "/registration-tokens",
    ],
)
def test_settings_page_lists_topics_and_marks_its_own(ada: Any, path: str) -> None:
    marked = re.findall(r'href="/portal/acme([^"]*)" aria-current="true"', ada.get(path).text)

    # One list beside the page, one in the menu of narrow screens.
    assert len(marked) == 2 and path.startswith(marked[0])
    assert "Signing keys" in ada.text and "Two-step verification" in ada.text


def test_confirmation_within_settings_has_the_topics(ada: Any) -> None:
    ada.get("/settings/delete")
    assert "Delete organization" in ada.text and "Two-step verification" in ada.text


def test_instance_limits_are_a_topic_of_root(make: Any, ada: Any, portal_user: Any) -> None:
    operator = portal_user(make.root())
    for path in ("/instance-limits", "/instance-limits/oauth.access_token.ttl_seconds"):
        text = operator.get(path).text
        assert text.count('href="/portal/root/instance-limits" aria-current="true"') == 2
        assert "Two-step verification" in operator.text
    assert "Instance limits" not in ada.get("/settings/general").text


def test_settings_lead_to_first_topic_of_role(acme: Any, ada: Any, portal_user: Any) -> None:
    assert ada.get("/settings").headers["Location"].endswith("/portal/acme/settings/general")
    assert portal_user(acme, "member").get("/settings").status_code == 403


def test_unknown_topic_is_not_found(ada: Any) -> None:
    assert ada.get("/settings/teapot").status_code == 404


def test_organization_is_renamed(ada: Any) -> None:
    ada.get("/settings/general")
    assert ada.send("/settings/general", version=ada.hidden("version"), name="").status_code == 400

    ada.send("/settings/general", version=ada.hidden("version"), name="Acme Two")
    ada.follow()

    assert "Acme Two" in ada.text


def test_organization_deletion_requires_id(ada: Any) -> None:
    assert ada.send("/settings/delete", typed="other").status_code == 400

    ada.submit("/settings/delete", typed="acme")

    assert "Acme is deleted" in ada.text
    assert "Acme is deleted" not in ada.http.get("/login").text
    assert ada.get("").status_code == 404


def test_built_in_role_is_changed_and_reset(ada: Any, database: Any) -> None:
    kept = ["clients:read:own", "organization:read"]
    ada.get("/settings/permissions/developer")

    ada.send(
        "/settings/permissions/developer",
        version=ada.hidden("version"),
        name="Developer",
        description="Looks",
        permissions=kept,
    )
    ada.follow()

    assert "Saved" in ada.text
    role = _overrides(database)["user_permissions"]["roles"]["developer"]
    assert sorted(role["permissions"]) == kept
    ada.send("/settings/permissions/developer", remove="1")
    assert ada.page.status_code == 303
    assert _overrides(database) == {}


def test_custom_role_is_added_and_removed(ada: Any, database: Any) -> None:
    ada.get("/settings/permissions/new")
    answer = ada.send(
        "/settings/permissions/new", key="Support Team", name="Support", permissions=["users:read"]
    )
    assert answer.status_code == 400 and 'href="#key"' in answer.text

    ada.send(
        "/settings/permissions/new",
        key="support",
        name="Support",
        permissions=["users:read"],
        more_permissions="invoices:approve",
    )
    ada.follow()
    assert "Support" in ada.text
    stored = _overrides(database)["user_permissions"]["roles"]["support"]
    assert stored["permissions"] == ["users:read", "invoices:approve"]

    ada.get("/settings/permissions/support")
    assert "invoices:approve" in ada.page.text
    ada.send("/settings/permissions/support", remove="1")
    ada.follow()
    assert "Support" not in ada.text


def test_admin_role_has_no_form(ada: Any) -> None:
    assert ada.get("/settings/permissions/admin").status_code == 404
