"""Branding: what an organization's settings give to its pages. Values alone, never its markup."""

from __future__ import annotations

from flask import g, request

from app.operations.clients.logos import find_logo_digest
from app.operations.directory.lookups import (
    ClientSnapshot,
    OrganizationSnapshot,
    get_organization_by_id,
    get_organization_by_slug,
)
from app.rules.errors import DomainError
from app.rules.identifiers import format_client_id, parse_client_id
from app.rules.organizations.branding import DEFAULT_ACCENT


def branding_of(organization: OrganizationSnapshot) -> dict[str, str | None]:
    """The variables ``theme``, ``accent`` and ``brand_logo`` of base.html and the cards on it."""
    branding = organization.settings["branding"]
    accent = str(branding["accent_color"]).lower()
    return {
        "theme": branding["theme"],
        "accent": None if accent == DEFAULT_ACCENT else accent.removeprefix("#"),
        "brand_logo": branding["logo"],
    }


def branding_of_path() -> dict[str, str | None]:
    """The same of the organization that the path names, for pages that say no; nothing where none stands there."""
    slug = getattr(g, "organization_slug", None) or (request.view_args or {}).get("organization")
    try:
        return branding_of(get_organization_by_slug(slug, fresh=False)) if slug else {}
    except DomainError:
        return {}


def branding_of_client(client_id: str | None) -> dict[str, str | None]:
    """The same of the organization that a client's id names, however wrong the rest of its request is."""
    named = parse_client_id(client_id or "")
    try:
        return branding_of(get_organization_by_id(named[0], fresh=False)) if named else branding_of_path()
    except DomainError:
        return {}


def logo_of(client: ClientSnapshot) -> str | None:
    """The path of the client's logo on our own origin, or None: then its initials stand there."""
    digest = find_logo_digest(client)
    if digest is None:
        return None
    return f"/logos/{format_client_id(client.organization.id, client.id)}/{digest}.png"
