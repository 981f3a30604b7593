"""Side navigation: the pages of an organization that the visitor may open."""

from __future__ import annotations

from dataclasses import dataclass

from app.operations.directory.lookups import OrganizationSnapshot
from app.rules.actor import Actor


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the navigation."""

    label: str
    url: str
    icon: str
    current: bool


# Label, path below the organization's, icon, the permission that opens it.
_PAGES = (
    ("Overview", "", "home", "organization:read"),
    ("Clients", "/clients", "apps", "clients:read"),
    ("Failed requests", "/logs", "warning", "logs:read"),
    ("Audit log", "/audit", "book", "audit:read"),
    ("APIs and scopes", "/apis", "server", "resources:read"),
    ("Webhooks", "/webhooks", "link", "webhooks:read"),
    ("Users", "/users", "person", "users:read"),
    ("Administrators", "/administrators", "people", "admins:read"),
    ("Settings", "/settings", "settings", "settings:read"),
)
# Pages that stand below another one's entry, though not below its path.
_ELSEWHERE = {
    "/clients": ("/client-requests", "/registration-tokens"),
    "/users": ("/registrations",),
    "/apis": ("/scopes",),
    "/settings": ("/revocations",),
}
_ROOT_PAGES = (
    ("Organizations", "/organizations", "building", "organizations:read"),
    ("Ceilings", "/ceilings", "shield", "instance:read"),
)


def entries(organization: OrganizationSnapshot, actor: Actor, path: str) -> list[Entry]:
    """What stands in the side navigation; the entry of the page at ``path`` is marked."""
    base = f"/portal/{organization.slug}"
    pages = _PAGES + (_ROOT_PAGES if organization.is_root else ())
    return [
        Entry(label, f"{base}{below}", icon, _is_current(path, base, below))
        for label, below, icon, permission in pages
        if actor.has_permission_for_own(permission)
    ]


def _is_current(path: str, base: str, below: str) -> bool:
    if not below:
        return path == base
    return any(
        path == f"{base}{own}" or path.startswith(f"{base}{own}/")
        for own in (below, *_ELSEWHERE.get(below, ()))
    )
