"""The permission table: what each role may do, and that nobody grants what they lack."""

from __future__ import annotations

from typing import Any

import pytest

from app.rules.directory import permissions as p
from app.rules.organizations.settings import defaults, effective, merge


def with_roles(**roles: Any) -> dict[str, Any]:
    return effective(merge({}, {"user_permissions": {"roles": roles}}))


def test_the_admin_may_everything_in_the_organization_and_nothing_beyond() -> None:
    assert p.permissions_of("admin", defaults()) == frozenset(p.PERMISSIONS)


def test_root_extras_are_held_in_root_alone() -> None:
    assert p.permissions_of("admin", defaults(), is_root=True) == frozenset(p.PERMISSIONS) | frozenset(
        p.ROOT_ONLY
    )
    assert p.permissions_of("developer", defaults(), is_root=True).isdisjoint(p.ROOT_ONLY)


def test_the_auditor_reads_everything_except_secrets() -> None:
    held = p.permissions_of("auditor", defaults())
    assert "credentials:read" not in held and {"clients:read", "audit:read", "admins:read"} <= held
    assert all(name.endswith(":read") for name in held)


def test_the_developer_manages_own_things_alone() -> None:
    held = p.permissions_of("developer", defaults())
    assert held - {"organization:read", "settings:read"} <= p.OWN_PERMISSIONS
    assert {"clients:write:own", "credentials:read:own", "resources:write:own"} <= held


def test_a_member_may_nothing_until_members_may_register_clients() -> None:
    assert p.permissions_of("member", defaults()) == frozenset()
    opened = effective(merge({}, {"user_permissions": {"members_can_register_clients": True}}))
    assert p.permissions_of("member", opened) == p.REGISTERING_MEMBER
    assert p.permissions_of_roles((), opened) == p.REGISTERING_MEMBER


def test_a_role_that_is_no_more_may_nothing() -> None:
    assert p.permissions_of("ops", defaults()) == frozenset()
    assert p.permissions_of("ops", with_roles(ops={"permissions": ["clients:read"]})) == {"clients:read"}


def test_narrowing_a_built_in_role_takes_effect_and_the_admin_stays_whole() -> None:
    narrowed = with_roles(developer={"permissions": ["clients:read:own"]})
    assert p.permissions_of("developer", narrowed) == {"clients:read:own"}
    narrowed["user_permissions"]["roles"]["admin"] = {"permissions": []}
    assert p.permissions_of("admin", narrowed) == frozenset(p.PERMISSIONS)


def test_a_stored_role_never_holds_what_is_for_root() -> None:
    settings = defaults()
    settings["user_permissions"]["roles"]["sly"] = {"permissions": ["organizations:write", "clients:read"]}
    assert p.permissions_of("sly", settings) == {"clients:read"}


@pytest.mark.parametrize(
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
def test_tn11_nobody_grants_what_they_lack(
    held: list[str], wanted: list[str], missing: tuple[str, ...]
) -> None:
    assert p.lacking(held, wanted) == missing


@pytest.mark.parametrize(
    "name", ["invoices:approve", "shop.orders:read:all", "clients:read", "tokens:revoke:own"]
)
def test_names_a_role_may_hold(name: str) -> None:
    assert p.is_permission_name(name)


@pytest.mark.parametrize(
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
def test_names_a_role_may_not_hold(name: str) -> None:
    assert not p.is_permission_name(name)


def test_every_permission_has_words_and_every_role_holds_known_ones() -> None:
    assert all(text and text[0].isupper() for text in [*p.PERMISSIONS.values(), *p.ROOT_ONLY.values()])
    for role in p.BUILT_IN_ROLES.values():
        assert set(role.permissions) <= p.ALL_PERMISSIONS
