"""Logos of clients and organizations, as this service made them anew."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ForeignKeyConstraint, LargeBinary, UniqueConstraint
from sqlalchemy.dialects import mysql
from sqlalchemy.orm import Mapped, mapped_column

from app.models.base import Base, Digest, Tenant, UtcDateTime, owned_by_organization

_PICTURE = LargeBinary().with_variant(mysql.MEDIUMBLOB(), "mysql", "mariadb")


class ClientLogo(Tenant, Base):
    """The picture behind a client's ``logo_uri``; ``id`` is the client's."""

    __tablename__ = "client_logos"
    __table_args__ = (
        ForeignKeyConstraint(
            ["organization_id", "id"],
            ["clients.organization_id", "clients.id"],
            name="fk_client_logos_client",
        ),
        owned_by_organization("client_logos"),
        Base.__table_args__,
    )

    source_digest: Mapped[bytes] = mapped_column(Digest, comment="of the logo_uri it was fetched from")
    digest: Mapped[bytes] = mapped_column(Digest, comment="of the picture: its name on our pages")
    picture: Mapped[bytes] = mapped_column(
        _PICTURE,
        comment="PNG that we made, at most 256x256",
    )
    fetched_at: Mapped[datetime] = mapped_column(UtcDateTime)


class OrganizationLogo(Tenant, Base):
    """The picture that the organization's ``branding.logo`` names; there is one row while the setting stands."""

    __tablename__ = "organization_logos"
    __table_args__ = (
        UniqueConstraint("organization_id", "digest"),
        owned_by_organization("organization_logos"),
        Base.__table_args__,
    )

    digest: Mapped[bytes] = mapped_column(Digest, comment="of the picture: its name on our pages")
    picture: Mapped[bytes] = mapped_column(_PICTURE, comment="PNG that we made, at most 256x256")
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
