"""The organization that a path names."""

from __future__ import annotations

from typing import Any

from flask import g

from app.operations.directory import lookups


def take_organization(_endpoint: str | None, values: dict[str, Any] | None) -> None:
    """The slug leaves the view's arguments: the same views stand with and without one."""
    g.organization_slug = values.pop("organization", None) if values else None


def use_organization_of_path() -> None:
    """Views under ``/organizations/{id}/oauth`` know only that organization's clients (MX-3)."""
    slug = g.organization_slug
    g.organization_id = lookups.get_organization_by_slug(slug, fresh=False).id if slug is not None else None
