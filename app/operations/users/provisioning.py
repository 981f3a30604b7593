"""Users that an identity provider creates, changes and deletes by SCIM (RFC 7644).

A provider sees the users of the organization, so that it finds those who exist already, and manages whom it created or
changed. A user is managed by one provider at most. Whoever has more permissions than a member cannot be changed.
Whoever signed up with an email and has not verified it is not seen: the provider would take them for its owner (OI-5).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from msgspec import Struct
from sqlalchemy import ColumnElement, or_, select, union

from app.extensions import db
from app.models.base import has_key, is_same
from app.models.identity_provider import IdentityProvider
from app.models.user import DELETED, DISABLED, Group, GroupMember, User
from app.operations.directory.lookups import get_organization_by_id
from app.operations.directory.users import USER_COLUMNS, UserSnapshot, parse_user_id, snapshot_of
from app.operations.sign_in.actor_access import has_special_role
from app.operations.store import audit
from app.operations.store.rows import count_rows
from app.operations.store.transactions import read, savepoint, transaction
from app.operations.users.deletion import delete_user
from app.operations.users.user_changes import add_user, update_unchanged_user, update_user
from app.operations.users.users import disable_user
from app.rules.actor import Actor
from app.rules.directory.attributes import STRING, attributes_of, current_values
from app.rules.errors import Conflict, FieldError, Forbidden, InvalidInput, NotFound
from app.rules.identifiers import public_id
from app.rules.mail.email_addresses import canonical_email
from app.rules.users.profile import MAX_USER_NAME_BYTES
from app.rules.versions import ExpectedVersion

MAX_EXTERNAL_ID_LENGTH = 255
_MANAGED = ("provisioned_by", "external_id", "user_name")


class ProvisionedUser(Struct, frozen=True):
    """A user as a provider sees them, with (public id, name) of their groups.

    ``external_id`` and ``user_name`` are its names for the user; None for the latter if that is the email.
    ``attributes`` are the custom ones.
    """

    user: UserSnapshot
    external_id: str | None
    user_name: str | None
    attributes: Mapping[str, Any]
    groups: tuple[tuple[str, str], ...] = ()


class UserSearch(Struct, frozen=True):
    """Which users to list. A field that is None does not matter. ``user_name`` may be an email."""

    user_id: str | None = None
    user_name: str | None = None
    email: str | None = None
    external_id: str | None = None
    is_active: bool | None = None


def provider_of(actor: Actor) -> UUID:
    """Return the id of the provider that the actor is. Raises Forbidden."""
    if actor.provider_id is None:
        raise Forbidden("Only an identity provider can provision users.")
    return actor.provider_id


@read
def list_provisioned_users(
    actor: Actor, search: UserSearch, *, offset: int = 0, limit: int = 100
) -> tuple[int, list[ProvisionedUser]]:
    """Return how many users match, and some of them in the order of their creation. Raises Forbidden."""
    actor.require("users:read")
    provider_id = provider_of(actor)
    conditions = [User.organization_id == actor.organization_id, is_visible()]
    if search.user_id is not None:
        try:
            conditions.append(User.id == parse_user_id(search.user_id))
        except NotFound:
            return 0, []
    if search.user_name is not None:
        conditions.append(_has_user_name(actor, search.user_name))
    if search.email is not None:
        conditions.append(User.email_canonical == (canonical_email(search.email) or ""))
    if search.external_id is not None:
        conditions += [User.provisioned_by == provider_id, User.external_id == search.external_id]
    if search.is_active is not None:
        conditions.append(User.status != DISABLED if search.is_active else User.status == DISABLED)
    return count_rows(select(User.id).where(*conditions)), _read(actor, conditions, offset, limit)


@read
def get_provisioned_user(actor: Actor, user_id: str) -> ProvisionedUser:
    """Return the user with the id ``usr_…``. Raises Forbidden, NotFound."""
    actor.require("users:read")
    found = _read(actor, [has_key(User, actor.organization_id, parse_user_id(user_id)), is_visible()])
    if not found:
        raise NotFound("There is no such user.")
    return found[0]


@transaction
def provision_user(
    actor: Actor,
    fields: Mapping[str, Any],
    *,
    user_name: str,
    external_id: str | None = None,
    is_active: bool = True,
) -> ProvisionedUser:
    """Create a user, who is managed by the provider that the actor is.

    ``fields`` are those of ``NewUser``, with ``profile`` and ``attributes``; what is None is left out, and so are
    attributes that the organization does not have. Raises Forbidden, InvalidInput naming every wrong field, Conflict if
    the email or one of the provider's names is taken. Audit: ``user.created``, ``user.updated``, ``user.disabled``.
    """
    user = add_user(actor, _to_store(actor, fields)).user
    _manage(actor, user, external_id, user_name)
    if not is_active:
        disable_user(actor, user.id)
    return get_provisioned_user(actor, user.public_id)


@transaction
def update_provisioned_user(
    actor: Actor,
    user_id: str,
    fields: Mapping[str, Any],
    *,
    user_name: str,
    external_id: str | None,
    expected_version: ExpectedVersion = None,
) -> ProvisionedUser:
    """Update the fields given of a user, who is managed by the provider that the actor is from now on.

    ``fields`` are those of ``UserChange``, with ``profile`` and ``attributes``: what they do not name stays, and None
    removes. Raises and audits as ``update_user``; raises Forbidden also for a user whom another provider manages.
    """
    user = _require_own(actor, user_id)
    changes = _to_store(actor, fields, user.profile, user.attributes)
    updated = update_user(actor, user_id, changes, expected_version=expected_version).record.user
    _manage(actor, updated, external_id, user_name)
    return get_provisioned_user(actor, user_id)


@transaction
def delete_provisioned_user(actor: Actor, user_id: str, *, expected_version: ExpectedVersion = None) -> None:
    """Delete a user whom the provider manages. Raises and audits as ``delete_user``."""
    user = _require_own(actor, user_id, is_managed=True)
    delete_user(actor, user.public_id, expected_version=expected_version)


@read
def find_managed_user(
    organization_id: str, provider_id: UUID, *, subject: str, email: str | None
) -> UserSnapshot | None:
    """Return the user whom the provider manages and whose external id is ``subject``, or who has the ``email``.

    Never returns someone who registered with an email address and has not verified it: it may belong to another.
    """
    same = [User.external_id == subject]
    if email is not None and (canonical := canonical_email(email)) is not None:
        same.append(User.email_canonical == canonical)
    for condition in same:
        row = db.session.execute(
            select(*USER_COLUMNS).where(
                User.organization_id == organization_id,
                User.provisioned_by == provider_id,
                User.made_unproven.is_(False),
                condition,
            )
        ).first()
        if row is not None:
            return snapshot_of(row)
    return None


@read
def find_managing_provider(
    organization_id: str, row_id: UUID, model: type[User | Group] = User
) -> UUID | None:
    """Return the provider that manages the user or group, or None if there is none or it was deleted."""
    return db.session.scalar(
        select(IdentityProvider.id)
        .join(model, is_same(model.provisioned_by, IdentityProvider.id))
        .where(has_key(model, organization_id, row_id))
    )


def require_management(
    actor: Actor, row_id: UUID, model: type[User | Group], *, is_managed: bool = False
) -> None:
    """Raise Forbidden if another provider manages the user or group, or with ``is_managed``, if none does."""
    manager = find_managing_provider(actor.organization_id, row_id, model)
    if manager != provider_of(actor) and (is_managed or manager is not None):
        noun = "user" if model is User else "group"
        raise Forbidden(f"This {noun} is not managed by this identity provider.")


def is_visible() -> ColumnElement[bool]:
    """Return the condition that providers see a user."""
    return (User.status != DELETED) & User.made_unproven.is_(False)


def check_external_id(external_id: str | None) -> None:
    """Raise InvalidInput for a name that is too long."""
    if external_id is not None and len(external_id.encode()) > MAX_EXTERNAL_ID_LENGTH:
        raise InvalidInput.of(
            [FieldError("externalId", "too_long", f"Use at most {MAX_EXTERNAL_ID_LENGTH} bytes.")]
        )


def _require_own(actor: Actor, user_id: str, *, is_managed: bool = False) -> UserSnapshot:
    actor.require("users:write")
    user = get_provisioned_user(actor, user_id).user
    # Also one whose permissions the actor has: a directory could take them over by changing the email.
    if has_special_role(user):
        raise Forbidden("This user has more permissions than a member. Change them in the portal.")
    require_management(actor, user.id, User, is_managed=is_managed)
    return user


def _to_store(
    actor: Actor,
    fields: Mapping[str, Any],
    profile: Mapping[str, Any] = {},
    attributes: Mapping[str, Any] = {},
) -> dict[str, Any]:
    """Return the fields with the claims and attributes that are not named, of the attributes that exist as text."""
    definitions = attributes_of(get_organization_by_id(actor.organization_id).settings)
    texts = {attribute.key for attribute in definitions if attribute.type == STRING}
    stored = current_values(definitions, attributes)
    changed = _merge(stored, {key: value for key, value in fields["attributes"].items() if key in texts})
    result = {**fields, "profile": _merge(profile, fields["profile"]), "attributes": changed}
    if changed == stored:
        # Attributes that the provider does not send may be required.
        del result["attributes"]
    return result


def _merge(stored: Mapping[str, Any], sent: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in {**stored, **sent}.items() if value is not None}


def _manage(actor: Actor, user: UserSnapshot, external_id: str | None, user_name: str) -> None:
    """Store whose user this is, and the provider's names. Audit: ``user.updated``, if that is something else."""
    check_external_id(external_id)
    name = None if canonical_email(user_name) == user.email_canonical else user_name.lower()
    if name is not None and len(name.encode()) > MAX_USER_NAME_BYTES:
        message = f"Use at most {MAX_USER_NAME_BYTES} bytes."
        raise InvalidInput.of([FieldError("userName", "too_long", message)])
    columns = (User.provisioned_by, User.external_id, User.user_name)
    before = db.session.execute(select(*columns).where(has_key(User, actor.organization_id, user.id))).one()
    after = (provider_of(actor), external_id or None, name)
    if tuple(before) == after:
        return
    taken = Conflict(
        "Another user has this externalId or userName.", field="externalId", code="external_id_taken"
    )
    # No index compares the name with the emails of users who have no other name.
    is_other = (User.organization_id == actor.organization_id) & (User.id != user.id) & is_visible()
    if count_rows(select(User.id).where(is_other, _has_user_name(actor, user_name))):
        raise taken
    with savepoint(on_duplicate=taken):
        update_unchanged_user(user, **dict(zip(_MANAGED, after, strict=True)))
    facts = [dict(zip(_MANAGED, management_facts(*values), strict=True)) for values in (before, after)]
    audit.record_user_event(actor, "user.updated", user.id, before=facts[0], after=facts[1])


def management_facts(provider_id: UUID | None, *names: str | None) -> tuple[str | None, ...]:
    """Return what the audit log says of an object's provider and its names for it."""
    return (None if provider_id is None else public_id("idp", provider_id), *names)


def _has_user_name(actor: Actor, user_name: str) -> ColumnElement[bool]:
    """Return the condition that this is the provider's name for a user, which is the email if it gave no other."""
    provider_id = provider_of(actor)
    own = select(User.id).where(User.organization_id == actor.organization_id)
    by_name = own.where(User.provisioned_by == provider_id, User.user_name == user_name.lower())
    by_email = own.where(
        User.email_canonical == (canonical_email(user_name) or ""),
        or_(User.user_name.is_(None), User.provisioned_by != provider_id),
    )
    # SQLite and MySQL read all users of the organization for an OR of both.
    return User.id.in_(union(by_name, by_email).subquery().select())


def _read(
    actor: Actor, conditions: Iterable[ColumnElement[bool]], offset: int = 0, limit: int = 1
) -> list[ProvisionedUser]:
    provider_id = provider_of(actor)
    rows = db.session.execute(
        select(User.provisioned_by, User.external_id, User.user_name, *USER_COLUMNS)
        .where(*conditions)
        .order_by(User.id)
        .offset(offset)
        .limit(limit)
    ).all()
    users = [snapshot_of(row) for row in rows]
    groups = _groups_of(actor.organization_id, [user.id for user in users])
    definitions = attributes_of(get_organization_by_id(actor.organization_id).settings)
    found = []
    for user, row in zip(users, rows, strict=True):
        is_own = row.provisioned_by == provider_id
        found.append(
            ProvisionedUser(
                user,
                external_id=row.external_id if is_own else None,
                user_name=row.user_name if is_own else None,
                attributes=current_values(definitions, user.attributes),
                groups=groups.get(user.id, ()),
            )
        )
    return found


def _groups_of(organization_id: str, user_ids: Sequence[UUID]) -> dict[UUID, tuple[tuple[str, str], ...]]:
    groups: dict[UUID, tuple[tuple[str, str], ...]] = {}
    if not user_ids:
        return groups
    rows = db.session.execute(
        select(GroupMember.user_id, Group.id, Group.name)
        .join(Group, is_same(Group.id, GroupMember.group_id))
        .where(
            GroupMember.organization_id == organization_id,
            Group.organization_id == organization_id,
            GroupMember.user_id.in_(user_ids),
        )
        .order_by(Group.name_key)
    )
    for user_id, group_id, name in rows:
        groups[user_id] = (*groups.get(user_id, ()), (public_id("grp", group_id), name))
    return groups
