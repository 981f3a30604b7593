"""Branding: what an organization's settings give to its pages. Values alone, never its markup."""

from __future__ import annotations

from app.operations.directory import OrganizationView
from app.rules.tenancy.colors import DEFAULT_ACCENT


def branding_of(organization: OrganizationView) -> dict[str, str | None]:
    """The variables ``theme`` and ``accent`` of base.html."""
    branding = organization.settings["branding"]
    accent = str(branding["accent_color"]).lower()
    return {
        "theme": branding["theme"],
        "accent": None if accent == DEFAULT_ACCENT else accent.removeprefix("#"),
    }
