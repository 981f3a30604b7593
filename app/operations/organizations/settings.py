"""Settings of an organization: read, partially update, and preview the impact of a change.

Settings are versioned, and a change that would lock everyone out is rejected.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct
from sqlalchemy import delete, update

from app.extensions import db
from app.fast_path import cache_invalidation
from app.models.client import Credential, OrganizationLogo
from app.models.organization import Organization
from app.models.token import ACTIVE as KEY_ACTIVE
from app.operations.directory.lookups import current_limits
from app.operations.directory.snapshots import OrganizationSnapshot
from app.operations.grants import signing_keys
from app.operations.mail import emails
from app.operations.organizations.administrators import require_roles_unused
from app.operations.organizations.settings_impact import (
    SECRET_DISPLAY,
    SESSIONS,
    SettingsImpact,
    calculate_impact,
)
from app.operations.sign_in.actor_access import (
    can_any_user_sign_in_with_passkey,
    enter_organization,
    find_caller,
)
from app.operations.sign_in.reauthentication import require_fresh_user_sign_in
from app.operations.sign_in.second_factors import record_mfa_policy_change
from app.operations.sign_in.usable_identities import any_user_has_usable_identity
from app.operations.store import audit, clock
from app.operations.store.transactions import OutdatedRead, count_changed, on_commit, read, transaction
from app.rules.actor import Actor
from app.rules.clients.client_coherence import FAPI2, signing_algorithm_for
from app.rules.directory.permissions import MEMBER, effective_roles, missing_permissions, permissions_of_role
from app.rules.errors import Busy, FieldError, Forbidden
from app.rules.languages.translation import lazy_gettext
from app.rules.organizations import instance_limits
from app.rules.organizations import settings as rules
from app.rules.organizations.lockout_prevention import require_no_lockout
from app.rules.organizations.settings_table import LIMITS
from app.rules.users.profile import is_registration_open
from app.rules.versions import ExpectedVersion, require_version

_SIGNING_ALGORITHM = "oauth.signing.algorithm"
LOGO = "branding.logo"
# Changing them decides whether this service asks for the user's password or second factor.
_SIGN_IN_PROTECTION = (f"{SESSIONS}reauthentication_seconds", "authentication.mfa.")
DEFAULT_ROLES = "authentication.registration.default_roles"
_GIVING_PERMISSIONS = ("authentication.registration.", "user_permissions.members_can_register_clients")
_LIMITS_ARE_ROOTS = lazy_gettext(
    "Only administrators of the instance can change the limits of an organization."
)
NO_MAIL_SERVER_WARNING = (
    "authentication.registration.verify_email: No mail server is configured, so email addresses cannot be verified. "
    "New accounts wait until an administrator approves them."
)


class SettingsRecord(Struct, frozen=True):
    """The effective settings with their version, the paths set by the organization, and the allowed values.

    ``limited`` are the paths at which an instance limit changes the value.
    """

    organization_slug: str
    document: Mapping[str, Any]
    version: int
    updated_at: datetime | None
    updated_by: str | None
    overridden: tuple[str, ...]
    limited: tuple[str, ...]
    limits: Mapping[str, Mapping[str, Any]]


class UpdatedSettings(Struct, frozen=True):
    """The settings after the change, the changed paths, and the impact of a dry run."""

    settings: SettingsRecord
    changed: tuple[str, ...]
    impact: SettingsImpact | None = None

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about changed settings that need a mail server."""
        registration = self.settings.document["authentication"]["registration"]
        waits = (
            any(path.startswith("authentication.registration.") for path in self.changed)
            and registration["mode"] == "open"
            and registration["verify_email"]
            and not emails.is_possible()
        )
        return (NO_MAIL_SERVER_WARNING,) if waits else ()


@read
def get_settings(actor: Actor, slug: str) -> SettingsRecord:
    """Return the settings of the organization. Raises NotFound, Forbidden."""
    _, organization = enter_organization(actor, slug, "settings:read")
    row = _row(organization.id)
    return _record(row, row.settings)


@transaction
def update_settings(
    actor: Actor,
    slug: str,
    partial: Mapping[str, Any],
    *,
    expected_version: ExpectedVersion = None,
    dry_run: bool = False,
) -> UpdatedSettings:
    """Update the given settings with immediate effect on every worker. ``null`` resets a setting to its default.

    ``dry_run`` validates and changes nothing. If secrets are to be shown ``once`` from now on, the sealed copies of all
    secrets are deleted in the same transaction (SE-7). Raises InvalidInput naming every invalid field,
    PreconditionFailed, WouldLockOut, RoleInUse, and Forbidden for a role that gains or loses permissions which the
    actor lacks, that would be given to everyone who signs up, or that is changed without ``roles:write``. Raises
    FreshSignInRequired if a user who signed in too long ago changes the protection of sign-ins or gives anybody
    permissions. Audit: ``settings.updated`` with the changed paths.
    """
    inside, organization = enter_organization(actor, slug, "settings:write")
    return store_settings(inside, organization, partial, expected_version=expected_version, dry_run=dry_run)


@transaction
def store_settings(
    actor: Actor,
    organization: OrganizationSnapshot,
    partial: Mapping[str, Any],
    *,
    expected_version: ExpectedVersion = None,
    dry_run: bool = False,
    server_managed: frozenset[str] = frozenset(),
) -> UpdatedSettings:
    """Store settings for an actor whose permission was checked. Updates of settings, roles and the logo end here.

    ``server_managed`` are the paths whose value this service has just generated. The audit event has the organization's
    values, without instance limits.
    """
    row = _row(organization.id)
    require_version(row.settings_version, expected_version)
    bounds = current_limits()
    overrides = rules.merge_settings(row.settings, partial, bounds, server_managed=server_managed)
    before, after = (
        rules.effective_settings(row.settings, bounds),
        rules.effective_settings(overrides, bounds),
    )
    # Also what an instance limit hides now: it applies when the limit is lifted.
    own_before, own_after = rules.effective_settings(row.settings), rules.effective_settings(overrides)
    paths = [*rules.changed_paths(before, after), *rules.changed_paths(own_before, own_after)]
    changed = tuple(dict.fromkeys(paths))
    if any(path.startswith(f"{rules.ROLES_PATH}.") for path in changed):
        actor.require("roles:write")
    require_changeable(actor, changed)
    _require_grantable(actor, before, after)
    require_roles_unused(organization.id, effective_roles(before).keys() ^ effective_roles(after).keys())
    require_no_lockout(
        before,
        after,
        find_caller(actor),
        any_user_has_passkey=can_any_user_sign_in_with_passkey(organization.id),
        any_user_has_identity=any_user_has_usable_identity(organization.id),
    )
    if dry_run:
        return UpdatedSettings(
            _record(row, overrides), changed, calculate_impact(organization.id, before, after, changed)
        )
    if not changed:
        return UpdatedSettings(_record(row, row.settings), ())
    # Before the new values are stored, so that the current ones decide what counts as fresh.
    if _requires_fresh_sign_in(before, after, changed):
        require_fresh_user_sign_in(actor)
    stored = count_changed(
        update(Organization)
        .where(Organization.id == organization.id, Organization.settings_version == row.settings_version)
        .values(
            settings=overrides,
            settings_version=Organization.settings_version + 1,
            settings_updated_at=clock.now(),
            settings_updated_by=actor.author,
            version=Organization.version + 1,
        )
    )
    if stored != 1:
        raise OutdatedRead(Busy("The settings are being changed by others right now. Try again."))
    cache_invalidation.invalidate(organization.id)
    if SECRET_DISPLAY in changed and rules.value_at(after, SECRET_DISPLAY) == "once":
        _wipe_sealed_secrets(organization.id)
    if _SIGNING_ALGORITHM in changed:
        on_commit(lambda: _publish_keys(organization.id, after))
    if LOGO in changed:
        _delete_logo(organization.id)
    record_mfa_policy_change(organization.id, before, after)
    audit.record(
        actor,
        "settings.updated",
        "settings",
        organization.slug,
        before=_values(own_before, changed),
        after=_values(own_after, changed),
    )
    row = _row(organization.id)
    return UpdatedSettings(_record(row, row.settings), changed)


def _publish_keys(organization_id: str, settings: Mapping[str, Any]) -> None:
    """Create the keys of a new algorithm, and of the one that FAPI clients use instead, before they sign.

    Call this after the transaction, because generating an RSA key takes a second.
    """
    for algorithm in {signing_algorithm_for({"security_profile": name}, settings) for name in (None, FAPI2)}:
        signing_keys.ensure_key(Actor.system(organization_id), algorithm, KEY_ACTIVE)


def require_changeable(actor: Actor, changed: Iterable[str], *, field_prefix: str = "") -> None:
    """Raise Forbidden if a limit would change and the actor does not administer the instance.

    ``field_prefix`` is what the request has before the paths.
    """
    limits = [path for path in changed if path.startswith(LIMITS)]
    if limits and not may_change_limits(actor):
        errors = [
            FieldError(f"{field_prefix}{path}", "instance_administrators_only", _LIMITS_ARE_ROOTS)
            for path in limits
        ]
        raise Forbidden(_LIMITS_ARE_ROOTS, permission="instance:write", errors=errors)


def may_change_limits(actor: Actor) -> bool:
    """Return whether the actor administers the instance, whose limits organizations cannot lift themselves."""
    return actor.kind == "system" or (actor.is_root and actor.has_permission("instance:write"))


def _require_grantable(actor: Actor, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    """Raise Forbidden if a role would gain or lose a permission that the actor lacks (TN-11)."""
    if actor.kind == "system":
        return
    old, new = effective_roles(before), effective_roles(after)
    for role in old.keys() | new.keys():
        gained = permissions_of_role(role, after) - permissions_of_role(role, before)
        lost: set[str] = set()
        if role in old and role in new:
            lost = set(old[role].permissions) - set(new[role].permissions)
        missing = missing_permissions(actor.permissions, gained | lost)
        if missing:
            message = (
                lazy_gettext(
                    "The role %(role)s would gain the permission %(permission)s. You can only grant or remove"
                    " permissions that you have.",
                    role=role,
                    permission=missing[0],
                )
                if missing[0] in gained
                else lazy_gettext(
                    "The role %(role)s would lose the permission %(permission)s. You can only grant or remove"
                    " permissions that you have.",
                    role=role,
                    permission=missing[0],
                )
            )
            raise Forbidden(message, permission=missing[0], field=f"{rules.ROLES_PATH}.{role}.permissions")
    _require_grantable_to_all(actor, before, after)


def _requires_fresh_sign_in(
    before: Mapping[str, Any], after: Mapping[str, Any], changed: Iterable[str]
) -> bool:
    """Return whether the change affects the protection of sign-ins, or gives anybody permissions."""
    if protects_sign_in(changed):
        return True
    roles = effective_roles(after)
    if any(permissions_of_role(role, after) - permissions_of_role(role, before) for role in roles):
        return True
    member = permissions_of_role(MEMBER, after)
    return any(permissions_of_role(role, after) - member for role in _roles_given_to_more(before, after))


def protects_sign_in(paths: Iterable[str]) -> bool:
    """Return whether changing one of these settings always requires a fresh sign-in."""
    return any(path.startswith(_SIGN_IN_PROTECTION) for path in paths)


def gives_permissions(paths: Iterable[str]) -> bool:
    """Return whether changing one of these settings requires a fresh sign-in if it gives anybody permissions."""
    return any(path.startswith(_GIVING_PERMISSIONS) for path in paths)


def _roles_given_to_more(before: Mapping[str, Any], after: Mapping[str, Any]) -> set[str]:
    """Return the roles that more users get when they sign up than before."""
    given = set(rules.value_at(after, DEFAULT_ROLES))
    if not _lets_more_people_sign_up(before, after):
        given -= set(rules.value_at(before, DEFAULT_ROLES))
    return given


def _require_grantable_to_all(actor: Actor, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    """Raise Forbidden if new users would get a permission that the actor lacks: the actor could sign up as one."""
    for role in sorted(_roles_given_to_more(before, after)):
        missing = missing_permissions(
            actor.permissions, permissions_of_role(role, after) - permissions_of_role(MEMBER, after)
        )
        if missing:
            raise Forbidden(
                lazy_gettext(
                    "Everyone who signs up would get the permission %(permission)s through the role %(role)s."
                    " You can only grant permissions that you have yourself.",
                    permission=missing[0],
                    role=role,
                ),
                permission=missing[0],
                field=DEFAULT_ROLES,
            )


def _lets_more_people_sign_up(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    if not is_registration_open(after):
        return False
    old, new = (document["authentication"]["registration"] for document in (before, after))
    # An empty list allows every domain.
    old_domains, domains = set(old["allowed_email_domains"]), set(new["allowed_email_domains"])
    return (
        not is_registration_open(before)
        or (old["verify_email"] and not new["verify_email"])
        or (bool(old_domains) and (not domains or not domains <= old_domains))
    )


def _wipe_sealed_secrets(organization_id: str) -> None:
    count_changed(
        update(Credential)
        .where(Credential.organization_id == organization_id, Credential.sealed.is_not(None))
        .values(sealed=None)
    )


def _delete_logo(organization_id: str) -> None:
    mine = OrganizationLogo.organization_id == organization_id
    count_changed(delete(OrganizationLogo).where(mine))


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


def _record(row: Organization, overrides: Mapping[str, Any]) -> SettingsRecord:
    bounds = current_limits()
    return SettingsRecord(
        organization_slug=row.slug,
        document=rules.effective_settings(overrides, bounds),
        version=row.settings_version,
        updated_at=row.settings_updated_at,
        updated_by=row.settings_updated_by,
        overridden=tuple(rules.overridden_paths(overrides)),
        limited=tuple(rules.limited_paths(overrides, bounds)),
        limits=instance_limits.setting_limits(bounds),
    )
