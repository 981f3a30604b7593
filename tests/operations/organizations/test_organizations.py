"""Organizations: permissions to create and change them, their initial content, and reserved slugs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from flask import Flask

from app.operations.clients import scopes
from app.operations.directory import lookups
from app.operations.organizations import organizations
from app.operations.organizations.instance_limits import update_instance_limits
from app.operations.organizations.organizations import RootProtected, SlugTaken
from app.operations.store import clock, keyring
from app.operations.store.rows import PageRequest
from app.operations.store.transactions import OutdatedRead, transaction
from app.rules.directory.permissions import permissions_of_role
from app.rules.errors import Conflict, Forbidden, InvalidInput, NotFound, PreconditionFailed
from tests.factories import Factory
from tests.support.cases import each
from tests.support.databases import Database


def fields_of(refusal: pytest.ExceptionInfo[InvalidInput]) -> dict[str, str]:
    return {error.field: error.code for error in refusal.value.errors}


def test_root_creates_organization_with_keys_scopes_settings_and_administrator(
    context: Flask, make: Factory, database: Database
) -> None:
    root = make.actor(make.root())
    created = organizations.create_organization(
        root,
        {
            "name": "Globex Corporation",
            "admin": {"email": "hank@globex.example", "name": "Hank"},
            "settings": {"oauth": {"access_token": {"ttl_seconds": 900}}},
        },
    )
    view = lookups.get_organization_by_slug("globex-corporation")
    assert (created.organization.slug, view.name, view.status) == (
        "globex-corporation",
        "Globex Corporation",
        "active",
    )
    assert view.issuer == "http://localhost/organizations/globex-corporation"
    assert view.settings["oauth"]["access_token"]["ttl_seconds"] == 900
    assert {scope.name for scope in scopes.list_scopes(make.system(view))} == set(scopes.IDENTITY_SCOPES)
    assert created.invitation is not None
    assert created.invitation.link.startswith(
        "http://localhost/organizations/globex-corporation/invite/gth_iv_"
    )
    assert created.invitation.invitation.role == "admin"
    logs = database.query("SELECT organization_id, target_id FROM audit_events")
    told = {bytes(log).decode() for log, target in logs if bytes(target or b"") == b"globex-corporation"}
    assert told == {make.root().id, view.id}


def test_creation_that_is_repeated_seals_with_the_key_that_is_stored(context: Flask, make: Factory) -> None:
    root = make.actor(make.root())
    attempts = []

    @transaction
    def create() -> None:
        organizations.create_organization(root, {"name": "Globex"})
        # As the email with the invitation is.
        keyring.seal(lookups.get_organization_by_slug("globex").id, b"an email", "row|1")
        attempts.append(1)
        if len(attempts) == 1:
            raise OutdatedRead

    create()
    key = lookups.get_organization_by_slug("globex").id
    sealed = keyring.seal(key, b"a secret", "row|1")
    keyring.clear_cached_keys(key)
    assert keyring.unseal(key, sealed, "row|1") == b"a secret"


@each(
    ("fields", "wrong"),
    [
        ({}, {"name": "required"}),
        ({"name": ""}, {"name": "too_short"}),
        ({"name": 5}, {"name": "wrong_type"}),
        ({"name": "A\u202eB"}, {"name": "forbidden_character"}),
        ({"name": "日本"}, {"id": "required"}),
        ({"name": "X", "id": "Root!"}, {"id": "invalid_format"}),
        ({"name": "X", "id": "login"}, {"id": "invalid_format"}),
        ({"name": "X", "id": 7}, {"id": "wrong_type"}),
        ({"name": "Acme", "slug": "acme"}, {"slug": "unknown_field"}),
        ({"name": "Acme", "status": "active"}, {"status": "read_only"}),
        ({"name": "Acme", "is_root": True}, {"is_root": "read_only"}),
        ({"name": "Acme", "admin": "x@example.com"}, {"admin": "wrong_type"}),
        (
            {"name": "Acme", "admin": {"mail": "x"}},
            {"admin.mail": "unknown_field", "admin.email": "required"},
        ),
        ({"name": "Acme", "admin": {"email": "nobody"}}, {"admin.email": "invalid_email"}),
        ({"name": "Acme", "settings": []}, {"settings": "wrong_type"}),
        (
            {"name": "", "id": "-", "settings": {"oauth": {"require_par": 1}}},
            {"name": "too_short", "id": "invalid_format", "settings.oauth.require_par": "wrong_type"},
        ),
    ],
)
def test_tn12_js4_all_invalid_fields_of_a_new_organization_are_named(
    context: Flask, make: Factory, database: Database, fields: dict[str, Any], wrong: dict[str, str]
) -> None:
    root = make.actor(make.root())
    before = (database.count("organizations"), database.count("audit_events"))
    with pytest.raises(InvalidInput) as refusal:
        organizations.create_organization(root, fields)
    assert fields_of(refusal) == wrong
    assert (database.count("organizations"), database.count("audit_events")) == before


def test_tn8_slug_is_never_reused(
    context: Flask, make: Factory, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make.actor(make.root())
    organizations.create_organization(root, {"name": "Initech"})
    organizations.delete_organization(root, "initech")
    with pytest.raises(SlugTaken) as refusal:
        organizations.create_organization(root, {"name": "Initech", "id": "initech"})
    assert (refusal.value.status, refusal.value.code, refusal.value.field) == (409, "id_taken", "id")
    derived = organizations.create_organization(root, {"name": "Initech"})
    assert derived.organization.slug == "initech-2"
    # Other requests take both after this one has looked.
    monkeypatch.setattr(organizations, "is_slug_taken", lambda slug: False)
    before = database.count("audit_events")
    derived = organizations.create_organization(root, {"name": "Initech"})
    assert derived.organization.slug == "initech-3"
    assert database.count("audit_events") == before + 2


def test_only_root_creates_organizations(context: Flask, make: Factory, database: Database) -> None:
    acme = make.organization()
    before = database.count("organizations")
    with pytest.raises(Forbidden) as refusal:
        organizations.create_organization(make.actor(acme), {"name": "Globex"})
    assert refusal.value.permission == "organizations:write"
    assert database.count("organizations") == before


def test_limits_of_the_instance_hold_for_a_new_organization(context: Flask, make: Factory) -> None:
    root = make.root()
    update_instance_limits(make.actor(root), {"oauth.access_token.ttl_seconds": {"max": 600}})
    creator = make.actor(root, "organizations:write")
    fields = {"name": "Globex", "settings": {"oauth": {"access_token": {"ttl_seconds": 900}}}}
    with pytest.raises(InvalidInput) as refusal:
        organizations.create_organization(creator, fields)
    assert fields_of(refusal) == {"settings.oauth.access_token.ttl_seconds": "exceeds_instance_limit"}
    fields = {"name": "Globex", "settings": {"limits": {"emails_per_hour": 100_000}}}
    with pytest.raises(Forbidden) as forbidden:
        organizations.create_organization(creator, fields)
    assert forbidden.value.permission == "instance:write"
    assert [error.field for error in forbidden.value.errors] == ["settings.limits.emails_per_hour"]
    assert organizations.create_organization(make.actor(root), fields).organization.slug == "globex"


def test_organizations_are_created_only_in_root(context: Flask, make: Factory) -> None:
    root, acme = make.root(), make.organization()
    elsewhere = make.actor(root).acting_in(acme.id, frozenset({"organizations:write"}))
    not_of_root = make.actor(acme, "organizations:write")
    for actor in (elsewhere, not_of_root):
        with pytest.raises(Forbidden):
            organizations.create_organization(actor, {"name": "Globex"})


def test_renaming_changes_only_the_name(context: Flask, make: Factory) -> None:
    acme = make.organization("acme-inc")
    updated = organizations.update_organization(make.actor(acme), "acme-inc", {"name": "Acme Limited"})
    assert (updated.record.name, updated.record.slug, updated.changed) == (
        "Acme Limited",
        "acme-inc",
        ("name",),
    )
    again = organizations.update_organization(make.actor(acme), "acme-inc", {"name": "Acme Limited"})
    assert again.changed == () and again.record.version == updated.record.version


def test_stale_version_is_rejected(context: Flask, make: Factory) -> None:
    acme = make.organization()
    admin = make.actor(acme)
    seen = organizations.get_organization(admin, acme.slug).version
    organizations.update_organization(admin, acme.slug, {"name": "One"}, expected_version=seen)
    with pytest.raises(PreconditionFailed):
        organizations.update_organization(admin, acme.slug, {"name": "Two"}, expected_version=seen)
    assert organizations.get_organization(admin, acme.slug).name == "One"


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"name": None}, {"name": "wrong_type"}),
        ({"status": "deleted"}, {"status": "not_allowed"}),
        ({"status": 1}, {"status": "wrong_type"}),
        ({"id": "other"}, {"id": "read_only"}),
        ({"nmae": "x"}, {"nmae": "unknown_field"}),
    ],
)
def test_js4_all_invalid_fields_of_a_change_are_named(
    context: Flask, make: Factory, fields: dict[str, Any], wrong: dict[str, str]
) -> None:
    make.organization("acme-x")
    with pytest.raises(InvalidInput) as refusal:
        organizations.update_organization(make.actor(make.root()), "acme-x", fields)
    assert fields_of(refusal) == wrong


def test_only_root_suspends_and_resumes(context: Flask, make: Factory) -> None:
    acme, root = make.organization(), make.actor(make.root())
    with pytest.raises(Forbidden):
        organizations.update_organization(make.actor(acme), acme.slug, {"status": "suspended"})
    suspended = organizations.update_organization(root, acme.slug, {"status": "suspended"})
    assert suspended.record.status == "suspended"
    assert not lookups.get_organization_by_id(acme.id).is_active
    resumed = organizations.update_organization(root, acme.slug, {"status": "active"})
    assert resumed.record.status == "active" and lookups.get_organization_by_id(acme.id).is_active


def test_deleted_organization_can_be_restored_within_thirty_days(
    context: Flask, make: Factory, database: Database
) -> None:
    acme, root = make.organization(), make.actor(make.root())
    deleted = organizations.delete_organization(make.actor(acme), acme.slug)
    assert deleted.purge_at is not None
    assert abs(deleted.purge_at - clock.now() - timedelta(days=30)) < timedelta(minutes=1)
    for look_up in (
        lambda: lookups.get_organization_by_slug(acme.slug),
        lambda: lookups.get_organization_by_id(acme.id),
    ):
        with pytest.raises(NotFound):
            look_up()
    assert database.query("SELECT kind FROM revocation_log")
    assert organizations.get_organization(root, acme.slug).status == "deleted"
    with pytest.raises(Conflict):
        organizations.update_organization(root, acme.slug, {"name": "Other"})
    restored = organizations.restore_organization(root, acme.slug)
    assert (restored.status, restored.purge_at) == ("active", None)
    assert lookups.get_organization_by_slug(acme.slug).is_active
    organizations.delete_organization(make.actor(acme), acme.slug)
    kept = organizations.update_organization(root, acme.slug, {"status": "suspended"}).record
    assert (kept.status, kept.purge_at) == ("suspended", None)
    assert not lookups.get_organization_by_slug(acme.slug).is_active


def test_root_cannot_be_suspended_or_deleted(context: Flask, make: Factory) -> None:
    root = make.actor(make.root())
    with pytest.raises(RootProtected):
        organizations.delete_organization(root, "root")
    with pytest.raises(RootProtected):
        organizations.update_organization(root, "root", {"status": "suspended"})
    assert organizations.update_organization(root, "root", {"name": "Head Office"}).changed == ("name",)


@pytest.mark.parametrize("slug", ["globex-other", "never-made", "root", "-", "x" * 500])
def test_tn2_another_organization_is_not_found_whether_it_exists_or_not(
    context: Flask, make: Factory, slug: str
) -> None:
    make.root()
    make.organization("globex-other")
    admin = make.actor(make.organization())
    refusals = []
    for call in (
        lambda: organizations.get_organization(admin, slug),
        lambda: organizations.update_organization(admin, slug, {"name": "Taken over"}),
        lambda: organizations.delete_organization(admin, slug),
    ):
        with pytest.raises(NotFound) as refusal:
            call()
        refusals.append((refusal.value.description, refusal.value.code))
    assert set(refusals) == {("There is no such organization.", "not_found")}


def test_root_lists_all_organizations_and_others_only_their_own(context: Flask, make: Factory) -> None:
    root = make.actor(make.root())
    for number in range(5):
        make.organization(f"page-{number}", name=f"Ärzte {number}")
    acme = make.organization()
    first = organizations.list_organizations(root, PageRequest(3), query="page-")
    second = organizations.list_organizations(root, PageRequest(3, first.next_cursor_key), query="page-")
    assert [record.slug for record in (*first.items, *second.items)] == [
        f"page-{number}" for number in range(5)
    ]
    assert first.next_cursor_key is not None and second.next_cursor_key is None
    backwards = organizations.list_organizations(root, PageRequest(2), query="ärzte", filters={"sort": "-id"})
    assert [record.slug for record in backwards.items] == ["page-4", "page-3"]
    found = organizations.list_organizations(root, query="GE-3")
    assert [record.slug for record in found.items] == ["page-3"]
    for query in (None, acme.slug[1:]):
        own = organizations.list_organizations(make.actor(acme), query=query)
        assert [record.slug for record in own.items] == [acme.slug], query
    organizations.delete_organization(root, "page-0")
    assert "page-0" not in {
        record.slug for record in organizations.list_organizations(root, PageRequest(100)).items
    }
    assert [r.slug for r in organizations.list_organizations(root, filters={"status": "deleted"}).items] == [
        "page-0"
    ]


def test_reading_requires_the_permission(context: Flask, make: Factory) -> None:
    acme = make.organization()
    for call in (
        lambda actor: organizations.get_organization(actor, acme.slug),
        lambda actor: organizations.list_organizations(actor),
        lambda actor: organizations.delete_organization(actor, acme.slug),
        lambda actor: organizations.update_organization(actor, acme.slug, {"name": "x"}),
    ):
        with pytest.raises(Forbidden):
            call(make.actor(acme, "clients:read"))


def test_root_auditor_reads_all_organizations_and_changes_none(context: Flask, make: Factory) -> None:
    acme, root = make.organization(), make.root()
    held = permissions_of_role("auditor", root.settings, is_root=True)
    auditor = make.actor(root, *held, user=make.user(root, role="auditor"))
    assert organizations.get_organization(auditor, acme.slug).slug == acme.slug
    assert acme.slug in {record.slug for record in organizations.list_organizations(auditor).items}
    for call in (
        lambda: organizations.update_organization(auditor, acme.slug, {"name": "Mine"}),
        lambda: organizations.update_organization(auditor, acme.slug, {"status": "suspended"}),
        lambda: organizations.delete_organization(auditor, acme.slug),
        lambda: organizations.create_organization(auditor, {"name": "New"}),
    ):
        with pytest.raises(Forbidden):
            call()
