"""Settings of an organization: read as a whole, changed in part, versioned, and never so that nobody gets back in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

from sqlalchemy import delete, func, or_, select, update

from app.extensions import db
from app.models import client as client_model
from app.models.client import Client, OrganizationLogo
from app.models.credential import Credential
from app.models.organization import Organization
from app.models.session import Session
from app.operations import view_changes
from app.operations.directory.lookups import OrganizationSnapshot, current_limits
from app.operations.mail import letters
from app.operations.organizations.role_holders import require_roles_unused
from app.operations.sign_in.actor_access import (
    can_any_user_sign_in_with_passkey,
    enter_organization,
    find_caller,
)
from app.operations.sign_in.second_factors import record_mfa_policy_change
from app.operations.store import audit, clock
from app.operations.store.transactions import count_changed, read, transaction
from app.operations.users.factor_resets import count_users_without_factor
from app.rules.actor import Actor
from app.rules.clients.client_requirements import requires
from app.rules.directory.permissions import MEMBER, effective_roles, missing_permissions, permissions_of_role
from app.rules.errors import Conflict, Forbidden, PreconditionFailed
from app.rules.organizations import instance_limits
from app.rules.organizations import settings as rules
from app.rules.organizations.lockout_prevention import require_no_lockout
from app.rules.organizations.settings import value_at
from app.rules.organizations.settings_effects import warnings_for

SECRET_DISPLAY = "oauth.clients.secret_display"
_SESSIONS = "authentication.sessions."
# What a registration can stand within or outside of, or does already; every other setting under oauth touches all
# clients.
_NARROWING = frozenset(
    {
        "oauth.grant_types",
        "oauth.clients.token_endpoint_auth_methods",
        "oauth.redirect_uris.allowed_hosts",
        "oauth.redirect_uris.max_per_client",
        "oauth.require_par",
        "oauth.require_dpop",
    }
)
# Registrations are documents that the database cannot search, so at most so many are read.
MAX_CLIENTS_CHECKED = 5000


@dataclass(frozen=True, slots=True)
class SettingsImpact:
    """What would follow from a change."""

    users_without_second_factor: int
    sessions_ending: int
    clients_affected: int
    secrets_wiped: int = 0


def calculate_impact(
    organization_id: str, before: Mapping[str, Any], after: Mapping[str, Any], changed: Iterable[str]
) -> SettingsImpact:
    """The impact of the change between two effective documents, whose ``changed`` paths are given."""
    paths = frozenset(changed)
    return SettingsImpact(
        users_without_second_factor=_users(organization_id, after)
        if "authentication.mfa.policy" in paths
        else 0,
        sessions_ending=_sessions(organization_id, after)
        if any(path.startswith(_SESSIONS) for path in paths)
        else 0,
        clients_affected=_clients(
            organization_id, before, after, {path for path in paths if path.startswith("oauth.")}
        ),
        secrets_wiped=_secrets(organization_id, after) if SECRET_DISPLAY in paths else 0,
    )


def _users(organization_id: str, after: Mapping[str, Any]) -> int:
    policy = value_at(after, "authentication.mfa.policy")
    if policy not in {"required", "required_for_admins"}:
        return 0
    return count_users_without_factor(organization_id, admins_alone=policy == "required_for_admins")


def _secrets(organization_id: str, after: Mapping[str, Any]) -> int:
    """Sealed copies that nobody could view any more."""
    if value_at(after, SECRET_DISPLAY) != "once":
        return 0
    sealed = (Credential.organization_id == organization_id, Credential.sealed.is_not(None))
    return db.session.scalar(select(func.count()).select_from(Credential).where(*sealed)) or 0


def _sessions(organization_id: str, after: Mapping[str, Any]) -> int:
    now = clock.now()
    idle = timedelta(seconds=value_at(after, f"{_SESSIONS}idle_timeout_seconds"))
    absolute = timedelta(seconds=value_at(after, f"{_SESSIONS}absolute_timeout_seconds"))
    return (
        db.session.scalar(
            select(func.count()).where(
                Session.organization_id == organization_id,
                Session.revoked_at.is_(None),
                Session.expires_at > now,
                or_(Session.last_seen_at < now - idle, Session.created_at < now - absolute),
            )
        )
        or 0
    )


def _clients(
    organization_id: str, before: Mapping[str, Any], after: Mapping[str, Any], paths: set[str]
) -> int:
    if not paths:
        return 0
    own = (Client.organization_id == organization_id, Client.status == client_model.ACTIVE)
    if paths - _NARROWING:
        return db.session.scalar(select(func.count()).where(*own)) or 0
    documents = db.session.scalars(select(Client.document).where(*own).limit(MAX_CLIENTS_CHECKED))
    return sum(
        (_may(document, before) and not _may(document, after)) or _must_more(document, before, after)
        for document in documents
    )


def _may(document: Mapping[str, Any], settings: Mapping[str, Any]) -> bool:
    """Whether a client with this registration is within the settings."""
    uris = document.get("redirect_uris") or ()
    hosts = value_at(settings, "oauth.redirect_uris.allowed_hosts")
    return (
        set(document.get("grant_types") or ()) <= set(value_at(settings, "oauth.grant_types"))
        and document.get("token_endpoint_auth_method", "none")
        in value_at(settings, "oauth.clients.token_endpoint_auth_methods")
        and len(uris) <= value_at(settings, "oauth.redirect_uris.max_per_client")
        and (not hosts or all(_is_host_allowed(uri, hosts) for uri in uris))
    )


def _must_more(document: Mapping[str, Any], before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether a client with this registration would have to push its requests or bind its tokens, and need not now."""
    now, then = requires(document, before), requires(document, after)
    pushes = "authorization_code" in (document.get("grant_types") or ())
    return (pushes and then.pushed_requests and not now.pushed_requests) or (then.dpop and not now.dpop)


def _is_host_allowed(uri: str, hosts: Iterable[str]) -> bool:
    host = urlsplit(uri).hostname or ""
    return any(
        host == allowed or (allowed.startswith("*.") and host.endswith(allowed[1:])) for allowed in hosts
    )


LOGO = "branding.logo"
DEFAULT_ROLES = "authentication.registration.default_roles"
NO_MAIL_SERVER_WARNING = (
    "authentication.registration.verify_email: No mail server is set up here, so nobody can prove an address. Who asks "
    "for an account waits until an administrator lets them in."
)


@dataclass(frozen=True, slots=True)
class SettingsRecord:
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

    settings: SettingsRecord
    changed: tuple[str, ...]
    impact: SettingsImpact | None = None

    @property
    def warnings(self) -> tuple[str, ...]:
        """What nothing follows from yet, though it was changed, and what waits for want of a mail server."""
        registration = self.settings.document["authentication"]["registration"]
        waits = (
            any(path.startswith("authentication.registration.") for path in self.changed)
            and registration["mode"] == "open"
            and registration["verify_email"]
            and not letters.is_possible()
        )
        return (*warnings_for(self.changed), *((NO_MAIL_SERVER_WARNING,) if waits else ()))


@read
def get_settings(actor: Actor, slug: str) -> SettingsRecord:
    """The settings of the organization. Raises NotFound for every one that is not the actor's."""
    inside, organization = enter_organization(actor, slug)
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
    PreconditionFailed, WouldLockOut, RoleInUse, Forbidden for a role that gains or loses permissions which the actor
    lacks, would be everybody's who signs up, or is changed without ``roles:write``. Audit: ``settings.updated`` with
    the changed paths.
    """
    inside, organization = enter_organization(actor, slug)
    inside.require("settings:write")
    return store_settings(inside, organization, partial, expected_version=expected_version, dry_run=dry_run)


@transaction
def store_settings(
    actor: Actor,
    organization: OrganizationSnapshot,
    partial: Mapping[str, Any],
    *,
    expected_version: int | None = None,
    dry_run: bool = False,
    server_managed: frozenset[str] = frozenset(),
) -> UpdatedSettings:
    """As ``update_settings``, for whoever has been let: the doors to settings, to roles and to the logo lead here.

    ``server_managed`` are the paths whose value this service has just made.
    """
    row = _row(organization.id)
    if expected_version is not None and row.settings_version != expected_version:
        raise PreconditionFailed("The settings were changed since you read them. Read them again.")
    bounds = current_limits()
    overrides = rules.merge(row.settings, partial, bounds, server_managed=server_managed)
    before, after = rules.effective(row.settings, bounds), rules.effective(overrides, bounds)
    changed = tuple(rules.changed_paths(before, after))
    if any(path.startswith(f"{rules.ROLES_PATH}.") for path in changed):
        actor.require("roles:write")
    _require_grantable(actor, before, after)
    require_roles_unused(organization.id, effective_roles(before).keys() ^ effective_roles(after).keys())
    require_no_lockout(
        before,
        after,
        find_caller(actor),
        somebody_has_passkey=can_any_user_sign_in_with_passkey(organization.id),
    )
    if dry_run:
        return UpdatedSettings(
            _view(row, overrides), changed, calculate_impact(organization.id, before, after, changed)
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
            settings_updated_by=actor.label[:200],
            version=Organization.version + 1,
        )
    )
    if stored != 1:
        refusal = Conflict if expected_version is None else PreconditionFailed
        raise refusal("The settings were changed at the same moment. Read them again.")
    view_changes.mark(organization.id)
    if SECRET_DISPLAY in changed and rules.value_at(after, SECRET_DISPLAY) == "once":
        _wipe_sealed_secrets(organization.id)
    if LOGO in changed:
        _forget_logo(organization.id)
    record_mfa_policy_change(organization.id, before, after)
    audit.record(
        actor,
        "settings.updated",
        target_type="settings",
        target_id=organization.slug,
        before=_values(before, changed),
        after=_values(after, changed),
    )
    row = _row(organization.id)
    return UpdatedSettings(_view(row, row.settings), changed)


def _require_grantable(actor: Actor, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    """No role gains what the actor lacks (TN-11), by its own entry or by what every member gets, nor loses it."""
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
            turn = "gain" if missing[0] in gained else "lose"
            raise Forbidden(
                f"The role {role} would {turn} {missing[0]}, which you do not hold: nobody grants or takes what they "
                "lack.",
                permission=missing[0],
            )
    _require_grantable_to_all(actor, before, after)


def _require_grantable_to_all(actor: Actor, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    """Nobody who signs up is given what the actor lacks: the actor could be the one who does."""
    given = set(rules.value_at(after, DEFAULT_ROLES)) - set(rules.value_at(before, DEFAULT_ROLES))
    for role in sorted(given):
        missing = missing_permissions(
            actor.permissions, permissions_of_role(role, after) - permissions_of_role(MEMBER, after)
        )
        if missing:
            raise Forbidden(
                f"Everybody who signs up would hold {missing[0]} by the role {role}, and you do not: nobody grants "
                "what they lack.",
                permission=missing[0],
                field=DEFAULT_ROLES,
            )


def _wipe_sealed_secrets(organization_id: str) -> None:
    count_changed(
        update(Credential)
        .where(Credential.organization_id == organization_id, Credential.sealed.is_not(None))
        .values(sealed=None)
    )


def _forget_logo(organization_id: str) -> None:
    mine = OrganizationLogo.organization_id == organization_id
    db.session.execute(delete(OrganizationLogo).where(mine).execution_options(synchronize_session=False))


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


def _view(row: Organization, overrides: Mapping[str, Any]) -> SettingsRecord:
    bounds = current_limits()
    return SettingsRecord(
        organization_slug=row.slug,
        document=rules.effective(overrides, bounds),
        version=row.settings_version,
        updated_at=row.settings_updated_at,
        updated_by=row.settings_updated_by,
        overridden=tuple(rules.overridden(overrides)),
        limited=tuple(rules.limited(overrides, bounds)),
        limits=instance_limits.setting_limits(bounds),
    )
