"""What is told of an invitation."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import ColumnElement, and_

from app.models.user import Invitation
from app.operations import clock
from app.operations.directory import OrganizationView
from app.rules.errors import Conflict
from app.rules.identifiers import public_id
from app.rules.tenancy.lifetimes import end_of_life
from app.rules.versions import version_of


class InvitationEnded(Conflict):
    """It was used, withdrawn or has expired."""

    code = "invitation_ended"


@dataclass(frozen=True, slots=True)
class InvitationView:
    """An invitation, without its token."""

    id: UUID
    organization_id: str
    organization_slug: str
    organization_name: str
    email: str
    name: str
    role: str
    created_at: datetime
    created_by: str | None
    expires_at: datetime
    is_mailed: bool

    @property
    def public_id(self) -> str:
        """``inv_…``."""
        return public_id("inv", self.id)

    @property
    def version(self) -> int:
        """Another number once anything of it is another."""
        return version_of(self.id, self.email, self.name, self.role, self.expires_at)


@dataclass(frozen=True, slots=True)
class NewInvitation:
    """An invitation just made; ``link`` holds its token and is shown this once, or None when it went by mail."""

    invitation: InvitationView
    link: str | None


def life_seconds(organization: OrganizationView) -> int:
    """How long an invitation can be accepted, as the organization's settings are now."""
    seconds: int = organization.settings["authentication"]["registration"]["invitation_ttl_seconds"]
    return seconds


def open_invitations(organization: OrganizationView) -> ColumnElement[bool]:
    """Those of the organization that can be accepted now."""
    now = clock.now()
    return and_(
        Invitation.organization_id == organization.id,
        Invitation.used_at.is_(None),
        Invitation.revoked_at.is_(None),
        Invitation.expires_at > now,
        Invitation.created_at > now - timedelta(seconds=life_seconds(organization)),
    )


def view_of(row: Invitation, organization: OrganizationView) -> InvitationView:
    """The invitation of a row."""
    return InvitationView(
        id=row.id,
        organization_id=organization.id,
        organization_slug=organization.slug,
        organization_name=organization.name,
        email=row.email,
        name=row.name,
        role=row.role,
        created_at=row.created_at,
        created_by=row.created_by,
        expires_at=end_of_life(row.expires_at, row.created_at, life_seconds(organization)),
        is_mailed=row.is_mailed,
    )
