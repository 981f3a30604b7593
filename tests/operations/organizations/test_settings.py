"""Settings: overrides, versions, lockout prevention, dry runs and permissions."""

from __future__ import annotations

import functools
from typing import Any

import pytest
from flask import Flask
from msgspec.structs import replace

from app.operations.clients import credentials
from app.operations.directory import lookups
from app.operations.organizations import settings
from app.operations.organizations.administrators import RoleInUse
from app.operations.organizations.settings import SettingsImpact, calculate_impact
from app.operations.users.invitations import (
    InvitationEnded,
    accept_invitation,
    create_invitation,
    revoke_invitation,
)
from app.operations.users.role_assignments import assign_role
from app.rules.errors import Forbidden, InvalidInput, NotFound, PreconditionFailed
from app.rules.identifiers import new_id
from app.rules.organizations.lockout_prevention import WouldLockOut
from app.rules.organizations.settings import effective_settings
from tests.factories import Factory
from tests.support.databases import Database
from tests.support.threads import at_once


def test_only_overrides_are_stored(context: Flask, make: Factory, database: Database) -> None:
    acme = make.organization()
    admin = make.actor(acme)
    updated = settings.update_settings(admin, acme.slug, {"oauth": {"access_token": {"ttl_seconds": 120}}})
    assert updated.changed == ("oauth.access_token.ttl_seconds",) and updated.impact is None
    view = settings.get_settings(admin, acme.slug)
    assert view.document["oauth"]["access_token"] == {
        "format": "opaque",
        "ttl_seconds": 120,
        "jwt_ttl_seconds": 600,
        "allow_unstored": False,
    }
    assert (view.version, view.overridden, view.updated_by) == (
        2,
        ("oauth.access_token.ttl_seconds",),
        "tests",
    )
    assert view.limits["oauth.access_token.ttl_seconds"] == {"min": 60, "max": 86400}
    stored = [row[0] for row in database.query("SELECT settings FROM organizations") if "120" in str(row[0])]
    assert len(stored) == 1 and "jwt_ttl" not in str(stored[0])
    assert lookups.get_organization_by_id(acme.id).settings["oauth"]["access_token"]["ttl_seconds"] == 120


def test_change_increases_the_version_of_cached_snapshots(context: Flask, make: Factory) -> None:
    acme = make.organization()
    before = lookups.get_organization_by_id(acme.id).version
    settings.update_settings(make.actor(acme), acme.slug, {"branding": {"theme": "dark"}})
    assert lookups.get_organization_by_id(acme.id).version == before + 1


def test_equal_settings_change_nothing(context: Flask, make: Factory, database: Database) -> None:
    acme = make.organization()
    before = database.count("audit_events")
    updated = settings.update_settings(make.actor(acme), acme.slug, {"branding": {"theme": "auto"}})
    assert (updated.changed, updated.settings.version) == ((), 1)
    assert database.count("audit_events") == before


def test_rejected_change_leaves_no_setting_and_no_event(
    context: Flask, make: Factory, database: Database
) -> None:
    acme = make.organization()
    before = database.count("audit_events")
    with pytest.raises(InvalidInput) as refusal:
        settings.update_settings(
            make.actor(acme), acme.slug, {"branding": {"theme": "dark"}, "oauth": {"require_par": "yes"}}
        )
    assert [error.field for error in refusal.value.errors] == ["oauth.require_par"]
    assert settings.get_settings(make.actor(acme), acme.slug).overridden == ()
    assert database.count("audit_events") == before


def test_stale_version_is_rejected(context: Flask, make: Factory) -> None:
    acme = make.organization()
    admin = make.actor(acme)
    settings.update_settings(admin, acme.slug, {"branding": {"theme": "dark"}}, expected_version=1)
    with pytest.raises(PreconditionFailed):
        settings.update_settings(admin, acme.slug, {"branding": {"theme": "light"}}, expected_version=1)
    assert settings.get_settings(admin, acme.slug).document["branding"]["theme"] == "dark"


def test_dry_run_validates_and_changes_nothing(context: Flask, make: Factory, database: Database) -> None:
    acme = make.organization()
    make.user(acme)
    make.user(acme, role="admin")
    audited = database.count("audit_events")
    ran = settings.update_settings(
        make.actor(acme), acme.slug, {"authentication": {"sessions": {"max_per_user": 3}}}, dry_run=True
    )
    assert ran.changed == ("authentication.sessions.max_per_user",)
    assert ran.impact == SettingsImpact(users_without_second_factor=0, sessions_ending=0, clients_affected=0)
    assert settings.get_settings(make.actor(acme), acme.slug).version == 1
    assert database.count("audit_events") == audited
    with pytest.raises(InvalidInput):
        settings.update_settings(make.actor(acme), acme.slug, {"nope": 1}, dry_run=True)


def test_dry_run_counts_users_without_second_factor(context: Flask, make: Factory) -> None:
    acme = make.organization()
    make.user(acme)
    make.user(acme, role="admin")
    for policy, users in (("required", 2), ("required_for_admins", 1), ("optional", 0)):
        after = effective_settings({"authentication": {"mfa": {"policy": policy}}})
        found = calculate_impact(acme.id, acme.settings, after, ["authentication.mfa.policy"])
        assert found.users_without_second_factor == users


def test_dry_run_counts_clients_that_become_invalid(context: Flask, make: Factory) -> None:
    acme = make.organization()
    make.client(acme)
    make.machine(acme, "clients:read")
    admin = make.actor(acme)
    narrowed = {"oauth": {"redirect_uris": {"allowed_hosts": ["*.acme.example"]}}}
    ran = settings.update_settings(admin, acme.slug, narrowed, dry_run=True)
    assert ran.impact is not None and ran.impact.clients_affected == 1
    ran = settings.update_settings(
        admin, acme.slug, {"oauth": {"access_token": {"ttl_seconds": 60}}}, dry_run=True
    )
    assert ran.impact is not None and ran.impact.clients_affected == 2


def test_dry_run_counts_clients_with_new_requirements(context: Flask, make: Factory) -> None:
    acme = make.organization()
    make.client(acme)
    make.client(acme, dpop_bound_access_tokens=True)
    make.client(acme, require_pushed_authorization_requests=True)
    make.machine(acme, "clients:read")
    admin = make.actor(acme)

    def affected(**oauth: bool | str) -> int:
        ran = settings.update_settings(admin, acme.slug, {"oauth": oauth}, dry_run=True)
        assert ran.impact is not None
        return ran.impact.clients_affected

    assert affected(pkce="required") == 3, "they could do without so far"
    assert affected(require_par=True) == 2, "a machine asks for no authorization"
    assert affected(require_dpop=True) == 3
    assert affected(require_par=True, require_dpop=True) == 4
    settings.update_settings(admin, acme.slug, {"oauth": {"require_par": True, "require_dpop": True}})
    assert affected(require_par=False, require_dpop=False) == 0, "who is freed loses nothing"


def test_se7_showing_secrets_once_deletes_sealed_copies(
    context: Flask, make: Factory, database: Database
) -> None:
    acme = make.organization()
    make.client(acme)
    sealed = "SELECT COUNT(*) FROM client_credentials WHERE sealed IS NOT NULL"
    assert database.query(sealed)[0][0] == 1
    settings.update_settings(make.actor(acme), acme.slug, {"oauth": {"clients": {"secret_display": "once"}}})
    assert database.query(sealed)[0][0] == 0
    assert database.count("client_credentials") == 1


def test_change_that_locks_out_the_caller_is_rejected(context: Flask, make: Factory) -> None:
    acme = make.organization()
    ada = make.user(acme, role="admin")
    with pytest.raises(WouldLockOut) as refusal:
        settings.update_settings(
            make.actor(acme, user=ada), acme.slug, {"authentication": {"password": {"enabled": False}}}
        )
    assert refusal.value.status == 409


def test_losing_own_settings_write_is_rejected(context: Flask, make: Factory) -> None:
    boss = {"permissions": ["settings:read", "settings:write"]}
    acme = make.organization(settings={"user_permissions": {"roles": {"boss": boss}}})
    ada = make.user(acme, role="boss")
    with pytest.raises(WouldLockOut):
        settings.update_settings(
            make.actor(acme, "settings:write", "settings:read", "roles:write", user=ada),
            acme.slug,
            {"user_permissions": {"roles": {"boss": {"permissions": ["settings:read"]}}}},
        )


def test_assigned_role_is_not_removed(context: Flask, make: Factory) -> None:
    acme = make.organization(settings={"user_permissions": {"roles": {"ops": {"permissions": []}}}})
    ada = make.user(acme)
    assign_role(make.system(acme), acme.id, acme.id, ada.id, "ops")
    gone = {"user_permissions": {"roles": {"ops": None}}}
    with pytest.raises(RoleInUse):
        settings.update_settings(make.actor(acme), acme.slug, gone)


def test_role_of_open_invitation_is_not_removed(context: Flask, make: Factory) -> None:
    acme = make.organization(settings={"user_permissions": {"roles": {"ops": {"permissions": []}}}})
    invited = create_invitation(make.actor(acme), acme.slug, email="bob@example.com", role="ops").invitation
    gone = {"user_permissions": {"roles": {"ops": None}}}
    with pytest.raises(RoleInUse):
        settings.update_settings(make.actor(acme), acme.slug, gone)
    revoke_invitation(make.actor(acme), acme.slug, invited.public_id)
    settings.update_settings(make.actor(acme), acme.slug, gone)


def test_invitation_to_deleted_role_is_rejected(
    context: Flask, make: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The invitation was created while the role was being deleted."""
    acme = make.organization(settings={"user_permissions": {"roles": {"ops": {"permissions": []}}}})
    link = create_invitation(make.actor(acme), acme.slug, email="bob@example.com", role="ops").link
    monkeypatch.setattr(settings, "require_roles_unused", lambda *args: None)
    settings.update_settings(make.actor(acme), acme.slug, {"user_permissions": {"roles": {"ops": None}}})
    with pytest.raises(InvitationEnded):
        accept_invitation(link.rpartition("/")[2], name="Bob", password_hash="$argon2id$test")


@pytest.mark.parametrize(
    "partial",
    [
        {"user_permissions": {"roles": {"sly": {"permissions": ["clients:trust"]}}}},
        {"user_permissions": {"members_can_register_clients": True}},
    ],
)
def test_tn11_actor_cannot_add_permissions_they_lack(
    context: Flask, make: Factory, partial: dict[str, Any]
) -> None:
    acme = make.organization()
    with pytest.raises(Forbidden) as refusal:
        settings.update_settings(make.actor(acme, "settings:write", "roles:write"), acme.slug, partial)
    assert refusal.value.permission in {"clients:trust", "clients:read:own"}
    assert settings.get_settings(make.actor(acme), acme.slug).version == 1


def test_settings_of_another_organization_are_visible_only_to_root(context: Flask, make: Factory) -> None:
    acme, globex, root = make.organization(), make.organization(), make.root()
    for call in (settings.get_settings, lambda actor, slug: settings.update_settings(actor, slug, {})):
        with pytest.raises(NotFound):
            call(make.actor(acme), globex.slug)
    ada = make.user(root, role="admin")
    updated = settings.update_settings(
        make.actor(root, user=ada), globex.slug, {"branding": {"theme": "dark"}}
    )
    assert updated.settings.organization_slug == globex.slug


def test_audit_event_names_root_as_the_actor(context: Flask, make: Factory, database: Database) -> None:
    globex, root = make.organization(), make.root()
    ada = make.user(root, role="admin")
    settings.update_settings(make.actor(root, user=ada), globex.slug, {"branding": {"theme": "dark"}})
    rows = database.query("SELECT organization_id, actor_organization, action FROM audit_events")
    found = [[part.decode() if isinstance(part, bytes) else part for part in row] for row in rows]
    assert [globex.id, root.id, "settings.updated"] in found


def test_update_requires_the_permission(context: Flask, make: Factory) -> None:
    acme = make.organization()
    with pytest.raises(Forbidden):
        settings.update_settings(make.actor(acme, "settings:read"), acme.slug, {})
    with pytest.raises(Forbidden):
        settings.get_settings(make.actor(acme, "settings:write"), acme.slug)


@pytest.mark.mariadb
@pytest.mark.race
def test_se7_secret_created_during_the_change_leaves_no_sealed_copy(
    app: Flask, make: Factory, database: Database
) -> None:
    """SQLite has one writer at a time, so it cannot have this race."""
    for _ in range(8):
        acme = make.organization()
        made = [make.client(acme) for _ in range(4)]
        once = {"oauth": {"clients": {"secret_display": "once"}}}
        admin = make.actor(acme)
        calls = [functools.partial(credentials.create_credential, admin, client.client_id) for client in made]
        calls.append(functools.partial(settings.update_settings, admin, acme.slug, once))
        assert set(at_once(app, calls)) == {"NewCredential", "UpdatedSettings"}
        sealed = database.query("SELECT organization_id FROM client_credentials WHERE sealed IS NOT NULL")
        assert acme.id.encode() not in {bytes(row[0]) for row in sealed}


def test_client_cannot_disable_the_only_sign_in_method(context: Flask, make: Factory) -> None:
    acme = make.organization()
    client = replace(make.actor(acme), kind="client", client_id=new_id())
    for caller in (client, make.system(acme)):
        with pytest.raises(WouldLockOut):
            settings.update_settings(caller, acme.slug, {"authentication": {"password": {"enabled": False}}})
