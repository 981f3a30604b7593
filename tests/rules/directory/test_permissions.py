"""The permission table: what each role can do, and that users cannot grant permissions they lack."""

from __future__ import annotations

from typing import Any

from app.rules.directory import permissions as p
from app.rules.organizations.settings import default_settings, effective_settings, merge_settings
from tests.support.cases import each


def settings_with_roles(**roles: Any) -> dict[str, Any]:
    return effective_settings(merge_settings({}, {"user_permissions": {"roles": roles}}))


def test_admin_has_every_organization_permission_and_no_root_permission() -> None:
    assert p.permissions_of_role("admin", default_settings()) == frozenset(p.PERMISSIONS)


def test_root_permissions_apply_only_in_the_root_organization() -> None:
    assert p.permissions_of_role("admin", default_settings(), is_root=True) == frozenset(
        p.PERMISSIONS
    ) | frozenset(p.ROOT_ONLY)
    assert p.permissions_of_role("developer", default_settings(), is_root=True).isdisjoint(p.ROOT_ONLY)


def test_auditor_can_read_everything_except_secrets() -> None:
    held = p.permissions_of_role("auditor", default_settings())
    assert "credentials:read" not in held and {"clients:read", "audit:read", "admins:read"} <= held
    assert all(name.endswith(":read") for name in held)


def test_developer_can_manage_only_own_things() -> None:
    held = p.permissions_of_role("developer", default_settings())
    assert held - {"organization:read", "settings:read"} <= p.OWN_PERMISSIONS
    assert {"clients:write:own", "credentials:read:own", "resources:write:own"} <= held


def test_member_has_no_permissions_until_members_can_register_clients() -> None:
    assert p.permissions_of_role("member", default_settings()) == frozenset()
    settings = effective_settings(
        merge_settings({}, {"user_permissions": {"members_can_register_clients": True}})
    )
    assert p.permissions_of_role("member", settings) == p.MEMBER_REGISTRATION_PERMISSIONS
    assert p.permissions_of_roles((), settings) == p.MEMBER_REGISTRATION_PERMISSIONS


def test_unknown_role_has_no_permissions() -> None:
    assert p.permissions_of_role("ops", default_settings()) == frozenset()
    assert p.permissions_of_role("ops", settings_with_roles(ops={"permissions": ["clients:read"]})) == {
        "clients:read"
    }


def test_built_in_role_can_be_narrowed_except_admin() -> None:
    narrowed = settings_with_roles(developer={"permissions": ["clients:read:own"]})
    assert p.permissions_of_role("developer", narrowed) == {"clients:read:own"}
    narrowed["user_permissions"]["roles"]["admin"] = {"permissions": []}
    assert p.permissions_of_role("admin", narrowed) == frozenset(p.PERMISSIONS)


def test_custom_role_cannot_include_root_permissions() -> None:
    settings = default_settings()
    settings["user_permissions"]["roles"]["sly"] = {"permissions": ["organizations:write", "clients:read"]}
    assert p.permissions_of_role("sly", settings) == {"clients:read"}


@each(
    ("held", "wanted", "missing"),
    [
        (["clients:read"], ["clients:read"], ()),
        (["clients:read"], ["clients:read:own"], ()),
        (["clients:read:own"], ["clients:read"], ("clients:read",)),
        ([], ["invoices:approve"], ()),
        ([], ["organizations:write"], ("organizations:write",)),
        (["admins:write"], ["admins:write", "settings:write"], ("settings:write",)),
    ],
)
def test_tn11_missing_permissions_cannot_be_granted(
    held: list[str], wanted: list[str], missing: tuple[str, ...]
) -> None:
    assert p.missing_permissions(held, wanted) == missing


@each("name", ["invoices:approve", "shop.orders:read:all", "clients:read", "tokens:revoke:own"])
def test_valid_permission_name_is_accepted(name: str) -> None:
    assert p.is_permission_name(name)


@each(
    "name",
    [
        "clients:raed",
        "clients",
        "organizations:write",
        "Invoices:Approve",
        "a:",
        ":a",
        "a b:c",
        "users:read:own",
    ],
)
def test_invalid_permission_name_is_rejected(name: str) -> None:
    assert not p.is_permission_name(name)


def test_permissions_have_descriptions_and_built_in_roles_use_known_permissions() -> None:
    assert all(text and text[0].isupper() for text in [*p.PERMISSIONS.values(), *p.ROOT_ONLY.values()])
    for role in p.BUILT_IN_ROLES.values():
        assert set(role.permissions) <= p.ORGANIZATION_PERMISSIONS
