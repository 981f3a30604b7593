"""Branding of pages from an organization's settings."""

from __future__ import annotations

from typing import Any

from flask import g, render_template, request

from app.operations.clients.logos import find_logo_digest
from app.operations.directory.lookups import get_organization_by_id, get_organization_by_slug
from app.operations.directory.snapshots import ClientSnapshot, OrganizationSnapshot
from app.rules.errors import DomainError
from app.rules.identifiers import format_client_id, parse_client_id
from app.rules.organizations.branding import DEFAULT_ACCENT


def branding_of(organization: OrganizationSnapshot) -> dict[str, str | None]:
    """Return the variables ``theme``, ``accent`` and ``brand_logo`` of base.html."""
    branding = organization.settings["branding"]
    accent = str(branding["accent_color"]).lower()
    return {
        "theme": branding["theme"],
        "accent": None if accent == DEFAULT_ACCENT else accent.removeprefix("#"),
        "brand_logo": branding["logo"],
    }


def render_branded(template: str, organization: OrganizationSnapshot, **variables: Any) -> str:
    """Render a page of the organization, which the template knows as ``organization``, with its branding."""
    return render_template(template, organization=organization, **branding_of(organization), **variables)


def branding_of_path() -> dict[str, str | None]:
    """Return the branding of the organization in the URL, for error pages; nothing if there is none."""
    slug = getattr(g, "organization_slug", None) or (request.view_args or {}).get("organization")
    try:
        return branding_of(get_organization_by_slug(slug, fresh=False)) if slug else {}
    except DomainError:
        return {}


def branding_of_client(client_id: str | None) -> dict[str, str | None]:
    """Return the branding of the organization in a client ID, even if the rest of the request is invalid."""
    named = parse_client_id(client_id or "")
    try:
        return branding_of(get_organization_by_id(named[0], fresh=False)) if named else branding_of_path()
    except DomainError:
        return {}


def logo_of(client: ClientSnapshot) -> str | None:
    """Return the path of the client's logo on this origin, or None: the page then shows its initials."""
    digest = find_logo_digest(client)
    if digest is None:
        return None
    return f"/logos/{format_client_id(client.organization.id, client.id)}/{digest}.png"
