"""Groups that an identity provider creates, changes and deletes by SCIM (RFC 7644)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from uuid import UUID

from msgspec import Struct
from sqlalchemy import delete, func, insert, select, update

from app.extensions import db
from app.models.base import has_key, is_same
from app.models.user import Group, GroupMember, User
from app.operations.clients.client_records import name_key
from app.operations.directory.lookups import get_organization_by_id
from app.operations.store import clock
from app.operations.store.rows import count_rows
from app.operations.store.transactions import count_changed, read, savepoint, transaction
from app.operations.users.groups import (
    MAX_GROUPS_PER_USER,
    GroupRecord,
    count_members,
    create_group,
    delete_group,
    get_group,
    lock_group,
    record_event,
    update_group,
)
from app.operations.users.provisioning import (
    check_external_id,
    is_visible,
    management_facts,
    provider_of,
    require_management,
)
from app.rules.actor import Actor
from app.rules.errors import Conflict, FieldError, InvalidInput
from app.rules.identifiers import parse_public_id, public_id
from app.rules.languages.translation import lazy_gettext
from app.rules.versions import ExpectedVersion

MAX_MEMBERS_SHOWN = 10_000
_BATCH = 500


class ProvisionedGroup(Struct, frozen=True):
    """A group as a provider sees it.

    ``external_id`` is its name for the group, if it gave one. ``members`` are public ids of users, or None if they were
    not read.
    """

    group: GroupRecord
    external_id: str | None
    members: tuple[str, ...] | None = None


class GroupSearch(Struct, frozen=True):
    """Which groups to list. A field that is None does not matter."""

    group_id: str | None = None
    name: str | None = None
    external_id: str | None = None


class MemberChange(Struct, frozen=True):
    """Users, by public id, to add to a group and to remove. With ``all_others``, everyone else is removed."""

    added: Collection[str] = ()
    removed: Collection[str] = ()
    all_others: bool = False


@read
def list_provisioned_groups(
    actor: Actor,
    search: GroupSearch,
    *,
    offset: int = 0,
    limit: int = 100,
    with_members: bool = True,
) -> tuple[int, list[ProvisionedGroup]]:
    """Return how many groups match, and some of them by name.

    Raises Forbidden, and InvalidInput for members of groups that have more than MAX_MEMBERS_SHOWN together.
    """
    actor.require("users:read")
    provider_id = provider_of(actor)
    conditions = [Group.organization_id == actor.organization_id]
    if search.group_id is not None:
        conditions.append(Group.id == (parse_public_id("grp", search.group_id) or UUID(int=0)))
    if search.name is not None:
        conditions.append(Group.name_key == name_key(search.name))
    if search.external_id is not None:
        conditions += [Group.provisioned_by == provider_id, Group.external_id == search.external_id]
    statement = select(Group.id).where(*conditions)
    ids = db.session.scalars(statement.order_by(Group.name_key).offset(offset).limit(limit)).all()
    if with_members:
        _require_few_members(sum(count_members(actor.organization_id, ids).values()))
    found = [get_provisioned_group(actor, public_id("grp", each), with_members=with_members) for each in ids]
    return count_rows(statement), found


@read
def get_provisioned_group(actor: Actor, group_id: str, *, with_members: bool = True) -> ProvisionedGroup:
    """Return the group with the id ``grp_…``.

    Raises Forbidden, NotFound, and InvalidInput for the members of a group that has more than MAX_MEMBERS_SHOWN.
    """
    actor.require("users:read")
    group = get_group(actor, _slug(actor), group_id)
    row = db.session.execute(
        select(Group.provisioned_by, Group.external_id).where(has_key(Group, actor.organization_id, group.id))
    ).one()
    members = _read_members(actor, group) if with_members else None
    external_id = row.external_id if row.provisioned_by == provider_of(actor) else None
    return ProvisionedGroup(group, external_id, members)


@transaction
def provision_group(
    actor: Actor, name: str, *, external_id: str | None = None, members: Collection[str] = ()
) -> ProvisionedGroup:
    """Create a group, which is managed by the provider that the actor is, with these users, by public id.

    Raises Forbidden, InvalidInput, Conflict if the name or the external id is taken. Audit: ``group.created``,
    ``group.member_added``.
    """
    group = create_group(actor, _slug(actor), {"name": name})
    _manage(actor, group.id, external_id)
    _change_members(actor, group.id, MemberChange(added=members))
    return get_provisioned_group(actor, group.public_id)


@transaction
def update_provisioned_group(
    actor: Actor,
    group_id: str,
    *,
    name: str | None = None,
    external_id: str | None,
    members: MemberChange | None = None,
    expected_version: ExpectedVersion = None,
) -> None:
    """Change a group, which is managed by the provider that the actor is from now on.

    Raises Forbidden, also for a group that another provider manages, NotFound, PreconditionFailed, InvalidInput,
    Conflict if the name or the external id is taken or a user has 100 groups. Audit: ``group.updated``,
    ``group.member_added``, ``group.member_removed``.
    """
    row_id = _require_own(actor, group_id)
    changed = {} if name is None else {"name": name}
    update_group(actor, _slug(actor), group_id, changed, expected_version=expected_version)
    _manage(actor, row_id, external_id)
    if members is not None:
        _change_members(actor, row_id, members)


@transaction
def delete_provisioned_group(
    actor: Actor, group_id: str, *, expected_version: ExpectedVersion = None
) -> None:
    """Delete a group that the provider manages. Raises and audits as ``delete_group``."""
    _require_own(actor, group_id, is_managed=True)
    delete_group(actor, _slug(actor), group_id, expected_version=expected_version)


def _slug(actor: Actor) -> str:
    return get_organization_by_id(actor.organization_id).slug


def _require_own(actor: Actor, group_id: str, *, is_managed: bool = False) -> UUID:
    actor.require("users:write")
    group = lock_group(actor, group_id)
    require_management(actor, group.id, Group, is_managed=is_managed)
    return group.id


def _manage(actor: Actor, group_id: UUID, external_id: str | None) -> None:
    """Store whose group this is, and the provider's name for it. Audit: ``group.updated``, if that is new."""
    check_external_id(external_id)
    key = has_key(Group, actor.organization_id, group_id)
    before = db.session.execute(select(Group.provisioned_by, Group.external_id).where(key)).one()
    after = (provider_of(actor), external_id or None)
    if tuple(before) == after:
        return
    taken = Conflict("Another group has this externalId.", field="externalId", code="external_id_taken")
    with savepoint(on_duplicate=taken):
        count_changed(
            update(Group)
            .where(key)
            .values(
                provisioned_by=after[0],
                external_id=after[1],
                version=Group.version + 1,
                updated_at=clock.now(),
            )
        )
    facts = [
        dict(zip(("provisioned_by", "external_id"), management_facts(*values), strict=True))
        for values in (before, after)
    ]
    record_event(actor, "group.updated", group_id, before=facts[0], after=facts[1])


def _read_members(actor: Actor, group: GroupRecord) -> tuple[str, ...]:
    _require_few_members(group.members)
    rows = db.session.scalars(
        select(GroupMember.user_id)
        .join(User, is_same(User.id, GroupMember.user_id))
        .where(
            GroupMember.organization_id == actor.organization_id,
            GroupMember.group_id == group.id,
            is_visible(),
        )
        .order_by(GroupMember.user_id)
    )
    return tuple(public_id("usr", user_id) for user_id in rows)


def _require_few_members(number: int) -> None:
    if number > MAX_MEMBERS_SHOWN:
        raise InvalidInput(
            f"More than {MAX_MEMBERS_SHOWN} members are not returned at once: send excludedAttributes=members, or a"
            " smaller count of groups.",
            field="excludedAttributes",
            code="too_many",
        )


def _change_members(actor: Actor, group_id: UUID, change: MemberChange) -> None:
    """Add and remove members in batches; who is a member already, or is not, is left alone. The group is locked."""
    added = _parse(change.added)
    removed = _parse(change.removed, is_strict=False)
    if change.all_others:
        own = (GroupMember.organization_id == actor.organization_id, GroupMember.group_id == group_id)
        removed = sorted(set(db.session.scalars(select(GroupMember.user_id).where(*own))) - set(added))
    for batch in _batches(removed):
        for user_id in _members_among(actor, group_id, batch):
            record_event(actor, "group.member_removed", group_id, before={"user": public_id("usr", user_id)})
        count_changed(
            delete(GroupMember).where(
                GroupMember.organization_id == actor.organization_id,
                GroupMember.group_id == group_id,
                GroupMember.user_id.in_(batch),
            )
        )
    for batch in _batches(added):
        _add(actor, group_id, batch)


def _add(actor: Actor, group_id: UUID, user_ids: Sequence[UUID]) -> None:
    # They are not deleted until the transaction ends.
    existing = db.session.scalars(
        select(User.id)
        .where(User.organization_id == actor.organization_id, User.id.in_(user_ids), is_visible())
        .order_by(User.id)
        .with_for_update()
    ).all()
    if missing := sorted(set(user_ids) - set(existing)):
        raise InvalidInput.of([_unknown_user(public_id("usr", user_id)) for user_id in missing])
    new = sorted(set(existing) - _members_among(actor, group_id, existing))
    if not new:
        return
    full = db.session.scalar(
        select(GroupMember.user_id)
        .where(GroupMember.organization_id == actor.organization_id, GroupMember.user_id.in_(new))
        .group_by(GroupMember.user_id)
        .having(func.count() >= MAX_GROUPS_PER_USER)
        .limit(1)
    )
    if full is not None:
        raise Conflict(
            lazy_gettext("A user can be in at most %(max)s groups.", max=MAX_GROUPS_PER_USER), code="too_many"
        )
    now = clock.now()
    db.session.execute(
        insert(GroupMember),
        [
            {
                "organization_id": actor.organization_id,
                "group_id": group_id,
                "user_id": user_id,
                "created_at": now,
                "created_by": actor.author,
            }
            for user_id in new
        ],
    )
    for user_id in new:
        record_event(actor, "group.member_added", group_id, after={"user": public_id("usr", user_id)})


def _members_among(actor: Actor, group_id: UUID, user_ids: Sequence[UUID]) -> set[UUID]:
    return set(
        db.session.scalars(
            select(GroupMember.user_id).where(
                GroupMember.organization_id == actor.organization_id,
                GroupMember.group_id == group_id,
                GroupMember.user_id.in_(user_ids),
            )
        )
    )


def _parse(user_ids: Collection[str], *, is_strict: bool = True) -> list[UUID]:
    """Return the row ids in order, each once. Raises InvalidInput if ``is_strict`` and one is not that of a user."""
    parsed = {user_id: parse_public_id("usr", user_id) for user_id in user_ids}
    unknown = [user_id for user_id, row_id in parsed.items() if row_id is None]
    if unknown and is_strict:
        raise InvalidInput.of([_unknown_user(user_id) for user_id in unknown])
    return sorted({row_id for row_id in parsed.values() if row_id is not None})


def _unknown_user(user_id: str) -> FieldError:
    return FieldError("members", "unknown_user", f"There is no user {user_id[:40]}.")


def _batches(ids: Sequence[UUID]) -> list[Sequence[UUID]]:
    return [ids[start : start + _BATCH] for start in range(0, len(ids), _BATCH)]
