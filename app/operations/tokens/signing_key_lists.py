"""Signing keys of an organization: listed with what happens to each next, rotated by hand, replaced in an emergency."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any

from sqlalchemy import select

from app.extensions import db
from app.models import signing_key as key_model
from app.models.signing_key import SigningKey
from app.operations.directory.lookups import OrganizationSnapshot
from app.operations.grants import key_rotation
from app.operations.grants.signing_keys import ALGORITHMS
from app.operations.sign_in.actor_access import enter_organization
from app.operations.sign_in.reauthentication import require_fresh_user_sign_in
from app.operations.store import clock
from app.operations.store.transactions import read
from app.rules.actor import Actor
from app.rules.errors import NotFound
from app.rules.fields import ValidationErrors
from app.rules.shapes import OneOf, Shape, check_shape, described
from app.rules.versions import compute_version

_MOST = 50


class KeyRotation(Shape):
    """The rotation of a signing key."""

    algorithm: (
        Annotated[str, OneOf(ALGORITHMS), described("The default is the organization's algorithm.")] | None
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


@dataclass(frozen=True, slots=True)
class SigningKeyRecord:
    """A published key; its private half is never told.

    ``changes_at`` is the earliest moment of what happens to it next: a key that is next signs, the active one's
    successor takes over, a retired one is removed.
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
        """Another number in another state."""
        return compute_version(self.kid, self.state)


@read
def list_signing_keys(actor: Actor, slug: str) -> list[SigningKeyRecord]:
    """Every key that verifiers are given, newest first; removed ones are gone. Raises NotFound, Forbidden."""
    inside, organization = enter_organization(actor, slug)
    inside.require("settings:read")
    rows = db.session.scalars(
        select(SigningKey)
        .where(SigningKey.organization_id == organization.id)
        .order_by(SigningKey.id.desc())
        .limit(_MOST)
    )
    return [record for row in rows if (record := _record(row, organization)) is not None]


@read
def get_signing_key(actor: Actor, slug: str, kid: str) -> SigningKeyRecord:
    """One published key. Raises NotFound for every other, a removed one too."""
    inside, organization = enter_organization(actor, slug)
    inside.require("settings:read")
    row = db.session.scalar(
        select(SigningKey).where(SigningKey.organization_id == organization.id, SigningKey.kid == kid)
    )
    record = None if row is None else _record(row, organization)
    if record is None:
        raise NotFound("There is no such signing key.")
    return record


def rotate_signing_key(
    actor: Actor, slug: str, *, algorithm: Any = None, emergency: Any = None
) -> SigningKeyRecord:
    """The next key is published; after a day it signs by itself, or at once when this is asked again then.

    Both arguments are as a caller sent them; ``algorithm`` left out is the one in the organization's settings. In an
    ``emergency`` a fresh key signs now and every other of the algorithm is removed: whatever they had signed verifies
    no more. A person needs a fresh sign-in for that. Returns the successor.

    Raises InvalidInput naming every wrong field, Forbidden, FreshSignInRequired, NotFound, Conflict. Audit:
    ``signing_key.created``, ``.activated``, ``.retired``, ``.removed``.
    """
    inside, organization = enter_organization(actor, slug)
    inside.require("settings:write")
    errors = ValidationErrors()
    check_shape(errors, KeyRotation, {"algorithm": algorithm, "emergency": emergency})
    errors.raise_if_any()
    chosen = algorithm or organization.settings["oauth"]["signing"]["algorithm"]
    if not emergency:
        return get_signing_key(actor, slug, key_rotation.advance_rotation(inside, chosen))
    require_fresh_user_sign_in(inside)
    return get_signing_key(actor, slug, key_rotation.replace_key_immediately(inside, chosen))


def list_removed_by_emergency(actor: Actor, slug: str, algorithm: str) -> list[SigningKeyRecord]:
    """The keys that an emergency rotation of the algorithm would remove; asked before it is confirmed.

    Raises Forbidden and FreshSignInRequired as the rotation itself does, NotFound when there is no such key.
    """
    inside, _ = enter_organization(actor, slug)
    inside.require("settings:write")
    require_fresh_user_sign_in(inside)
    found = [key for key in list_signing_keys(actor, slug) if key.algorithm == algorithm]
    if not found:
        raise NotFound("No key of this algorithm is published.")
    return found


def _record(row: SigningKey, organization: OrganizationSnapshot) -> SigningKeyRecord | None:
    """The record; None for a key whose time is over and that the janitor has not met yet."""
    if row.remove_at is not None and row.remove_at <= clock.now():
        return None
    age = timedelta(seconds=organization.settings["oauth"]["signing"]["rotation_seconds"])
    if row.state == key_model.RETIRED and row.remove_at is not None:
        changes_at = row.remove_at
    elif row.state == key_model.NEXT or row.activated_at is None:
        changes_at = row.created_at + key_rotation.PUBLISHED_BEFORE_USE
    else:
        changes_at = row.activated_at + age
    return SigningKeyRecord(
        kid=row.kid,
        algorithm=row.algorithm,
        state=row.state,
        created_at=row.created_at,
        activated_at=row.activated_at,
        retired_at=row.retired_at,
        changes_at=changes_at,
        public_jwk=row.public_jwk,
    )
