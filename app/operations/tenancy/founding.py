"""Founding: the bare organization, as set-up, demo and the creation of an organization all make it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import select
from sqlalchemy.exc import IntegrityError

from app.extensions import db
from app.models.organization import Organization
from app.operations import audit, clock, keyring
from app.operations.database_errors import is_duplicate_key
from app.operations.registration.scopes import seed_identity_scopes
from app.operations.transaction import current_unit, transaction
from app.rules.actor import Actor
from app.rules.errors import Conflict
from app.rules.identifiers import new_routing_key


class SlugTaken(Conflict):
    """The id belongs to an organization that stands, or ever stood: slugs are never given again (TN-8)."""

    code = "id_taken"


@transaction
def found_organization(
    actor: Actor, *, slug: str, name: str, is_root: bool = False, overrides: Mapping[str, Any] | None = None
) -> str:
    """The bare organization stands: row, data key, identity scopes; part of set-up, demo and creation.

    Returns its routing key. Raises SlugTaken. Audit: ``organization.created`` in its own log.
    """
    key: str = current_unit().once(f"organization {slug}", new_routing_key)
    now = clock.now()
    organization = Organization(
        id=key,
        slug=slug,
        name=name,
        is_root=is_root,
        settings=dict(overrides or {}),
        data_key=keyring.new_data_key(key),
        created_at=now,
        created_by=actor.label[:200],
        updated_at=now,
    )
    try:
        with db.session.begin_nested():
            db.session.add(organization)
    except IntegrityError as error:
        if not is_duplicate_key(error):
            raise
        raise taken(slug) from error
    seed_identity_scopes(key)
    inside = (
        Actor.system(key, actor.label) if actor.kind == "system" else actor.acting_in(key, actor.permissions)
    )
    audit.record(
        inside, "organization.created", target_type="organization", target_id=slug, after={"name": name}
    )
    return key


def was_ever_given(slug: str) -> bool:
    """Whether an organization has the slug, or ever had it."""
    return db.session.scalar(select(Organization.id).where(Organization.slug == slug)) is not None


def taken(slug: str) -> SlugTaken:
    """The refusal of a slug that was ever given."""
    return SlugTaken(f"The id {slug} is taken, or was once; ids are never given again.", field="id")
