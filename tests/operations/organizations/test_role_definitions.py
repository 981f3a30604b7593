"""Roles defined: by whoever may, never with more or less than they hold themselves, and never under somebody's feet."""

from __future__ import annotations

from typing import Any

import pytest

from app.operations.organizations import roles
from app.operations.organizations.administrators import add_administrator
from app.operations.organizations.role_holders import RoleInUse
from app.operations.organizations.settings import update_settings
from app.rules.errors import Conflict, Forbidden, InvalidInput, NotFound, PreconditionFailed
from app.rules.organizations.lockout_prevention import WouldLockOut
from tests.factories import Factory

pytestmark = pytest.mark.usefixtures("context")
ENOUGH = ("roles:read", "roles:write", "settings:read", "settings:write", "clients:read")


@pytest.fixture
def acme(make: Factory) -> Any:
    return make.organization("acme")


def test_a_role_is_made_changed_listed_and_removed(make: Factory, acme: Any) -> None:
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


def test_tn11_a_role_neither_gains_nor_loses_what_its_editor_lacks(make: Factory, acme: Any) -> None:
    """Their own role too, and by the settings document as well."""
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


def test_tn11_nobody_who_signs_up_gets_what_the_one_who_says_so_lacks(make: Factory, acme: Any) -> None:
    """Otherwise they would sign up themselves, and hold it."""
    partial = {"authentication": {"registration": {"mode": "open", "default_roles": ["member", "developer"]}}}
    roles.create_role(make.actor(acme), {"id": "ops", "permissions": [*ENOUGH]})
    small = make.actor(acme, *ENOUGH, user=make.user(acme, role="ops"))
    with pytest.raises(Forbidden) as refusal:
        update_settings(small, acme.slug, partial)
    assert refusal.value.permission == "clients:write:own"
    update_settings(make.actor(acme), acme.slug, partial)
    # What stands already, and what anybody has, is theirs to go on with.
    update_settings(small, acme.slug, partial | {"branding": {"theme": "dark"}})
    roles.create_role(small, {"id": "meek", "permissions": ["clients:read:own", "invoices:approve"]})
    own = {"default_roles": ["developer", "meek"]}
    update_settings(small, acme.slug, {"authentication": {"registration": own}})


def test_settings_write_alone_defines_no_role_and_roles_write_alone_no_setting(
    make: Factory, acme: Any
) -> None:
    partial = {"user_permissions": {"roles": {"meek": {"permissions": []}}}}
    with pytest.raises(Forbidden) as refusal:
        update_settings(make.actor(acme, "settings:write"), acme.slug, partial)
    assert refusal.value.permission == "roles:write"
    actor = make.actor(acme, "roles:write")
    roles.create_role(actor, {"id": "meek", "permissions": []})
    with pytest.raises(Forbidden):
        update_settings(actor, acme.slug, {"branding": {"theme": "dark"}})


def test_a_role_in_use_stays_and_says_how_many_have_it(make: Factory, acme: Any) -> None:
    actor = make.actor(acme)
    roles.create_role(actor, {"id": "ops", "permissions": []})
    for _ in range(2):
        add_administrator(actor, acme.slug, user_id=make.user(acme).public_id, role="ops")
    with pytest.raises(RoleInUse) as refusal:
        roles.delete_role(actor, "ops")
    assert "2 users" in refusal.value.description
    assert roles.list_role_holders(actor, "ops").count == 2


def test_whoever_was_given_a_role_while_it_went_does_not_get_its_successor(
    make: Factory, acme: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given at the moment at which it was removed: a new role of that name would be theirs."""
    actor = make.actor(acme)
    roles.create_role(actor, {"id": "ops", "permissions": []})
    add_administrator(actor, acme.slug, user_id=make.user(acme).public_id, role="ops")
    from app.operations.organizations import settings

    with monkeypatch.context() as late:
        late.setattr(settings, "require_roles_unused", lambda *args: None)
        roles.delete_role(actor, "ops")
    with pytest.raises(RoleInUse):
        roles.create_role(actor, {"id": "ops", "permissions": ["clients:read"]})


def test_built_in_roles_are_narrowed_and_returned_and_never_removed(make: Factory, acme: Any) -> None:
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


def test_wrong_fields_are_named_as_a_role_has_them(make: Factory, acme: Any) -> None:
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


def test_nobody_takes_settings_write_from_themselves(make: Factory, acme: Any) -> None:
    roles.create_role(make.actor(acme), {"id": "ops", "permissions": list(ENOUGH)})
    actor = make.actor(acme, *ENOUGH, user=make.user(acme, role="ops"))
    with pytest.raises(WouldLockOut):
        roles.update_role(actor, "ops", {"permissions": ["roles:write"]})
