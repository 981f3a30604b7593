"""Permissions: every name, and which roles include it (PO-1).

A permission name is also the OAuth scope that a management token carries. ``:own`` limits a permission to
what the user owns. An organization may also use names of its own in its roles, for
permissions inside its apps (``invoices:approve``). Gatehouse stores and issues those but never checks them.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from app.rules.languages.translation import lazy_gettext

# Permissions within one organization, with the descriptions that consent and role pages show.
PERMISSIONS: Mapping[str, str] = {
    "organization:read": lazy_gettext("View the organization"),
    "organization:write": lazy_gettext("Rename the organization"),
    "organization:delete": lazy_gettext("Delete the organization"),
    "settings:read": lazy_gettext("View the settings"),
    "settings:write": lazy_gettext("Change the settings"),
    "admins:read": lazy_gettext("View administrators"),
    "admins:write": lazy_gettext("Add and remove administrators"),
    "users:read": lazy_gettext("View users"),
    "users:write": lazy_gettext("Create, change and disable users"),
    "roles:read": lazy_gettext("View roles"),
    "roles:write": lazy_gettext("Create, change and delete roles"),
    "resources:read": lazy_gettext("View APIs and their scopes"),
    "resources:write": lazy_gettext("Create, change and delete APIs and their scopes"),
    "clients:read": lazy_gettext("View clients"),
    "clients:write": lazy_gettext("Register, change and delete clients"),
    "clients:trust": lazy_gettext("Review and approve clients, and grant them management scopes"),
    "credentials:read": lazy_gettext("View client secrets"),
    "credentials:write": lazy_gettext("Create and revoke client secrets"),
    "tokens:read": lazy_gettext("View active tokens"),
    "tokens:revoke": lazy_gettext("Revoke tokens"),
    "consents:read": lazy_gettext("View the consents of users"),
    "consents:write": lazy_gettext("Withdraw the consents of users"),
    "audit:read": lazy_gettext("View the audit log"),
    "logs:read": lazy_gettext("View failed requests"),
    "webhooks:read": lazy_gettext("View webhooks"),
    "webhooks:write": lazy_gettext("Create, change and delete webhooks"),
}

# Permissions across organizations, which only roles in the root organization can have.
ROOT_ONLY: Mapping[str, str] = {
    "organizations:read": lazy_gettext("View all organizations"),
    "organizations:write": lazy_gettext("Create, suspend, delete and restore organizations"),
    "instance:read": lazy_gettext("View the state and limits of this instance"),
    "instance:write": lazy_gettext("Change the limits of this instance"),
}

# Permissions on things that have an owner, which a role may have for the user's own things only.
OWNABLE_PERMISSIONS = frozenset(
    f"{noun}:{verb}"
    for noun, verbs in {
        "clients": ("read", "write"),
        "credentials": ("read", "write"),
        "tokens": ("read", "revoke"),
        "resources": ("read", "write"),
        "logs": ("read",),
        "consents": ("read", "write"),
    }.items()
    for verb in verbs
)
OWN_PERMISSIONS = frozenset(f"{name}:own" for name in OWNABLE_PERMISSIONS)

ORGANIZATION_PERMISSIONS = frozenset(PERMISSIONS) | OWN_PERMISSIONS
ALL_PERMISSIONS = ORGANIZATION_PERMISSIONS | frozenset(ROOT_ONLY)
_NAMESPACES = frozenset(name.split(":")[0] for name in ALL_PERMISSIONS)

ADMIN = "admin"
MEMBER = "member"
# Additional permissions of the same roles in the root organization.
ROOT_EXTRA_PERMISSIONS: Mapping[str, frozenset[str]] = {
    ADMIN: frozenset(ROOT_ONLY),
    "auditor": frozenset({"organizations:read", "instance:read"}),
}
# Permissions of every user if the organization lets members register clients.
MEMBER_REGISTRATION_PERMISSIONS = frozenset(
    {"clients:read:own", "clients:write:own", "credentials:read:own", "credentials:write:own"}
)
_NAME = re.compile(r"[a-z][a-z0-9_.-]{0,39}(?::[a-z0-9_.-]{1,40}){1,3}")


class Role(Struct, frozen=True):
    """A role with its description and permissions."""

    name: str
    description: str
    permissions: tuple[str, ...]


# Users need no permission for their own account, consents and sessions.
BUILT_IN_ROLES: Mapping[str, Role] = {
    ADMIN: Role(
        lazy_gettext("Administrator"),
        lazy_gettext("Can do everything in the organization."),
        tuple(sorted(PERMISSIONS)),
    ),
    "developer": Role(
        lazy_gettext("Developer"),
        lazy_gettext("Can register clients and manage their own clients, secrets, tokens and logs."),
        (
            "clients:read:own",
            "clients:write:own",
            "credentials:read:own",
            "credentials:write:own",
            "logs:read:own",
            "organization:read",
            "resources:read:own",
            "resources:write:own",
            "settings:read",
            "tokens:read:own",
            "tokens:revoke:own",
        ),
    ),
    "auditor": Role(
        lazy_gettext("Auditor"),
        lazy_gettext("Can view everything except secrets."),
        tuple(sorted(name for name in PERMISSIONS if name.endswith(":read") and name != "credentials:read")),
    ),
    MEMBER: Role(
        lazy_gettext("Member"), lazy_gettext("Can manage their own account, consents and sessions."), ()
    ),
}


def is_permission_name(text: str) -> bool:
    """Return whether a role of an organization can have this permission.

    That is a built-in permission of organizations, or an app permission outside the built-in namespaces.
    """
    if text in ORGANIZATION_PERMISSIONS:
        return True
    return _NAME.fullmatch(text) is not None and text.split(":")[0] not in _NAMESPACES


def is_app_permission(text: str) -> bool:
    """Return whether this is a permission inside an organization's apps, which has no effect in Gatehouse."""
    return text not in ALL_PERMISSIONS


def has_permission(held: Iterable[str], wanted: str) -> bool:
    """Return whether the held permissions include the wanted one. A permission includes its ``:own`` form."""
    held = held if isinstance(held, frozenset) else frozenset(held)
    return wanted in held or (wanted.endswith(":own") and wanted.removesuffix(":own") in held)


@functools.lru_cache(maxsize=1024)
def intersect_permissions(scopes: frozenset[str], rights: frozenset[str]) -> frozenset[str]:
    """Return what a token with these scopes can do for a user with these permissions.

    Where one side has only the ``:own`` form, the result has the ``:own`` form.
    """
    both = {name for name in scopes if has_permission(rights, name)} | {
        name for name in rights if has_permission(scopes, name)
    }
    return frozenset(
        name for name in both if not name.endswith(":own") or name.removesuffix(":own") not in both
    )


def missing_permissions(held: Iterable[str], wanted: Iterable[str]) -> tuple[str, ...]:
    """Return the wanted permissions that someone with the held ones must not grant, sorted (TN-11).

    App permissions never count as missing: anyone who can define roles can grant them.
    """
    held = frozenset(held)
    return tuple(
        sorted(name for name in wanted if not is_app_permission(name) and not has_permission(held, name))
    )


def effective_roles(settings: Mapping[str, Any]) -> dict[str, Role]:
    """Return the roles of an organization by key.

    These are the built-in roles, as its settings change them, and its custom roles.
    """
    roles = dict(BUILT_IN_ROLES)
    for key, entry in settings.get("user_permissions", {}).get("roles", {}).items():
        if key != ADMIN:
            roles[key] = Role(
                entry.get("name") or key,
                entry.get("description") or "",
                tuple(entry.get("permissions") or ()),
            )
    return roles


def permissions_of_role(role: str, settings: Mapping[str, Any], *, is_root: bool = False) -> frozenset[str]:
    """Return the permissions of a role under the organization's effective settings; none for an unknown role.

    ``is_root`` adds what the role can do in the root organization, whose administrators manage the instance.
    """
    definition = effective_roles(settings).get(role)
    if definition is None:
        return frozenset()
    permissions = frozenset(definition.permissions) - frozenset(ROOT_ONLY)
    if is_root:
        permissions |= ROOT_EXTRA_PERMISSIONS.get(role, frozenset())
    if settings.get("user_permissions", {}).get("members_can_register_clients"):
        permissions |= MEMBER_REGISTRATION_PERMISSIONS
    return permissions


def permissions_of_roles(
    roles: Iterable[str], settings: Mapping[str, Any], *, is_root: bool = False
) -> frozenset[str]:
    """Return the permissions of a user with these roles. Every user has those of a member."""
    held: frozenset[str] = permissions_of_role(MEMBER, settings, is_root=is_root)
    for role in roles:
        held |= permissions_of_role(role, settings, is_root=is_root)
    return held
