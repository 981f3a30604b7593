"""Branding: what an organization's settings give to its pages. Values alone, never its markup."""

from __future__ import annotations

from app.operations.directory import ClientView, OrganizationView
from app.operations.registration.logos import digest_of_logo
from app.rules.identifiers import client_id_of
from app.rules.tenancy.colors import DEFAULT_ACCENT


def branding_of(organization: OrganizationView) -> dict[str, str | None]:
    """The variables ``theme`` and ``accent`` of base.html."""
    branding = organization.settings["branding"]
    accent = str(branding["accent_color"]).lower()
    return {
        "theme": branding["theme"],
        "accent": None if accent == DEFAULT_ACCENT else accent.removeprefix("#"),
    }


def logo_of(client: ClientView) -> str | None:
    """The path of the client's logo on our own origin, or None: then its initials stand there."""
    digest = digest_of_logo(client)
    if digest is None:
        return None
    return f"/logos/{client_id_of(client.organization.id, client.id)}/{digest}.png"
