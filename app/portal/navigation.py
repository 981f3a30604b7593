"""The navigation of the portal: the sidebar, and the topics beside every settings page."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct

from app.operations.directory.snapshots import OrganizationSnapshot
from app.portal.setting_texts import TOPICS
from app.rules.actor import Actor
from app.rules.organizations.settings import value_at
from app.rules.organizations.settings_table import SETTINGS
from app.web.languages import lazy_gettext


class NavigationEntry(Struct, frozen=True):
    """One link of the sidebar; ``count`` is shown beside it if something waits there."""

    label: str
    url: str
    icon: str
    current: bool
    count: str | None = None


_NO_COUNTS: Mapping[str, str] = {}
NavigationGroup = tuple[str | None, list[NavigationEntry]]
# Title of a group, and its pages: label, path below the organization's, icon, the permission that opens it.
_Groups = tuple[tuple[str, tuple[tuple[str, str, str, str], ...]], ...]
_SIDEBAR: _Groups = (
    (
        lazy_gettext("Build"),
        (
            (lazy_gettext("Home"), "", "home", "organization:read"),
            (lazy_gettext("Clients"), "/clients", "apps", "clients:read"),
            (lazy_gettext("APIs and scopes"), "/apis", "server", "resources:read"),
            (lazy_gettext("Playground"), "/playground", "play", "clients:write"),
            (lazy_gettext("Token inspector"), "/inspect", "eye", "tokens:read"),
            (lazy_gettext("Docs"), "/docs", "book", "clients:read"),
        ),
    ),
    (
        lazy_gettext("Observe"),
        (
            (lazy_gettext("Requests"), "/logs", "pulse", "logs:read"),
            (lazy_gettext("Audit log"), "/audit", "rows", "audit:read"),
            (lazy_gettext("Webhooks"), "/webhooks", "hooks", "webhooks:read"),
        ),
    ),
    (
        lazy_gettext("People"),
        (
            (lazy_gettext("Users"), "/users", "person", "users:read"),
            (lazy_gettext("Team and roles"), "/administrators", "people", "admins:read"),
            (lazy_gettext("Identity providers"), "/identity-providers", "key", "settings:read"),
        ),
    ),
)
_INSTANCE: _Groups = (
    (
        lazy_gettext("Instance"),
        (
            (lazy_gettext("Organizations"), "/organizations", "building", "organizations:read"),
            (lazy_gettext("Instance limits"), "/instance-limits", "shield", "instance:read"),
        ),
    ),
)
# Pages that belong to another page's entry although their path is elsewhere.
_RELATED_PATHS = {
    "/clients": ("/client-requests",),
    "/users": ("/registrations", "/groups"),
    "/apis": ("/scopes", "/access-requests"),
    "/settings": ("/revocations", "/registration-tokens"),
}


def _topic_entry(key: str) -> tuple[str, str, str, str]:
    return TOPICS[key].title, f"/settings/{key}", TOPICS[key].icon, "settings:read"


_SETTINGS: _Groups = (
    (
        lazy_gettext("Organization"),
        (
            (lazy_gettext("General"), "/settings/general", "building", "organization:read"),
            *map(_topic_entry, ("branding", "limits", "audit")),
        ),
    ),
    (
        lazy_gettext("People"),
        (
            *map(_topic_entry, ("registration", "sign-in", "mfa", "sessions")),
            (lazy_gettext("User attributes"), "/settings/attributes", "people", "settings:read"),
            (lazy_gettext("Roles and permissions"), "/settings/permissions", "person", "roles:read"),
        ),
    ),
    (
        lazy_gettext("Clients"),
        (
            *map(_topic_entry, ("tokens", "clients", "self-registration")),
            (lazy_gettext("Initial access tokens"), "/registration-tokens", "key", "clients:read"),
            (lazy_gettext("Signing keys"), "/settings/keys", "key", "settings:read"),
            (lazy_gettext("Revocations"), "/revocations", "warning", "tokens:read"),
        ),
    ),
)
_INSTANCE_SETTINGS: _Groups = (
    (
        lazy_gettext("Instance"),
        ((lazy_gettext("Instance limits"), "/instance-limits", "shield", "instance:read"),),
    ),
)


def navigation(
    organization: OrganizationSnapshot, actor: Actor, path: str, *, counts: Mapping[str, str] = _NO_COUNTS
) -> list[NavigationGroup]:
    """Return the groups of entries that the actor may open; the one of the page at ``path`` is current.

    ``counts`` are shown beside the entries of these paths.
    """
    base = f"/portal/{organization.slug}"

    def entry(label: str, page: str, icon: str) -> NavigationEntry:
        return NavigationEntry(label, f"{base}{page}", icon, _is_current(path, base, page), counts.get(page))

    groups = (_INSTANCE if organization.is_root else ()) + _SIDEBAR
    found = _entries(groups, actor.has_permission_for_own, entry)
    topics = (permission for _, pages in _settings(organization) for *_, permission in pages)
    if any(map(actor.has_permission, topics)):
        found.append((None, [entry(lazy_gettext("Settings"), "/settings", "settings")]))
    return found


def settings_navigation(
    organization: OrganizationSnapshot, may: Callable[[str], bool], path: str
) -> list[NavigationGroup]:
    """Return the topics that the actor may open, with the number of settings that differ from the default."""

    def entry(label: str, page: str, icon: str) -> NavigationEntry:
        topic = TOPICS.get(page.removeprefix("/settings/"))
        paths = topic.paths if topic else ()
        changed = sum(value_at(organization.settings, name) != SETTINGS[name].default for name in paths)
        url = f"/portal/{organization.slug}{page}"
        current = f"{path}/".startswith(f"{url}/")
        return NavigationEntry(label, url, icon, current, str(changed) if changed else None)

    return _entries(_settings(organization), may, entry)


def first_page(organization: OrganizationSnapshot, actor: Actor) -> str | None:
    """Return the URL of the first page after Home that the actor may open."""
    entries = (entry for _, group in navigation(organization, actor, "") for entry in group)
    home = f"/portal/{organization.slug}"
    return next((entry.url for entry in entries if entry.url != home), None)


def _is_current(path: str, base: str, page: str) -> bool:
    if not page:
        return path == base
    return any(
        path == f"{base}{related}" or path.startswith(f"{base}{related}/")
        for related in (page, *_RELATED_PATHS.get(page, ()))
    )


def _settings(organization: OrganizationSnapshot) -> _Groups:
    return _SETTINGS + (_INSTANCE_SETTINGS if organization.is_root else ())


def _entries(
    groups: _Groups, may: Callable[[str], bool], entry: Callable[[str, str, str], NavigationEntry]
) -> list[NavigationGroup]:
    found = (
        (title, [entry(*page) for *page, permission in pages if may(permission)]) for title, pages in groups
    )
    return [(title, entries) for title, entries in found if entries]
