"""Logos of organizations: uploaded, converted to a small PNG, and served by this server (PO-2).

The setting ``branding.logo`` holds the path, so that pages get it with the settings that they read anyway. The last
part of the path is a digest of the content, so that browsers may cache it forever.
"""

from __future__ import annotations

import hashlib

from sqlalchemy import bindparam, select

from app.extensions import db
from app.fast_path.compiled_query import CompiledQuery
from app.models.client import OrganizationLogo
from app.operations.directory.lookups import get_organization_by_id
from app.operations.directory.snapshots import OrganizationSnapshot
from app.operations.organizations.settings import LOGO, UpdatedSettings, store_settings
from app.operations.sign_in.actor_access import enter_organization
from app.operations.store import clock
from app.operations.store.transactions import transaction
from app.rules.actor import Actor
from app.rules.clients.logos import InvalidImage, render_logo
from app.rules.errors import InvalidInput, NotFound
from app.rules.identifiers import new_id
from app.rules.languages.translation import lazy_gettext
from app.rules.versions import ExpectedVersion

MAX_LOGO_BYTES = 1024 * 1024
LOGO_FORMATS = ("PNG", "JPEG", "WEBP")
_HEX = frozenset("0123456789abcdef")
_PICTURE = CompiledQuery(
    select(OrganizationLogo.picture).where(
        OrganizationLogo.organization_id == bindparam("organization_id"),
        OrganizationLogo.digest == bindparam("digest"),
    )
)


def require_logo_permission(actor: Actor, slug: str) -> None:
    """Raise unless the actor may set a logo. Checked before an image is read. Raises NotFound, Forbidden."""
    enter_organization(actor, slug, "settings:write")


def set_logo(
    actor: Actor, slug: str, content: bytes, *, expected_version: ExpectedVersion = None
) -> UpdatedSettings:
    """Set the logo of the organization and delete the previous one.

    Raises InvalidInput unless it is a PNG, JPEG or WebP within the limits, PreconditionFailed, Forbidden, NotFound.
    Audit: ``settings.updated`` with the path before and after.
    """
    inside, organization = enter_organization(actor, slug, "settings:write")
    # Decode the image before the transaction, because it takes too long for one.
    try:
        picture = render_logo(content, formats=LOGO_FORMATS, max_bytes=MAX_LOGO_BYTES)
    except InvalidImage as error:
        raise InvalidInput(
            lazy_gettext(
                "This image cannot be used: %(problem)s. Send a PNG, JPEG or WebP of at most 1 MiB and four million"
                " pixels.",
                problem=error,
            ),
            field="logo",
            code="invalid_image",
        ) from error
    return _store(inside, organization, picture, expected_version)


@transaction
def remove_logo(actor: Actor, slug: str, *, expected_version: ExpectedVersion = None) -> UpdatedSettings:
    """Remove the logo, so that pages show initials instead. Same as setting ``branding.logo`` to null."""
    inside, organization = enter_organization(actor, slug, "settings:write")
    return store_settings(
        inside, organization, {"branding": {"logo": None}}, expected_version=expected_version
    )


def get_logo_picture(organization_id: str, digest: str) -> bytes:
    """Return the PNG with this digest. Raises NotFound."""
    row = None
    if len(digest) == 64 and set(digest) <= _HEX:
        get_organization_by_id(organization_id, fresh=False)
        row = _PICTURE.first(organization_id=organization_id, digest=bytes.fromhex(digest))
    if row is None:
        raise NotFound("There is no such image.")
    return bytes(row.picture)


@transaction
def _store(
    actor: Actor, organization: OrganizationSnapshot, picture: bytes, expected_version: ExpectedVersion
) -> UpdatedSettings:
    digest = hashlib.sha256(picture).digest()
    path = f"/logos/organizations/{organization.id}/{digest.hex()}.png"
    updated = store_settings(
        actor,
        organization,
        {"branding": {"logo": path}},
        expected_version=expected_version,
        server_managed=frozenset({LOGO}),
    )
    if updated.changed:
        # Storing the setting has deleted the previous image.
        db.session.add(
            OrganizationLogo(
                organization_id=organization.id,
                id=new_id(),
                digest=digest,
                picture=picture,
                created_at=clock.now(),
            )
        )
    return updated
