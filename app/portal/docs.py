"""Docs: guides with the organization's values, and the causes of failed requests with their fixes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from urllib.parse import urlsplit

from flask import abort
from markupsafe import Markup, escape
from msgspec import Struct

from app.config import ROOT
from app.portal.context import PageResponse, PortalContext, portal_page, search_query
from app.portal.markdown import title_of, to_html
from app.rules.audit.failed_requests import CAUSES, Explanation
from app.rules.errors import Forbidden
from app.web.languages import lazy_gettext, page_language, translate

# The name in the URL and the file below docs, by group. Links between them work here and in the repository.
GUIDES: Mapping[str, Mapping[str, str]] = {
    lazy_gettext("Guides"): {
        "first-client": "guides/first-client.md",
        "protect-an-api": "guides/protect-an-api.md",
        "devices": "guides/devices.md",
        "mcp-server": "guides/mcp-server.md",
        "identity-providers": "guides/identity-providers.md",
        "provisioning": "guides/provisioning.md",
        "migrate": "guides/migrate.md",
        "rotate-a-secret": "guides/rotate-a-secret.md",
        "revoke": "guides/revoke.md",
        "audit-log": "guides/audit-log.md",
        "production": "guides/production.md",
    },
    lazy_gettext("Reference"): {
        "clients": "clients.md",
        "claims": "claims.md",
        "webhooks": "webhooks.md",
        "import": "import.md",
        "leak-reports": "leak-reports.md",
    },
}
_PATHS = {name: path for group in GUIDES.values() for name, path in group.items()}
_NAMES = {path: name for name, path in _PATHS.items()}
_MAX_FOUND = 8
# The placeholder for the organization in the files.
_BASE_URL = "https://id.example.com"
# How the guides name the organization: in paths, query parameters and options of commands.
_ORGANIZATION = ("organizations/", "organization_id=", "--organization ")
# The placeholder for the path of these pages in rendered links.
_DOCS_URL = "/portal/{organization}/docs"


class Found(Struct, frozen=True):
    """A page of the docs that matches a search: its title, the path below the organization's, and a line."""

    title: str
    path: str
    snippet: str


def require_reader(context: PortalContext) -> None:
    """Raise Forbidden for a user who can open nothing else in the portal of this organization."""
    if not context.actor.permissions:
        raise Forbidden(lazy_gettext("The portal is for people with a role in this organization."))


@portal_page("/docs", "GET")
def docs(context: PortalContext) -> PageResponse:
    """List the guides, or with ``q`` everything that matches."""
    require_reader(context)
    query = search_query()
    return context.render(
        "portal/docs/index.html",
        groups={
            title: [(name, *_summary(path)) for name, path in group.items()]
            for title, group in GUIDES.items()
        },
        query=query,
        found=search_docs(query) if query else None,
    )


@portal_page("/docs/errors", "GET")
def docs_errors(context: PortalContext) -> PageResponse:
    """List the causes of failed requests, all or those that match ``q``."""
    require_reader(context)
    query = search_query()
    return context.render("portal/docs/errors.html", causes=_matching_causes(query), query=query)


@portal_page("/docs/<guide>", "GET")
def docs_guide(context: PortalContext, guide: str) -> PageResponse:
    """Show a guide with the values of the organization."""
    require_reader(context)
    if guide not in _PATHS:
        abort(404)
    organization = context.organization
    text = _html(guide, page_language())
    for placeholder, value in (
        (_BASE_URL, organization.base_url),
        *((f"{name}acme", f"{name}{organization.slug}") for name in _ORGANIZATION),
        (_DOCS_URL, context.url("/docs")),
    ):
        text = text.replace(placeholder, escape(value))
    return context.render(
        "portal/docs/guide.html",
        title=title_of(_source(_PATHS[guide])),
        guide=guide,
        text=text,
        groups={
            title: [(name, title_of(_source(path))) for name, path in group.items()]
            for title, group in GUIDES.items()
        },
    )


# Further parts of the docs that can be searched, such as the API reference.
SEARCHES: list[Callable[[str], list[Found]]] = []


def search_docs(query: str) -> list[Found]:
    """Return the first guides, causes of failed requests and API operations that contain every word of the query."""
    words = query.casefold().split()
    if not words:
        return []
    found = [
        Found(title, f"/docs/{name}", summary)
        for name, path in _PATHS.items()
        for title, summary in [_summary(path)]
        if matches(words, f"{title} {summary} {name}")
    ]
    found += [
        Found(cause, f"/docs/errors#{cause}", translate(explanation.what))
        for cause, explanation in _matching_causes(query).items()
    ]
    for search in SEARCHES:
        found += search(query)
    # Titles first; the order is kept otherwise.
    return sorted(found, key=lambda one: not matches(words, one.title))[:_MAX_FOUND]


def _matching_causes(query: str) -> dict[str, Explanation]:
    words = query.casefold().split()
    return {
        cause: explanation
        for cause, explanation in CAUSES.items()
        if matches(
            words,
            f"{cause} {cause.replace('_', ' ')} {translate(explanation.what)} {translate(explanation.fix)}",
        )
    }


def matches(words: list[str], text: str) -> bool:
    """Return whether the text contains every word, which are folded."""
    folded = text.casefold()
    return all(word in folded for word in words)


@functools.cache
def _source(path: str) -> str:
    return (ROOT / "docs" / path).read_text(encoding="utf-8")


@functools.cache
def _summary(path: str) -> tuple[str, str]:
    """Return the title and the first sentence as plain text."""
    text = _source(path)
    paragraph = to_html(text.split("\n\n")[1], link=lambda target: None).striptags()
    first, _, _ = paragraph.partition(". ")
    return title_of(text), first.rstrip(".:") + "."


@functools.cache
def _html(guide: str, _language: str) -> Markup:
    """Render the guide with its placeholders, once for all organizations.

    Its buttons are in the page's language, which is part of the cache's key.
    """
    # The title is the page's.
    body = _source(_PATHS[guide]).partition("\n")[2]
    return to_html(body, link=functools.partial(_link, PurePosixPath(_PATHS[guide]).parent, _DOCS_URL))


def _link(folder: PurePosixPath, docs_url: str, target: str) -> str | None:
    """Return where a link of a file below ``folder`` leads in the portal; None to a file that is not shown here."""
    parts = urlsplit(target)
    if parts.scheme or not parts.path:
        return target
    path: list[str] = []
    for part in (folder / parts.path).parts:
        if part == ".." and path:
            path.pop()
        else:
            path.append(part)
    name = _NAMES.get("/".join(path)) or _SHOWN_ELSEWHERE.get("/".join(path))
    if name is None:
        return None
    return f"{docs_url}/{name}" + (f"#{parts.fragment}" if parts.fragment else "")


# Pages that replace a file of the repository.
_SHOWN_ELSEWHERE: Mapping[str, str] = {"../app/rules/audit/failed_requests.py": "errors"}
