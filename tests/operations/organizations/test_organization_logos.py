"""Logos of organizations: uploaded, converted, and never loaded from a URL (PO-2)."""

from __future__ import annotations

import functools
import io
import re

import pytest
from flask import Flask
from PIL import Image

from app.operations.directory import lookups
from app.operations.organizations import branding, organizations, settings
from app.rules.errors import Forbidden, InvalidInput, NotFound, PreconditionFailed
from app.rules.organizations.settings_table import LOGO_PATH
from tests.factories import Factory
from tests.support.cases import each
from tests.support.databases import Database
from tests.support.pictures import PNG, SVG, bomb, picture
from tests.support.threads import at_once

HOSTILE = {
    "a bomb": bomb(),
    "more pixels than are unpacked": bomb(2049, 2049),
    "a program": SVG,
    "a GIF": picture(kind="GIF"),
    "a TIFF": picture(kind="TIFF"),
    "half a picture": PNG[: len(PNG) // 2],
    "nothing": b"",
    "too many bytes": PNG + b"\0" * branding.MAX_LOGO_BYTES,
    "a page that begins as a picture": PNG[:8] + b"<script>alert(1)</script>",
}


def named(address: str) -> tuple[str, str]:
    organization_id, name = address.removeprefix("/logos/organizations/").split("/")
    return organization_id, name.removesuffix(".png")


def set_here(make: Factory, organization: lookups.OrganizationSnapshot, content: bytes = PNG) -> str:
    updated = branding.set_logo(make.actor(organization), organization.slug, content)
    return str(updated.settings.document["branding"]["logo"])


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
def test_uploaded_logo_is_converted_and_setting_is_its_path(
    context: Flask, make: Factory, database: Database, kind: str
) -> None:
    acme = make.organization()
    sent = picture(size=(1000, 500), kind=kind)
    updated = branding.set_logo(make.actor(acme), acme.slug, sent)
    address = updated.settings.document["branding"]["logo"]
    assert updated.changed == ("branding.logo",) and updated.warnings == ()
    kept = branding.get_logo_picture(*named(address))
    with Image.open(io.BytesIO(kept)) as image:
        assert (image.format, image.size) == ("PNG", (256, 128))
    assert kept != sent
    assert [after for (after,) in database.query("SELECT after FROM audit_events") if address in str(after)]
    assert lookups.get_organization_by_id(acme.id).settings["branding"]["logo"] == address


@each("what", HOSTILE)
def test_invalid_image_changes_nothing(context: Flask, make: Factory, database: Database, what: str) -> None:
    acme = make.organization()
    with pytest.raises(InvalidInput) as refused:
        branding.set_logo(make.actor(acme), acme.slug, HOSTILE[what])
    [error] = refused.value.errors
    assert (error.field, error.code) == ("logo", "invalid_image")
    assert database.count("organization_logos") == 0
    assert "settings.updated" not in str(database.query("SELECT action FROM audit_events"))


def test_new_logo_replaces_the_old_one(context: Flask, make: Factory, database: Database) -> None:
    acme = make.organization()
    first = set_here(make, acme)
    assert branding.set_logo(make.actor(acme), acme.slug, PNG).changed == ()
    second = set_here(make, acme, picture((0, 0, 200)))
    assert first != second and database.count("organization_logos") == 1
    with pytest.raises(NotFound):
        branding.get_logo_picture(*named(first))


@pytest.mark.parametrize("by", ["its own operation", "the settings"])
def test_null_deletes_the_logo(context: Flask, make: Factory, database: Database, by: str) -> None:
    acme = make.organization()
    address, admin = set_here(make, acme), make.actor(acme)
    if by == "the settings":
        gone = settings.update_settings(admin, acme.slug, {"branding": {"logo": None}})
    else:
        gone = branding.remove_logo(admin, acme.slug)
    assert gone.settings.document["branding"]["logo"] is None
    assert database.count("organization_logos") == 0
    with pytest.raises(NotFound):
        branding.get_logo_picture(*named(address))


def test_logo_setting_accepts_only_its_current_value(context: Flask, make: Factory) -> None:
    """SF-1: an external URL is never requested or shown."""
    acme, globex = make.organization(), make.organization()
    set_here(make, acme)
    theirs = set_here(make, globex, picture((0, 0, 200)))
    admin = make.actor(acme)
    for address in ("https://evil.example/logo.png", "/static/icon.svg", theirs, 5, ""):
        with pytest.raises(InvalidInput) as refused:
            settings.update_settings(admin, acme.slug, {"branding": {"logo": address}})
        [error] = refused.value.errors
        assert (error.field, error.code) == ("branding.logo", "read_only")
    whole = settings.get_settings(admin, acme.slug).document
    assert settings.update_settings(admin, acme.slug, dict(whole)).changed == ()


def test_logo_requires_settings_write(context: Flask, make: Factory, database: Database) -> None:
    acme, globex = make.organization(), make.organization()
    with pytest.raises(Forbidden):
        branding.set_logo(make.actor(acme, "settings:read"), acme.slug, PNG)
    with pytest.raises(Forbidden):
        branding.remove_logo(make.actor(acme, "settings:read"), acme.slug)
    with pytest.raises(NotFound):
        branding.set_logo(make.actor(globex), acme.slug, PNG)
    with pytest.raises(PreconditionFailed):
        branding.set_logo(make.actor(acme), acme.slug, PNG, expected_version=7)
    assert database.count("organization_logos") == 0


def test_logo_of_a_deleted_organization_is_not_found(context: Flask, make: Factory) -> None:
    root, acme = make.root(), make.organization()
    address = set_here(make, acme)
    organizations.delete_organization(make.actor(root), acme.slug)
    with pytest.raises(NotFound):
        branding.get_logo_picture(*named(address))


@each(
    ("organization_id", "digest"),
    [("nobody", "0" * 64), ("0" * 8, "0" * 64), ("0" * 8, "../../etc"), ("\0" * 8, "é" * 64)],
)
def test_unknown_logo_is_not_found(context: Flask, make: Factory, organization_id: str, digest: str) -> None:
    with pytest.raises(NotFound):
        branding.get_logo_picture(organization_id, digest)


def test_concurrent_uploads_keep_the_logo_of_the_setting(
    app: Flask, make: Factory, database: Database
) -> None:
    acme = make.organization()
    admin = make.actor(acme)
    pictures = [picture((shade, 0, 0)) for shade in range(0, 200, 50)]
    calls = [functools.partial(branding.set_logo, admin, acme.slug, content) for content in pictures]
    assert "UpdatedSettings" in at_once(app, calls)
    with app.app_context():
        address = lookups.get_organization_by_id(acme.id).settings["branding"]["logo"]
        assert database.count("organization_logos") == 1
        assert branding.get_logo_picture(*named(address))


def test_logo_path_matches_its_pattern(context: Flask, make: Factory) -> None:
    assert re.fullmatch(LOGO_PATH, set_here(make, make.organization()))
