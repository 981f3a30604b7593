"""Which second factors people have, and what a sign-in still needs of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import func, select

from app.extensions import db
from app.models.organization import Organization, SettingsCeilings
from app.models.second_factor import AuthenticatorApp
from app.models.user import RoleAssignment, User
from app.operations import clock
from app.operations.directory import OrganizationView
from app.operations.passkeys.records import count_of_users
from app.operations.transaction import read
from app.rules.people.permissions import ADMIN
from app.rules.people.second_factors import PASSKEY, TOTP, Demand, Standing, Verdict, are_offered, decide


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
    passkeys = count_of_users(organization_id, [user_id]).get(user_id, 0)
    return FactorCount(passkeys, TOTP in methods_of(organization_id, user_id))


@read
def methods_of(organization_id: str, user_id: UUID) -> tuple[str, ...]:
    """The methods that the user has set up, whether or not they count now."""
    return methods_of_users(organization_id, [user_id]).get(user_id, ())


@read
def methods_of_users(organization_id: str, user_ids: Collection[UUID]) -> Mapping[UUID, tuple[str, ...]]:
    """The methods of each of at most a page of users; who has none is left out."""
    if not user_ids:
        return {}
    with_app = db.session.scalars(
        select(AuthenticatorApp.user_id).where(
            AuthenticatorApp.organization_id == organization_id, AuthenticatorApp.user_id.in_(user_ids)
        )
    )
    methods: dict[UUID, tuple[str, ...]] = dict.fromkeys(with_app, (TOTP,))
    for user_id in count_of_users(organization_id, user_ids):
        methods[user_id] = (*methods.get(user_id, ()), PASSKEY)
    return methods


@read
def verdict_of(organization: OrganizationView, user_id: UUID, amr: Collection[str]) -> Verdict:
    """What a sign-in by these methods still needs, by the organization's settings as they are now."""
    settings = organization.settings
    if not are_offered(settings):
        return Verdict(Demand.NOTHING)
    enrolled = methods_of(organization.id, user_id)
    if not enrolled and settings["authentication"]["mfa"]["policy"] == "optional":
        return Verdict(Demand.NOTHING)
    return decide(
        settings,
        enrolled=enrolled,
        amr=amr,
        standing=_standing(organization.id, user_id),
        now=clock.now(),
    )


def _standing(organization_id: str, user_id: UUID) -> Standing:
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
    ceiling_since = select(SettingsCeilings.factor_demanded_at).scalar_subquery()
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
    return Standing(*row)
