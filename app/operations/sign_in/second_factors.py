"""Users' second factors: what a sign-in needs, recovery codes and authenticator apps."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from msgspec import Struct
from sqlalchemy import bindparam, delete, exists, func, insert, select, update

from app.extensions import db
from app.fast_path.compiled_query import CompiledQuery, ListQuery
from app.models.base import has_key, is_of_user
from app.models.organization import InstanceLimits, Organization
from app.models.second_factor import AuthenticatorApp, Passkey, RecoveryCode
from app.models.user import RoleAssignment, User
from app.operations.directory.lookups import created_after_restore, get_unpurged_organization
from app.operations.directory.snapshots import OrganizationSnapshot
from app.operations.sign_in.passkeys import count_passkeys
from app.operations.store import clock, keyring
from app.operations.store.rows import count_where, has_rows
from app.operations.store.transactions import (
    count_changed,
    current_unit_of_work,
    read,
    savepoint,
    transaction,
)
from app.rules import sealing
from app.rules.directory.permissions import ADMIN
from app.rules.errors import Conflict
from app.rules.sign_in.second_factors import (
    PASSKEY,
    TOTP,
    MfaDecision,
    MfaGraceStart,
    MfaRequirement,
    accepted_since,
    decide_mfa,
    is_mfa_offered,
    matching_step,
    new_recovery_code,
    normalize_recovery_code,
    recovery_code_digest,
    update_mfa_required_since,
)


class FactorCount(Struct, frozen=True):
    """The number of passkeys of a user, and whether they have an authenticator app; false if neither."""

    passkeys: int = 0
    has_app: bool = False

    def __bool__(self) -> bool:
        return bool(self.passkeys or self.has_app)

    def email_values(self, prefix: str) -> dict[str, str]:
        """Return the counts as values for an email template, with names that begin with ``prefix``."""
        return {f"{prefix}_passkeys": str(self.passkeys), f"{prefix}_apps": str(int(self.has_app))}


class AuthenticatorAppRecord(Struct, frozen=True):
    """A user's authenticator app without its secret."""

    created_at: datetime
    last_used_at: datetime | None


NO_FACTORS = FactorCount()


METHOD_COLUMNS = (
    exists().where(is_of_user(AuthenticatorApp, User.organization_id, User.id)).label("has_app"),
    exists().where(is_of_user(Passkey, User.organization_id, User.id)).label("has_passkey"),
)
"""Columns for ``methods_of`` in a query of users."""


def methods_of(row: Any) -> tuple[str, ...]:
    """Return the second-factor methods in a row with METHOD_COLUMNS."""
    return (*([TOTP] if row.has_app else ()), *([PASSKEY] if row.has_passkey else ()))


@transaction
def record_mfa_policy_change(
    organization_id: str, before: Mapping[str, Any], after: Mapping[str, Any]
) -> None:
    """Record since when the organization requires a second factor, as part of a settings change.

    ``before`` and ``after`` are effective settings documents. Grace periods start at the recorded times.
    """
    old, new = (document["authentication"]["mfa"]["policy"] for document in (before, after))
    if old == new:
        return
    of_all, of_admins = db.session.execute(
        select(Organization.factor_demanded_at, Organization.admins_factor_demanded_at).where(
            Organization.id == organization_id
        )
    ).one()
    of_all, of_admins = update_mfa_required_since(old, new, (of_all, of_admins), clock.now())
    count_changed(
        update(Organization)
        .where(Organization.id == organization_id)
        .values(factor_demanded_at=of_all, admins_factor_demanded_at=of_admins)
    )


@read
def count_factors(organization_id: str, user_id: UUID) -> FactorCount:
    """Count the user's second factors, including those whose methods are not allowed now."""
    passkeys = count_passkeys(organization_id, user_id)
    return FactorCount(passkeys, TOTP in find_methods_of_user(organization_id, user_id))


def find_methods_of_user(organization_id: str, user_id: UUID) -> tuple[str, ...]:
    """Return the second-factor methods that the user has set up, including those not allowed now."""
    return find_methods_of_users(organization_id, [user_id]).get(user_id, ())


def find_methods_of_users(organization_id: str, user_ids: Sequence[UUID]) -> Mapping[UUID, tuple[str, ...]]:
    """Return the second-factor methods of each user of a page. Users without any are left out."""
    if not user_ids:
        return {}
    rows = _METHODS.rows(user_ids, organization_id=organization_id)
    return {row.id: methods for row in rows if (methods := methods_of(row))}


_METHODS = ListQuery(
    select(User.id, *METHOD_COLUMNS).where(User.organization_id == bindparam("organization_id")), User.id
)


@read
def decide_mfa_of_user(
    organization: OrganizationSnapshot,
    user_id: UUID,
    amr: Collection[str],
    *,
    enrolled: Collection[str] | None = None,
) -> MfaDecision:
    """Decide what a sign-in with these methods still needs under the organization's current settings.

    ``enrolled`` are the user's second factors, if the caller has read them.
    """
    settings = organization.settings
    if not is_mfa_offered(settings):
        return MfaDecision(MfaRequirement.NOTHING)
    if enrolled is None:
        enrolled = find_methods_of_user(organization.id, user_id)
    if not enrolled and settings["authentication"]["mfa"]["policy"] == "optional":
        return MfaDecision(MfaRequirement.NOTHING)
    return decide_mfa(
        settings,
        enrolled=enrolled,
        amr=amr,
        grace_start=_find_grace_start(organization.id, user_id),
        now=clock.now(),
    )


@read
def count_recovery_codes(organization_id: str, user_id: UUID) -> int:
    """Count the user's unused recovery codes."""
    return count_where(
        is_of_user(RecoveryCode, organization_id, user_id),
        RecoveryCode.used_at.is_(None),
        created_after_restore(RecoveryCode.created_at, organization_id),
    )


@transaction
def create_recovery_codes(organization: OrganizationSnapshot, user_id: UUID) -> tuple[str, ...]:
    """Replace the user's recovery codes and return the new ones, which are available in clear only here.

    The settings say how many. Call it in the transaction that audits the change.
    """
    number = organization.settings["authentication"]["mfa"]["recovery_codes"]
    codes: tuple[str, ...] = current_unit_of_work().stable_value(
        f"recovery codes {user_id}", lambda: tuple(new_recovery_code() for _ in range(number))
    )
    delete_recovery_codes(organization.id, user_id)
    now = clock.now()
    db.session.execute(
        insert(RecoveryCode),
        [
            {
                "organization_id": organization.id,
                "user_id": user_id,
                "digest": recovery_code_digest(code.replace("-", "")),
                "created_at": now,
            }
            for code in codes
        ],
    )
    return codes


@transaction
def create_first_recovery_codes(organization: OrganizationSnapshot, user_id: UUID) -> tuple[str, ...]:
    """Create recovery codes if the user has none. Call it when a second factor is added."""
    return (
        () if _has_recovery_codes(organization.id, user_id) else create_recovery_codes(organization, user_id)
    )


@transaction
def use_recovery_code(organization_id: str, user_id: UUID, typed: str) -> bool:
    """Mark a recovery code as used and return whether it was valid and unused."""
    code = normalize_recovery_code(typed)
    if code is None:
        return False
    used = count_changed(
        update(RecoveryCode)
        .where(
            RecoveryCode.organization_id == organization_id,
            RecoveryCode.digest == recovery_code_digest(code),
            RecoveryCode.user_id == user_id,
            RecoveryCode.used_at.is_(None),
            created_after_restore(RecoveryCode.created_at, organization_id),
        )
        .values(used_at=clock.now())
    )
    return used == 1


@transaction
def delete_recovery_codes(organization_id: str, user_id: UUID) -> None:
    """Delete the user's recovery codes."""
    count_changed(delete(RecoveryCode).where(is_of_user(RecoveryCode, organization_id, user_id)))


_FIND_APP = CompiledQuery(
    select(AuthenticatorApp.created_at, AuthenticatorApp.last_used_at).where(
        is_of_user(AuthenticatorApp, bindparam("organization_id"), bindparam("user_id")),
    )
)


def find_authenticator_app(organization_id: str, user_id: UUID) -> AuthenticatorAppRecord | None:
    """Find the user's authenticator app."""
    row = _FIND_APP.first(organization_id=organization_id, user_id=user_id)
    return None if row is None else AuthenticatorAppRecord(*row)


@transaction
def store_authenticator_app(organization_id: str, user_id: UUID, secret: bytes, step: int) -> None:
    """Store the user's authenticator app, whose code of the time step ``step`` is used up.

    Raises Conflict.
    """
    sealed = seal_secret(organization_id, user_id, "app", secret)
    duplicate = Conflict("You already have an authenticator app. Remove it first.", code="app_exists")
    with savepoint(on_duplicate=duplicate):
        db.session.execute(
            insert(AuthenticatorApp).values(
                organization_id=organization_id,
                user_id=user_id,
                sealed_secret=sealed,
                last_step=step,
                created_at=clock.now(),
            )
        )


@transaction
def use_authenticator_code(organization_id: str, user_id: UUID, typed: str) -> bool:
    """Return whether the code is valid now and was not used before, and mark it as used (MF-1)."""
    now = clock.now()
    step = _matching_step(organization_id, user_id, typed, now)
    # A restored backup does not know which codes were used after it.
    if step is None or get_unpurged_organization(organization_id).is_before_restore(accepted_since(step)):
        return False
    used = count_changed(
        update(AuthenticatorApp)
        .where(is_of_user(AuthenticatorApp, organization_id, user_id), AuthenticatorApp.last_step < step)
        .values(last_step=step, last_used_at=now)
    )
    return used == 1


@read
def is_current_code(organization_id: str, user_id: UUID, typed: str) -> bool:
    """Return whether the code is one of the current ones. If it was rejected, it had been used before."""
    return _matching_step(organization_id, user_id, typed, clock.now()) is not None


def _matching_step(organization_id: str, user_id: UUID, typed: str, now: datetime) -> int | None:
    sealed = db.session.scalar(
        select(AuthenticatorApp.sealed_secret).where(is_of_user(AuthenticatorApp, organization_id, user_id))
    )
    if sealed is None:
        return None
    return matching_step(open_secret(organization_id, user_id, "app", sealed), typed, now)


@transaction
def delete_authenticator_app(organization_id: str, user_id: UUID) -> bool:
    """Delete the user's authenticator app and return whether there was one."""
    return (
        count_changed(delete(AuthenticatorApp).where(is_of_user(AuthenticatorApp, organization_id, user_id)))
        == 1
    )


def seal_secret(organization_id: str, user_id: UUID, purpose: str, secret: bytes) -> bytes:
    """Seal a secret under the organization's key, bound to the user and the purpose (MF-2)."""
    return sealing.seal(_key(organization_id), secret, _associated_data(organization_id, user_id, purpose))


def open_secret(organization_id: str, user_id: UUID, purpose: str, sealed: bytes) -> bytes:
    """Open a sealed secret.

    Raises sealing.UnsealError if it was changed or sealed for another user or purpose.
    """
    return sealing.unseal(_key(organization_id), sealed, _associated_data(organization_id, user_id, purpose))


def _find_grace_start(organization_id: str, user_id: UUID) -> MfaGraceStart:
    admin_since = (
        select(func.min(RoleAssignment.created_at))
        .where(
            RoleAssignment.organization_id == organization_id,
            RoleAssignment.user_organization_id == organization_id,
            RoleAssignment.user_id == user_id,
            RoleAssignment.role == ADMIN,
        )
        .scalar_subquery()
    )
    limit_since = select(InstanceLimits.factor_demanded_at).scalar_subquery()
    row = db.session.execute(
        select(
            User.created_at,
            admin_since,
            # If only an instance limit requires it, grace periods start when that limit was set.
            func.coalesce(Organization.factor_demanded_at, limit_since),
            func.coalesce(Organization.admins_factor_demanded_at, limit_since),
        )
        .join(Organization, Organization.id == User.organization_id)
        .where(has_key(User, organization_id, user_id))
    ).one()
    return MfaGraceStart(*row)


def _has_recovery_codes(organization_id: str, user_id: UUID) -> bool:
    return has_rows(
        select(RecoveryCode.digest).where(
            is_of_user(RecoveryCode, organization_id, user_id),
            created_after_restore(RecoveryCode.created_at, organization_id),
        )
    )


def _key(organization_id: str) -> bytes:
    return keyring.derive_organization_key(organization_id, "second factors")


def _associated_data(organization_id: str, user_id: UUID, purpose: str) -> bytes:
    return f"1|{organization_id}|{user_id}|totp {purpose}".encode()
