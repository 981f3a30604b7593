"""Instance limits: the range of settings that the root organization allows to all organizations. They apply
immediately.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct
from sqlalchemy import select, update

from app.extensions import db
from app.fast_path import cache_invalidation
from app.models import organization as organization_model
from app.models.organization import InstanceLimits, Organization
from app.operations.directory.lookups import get_root_organization
from app.operations.sign_in.actor_access import can_any_user_sign_in_with_passkey, find_caller
from app.operations.sign_in.usable_identities import any_user_has_usable_identity
from app.operations.store import audit, clock
from app.operations.store.transactions import OutdatedRead, count_changed, read, savepoint, transaction
from app.rules.actor import Actor
from app.rules.errors import Busy, Forbidden
from app.rules.languages.translation import lazy_gettext
from app.rules.organizations import instance_limits as rules
from app.rules.organizations import settings
from app.rules.organizations.lockout_prevention import require_no_lockout
from app.rules.versions import ExpectedVersion, require_version

MAX_ORGANIZATIONS_COUNTED = 20_000
"""Maximum number of organizations that a dry run checks. The result says how many it checked."""
_ROW = "instance"
_MFA = "authentication.mfa.policy"


class InstanceLimitsRecord(Struct, frozen=True):
    """The limits by path of the setting."""

    bounds: rules.Bounds
    version: int
    updated_at: datetime | None
    updated_by: str | None


class InstanceLimitsImpact(Struct, frozen=True):
    """The number of organizations whose value would change, and of those that were checked."""

    organizations_limited: int
    organizations_counted: int


class UpdatedInstanceLimits(Struct, frozen=True):
    """The limits after the change, the changed paths, and the impact of a dry run."""

    limits: InstanceLimitsRecord
    changed: tuple[str, ...]
    impact: InstanceLimitsImpact | None = None


@read
def get_instance_limits(actor: Actor) -> InstanceLimitsRecord:
    """Return the instance limits. Raises Forbidden unless the actor belongs to root."""
    _require_root(actor, "instance:read")
    return _record(_row())


@transaction
def update_instance_limits(
    actor: Actor,
    partial: Mapping[str, Any],
    *,
    expected_version: ExpectedVersion = None,
    dry_run: bool = False,
) -> UpdatedInstanceLimits:
    """Set limits for every organization including root. ``null`` removes a limit.

    An organization that chose a value outside a limit keeps it stored but uses the nearest allowed one. ``dry_run``
    validates, counts the affected organizations and changes nothing. Raises InvalidInput naming every invalid field,
    Forbidden, PreconditionFailed, Conflict, and WouldLockOut if root's own users could not sign in to undo it. Audit:
    ``instance.ceilings_updated`` in root.
    """
    _require_root(actor, "instance:write")
    row = _row()
    before = _record(row)
    require_version(before.version, expected_version)
    bounds = rules.merge_bounds({} if row is None else row.bounds, partial)
    changed = tuple(path for path in rules.BOUNDABLE if before.bounds.get(path) != bounds.get(path))
    root = get_root_organization()
    own = db.session.scalars(select(Organization.settings).where(Organization.id == root.id)).one()
    require_no_lockout(
        settings.effective_settings(own, before.bounds),
        settings.effective_settings(own, bounds),
        find_caller(actor),
        any_user_has_passkey=can_any_user_sign_in_with_passkey(root.id),
        any_user_has_identity=any_user_has_usable_identity(root.id),
    )
    if dry_run:
        after = InstanceLimitsRecord(_known(bounds), before.version, before.updated_at, before.updated_by)
        return UpdatedInstanceLimits(after, changed, _impact(before.bounds, bounds, changed))
    if not changed:
        return UpdatedInstanceLimits(before, ())
    _store(actor, row, bounds, _MFA in changed)
    cache_invalidation.invalidate_all(root.id)
    audit.record(
        actor,
        "instance.ceilings_updated",
        "instance",
        "settings-ceilings",
        before={path: before.bounds.get(path) for path in changed},
        after={path: bounds.get(path) for path in changed},
    )
    return UpdatedInstanceLimits(_record(_row()), changed)


def _store(actor: Actor, row: InstanceLimits | None, bounds: dict[str, Any], mfa_changed: bool) -> None:
    now = clock.now()
    values = {"bounds": bounds, "updated_at": now, "updated_by": actor.author}
    if mfa_changed:
        values["factor_demanded_at"] = now if _MFA in bounds else None
    if row is not None:
        stored = count_changed(
            update(InstanceLimits)
            .where(InstanceLimits.name == _ROW, InstanceLimits.version == row.version)
            .values(**values, version=InstanceLimits.version + 1)
        )
        if stored != 1:
            raise _outdated_read()
        return
    with savepoint(on_duplicate=_outdated_read()):
        # Version 1 means that no limits were ever set.
        db.session.add(InstanceLimits(name=_ROW, version=2, **values))


def _impact(before: rules.Bounds, after: rules.Bounds, changed: tuple[str, ...]) -> InstanceLimitsImpact:
    """Count the organizations whose value at one of the changed paths would be different."""
    rows = db.session.scalars(
        select(Organization.settings)
        .where(Organization.status.in_((organization_model.ACTIVE, organization_model.SUSPENDED)))
        .limit(MAX_ORGANIZATIONS_COUNTED)
    ).all()
    touched = sum(
        any(
            rules.effective_value(overrides, path, before) != rules.effective_value(overrides, path, after)
            for path in changed
        )
        for overrides in rows
    )
    return InstanceLimitsImpact(touched, len(rows))


def _require_root(actor: Actor, permission: str) -> None:
    actor.require(permission)
    if actor.kind != "system" and not (actor.is_root and actor.organization_id == actor.home_organization_id):
        raise Forbidden(
            lazy_gettext(
                "You need the permission %(permission)s in the root organization.", permission=permission
            ),
            permission=permission,
        )


def _row() -> InstanceLimits | None:
    return db.session.get(InstanceLimits, _ROW, populate_existing=True)


def _record(row: InstanceLimits | None) -> InstanceLimitsRecord:
    if row is None:
        return InstanceLimitsRecord({}, 1, None, None)
    return InstanceLimitsRecord(_known(row.bounds), row.version, row.updated_at, row.updated_by)


def _known(bounds: rules.Bounds) -> dict[str, Any]:
    """Return the bounds without those that only the next release knows, which are kept and cannot be changed here."""
    return {path: bound for path, bound in bounds.items() if path in rules.BOUNDABLE}


def _outdated_read() -> OutdatedRead:
    return OutdatedRead(Busy("The instance limits are being changed by others right now. Try again."))
