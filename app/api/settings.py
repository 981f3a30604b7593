"""Settings of an organization: read as a whole, changed in part."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from flask import Response, request

from app.api import representations
from app.api.blueprint import api
from app.operations.directory.lookups import get_organization_by_slug
from app.operations.organizations import branding, settings
from app.operations.organizations.settings import SettingsRecord, UpdatedSettings
from app.web.bearer import Call, asked_again, management
from app.web.etag import etag_of, expected_version
from app.web.json_api import UnsupportedMediaType, envelope, read_object
from app.web.parameters import flag
from app.web.uploads import place_to_upload, read_body

IMAGES = ("image/png", "image/jpeg", "image/webp")


@api.get("/organizations/<slug>/settings")
@management(names_organization=False)
def get_settings(call: Call, slug: str) -> Response:
    """The effective document; ``meta`` says what the organization set itself."""
    return _answer(settings.get_settings(call.actor, slug))


@api.put("/organizations/<slug>/settings")
@management("dry_run", names_organization=False)
def update_settings(call: Call, slug: str) -> Response:
    """The fields sent hold from now on; with ``dry_run=true`` the answer says what would follow."""
    updated = settings.update_settings(
        call.actor,
        slug,
        read_object(),
        expected_version=expected_version(),
        dry_run=flag(call.parameters, "dry_run"),
    )
    return _answer(updated.settings, updated)


@api.put("/organizations/<slug>/logo")
@management(names_organization=False)
def set_logo(call: Call, slug: str) -> Response:
    """The image of the body stands on the organization's pages."""
    version = expected_version()
    branding.require_logo_permission(call.actor, slug)
    if request.mimetype not in IMAGES:
        raise UnsupportedMediaType(f"Send the image itself, as {', '.join(IMAGES)}.")
    with place_to_upload(get_organization_by_slug(slug).id):
        content = read_body(branding.MAX_LOGO_BYTES)
        actor = asked_again(call).actor
        updated = branding.set_logo(actor, slug, content, expected_version=version)
    return _answer(updated.settings, updated)


@api.delete("/organizations/<slug>/logo")
@management(names_organization=False)
def remove_logo(call: Call, slug: str) -> Response:
    """The organization's initials stand there again."""
    updated = branding.remove_logo(call.actor, slug, expected_version=expected_version())
    return _answer(updated.settings, updated)


def _answer(view: SettingsRecord, updated: UpdatedSettings | None = None) -> Response:
    meta: dict[str, Any] = {
        "version": view.version,
        "updated_at": representations.time(view.updated_at),
        "updated_by": view.updated_by,
        "overridden": list(view.overridden),
        "limited": list(view.limited),
        "limits": view.limits,
    }
    if updated is not None:
        meta["changed"] = list(updated.changed)
        if updated.warnings:
            meta["warnings"] = list(updated.warnings)
    if updated is not None and updated.impact is not None:
        meta["impact"] = asdict(updated.impact)
    return envelope(view.document, meta=meta, headers={"ETag": etag_of(view.version)})
