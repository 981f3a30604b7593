"""Since when a policy demands second factors: what the grace of those it meets is counted from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import select, update

from app.extensions import db
from app.models.organization import Organization
from app.operations import clock
from app.operations.transaction import count_changed, transaction
from app.rules.people.second_factors import moments_of


@transaction
def note_policy(organization_id: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    """The moments stand as the change between two effective documents makes them; part of that change."""
    old, new = (document["authentication"]["mfa"]["policy"] for document in (before, after))
    if old == new:
        return
    of_all, of_admins = db.session.execute(
        select(Organization.factor_demanded_at, Organization.admins_factor_demanded_at).where(
            Organization.id == organization_id
        )
    ).one()
    of_all, of_admins = moments_of(old, new, (of_all, of_admins), clock.now())
    count_changed(
        update(Organization)
        .where(Organization.id == organization_id)
        .values(factor_demanded_at=of_all, admins_factor_demanded_at=of_admins)
    )
