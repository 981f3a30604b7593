"""The search of the portal: an id redirects to its page, other text finds clients, users, settings, docs and pages."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

from flask import redirect
from msgspec import Struct

from app.operations.clients.client_records import list_clients
from app.operations.store.rows import PageRequest
from app.operations.users.users import get_user_record, list_users
from app.portal.context import PageResponse, PortalContext, portal_page, search_query
from app.portal.docs import matches, require_reader, search_docs
from app.portal.labels import CLIENT_TYPE_LABELS
from app.portal.navigation import navigation
from app.portal.setting_texts import TOPICS
from app.rules.actor import Actor
from app.rules.errors import NotFound
from app.web.languages import gettext

_MAX_RESULTS = 8
# Prefix of an id, the page that it leads to, the permission for that page.
_PAGES_OF_IDS = (
    ("cli_", "/clients/{}", "clients:read"),
    ("usr_", "/users/{}", "users:read"),
    ("evt_", "/audit/{}", "audit:read"),
    ("req_", "/logs?request_id={}", "logs:read"),
    ("flr_", "/logs/{}", "logs:read"),
    ("res_", "/apis/{}", "resources:read"),
    ("idp_", "/identity-providers/{}", "settings:read"),
)


class SearchResult(Struct, frozen=True):
    """One line of the results: its text, a second line, and the path below the organization's."""

    title: str
    detail: str
    path: str


@portal_page("/search", "GET")
def search(context: PortalContext) -> PageResponse:
    """Redirect to the page of an exact id, or list what matches the text by kind, each kind bounded."""
    require_reader(context)
    query = search_query()
    if (path := _page_of_id(context.actor, query)) is not None:
        return redirect(context.url(path), 303)
    kinds = (
        (gettext("Clients"), "apps", f"/clients?q={quote(query)}", _clients),
        (gettext("Users"), "person", f"/users?q={quote(query)}", _users),
        (gettext("Settings"), "settings", None, _settings),
    )
    groups = [
        (title, icon, path, found)
        for title, icon, path, find in kinds
        if query and (found := list(find(context.actor, query)))
    ]
    if docs := [SearchResult(found.title, found.snippet, found.path) for found in search_docs(query)]:
        groups.append((gettext("Docs"), "book", f"/docs?q={quote(query)}", docs))
    if pages := _pages(context, query):
        groups.append((gettext("Pages"), "rows", None, pages))
    return context.render("portal/search.html", groups=groups)


def _page_of_id(actor: Actor, text: str) -> str | None:
    if not text.replace("_", "").isalnum() or not text.isascii():
        return None
    for prefix, path, permission in _PAGES_OF_IDS:
        if text.startswith(prefix) and actor.has_permission_for_own(permission):
            return _path_to_deleted_user(actor, text) or path.format(text)
    return None


def _path_to_deleted_user(actor: Actor, text: str) -> str | None:
    """Return the path to what the audit log knows of a user without a page, whose id is shown where they acted."""
    if not text.startswith("usr_") or not actor.has_permission("audit:read"):
        return None
    try:
        get_user_record(actor, text)
    except NotFound:
        return f"/audit?target={text}"
    return None


def _clients(actor: Actor, query: str) -> Iterator[SearchResult]:
    if actor.has_permission_for_own("clients:read"):
        for client in list_clients(actor, PageRequest(_MAX_RESULTS), query=query).items:
            yield SearchResult(
                client.name, CLIENT_TYPE_LABELS[client.type].title, f"/clients/{client.client_id}"
            )


def _users(actor: Actor, query: str) -> Iterator[SearchResult]:
    if actor.has_permission("users:read"):
        for record in list_users(actor, PageRequest(_MAX_RESULTS), query=query).items:
            user = record.user
            yield SearchResult(user.name or user.email, user.email, f"/users/{user.public_id}")


def _settings(actor: Actor, query: str) -> Iterator[SearchResult]:
    if not actor.has_permission("settings:read"):
        return
    words = query.casefold().split()
    found = 0
    for topic in TOPICS.values():
        for path, label in topic.labels.items():
            if found < _MAX_RESULTS and matches(words, f"{label} {path} {topic.title}"):
                found += 1
                yield SearchResult(label, topic.title, f"/settings/{topic.key}#{path.replace('.', '-')}")


def _pages(context: PortalContext, query: str) -> list[SearchResult]:
    words = query.casefold().split()
    base = context.url()
    return [
        SearchResult(entry.label, title or "", entry.url.removeprefix(base))
        for title, entries in navigation(context.organization, context.actor, "")
        for entry in entries
        if words and matches(words, entry.label)
    ]
