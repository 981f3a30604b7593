"""Signing keys of an organization: listing, manual rotation and emergency replacement."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Annotated, Any

from msgspec import Struct
from sqlalchemy import Select, and_, select
from sqlalchemy.orm import aliased

from app.extensions import db
from app.models import token as token_model
from app.models.token import SigningKey
from app.operations.directory.snapshots import OrganizationSnapshot
from app.operations.grants import key_rotation
from app.operations.sign_in.actor_access import enter_organization
from app.operations.sign_in.reauthentication import require_fresh_user_sign_in
from app.operations.store import clock
from app.operations.store.rows import make_record
from app.operations.store.transactions import read
from app.rules.actor import Actor
from app.rules.clients.client_types import SIGNING_ALGORITHMS
from app.rules.errors import NotFound
from app.rules.shapes import OneOf, Shape, described, parse_shape
from app.rules.versions import compute_version

_MAX_LISTED = 50


class KeyRotation(Shape):
    """The rotation of a signing key."""

    algorithm: (
        Annotated[str, OneOf(SIGNING_ALGORITHMS), described("The default is the organization's algorithm.")]
        | None
    ) = None
    emergency: (
        Annotated[
            bool,
            described(
                "Use this if the key may be compromised. A new key signs immediately, and all other keys of the "
                "algorithm are removed. ID tokens and JWT access tokens that they signed can't be verified any more."
            ),
        ]
        | None
    ) = None


class SigningKeyRecord(Struct, frozen=True):
    """A published key, without its private half.

    ``changes_at`` is the earliest time of its next state: a next key becomes active, an active key retires, a retired
    key is removed.
    """

    kid: str
    algorithm: str
    state: str
    created_at: datetime
    activated_at: datetime | None
    retired_at: datetime | None
    changes_at: datetime
    public_jwk: dict[str, Any]

    @property
    def version(self) -> int:
        """A number that changes with the key's state."""
        return compute_version(self.kid, self.state)


@read
def list_signing_keys(actor: Actor, slug: str) -> list[SigningKeyRecord]:
    """Return all published keys, newest first. Raises NotFound, Forbidden."""
    scoped_actor, organization = enter_organization(actor, slug)
    scoped_actor.require("settings:read")
    rows = db.session.execute(_select_keys(organization).order_by(SigningKey.id.desc()).limit(_MAX_LISTED))
    return [record for row in rows if (record := _record(row, organization)) is not None]


@read
def get_signing_key(actor: Actor, slug: str, kid: str) -> SigningKeyRecord:
    """Return one published key. Raises NotFound, also for a removed key."""
    scoped_actor, organization = enter_organization(actor, slug)
    scoped_actor.require("settings:read")
    row = db.session.execute(_select_keys(organization).where(SigningKey.kid == kid)).first()
    record = None if row is None else _record(row, organization)
    if record is None:
        raise NotFound("There is no such signing key.")
    return record


def rotate_signing_key(actor: Actor, slug: str, fields: Mapping[str, Any] | None = None) -> SigningKeyRecord:
    """Publish the next key and return it. It becomes active after a day, or when this is called again after that.

    ``fields`` are those of KeyRotation. With ``emergency``, a new key signs
    immediately and all others of the algorithm are removed, so that their signatures can no longer be verified. This
    requires a recent sign-in.

    Raises InvalidInput with every invalid field, Forbidden, FreshSignInRequired, NotFound, Conflict. Audit:
    ``signing_key.created``, ``.activated``, ``.retired``, ``.removed``.
    """
    scoped_actor, organization = enter_organization(actor, slug)
    scoped_actor.require("settings:write")
    rotation = parse_shape(KeyRotation, fields or {})
    chosen = rotation.algorithm or organization.settings["oauth"]["signing"]["algorithm"]
    if not rotation.emergency:
        return get_signing_key(actor, slug, key_rotation.advance_rotation(scoped_actor, chosen))
    require_fresh_user_sign_in(scoped_actor)
    return get_signing_key(actor, slug, key_rotation.replace_key_immediately(scoped_actor, chosen))


def list_removed_by_emergency(actor: Actor, slug: str, algorithm: str) -> list[SigningKeyRecord]:
    """Return the keys that an emergency rotation of the algorithm would remove, for its confirmation page.

    Raises Forbidden and FreshSignInRequired like the rotation itself, NotFound if there is no such key.
    """
    scoped_actor, _ = enter_organization(actor, slug)
    scoped_actor.require("settings:write")
    require_fresh_user_sign_in(scoped_actor)
    found = [key for key in list_signing_keys(actor, slug) if key.algorithm == algorithm]
    if not found:
        raise NotFound("No key of this algorithm is published.")
    return found


def _select_keys(organization: OrganizationSnapshot) -> Select[SigningKey, datetime]:
    """Select the keys, an active one with the time when its successor was published."""
    successor = aliased(SigningKey)
    is_next = and_(
        successor.organization_id == SigningKey.organization_id,
        successor.algorithm == SigningKey.algorithm,
        successor.slot == token_model.NEXT,
        SigningKey.slot == token_model.ACTIVE,
    )
    keys = select(SigningKey, successor.created_at).outerjoin(successor, is_next)
    return keys.where(SigningKey.organization_id == organization.id)


def _record(found: Any, organization: OrganizationSnapshot) -> SigningKeyRecord | None:
    """Return the record, or None for an expired key that the janitor has not removed yet."""
    row, succeeded_since = found
    now = clock.now()
    if row.remove_at is not None and row.remove_at <= now:
        return None
    age = timedelta(seconds=organization.settings["oauth"]["signing"]["rotation_seconds"])
    if row.state == token_model.RETIRED and row.remove_at is not None:
        changes_at = row.remove_at
    elif row.state == token_model.NEXT or row.activated_at is None:
        changes_at = row.created_at + key_rotation.PUBLISHED_BEFORE_USE
    elif succeeded_since is not None:
        changes_at = succeeded_since + key_rotation.PUBLISHED_BEFORE_USE
    else:
        # Its successor is not published yet.
        changes_at = max(row.activated_at + age, now + key_rotation.PUBLISHED_BEFORE_USE)
    return make_record(SigningKeyRecord, row, changes_at=changes_at)
