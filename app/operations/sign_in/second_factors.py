"""Which second factors people have, and what a sign-in still needs of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from app.extensions import db
from app.models.organization import InstanceLimits, Organization
from app.models.second_factor import AuthenticatorApp, RecoveryCode
from app.models.user import RoleAssignment, User
from app.operations.directory.lookups import OrganizationSnapshot
from app.operations.sign_in.passkeys import count_passkeys_of_users
from app.operations.store import clock, keyring
from app.operations.store.transactions import count_changed, current_unit_of_work, read, transaction
from app.rules import sealing
from app.rules.directory.permissions import ADMIN
from app.rules.errors import Conflict
from app.rules.sign_in import second_factors
from app.rules.sign_in.second_factors import (
    PASSKEY,
    TOTP,
    MfaDecision,
    MfaGraceStart,
    MfaRequirement,
    decide_mfa,
    is_mfa_offered,
    new_recovery_code,
    normalize_recovery_code,
    recovery_code_digest,
    update_mfa_required_since,
)


@transaction
def record_mfa_policy_change(
    organization_id: str, before: Mapping[str, Any], after: Mapping[str, Any]
) -> None:
    """The moments stand as the change between two effective documents makes them; part of that change."""
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


@dataclass(frozen=True, slots=True)
class FactorCount:
    """How many passkeys somebody has, and whether there is an authenticator app; false where there is nothing."""

    passkeys: int = 0
    has_app: bool = False

    def __bool__(self) -> bool:
        return bool(self.passkeys or self.has_app)

    def told(self, what: str) -> dict[str, str]:
        """As letters are told of them, under names that begin with ``what``."""
        return {f"{what}_passkeys": str(self.passkeys), f"{what}_apps": str(int(self.has_app))}


NO_FACTORS = FactorCount()


@read
def count_factors(organization_id: str, user_id: UUID) -> FactorCount:
    """The second factors of the user, whether or not their methods count now."""
    passkeys = count_passkeys_of_users(organization_id, [user_id]).get(user_id, 0)
    return FactorCount(passkeys, TOTP in find_methods_of_user(organization_id, user_id))


@read
def find_methods_of_user(organization_id: str, user_id: UUID) -> tuple[str, ...]:
    """The methods that the user has set up, whether or not they count now."""
    return find_methods_of_users(organization_id, [user_id]).get(user_id, ())


@read
def find_methods_of_users(organization_id: str, user_ids: Collection[UUID]) -> Mapping[UUID, tuple[str, ...]]:
    """The methods of each of at most a page of users; who has none is left out."""
    if not user_ids:
        return {}
    with_app = db.session.scalars(
        select(AuthenticatorApp.user_id).where(
            AuthenticatorApp.organization_id == organization_id, AuthenticatorApp.user_id.in_(user_ids)
        )
    )
    methods: dict[UUID, tuple[str, ...]] = dict.fromkeys(with_app, (TOTP,))
    for user_id in count_passkeys_of_users(organization_id, user_ids):
        methods[user_id] = (*methods.get(user_id, ()), PASSKEY)
    return methods


@read
def decide_mfa_of_user(
    organization: OrganizationSnapshot, user_id: UUID, amr: Collection[str]
) -> MfaDecision:
    """What a sign-in by these methods still needs, by the organization's settings as they are now."""
    settings = organization.settings
    if not is_mfa_offered(settings):
        return MfaDecision(MfaRequirement.NOTHING)
    enrolled = find_methods_of_user(organization.id, user_id)
    if not enrolled and settings["authentication"]["mfa"]["policy"] == "optional":
        return MfaDecision(MfaRequirement.NOTHING)
    return decide_mfa(
        settings,
        enrolled=enrolled,
        amr=amr,
        standing=_standing(organization.id, user_id),
        now=clock.now(),
    )


def _standing(organization_id: str, user_id: UUID) -> MfaGraceStart:
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
    ceiling_since = select(InstanceLimits.factor_demanded_at).scalar_subquery()
    row = db.session.execute(
        select(
            User.created_at,
            admin_since,
            # Where a ceiling of the instance demands it, nobody's grace begins before that did.
            func.coalesce(Organization.factor_demanded_at, ceiling_since),
            func.coalesce(Organization.admins_factor_demanded_at, ceiling_since),
        )
        .join(Organization, Organization.id == User.organization_id)
        .where(User.organization_id == organization_id, User.id == user_id)
    ).one()
    return MfaGraceStart(*row)


@read
def count_recovery_codes(organization_id: str, user_id: UUID) -> int:
    """How many codes of the user were not used yet."""
    return (
        db.session.scalar(
            select(func.count()).where(
                RecoveryCode.organization_id == organization_id,
                RecoveryCode.user_id == user_id,
                RecoveryCode.used_at.is_(None),
            )
        )
        or 0
    )


@transaction
def create_recovery_codes(organization: OrganizationSnapshot, user_id: UUID) -> tuple[str, ...]:
    """New codes, as many as the settings say, clear in this answer alone; those before are void.

    Part of the change that audits it.
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
    """New codes for somebody who has none, none for whoever has some; part of adding a second factor."""
    return () if _has_some(organization.id, user_id) else create_recovery_codes(organization, user_id)


@transaction
def use_recovery_code(organization_id: str, user_id: UUID, typed: str) -> bool:
    """Whether it is a code of the user that was not used before; it counts no more."""
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
        )
        .values(used_at=clock.now())
    )
    return used == 1


@transaction
def delete_recovery_codes(organization_id: str, user_id: UUID) -> None:
    """No code of the user counts any more."""
    count_changed(
        delete(RecoveryCode).where(
            RecoveryCode.organization_id == organization_id, RecoveryCode.user_id == user_id
        )
    )


def _has_some(organization_id: str, user_id: UUID) -> bool:
    return (
        db.session.scalar(
            select(RecoveryCode.digest)
            .where(RecoveryCode.organization_id == organization_id, RecoveryCode.user_id == user_id)
            .limit(1)
        )
        is not None
    )


@dataclass(frozen=True, slots=True)
class AuthenticatorAppRecord:
    """The authenticator app of a user, without its secret."""

    created_at: datetime
    last_used_at: datetime | None


@read
def find_authenticator_app(organization_id: str, user_id: UUID) -> AuthenticatorAppRecord | None:
    """The user's app, or None."""
    row = db.session.execute(
        select(AuthenticatorApp.created_at, AuthenticatorApp.last_used_at).where(
            *_of(organization_id, user_id)
        )
    ).first()
    return None if row is None else AuthenticatorAppRecord(*row)


@transaction
def store_authenticator_app(organization_id: str, user_id: UUID, secret: bytes, step: int) -> None:
    """The user has the app, whose code of the time step was its proof and counts no more. Raises Conflict."""
    sealed = seal_secret(organization_id, user_id, "app", secret)
    try:
        with db.session.begin_nested():
            db.session.execute(
                insert(AuthenticatorApp).values(
                    organization_id=organization_id,
                    user_id=user_id,
                    sealed_secret=sealed,
                    last_step=step,
                    created_at=clock.now(),
                )
            )
    except IntegrityError:
        raise Conflict("You have an authenticator app already. Remove it first.", code="app_exists") from None


@transaction
def use_authenticator_code(organization_id: str, user_id: UUID, typed: str) -> bool:
    """Whether it is a code of the user's app that counts now, and was not used before: never twice (MF-1)."""
    sealed = db.session.scalar(select(AuthenticatorApp.sealed_secret).where(*_of(organization_id, user_id)))
    if sealed is None:
        return False
    now = clock.now()
    step = second_factors.matching_step(open_secret(organization_id, user_id, "app", sealed), typed, now)
    if step is None:
        return False
    used = count_changed(
        update(AuthenticatorApp)
        .where(*_of(organization_id, user_id), AuthenticatorApp.last_step < step)
        .values(last_step=step, last_used_at=now)
    )
    return used == 1


@transaction
def delete_authenticator_app(organization_id: str, user_id: UUID) -> bool:
    """Whether the user had an app until now; its codes are worth nothing any more."""
    return count_changed(delete(AuthenticatorApp).where(*_of(organization_id, user_id))) == 1


def seal_secret(organization_id: str, user_id: UUID, place: str, secret: bytes) -> bytes:
    """Sealed under the organization's key for second factors; it opens for this user, at this place alone (MF-2)."""
    return sealing.seal(_key(organization_id), secret, _bound(organization_id, user_id, place))


def open_secret(organization_id: str, user_id: UUID, place: str, sealed: bytes) -> bytes:
    """What was sealed. Raises sealing.CannotOpen when it is another's, or was changed."""
    return sealing.unseal(_key(organization_id), sealed, _bound(organization_id, user_id, place))


def _key(organization_id: str) -> bytes:
    return keyring.derive_organization_key(organization_id, "second factors")


def _bound(organization_id: str, user_id: UUID, place: str) -> bytes:
    return f"1|{organization_id}|{user_id}|totp {place}".encode()


def _of(organization_id: str, user_id: UUID) -> tuple[ColumnElement[bool], ...]:
    return AuthenticatorApp.organization_id == organization_id, AuthenticatorApp.user_id == user_id
