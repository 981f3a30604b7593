"""Custom and built-in roles: permissions of the editor, and roles in use."""

from __future__ import annotations

from typing import Any

import pytest

from app.operations.organizations import roles
from app.operations.organizations.administrators import RoleInUse, add_administrator, list_role_holders
from app.operations.organizations.settings import update_settings
from app.rules.errors import Conflict, Forbidden, InvalidInput, NotFound, PreconditionFailed
from app.rules.organizations.lockout_prevention import WouldLockOut
from tests.factories import Factory
from tests.support.cases import each

pytestmark = pytest.mark.usefixtures("context")
ENOUGH = ("roles:read", "roles:write", "settings:read", "settings:write", "clients:read")


@pytest.fixture
def acme(make: Factory) -> Any:
    return make.organization("acme")


def test_role_is_created_updated_listed_and_deleted(make: Factory, acme: Any) -> None:
    actor = make.actor(acme)
    made = roles.create_role(
        actor, {"id": "support", "name": "Support", "permissions": ["clients:read:own", "invoices:approve"]}
    )
    assert (made.key, made.is_built_in, made.role.description) == ("support", False, "")
    changed, fields = roles.update_role(actor, "support", {"permissions": ["users:read"]})
    assert fields == ("permissions",) and changed.role.permissions == ("users:read",)
    assert [record.key for record in roles.list_roles(actor)] == [
        "admin", "developer", "auditor", "member", "support",
    ]  # fmt: skip
    roles.delete_role(actor, "support")
    with pytest.raises(NotFound):
        roles.get_role(actor, "support")


def test_tn11_role_cannot_gain_or_lose_permissions_that_its_editor_lacks(make: Factory, acme: Any) -> None:
    """This includes their own role and the settings document."""
    roles.create_role(make.actor(acme), {"id": "ops", "permissions": [*ENOUGH, "users:read"]})
    small = make.actor(acme, *ENOUGH, user=make.user(acme, role="ops"))
    for wanted, missing in (
        ([*ENOUGH, "users:read", "clients:write"], "clients:write"),
        ([*ENOUGH], "users:read"),
    ):
        with pytest.raises(Forbidden) as refusal:
            roles.update_role(small, "ops", {"permissions": wanted})
        assert refusal.value.permission == missing
        with pytest.raises(Forbidden):
            update_settings(
                small, acme.slug, {"user_permissions": {"roles": {"ops": {"permissions": wanted}}}}
            )
    with pytest.raises(Forbidden):
        roles.create_role(small, {"id": "sly", "permissions": ["clients:write:own"]})
    roles.create_role(small, {"id": "meek", "permissions": ["clients:read:own", "invoices:approve"]})


def test_tn11_default_role_cannot_have_permissions_that_the_editor_lacks(make: Factory, acme: Any) -> None:
    """Otherwise they could sign up themselves and get it."""
    partial = {"authentication": {"registration": {"mode": "open", "default_roles": ["member", "developer"]}}}
    roles.create_role(make.actor(acme), {"id": "ops", "permissions": [*ENOUGH]})
    small = make.actor(acme, *ENOUGH, user=make.user(acme, role="ops"))
    with pytest.raises(Forbidden) as refusal:
        update_settings(small, acme.slug, partial)
    assert refusal.value.permission == "clients:write:own"
    update_settings(make.actor(acme), acme.slug, partial)
    # Existing permissions of a role, and those that every user has, may stay.
    update_settings(small, acme.slug, partial | {"branding": {"theme": "dark"}})
    roles.create_role(small, {"id": "meek", "permissions": ["clients:read:own", "invoices:approve"]})
    own = {"default_roles": ["developer", "meek"]}
    update_settings(small, acme.slug, {"authentication": {"registration": own}})


@each(
    ("before", "change"),
    [
        ({"mode": "invite"}, {"mode": "open"}),
        ({"mode": "open"}, {"verify_email": False}),
        ({"mode": "open", "allowed_email_domains": ["acme.example"]}, {"allowed_email_domains": []}),
        (
            {"mode": "open", "allowed_email_domains": ["acme.example"]},
            {"allowed_email_domains": ["acme.example", "evil.example"]},
        ),
    ],
)
def test_tn11_default_roles_are_not_given_to_more_people_by_an_editor_who_lacks_them(
    make: Factory, before: Any, change: Any
) -> None:
    acme = make.organization()
    registration = {"default_roles": ["developer"], **before}
    update_settings(make.actor(acme), acme.slug, {"authentication": {"registration": registration}})
    small = make.actor(acme, "settings:read", "settings:write")
    with pytest.raises(Forbidden) as refusal:
        update_settings(small, acme.slug, {"authentication": {"registration": change}})
    assert refusal.value.permission == "clients:read:own"
    for stricter in ({"allowed_email_domains": ["acme.example"]}, {"mode": "closed"}):
        update_settings(small, acme.slug, {"authentication": {"registration": stricter}})


def test_roles_write_and_settings_write_are_separate(make: Factory, acme: Any) -> None:
    partial = {"user_permissions": {"roles": {"meek": {"permissions": []}}}}
    with pytest.raises(Forbidden) as refusal:
        update_settings(make.actor(acme, "settings:write"), acme.slug, partial)
    assert refusal.value.permission == "roles:write"
    actor = make.actor(acme, "roles:write")
    roles.create_role(actor, {"id": "meek", "permissions": []})
    with pytest.raises(Forbidden):
        update_settings(actor, acme.slug, {"branding": {"theme": "dark"}})


def test_role_in_use_cannot_be_deleted(make: Factory, acme: Any) -> None:
    actor = make.actor(acme)
    roles.create_role(actor, {"id": "ops", "permissions": []})
    for _ in range(2):
        add_administrator(actor, acme.slug, user_id=make.user(acme).public_id, role="ops")
    with pytest.raises(RoleInUse) as refusal:
        roles.delete_role(actor, "ops")
    assert "2 users" in refusal.value.description
    assert list_role_holders(actor, "ops").count == 2


def test_holder_of_deleted_role_does_not_get_new_role_of_that_name(
    make: Factory, acme: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The role was assigned while it was being deleted, so a new role of that name would apply."""
    actor = make.actor(acme)
    roles.create_role(actor, {"id": "ops", "permissions": []})
    add_administrator(actor, acme.slug, user_id=make.user(acme).public_id, role="ops")
    from app.operations.organizations import settings

    with monkeypatch.context() as late:
        late.setattr(settings, "require_roles_unused", lambda *args: None)
        roles.delete_role(actor, "ops")
    with pytest.raises(RoleInUse):
        roles.create_role(actor, {"id": "ops", "permissions": ["clients:read"]})


def test_built_in_roles_can_be_restricted_and_reset_but_not_deleted(make: Factory, acme: Any) -> None:
    actor = make.actor(acme)
    whole = roles.get_role(actor, "developer").role.permissions
    roles.update_role(actor, "developer", {"permissions": ["clients:read:own"]})
    back, changed = roles.update_role(actor, "developer", {"permissions": None})
    assert back.role.permissions == whole and changed == ("permissions",)
    for call in (
        lambda: roles.delete_role(actor, "developer"),
        lambda: roles.update_role(actor, "admin", {"permissions": []}),
    ):
        with pytest.raises(Conflict) as refusal:
            call()
        assert refusal.value.code == "built_in_role"
    with pytest.raises(InvalidInput) as wrong:
        roles.update_role(actor, "member", {"permissions": ["clients:read"]})
    assert wrong.value.errors[0].field == "permissions[0]"


def test_invalid_fields_are_named_as_role_fields(make: Factory, acme: Any) -> None:
    actor = make.actor(acme)
    for fields, named in (
        ({"permissions": []}, ["id"]),
        ({"id": "Big One", "permissions": []}, ["id"]),
        ({"id": "big", "permissions": ["clients:explode"], "name": 3}, ["name", "permissions[0]"]),
        ({"id": "big", "permission": []}, ["permission", "permissions"]),
    ):
        with pytest.raises(InvalidInput) as refusal:
            roles.create_role(actor, fields)
        assert sorted(error.field for error in refusal.value.errors) == named, fields
    with pytest.raises(Conflict):
        roles.create_role(actor, {"id": "auditor", "permissions": []})
    record = roles.create_role(actor, {"id": "big", "permissions": []})
    with pytest.raises(PreconditionFailed):
        roles.update_role(actor, "big", {"name": "Bigger"}, expected_version=record.version + 1)


def test_actor_cannot_remove_own_settings_write(make: Factory, acme: Any) -> None:
    roles.create_role(make.actor(acme), {"id": "ops", "permissions": list(ENOUGH)})
    actor = make.actor(acme, *ENOUGH, user=make.user(acme, role="ops"))
    with pytest.raises(WouldLockOut):
        roles.update_role(actor, "ops", {"permissions": ["roles:write"]})
