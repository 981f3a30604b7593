"""Settings of an organization: read as a whole, changed in part, versioned, and never so that nobody gets back in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import select, update

from app.extensions import db
from app.models.credential import Credential
from app.models.organization import Organization
from app.models.user import Invitation, RoleAssignment
from app.operations import audit, clock, view_changes
from app.operations.directory import OrganizationView
from app.operations.tenancy.acting import acting_in
from app.operations.tenancy.bounds import standing_bounds
from app.operations.tenancy.callers import caller_of
from app.operations.tenancy.settings_impact import Impact, impact_of
from app.operations.transaction import count_changed, read, transaction
from app.rules.actor import Actor
from app.rules.errors import Conflict, Forbidden, PreconditionFailed
from app.rules.people.permissions import lacking, permissions_of, roles_of
from app.rules.tenancy import ceilings
from app.rules.tenancy import settings as rules
from app.rules.tenancy.lock_out import require_way_back
from app.rules.tenancy.settings_effect import warnings_for

_SECRET_DISPLAY = "oauth.clients.secret_display"


class RoleInUse(Conflict):
    """Somebody holds the role that would be removed, or is invited to it."""

    code = "role_in_use"


@dataclass(frozen=True, slots=True)
class SettingsView:
    """The effective document, and what belongs to it: version, the paths set here, and what values may be.

    ``limited`` are the paths at which a ceiling of the instance keeps it from what it would have.
    """

    organization_slug: str
    document: Mapping[str, Any]
    version: int
    updated_at: datetime | None
    updated_by: str | None
    overridden: tuple[str, ...]
    limited: tuple[str, ...]
    limits: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class UpdatedSettings:
    """The settings after the change, the paths that changed, and for a dry run what would follow."""

    settings: SettingsView
    changed: tuple[str, ...]
    impact: Impact | None = None

    @property
    def warnings(self) -> tuple[str, ...]:
        """What nothing follows from yet, though it was changed."""
        return warnings_for(self.changed)


@read
def get_settings(actor: Actor, slug: str) -> SettingsView:
    """The settings of the organization. Raises NotFound for every one that is not the actor's."""
    inside, organization = acting_in(actor, slug)
    inside.require("settings:read")
    row = _row(organization.id)
    return _view(row, row.settings)


@transaction
def update_settings(
    actor: Actor,
    slug: str,
    partial: Mapping[str, Any],
    *,
    expected_version: int | None = None,
    dry_run: bool = False,
) -> UpdatedSettings:
    """The fields sent hold at once, on every worker; ``null`` returned them to their defaults.

    ``dry_run`` checks all and changes nothing. Where secrets are to be shown ``once`` from now on, the sealed copies
    of all secrets are gone in the same transaction (SE-7). Raises InvalidInput naming every wrong field,
    PreconditionFailed, WouldLockOut, RoleInUse, Forbidden for a role given permissions that the actor lacks. Audit:
    ``settings.updated`` with the changed paths.
    """
    inside, organization = acting_in(actor, slug)
    inside.require("settings:write")
    row = _row(organization.id)
    if expected_version is not None and row.settings_version != expected_version:
        raise PreconditionFailed("The settings were changed since you read them. Read them again.")
    bounds = standing_bounds()
    overrides = rules.merge(row.settings, partial, bounds)
    before, after = rules.effective(row.settings, bounds), rules.effective(overrides, bounds)
    changed = tuple(rules.changed_paths(before, after))
    _require_grantable(inside, organization, before, after)
    _require_unused(organization.id, before, after)
    require_way_back(before, after, caller_of(inside))
    if dry_run:
        return UpdatedSettings(
            _view(row, overrides), changed, impact_of(organization.id, before, after, changed)
        )
    if not changed:
        return UpdatedSettings(_view(row, row.settings), ())
    stored = count_changed(
        update(Organization)
        .where(Organization.id == organization.id, Organization.settings_version == row.settings_version)
        .values(
            settings=overrides,
            settings_version=Organization.settings_version + 1,
            settings_updated_at=clock.now(),
            settings_updated_by=inside.label[:200],
            version=Organization.version + 1,
        )
    )
    if stored != 1:
        refusal = Conflict if expected_version is None else PreconditionFailed
        raise refusal("The settings were changed at the same moment. Read them again.")
    view_changes.mark(organization.id)
    if _SECRET_DISPLAY in changed and rules.value_at(after, _SECRET_DISPLAY) == "once":
        _wipe_sealed_secrets(organization.id)
    audit.record(
        inside,
        "settings.updated",
        target_type="settings",
        target_id=organization.slug,
        before=_values(before, changed),
        after=_values(after, changed),
    )
    row = _row(organization.id)
    return UpdatedSettings(_view(row, row.settings), changed)


def _require_grantable(
    actor: Actor, organization: OrganizationView, before: Mapping[str, Any], after: Mapping[str, Any]
) -> None:
    """No role gains what the actor lacks (TN-11), by its own entry or by what every member gets."""
    if actor.kind == "system":
        return
    for role in roles_of(after):
        gained = permissions_of(role, after) - permissions_of(role, before)
        missing = lacking(actor.permissions, gained)
        if missing:
            raise Forbidden(
                f"The role {role} would gain {missing[0]}, which you do not hold: nobody grants what they lack.",
                permission=missing[0],
            )


def _require_unused(organization_id: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    gone = roles_of(before).keys() - roles_of(after).keys()
    if not gone:
        return
    held = db.session.scalar(
        select(RoleAssignment.role)
        .where(RoleAssignment.organization_id == organization_id, RoleAssignment.role.in_(gone))
        .limit(1)
    )
    if held is not None:
        raise RoleInUse(
            f"Somebody has the role {held}. Give them another one first.", field=f"{rules.ROLES_PATH}.{held}"
        )
    # Else another role made under the same name later would be theirs.
    invited = db.session.scalar(
        select(Invitation.role)
        .where(
            Invitation.organization_id == organization_id,
            Invitation.role.in_(gone),
            Invitation.used_at.is_(None),
            Invitation.revoked_at.is_(None),
            Invitation.expires_at > clock.now(),
        )
        .limit(1)
    )
    if invited is not None:
        raise RoleInUse(
            f"Somebody is invited to the role {invited}. Withdraw the invitation first.",
            field=f"{rules.ROLES_PATH}.{invited}",
        )


def _wipe_sealed_secrets(organization_id: str) -> None:
    count_changed(
        update(Credential)
        .where(Credential.organization_id == organization_id, Credential.sealed.is_not(None))
        .values(sealed=None)
    )


def _values(document: Mapping[str, Any], paths: tuple[str, ...]) -> dict[str, Any]:
    found = {}
    for path in paths:
        try:
            found[path] = rules.value_at(document, path)
        except KeyError:
            found[path] = None
    return found


def _row(organization_id: str) -> Organization:
    return db.session.get_one(Organization, organization_id, populate_existing=True)


def _view(row: Organization, overrides: Mapping[str, Any]) -> SettingsView:
    bounds = standing_bounds()
    return SettingsView(
        organization_slug=row.slug,
        document=rules.effective(overrides, bounds),
        version=row.settings_version,
        updated_at=row.settings_updated_at,
        updated_by=row.settings_updated_by,
        overridden=tuple(rules.overridden(overrides)),
        limited=tuple(rules.limited(overrides, bounds)),
        limits=ceilings.limits(bounds),
    )
