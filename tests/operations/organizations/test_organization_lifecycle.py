"""Deletion, suspension and restoration of organizations: permissions, audit logs, and revoked tokens."""

from __future__ import annotations

from typing import Any

import pytest
from flask import Flask
from msgspec.structs import replace

from app.operations.directory import lookups
from app.operations.directory.lookups import OrganizationSnapshot
from app.operations.organizations import organizations
from app.operations.sign_in.actor_access import enter_organization
from app.operations.sign_in.reauthentication import FreshSignInRequired
from app.operations.sign_in.sessions import find_session
from app.operations.tokens.tokens import find_token
from app.rules.actor import Actor
from app.rules.directory.permissions import permissions_of_role
from app.rules.errors import Conflict, Forbidden, NotFound
from app.rules.identifiers import new_id
from tests.factories import Factory
from tests.support.databases import Database


@pytest.mark.parametrize("status", ["active", "suspended", "deleted"])
def test_permissions_in_root_do_not_apply_in_other_organizations(
    context: Flask, make: Factory, database: Database, status: str
) -> None:
    acme, root = make.organization(), make.root()
    if status == "suspended":
        organizations.update_organization(make.actor(root), acme.slug, {"status": status})
    elif status == "deleted":
        organizations.delete_organization(make.actor(root), acme.slug)
    held = permissions_of_role("auditor", root.settings, is_root=True)
    more = {"organization:write", "organization:delete"}
    actor = make.actor(root, *held, *more, user=make.user(root, role="auditor"))
    events = database.count("audit_events")
    for call in (
        lambda: organizations.update_organization(actor, acme.slug, {"name": "Taken over"}),
        lambda: organizations.delete_organization(actor, acme.slug),
    ):
        with pytest.raises((Forbidden, NotFound)):
            call()
    assert database.count("audit_events") == events
    stands = organizations.get_organization(actor, acme.slug)
    assert (stands.name, stands.status) == (acme.name, status)


@pytest.mark.parametrize("kind", ["user", "client"])
def test_restoring_requires_organizations_write_in_root(context: Flask, make: Factory, kind: str) -> None:
    acme, root = make.organization(), make.root()
    organizations.delete_organization(make.actor(root), acme.slug)
    for held in ("organizations:read", "organization:write"):
        with pytest.raises((Forbidden, NotFound)):
            organizations.restore_organization(_of_root(make, kind, held), acme.slug)
    able = _of_root(make, kind, "organizations:write")
    with pytest.raises(Conflict):
        organizations.update_organization(able, acme.slug, {"name": "Other", "status": "active"})
    assert organizations.restore_organization(able, acme.slug).status == "active"


def _of_root(make: Factory, kind: str, *permissions: str) -> Actor:
    root = make.root()
    user = make.user(root) if kind == "user" else None
    actor = make.actor(root, *permissions, user=user)
    return actor if user else replace(actor, kind="client", client_id=new_id())


def _told(database: Database, organization: OrganizationSnapshot) -> list[tuple[str, str]]:
    """Return (action, organization of the actor) of the organization events in a log."""
    rows = database.query("SELECT organization_id, action, actor_organization, target_type FROM audit_events")
    return [
        (_text(action), _text(home))
        for log, action, home, kind in rows
        if _text(log) == organization.id and _text(kind or b"") == "organization"
    ]


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes | bytearray) else str(value)


@pytest.mark.parametrize("is_inside", [False, True], ids=["from root", "in the organization"])
def test_root_actions_are_recorded_in_both_logs(
    context: Flask, make: Factory, database: Database, is_inside: bool
) -> None:
    acme, root = make.organization(), make.root()
    actor = make.actor(root, user=make.user(root, role="admin"))
    if is_inside:
        actor = enter_organization(actor, acme.slug)[0]
    organizations.update_organization(actor, acme.slug, {"name": "Renamed"})
    organizations.delete_organization(actor, acme.slug)
    at_root = make.actor(root)
    organizations.restore_organization(at_root, acme.slug)
    organizations.update_organization(at_root, acme.slug, {"status": "suspended"})
    organizations.update_organization(at_root, acme.slug, {"status": "active"})
    events = ("updated", "deleted", "restored", "suspended", "resumed")
    wanted = {(f"organization.{event}", root.id) for event in events}
    assert wanted <= set(_told(database, acme))
    assert wanted <= set(_told(database, root))


def test_deletion_by_own_administrator_is_recorded_in_root(
    context: Flask, make: Factory, database: Database
) -> None:
    root, acme = make.root(), make.organization()
    organizations.update_organization(make.actor(acme), acme.slug, {"name": "Renamed"})
    assert ("organization.updated", acme.id) not in _told(database, root)
    organizations.delete_organization(make.actor(acme, user=make.user(acme)), acme.slug)
    assert ("organization.deleted", acme.id) in _told(database, root)
    assert ("organization.deleted", acme.id) in _told(database, acme)


def test_deletion_in_a_browser_requires_a_recent_sign_in(context: Flask, make: Factory) -> None:
    acme = make.organization()
    user = make.user(acme)
    with pytest.raises(FreshSignInRequired):
        organizations.delete_organization(
            make.actor(acme, user=user, authenticated_ago_seconds=3600), acme.slug
        )
    assert lookups.get_organization_by_id(acme.id).is_active
    assert organizations.delete_organization(make.actor(acme, user=user), acme.slug).status == "deleted"


def test_earlier_tokens_and_sessions_stay_revoked_after_restore(app: Flask, make: Factory) -> None:
    acme, root = make.organization(), make.root()
    ada = make.user(acme)
    token, session = make.bearer(acme), make.sign_in(ada).token
    with app.app_context():
        assert find_token(token) is not None and find_session(session) is not None
        organizations.delete_organization(make.actor(root), acme.slug)
        organizations.restore_organization(make.actor(root), acme.slug)
        assert find_token(token) is None and find_session(session) is None
    fresh, again = make.bearer(acme), make.sign_in(ada).token
    with app.app_context():
        assert find_token(fresh) is not None and find_session(again) is not None


def test_suspension_revokes_nothing(app: Flask, make: Factory) -> None:
    acme, root = make.organization(), make.root()
    token = make.bearer(acme)
    with app.app_context():
        for status, lives in (("suspended", False), ("active", True)):
            organizations.update_organization(make.actor(root), acme.slug, {"status": status})
            assert (find_token(token) is not None) == lives
