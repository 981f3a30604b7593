"""Permissions: every name there is, and which role holds which, as one table (PO-1).

A permission name is also the OAuth scope that a management token carries. ``:own`` narrows a permission to what
the person registered or collaborates on. Beside the names below an organization may use names of its own in its
roles, for the rights inside its apps (``invoices:approve``): Gatehouse stores and hands out those and decides
nothing by them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

# What may be done in one organization, with the words that consent and role pages show.
PERMISSIONS: Mapping[str, str] = {
    "organization:read": "See the organization",
    "organization:write": "Rename the organization",
    "organization:delete": "Delete the organization",
    "settings:read": "See the settings",
    "settings:write": "Change the settings",
    "admins:read": "See who administers the organization",
    "admins:write": "Add and remove administrators",
    "users:read": "See users",
    "users:write": "Create, change and disable users",
    "roles:read": "See roles",
    "roles:write": "Define roles",
    "resources:read": "See resources (APIs) and their scopes",
    "resources:write": "Define resources (APIs) and their scopes",
    "clients:read": "See clients",
    "clients:write": "Register, change and delete clients",
    "clients:trust": "Mark clients as trusted and grant them management scopes",
    "credentials:read": "See client secrets",
    "credentials:write": "Make and revoke client secrets",
    "tokens:read": "See which tokens are alive",
    "tokens:revoke": "Revoke tokens",
    "consents:read": "See what users allowed",
    "consents:write": "Withdraw what users allowed",
    "audit:read": "Read the audit log",
    "logs:read": "Read the log of failed requests",
    "webhooks:read": "See webhooks",
    "webhooks:write": "Define webhooks",
}

# Held in root alone: they reach across organizations.
ROOT_ONLY: Mapping[str, str] = {
    "organizations:read": "See every organization",
    "organizations:write": "Create, suspend, delete and restore organizations",
    "instance:read": "See the state of this installation",
    "instance:write": "Change this installation",
}

# The things that have an owner, so that a role may be narrowed to the person's own.
OWNABLE = frozenset(
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
OWN_PERMISSIONS = frozenset(f"{name}:own" for name in OWNABLE)

ALL_PERMISSIONS = frozenset(PERMISSIONS) | OWN_PERMISSIONS
EVERY_PERMISSION = ALL_PERMISSIONS | frozenset(ROOT_ONLY)
_NAMESPACES = frozenset(name.split(":")[0] for name in EVERY_PERMISSION)

ADMIN = "admin"
MEMBER = "member"


@dataclass(frozen=True, slots=True)
class Role:
    """A role: its words and what it may do. ``own`` means that one's own account is all it reaches."""

    name: str
    description: str
    permissions: tuple[str, ...]


# Own account, own consents and own sessions need no permission: whoever is signed in has them.
BUILT_IN_ROLES: Mapping[str, Role] = {
    ADMIN: Role("Administrator", "May do everything in the organization.", tuple(sorted(PERMISSIONS))),
    "developer": Role(
        "Developer",
        "Registers clients and manages the own ones, with their secrets, tokens and logs.",
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
        "Auditor",
        "Reads everything except secrets.",
        tuple(sorted(name for name in PERMISSIONS if name.endswith(":read") and name != "credentials:read")),
    ),
    MEMBER: Role("Member", "Has an own account, consents and sessions.", ()),
}

# What the same role holds in root besides.
ROOT_EXTRAS: Mapping[str, frozenset[str]] = {
    ADMIN: frozenset(ROOT_ONLY),
    "auditor": frozenset({"organizations:read", "instance:read"}),
}
# What everybody gets where the organization says that members may register clients.
REGISTERING_MEMBER = frozenset(
    {"clients:read:own", "clients:write:own", "credentials:read:own", "credentials:write:own"}
)

_NAME = re.compile(r"[a-z][a-z0-9_.-]{0,39}(?::[a-z0-9_.-]{1,40}){1,3}")


def is_permission_name(text: str) -> bool:
    """Whether a role of an organization may hold it: one of ours, or a name outside our namespaces."""
    if text in ALL_PERMISSIONS:
        return True
    return _NAME.fullmatch(text) is not None and text.split(":")[0] not in _NAMESPACES


def is_app_permission(text: str) -> bool:
    """Whether it is a right inside an organization's own apps: it opens nothing here."""
    return text not in EVERY_PERMISSION


def covers(held: Iterable[str], wanted: str) -> bool:
    """Whether the held permissions include the wanted one; the whole includes its ``:own`` form."""
    held = held if isinstance(held, frozenset) else frozenset(held)
    return wanted in held or (wanted.endswith(":own") and wanted.removesuffix(":own") in held)


def cut_down(scopes: Iterable[str], rights: Iterable[str]) -> frozenset[str]:
    """What a token with these scopes may do for a subject with these rights: what both allow, in its narrower form."""
    scopes, rights = frozenset(scopes), frozenset(rights)
    both = {name for name in scopes if covers(rights, name)} | {
        name for name in rights if covers(scopes, name)
    }
    return frozenset(
        name for name in both if not name.endswith(":own") or name.removesuffix(":own") not in both
    )


def lacking(held: Iterable[str], wanted: Iterable[str]) -> tuple[str, ...]:
    """What somebody who holds ``held`` must not grant of ``wanted`` (TN-11): nobody grants what they lack.

    Rights inside apps are the organization's own words, which whoever may define roles may hand out.
    """
    held = frozenset(held)
    return tuple(sorted(name for name in wanted if not is_app_permission(name) and not covers(held, name)))


def roles_of(settings: Mapping[str, Any]) -> dict[str, Role]:
    """The roles of an organization: the built-in ones, as its effective settings narrow them, and its own."""
    roles = dict(BUILT_IN_ROLES)
    for key, entry in settings.get("user_permissions", {}).get("roles", {}).items():
        if key != ADMIN:
            roles[key] = Role(
                entry.get("name") or key,
                entry.get("description") or "",
                tuple(entry.get("permissions") or ()),
            )
    return roles


def permissions_of(role: str, settings: Mapping[str, Any], *, is_root: bool = False) -> frozenset[str]:
    """What a role may do under the organization's effective settings; a role that is no more may nothing.

    ``is_root`` says that the role is held in root, where administrators administer the instance too.
    """
    found = roles_of(settings).get(role)
    if found is None:
        return frozenset()
    permissions = frozenset(found.permissions) - frozenset(ROOT_ONLY)
    if is_root:
        permissions |= ROOT_EXTRAS.get(role, frozenset())
    if settings.get("user_permissions", {}).get("members_can_register_clients"):
        permissions |= REGISTERING_MEMBER
    return permissions


def permissions_of_roles(
    roles: Iterable[str], settings: Mapping[str, Any], *, is_root: bool = False
) -> frozenset[str]:
    """What somebody with these roles may do; whoever has none is a member."""
    held: frozenset[str] = permissions_of(MEMBER, settings, is_root=is_root)
    for role in roles:
        held |= permissions_of(role, settings, is_root=is_root)
    return held
