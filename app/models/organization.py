"""Organizations (tenants) and the instance limits. The row of an organization remains forever and reserves its slug."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from app.models.base import Base, Identifier, Sealed
from app.rules.identifiers import ROUTING_KEY_LENGTH

ACTIVE, SUSPENDED, DELETED, PURGED = "active", "suspended", "deleted", "purged"


class InstanceLimits(Base):
    """The limits on settings of all organizations: one row, or none if nothing is limited."""

    __tablename__ = "settings_ceilings"

    name: Mapped[str] = mapped_column(
        Identifier(16), primary_key=True, comment="key of the only row: instance"
    )
    bounds: Mapped[dict[str, Any]] = mapped_column(comment="by path: min, max, allowed")
    version: Mapped[int] = mapped_column(default=1)
    updated_at: Mapped[datetime]
    updated_by: Mapped[str | None] = mapped_column(String(200))
    factor_demanded_at: Mapped[datetime | None] = mapped_column(
        comment="since when an instance limit requires second factors"
    )


class Organization(Base):
    """One tenant. ``id`` is its routing key, ``slug`` its id in the API."""

    __tablename__ = "organizations"
    __table_args__ = (UniqueConstraint("slug"),)

    id: Mapped[str] = mapped_column(
        Identifier(ROUTING_KEY_LENGTH), primary_key=True, comment="routing key, in every token"
    )
    slug: Mapped[str] = mapped_column(Identifier(40), comment="immutable, never reused")
    name: Mapped[str] = mapped_column(String(200))
    is_root: Mapped[bool] = mapped_column(default=False)
    status: Mapped[str] = mapped_column(
        Identifier(16), default=ACTIVE, comment="active, suspended, deleted, purged"
    )
    version: Mapped[int] = mapped_column(
        default=1, comment="incremented by each change that invalidates cached snapshots"
    )
    settings: Mapped[dict[str, Any]] = mapped_column(
        default=dict, comment="only settings that differ from the defaults"
    )
    settings_version: Mapped[int] = mapped_column(default=1)
    settings_updated_at: Mapped[datetime | None]
    settings_updated_by: Mapped[str | None] = mapped_column(String(200))
    data_key: Mapped[bytes | None] = mapped_column(
        Sealed, comment="data key, wrapped with the master key; NULL after the purge"
    )
    created_at: Mapped[datetime]
    created_by: Mapped[str | None] = mapped_column(String(200))
    updated_at: Mapped[datetime]
    tokens_valid_from: Mapped[datetime | None] = mapped_column(
        comment="when it was restored: tokens and sessions from before are revoked"
    )
    tokens_not_before: Mapped[datetime | None] = mapped_column(
        comment="what was issued before is revoked; a revocation only moves it forward"
    )
    sessions_not_before: Mapped[datetime | None] = mapped_column(
        comment="sessions from before are revoked; a revocation only moves it forward"
    )
    restored_at: Mapped[datetime | None] = mapped_column(
        comment="when the database was restored from a backup: links, codes and requests from before are invalid"
    )
    secrets_not_before: Mapped[datetime | None] = mapped_column(
        comment="client secrets created before are blocked until they are confirmed"
    )
    passwords_not_before: Mapped[datetime | None] = mapped_column(
        comment="passwords set before must be reset"
    )
    factor_demanded_at: Mapped[datetime | None] = mapped_column(
        comment="since when the policy requires a second factor of all users"
    )
    admins_factor_demanded_at: Mapped[datetime | None] = mapped_column(
        comment="since when it requires one of administrators"
    )
    moving_until: Mapped[datetime | None] = mapped_column(
        comment="end of the pause while it is being moved: requests get 503"
    )
    moved_to: Mapped[str | None] = mapped_column(Identifier(64), comment="the cell that serves it now")
    deleted_at: Mapped[datetime | None]
    purge_at: Mapped[datetime | None] = mapped_column(index=True, comment="when the janitor removes its data")
