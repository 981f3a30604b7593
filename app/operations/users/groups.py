"""Groups of an organization's users, which apps receive in the ``groups`` claim."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from msgspec import Struct
from sqlalchemy import Select, delete, func, literal, select, update

from app.extensions import db
from app.models.base import has_key, is_of_user, is_same
from app.models.user import AppRoleAssignment, Group, GroupMember, User
from app.operations.clients.client_records import name_key
from app.operations.directory.lookups import touch_organization
from app.operations.directory.users import (
    USER_COLUMNS,
    SentUser,
    UserSnapshot,
    find_sent_user,
    parse_user_id,
    snapshot_of,
)
from app.operations.sign_in.actor_access import enter_organization
from app.operations.sign_in.identity_providers import find_provider_names
from app.operations.store import audit, clock
from app.operations.store.rows import (
    Page,
    PageRequest,
    Updated,
    count_rows,
    count_where,
    get_row,
    make_record,
    read_page,
)
from app.operations.store.text_search import take_search_slot
from app.operations.store.transactions import (
    count_changed,
    current_unit_of_work,
    read,
    savepoint,
    transaction,
)
from app.operations.users.users import where_user_matches
from app.rules.actor import Actor
from app.rules.errors import Conflict, NotFound
from app.rules.fields import ValidationErrors
from app.rules.filters import Filters, read_filters, sort_filter
from app.rules.identifiers import HasPublicId, new_id, parse_public_id, public_id
from app.rules.languages.translation import lazy_gettext
from app.rules.shapes import (
    Items,
    PublicId,
    Shape,
    Text,
    check_shape,
    create_shape,
    described,
    parse_shape,
)
from app.rules.versions import ExpectedVersion, require_version

FILTERS: Filters = {"sort": sort_filter("name")}
MAX_GROUPS = 1000
MAX_GROUPS_PER_USER = 100
MAX_PROVIDER_GROUPS = 20
"""Of one group: a sign-in reads those of all groups, and SQLite writes nothing else meanwhile."""
_FIELDS = ("name", "description", "provider_groups")
_READ_ONLY = ("id", "organization_id", "members", "created_at", "created_by", "updated_at")
_NAME_REQUIRED = {"name": "Enter a name for the group."}


class GroupFields(Struct, frozen=True, kw_only=True):
    """The fields of a group that administrators set."""

    name: Annotated[str, Text(100), described("The name that apps receive. Unique, regardless of case.")]
    description: Annotated[
        str,
        Text(500, min_length=0, multiline=True),
        described("A note for administrators. Users don't see it."),
    ] = ""


class ProviderGroup(Shape):
    """A group at an identity provider whose users are members."""

    provider_id: Annotated[str, PublicId("idp", "identity provider")]
    value: Annotated[
        str,
        Text(255),
        described("The group's value in the provider's `groups_claim`, often a name or an ID."),
    ]


_ProviderGroups = (
    Annotated[
        tuple[ProviderGroup, ...],
        Items(MAX_PROVIDER_GROUPS, unique=False),
        described(
            "Groups at identity providers. A user who signs in with one of these providers becomes a member if they"
            " are in one of its groups here, and is removed otherwise."
        ),
    ]
    | None
)
NewGroup = create_shape(
    "NewGroup", GroupFields, required=("name",), extra={"provider_groups": _ProviderGroups}
)
GroupChange = create_shape(
    "GroupChange", GroupFields, not_null=("name",), extra={"provider_groups": _ProviderGroups}
)


class NewMember(SentUser):
    """A user to add. Send either `user_id` or `email`."""


class GroupRecord(HasPublicId, GroupFields, frozen=True, kw_only=True):
    """A group. ``organization_slug`` is the organization's public id, ``members`` their number.

    ``provisioned_by`` is the identity provider that manages it, which may have been deleted since.
    """

    id_prefix = "grp"
    id: UUID
    organization_slug: str
    provider_groups: tuple[Mapping[str, str], ...]
    provisioned_by: UUID | None
    version: int
    created_at: datetime
    created_by: str | None
    updated_at: datetime
    members: int


class MemberRecord(Struct, frozen=True):
    """A member of a group, since ``created_at``."""

    user: UserSnapshot
    created_at: datetime
    created_by: str | None


@read
def list_groups(
    actor: Actor,
    slug: str,
    page_request: PageRequest = PageRequest(),
    *,
    query: str | None = None,
    filters: Mapping[str, str] = {},
) -> Page[GroupRecord]:
    """List the groups by name.

    ``query`` is a part of a name, ``filters`` are of FILTERS. Raises InvalidInput, Forbidden, NotFound.
    """
    inside, _ = enter_organization(actor, slug, "users:read")
    _, descending = read_filters(inside, FILTERS, filters)["sort"]
    statement = select(Group).where(Group.organization_id == inside.organization_id)
    if query:
        statement = statement.where(
            func.instr(Group.name_key, literal(name_key(query), Group.name_key.type)) > 0
        )
    page = read_page(statement, (Group.name_key, Group.id), page_request, descending=descending)
    counts = count_members(inside.organization_id, [row.id for row in page.items])
    return page.map(lambda row: _record(row, slug, counts.get(row.id, 0)))


@read
def get_group(actor: Actor, slug: str, group_id: str) -> GroupRecord:
    """Return a group. Raises Forbidden, NotFound."""
    inside, _ = enter_organization(actor, slug, "users:read")
    return _load(inside, slug, group_id)


@read
def list_groups_of_user(actor: Actor, user_id: UUID) -> list[tuple[str, str]]:
    """List (public id, name) of the groups of a user of the actor's organization by name. Raises Forbidden."""
    actor.require("users:read")
    rows = db.session.execute(
        select(Group.id, Group.name)
        .join(GroupMember, is_same(GroupMember.group_id, Group.id))
        .where(Group.organization_id == actor.organization_id, GroupMember.user_id == user_id)
        .order_by(Group.name_key)
        .limit(MAX_GROUPS_PER_USER)
    )
    return [(public_id("grp", group_id), name) for group_id, name in rows]


@transaction
def create_group(actor: Actor, slug: str, fields: Mapping[str, Any]) -> GroupRecord:
    """Create a group without members.

    Raises InvalidInput naming every wrong field, Forbidden, NotFound, Conflict if the name is taken or there are 1,000
    groups. Audit: ``group.created``.
    """
    inside, _ = enter_organization(actor, slug, "users:write")
    _check(NewGroup, inside.organization_id, fields, ())
    # Serializes the callers, so that none exceeds the limit.
    touch_organization(inside.organization_id)
    if count_rows(select(Group.id).where(Group.organization_id == inside.organization_id)) >= MAX_GROUPS:
        raise Conflict(
            lazy_gettext("An organization has at most %(max)s groups.", max=MAX_GROUPS), code="too_many"
        )
    now, values = clock.now(), _values(fields)
    row = Group(
        organization_id=inside.organization_id,
        id=current_unit_of_work().stable_value(f"group {values['name']}", new_id),
        version=1,
        created_at=now,
        created_by=inside.author,
        updated_at=now,
        name_key=name_key(values["name"]),
        **{"description": "", **values},
    )
    with savepoint(on_duplicate=_name_taken()):
        db.session.add(row)
    after = {name: getattr(row, name) for name in _FIELDS if name != "provider_groups" or row.provider_groups}
    record_event(inside, "group.created", row.id, after=after)
    return _record(row, slug, 0)


@transaction
def update_group(
    actor: Actor,
    slug: str,
    group_id: str,
    fields: Mapping[str, Any],
    *,
    expected_version: ExpectedVersion = None,
) -> Updated[GroupRecord]:
    """Replace the given fields and return the group with the names of those that changed.

    Raises InvalidInput naming every wrong field, Forbidden, NotFound, PreconditionFailed, Conflict if the name is
    taken. Audit: ``group.updated``.
    """
    inside, _ = enter_organization(actor, slug, "users:write")
    row = lock_group(inside, group_id)
    _check(GroupChange, inside.organization_id, fields, row.provider_groups or ())
    require_version(row.version, expected_version)
    before = {name: getattr(row, name) for name in _FIELDS}
    after = {name: value for name, value in _values(fields).items() if value != before[name]}
    if after:
        key = {"name_key": name_key(after["name"])} if "name" in after else {}
        with savepoint(on_duplicate=_name_taken()):
            db.session.execute(
                update(Group)
                .where(has_key(Group, row.organization_id, row.id))
                .values(**after, **key, version=Group.version + 1, updated_at=clock.now())
            )
        record_event(
            inside, "group.updated", row.id, before={name: before[name] for name in after}, after=after
        )
    return Updated(_load(inside, slug, group_id), [name for name in _FIELDS if name in after])


@transaction
def delete_group(
    actor: Actor, slug: str, group_id: str, *, expected_version: ExpectedVersion = None
) -> GroupRecord:
    """Delete a group with its memberships and its roles in apps, and return it as it was.

    Raises Forbidden, NotFound, PreconditionFailed. Audit: ``group.deleted``.
    """
    inside, _ = enter_organization(actor, slug, "users:write")
    row = lock_group(inside, group_id)
    require_version(row.version, expected_version)
    deleted = _load(inside, slug, group_id)
    for model in (GroupMember, AppRoleAssignment):
        count_changed(
            delete(model).where(model.organization_id == row.organization_id, model.group_id == row.id)
        )
    count_changed(delete(Group).where(has_key(Group, row.organization_id, row.id)))
    record_event(
        inside, "group.deleted", deleted.id, before={"name": deleted.name, "members": deleted.members}
    )
    return deleted


@read
def list_members(
    actor: Actor,
    slug: str,
    group_id: str,
    page_request: PageRequest = PageRequest(),
    *,
    query: str | None = None,
) -> Page[MemberRecord]:
    """List the members of a group by email. ``query`` is a part of an email or name, or a whole ``usr_…``.

    Raises Forbidden, NotFound.
    """
    inside, _ = enter_organization(actor, slug, "users:read")
    group = _load(inside, slug, group_id)
    statement = (
        select(GroupMember.created_at, GroupMember.created_by, *USER_COLUMNS)
        .join(GroupMember, is_same(GroupMember.user_id, User.id))
        .where(User.organization_id == inside.organization_id, GroupMember.group_id == group.id)
    )
    if query:
        statement = where_user_matches(statement, query)
    with take_search_slot(inside.organization_id, query):
        page = read_page(statement, (User.email_canonical, User.id), page_request, descending=False)
    return page.map(lambda row: MemberRecord(snapshot_of(row), *row[:2]))


@transaction
def add_member(actor: Actor, slug: str, group_id: str, fields: Mapping[str, Any]) -> MemberRecord:
    """Add the user named by ``user_id`` or ``email`` to a group.

    Raises InvalidInput naming the field, Forbidden, NotFound for the group, Conflict if the user is a member already
    or has 100 groups. Audit: ``group.member_added``.
    """
    inside, _ = enter_organization(actor, slug, "users:write")
    group = lock_group(inside, group_id, shared=True)
    parse_shape(NewMember, fields)
    user = find_sent_user(inside.organization_id, fields)
    row = join_group(inside, group.id, user)
    return MemberRecord(user, row.created_at, row.created_by)


@transaction
def join_group(actor: Actor, group_id: UUID, user: UserSnapshot) -> GroupMember:
    """Add a user to a group of the actor's organization. The caller holds both.

    Raises Conflict if the user is a member already or has 100 groups. Audit: ``group.member_added``.
    """
    if count_where(is_of_user(GroupMember, actor.organization_id, user.id)) >= MAX_GROUPS_PER_USER:
        raise Conflict(
            lazy_gettext("A user can be in at most %(max)s groups.", max=MAX_GROUPS_PER_USER), code="too_many"
        )
    row = GroupMember(
        organization_id=actor.organization_id,
        group_id=group_id,
        user_id=user.id,
        created_at=clock.now(),
        created_by=actor.author,
    )
    duplicate = Conflict("This user is already a member of the group.", code="already_member")
    with savepoint(on_duplicate=duplicate):
        db.session.add(row)
    record_event(actor, "group.member_added", group_id, after={"user": user.public_id})
    return row


@transaction
def remove_member(actor: Actor, slug: str, group_id: str, user_id: str) -> None:
    """Remove a user from a group. Raises Forbidden, and NotFound if the user is not a member.

    Audit: ``group.member_removed``.
    """
    inside, _ = enter_organization(actor, slug, "users:write")
    group = _load(inside, slug, group_id)
    if not leave_group(inside, group.id, parse_user_id(user_id)):
        raise NotFound("There is no such member.")


@transaction
def leave_group(actor: Actor, group_id: UUID, user_id: UUID) -> bool:
    """Remove a user from a group of the actor's organization, and return whether they were a member.

    Audit: ``group.member_removed``.
    """
    removed = count_changed(
        delete(GroupMember).where(
            GroupMember.organization_id == actor.organization_id,
            GroupMember.group_id == group_id,
            GroupMember.user_id == user_id,
        )
    )
    if removed == 1:
        record_event(actor, "group.member_removed", group_id, before={"user": public_id("usr", user_id)})
    return removed == 1


def hold_groups(organization_id: str, names: Iterable[str]) -> dict[str, tuple[UUID, str]]:
    """Return (id, name) of the groups with these names in any case, by the name that was sent.

    They are not deleted until the transaction ends.
    """
    keys = {name: name_key(name) for name in names}
    if not keys:
        return {}
    statement = select(Group.id, Group.name, Group.name_key).where(
        Group.organization_id == organization_id, Group.name_key.in_(sorted(set(keys.values())))
    )
    rows = db.session.execute(statement.order_by(Group.id).with_for_update(read=True))
    found = {row.name_key: (row.id, row.name) for row in rows}
    return {name: found[key] for name, key in keys.items() if key in found}


def find_groups_of_user(actor: Actor, user_id: UUID) -> set[UUID]:
    """Return the ids of the groups of a user of the actor's organization."""
    held = select(GroupMember.group_id).where(is_of_user(GroupMember, actor.organization_id, user_id))
    return set(db.session.scalars(held))


def lock_group(actor: Actor, group_id: str, *, shared: bool = False) -> Group:
    """Return the group with the id ``grp_…``, which is not deleted until the transaction ends. Raises NotFound.

    Several transactions may hold it at the same time if it is ``shared``.
    """
    statement = _select(actor, group_id).with_for_update(read=shared)
    row: Group = get_row(statement, "There is no such group.")
    return row


def _select(actor: Actor, group_id: str) -> Select[Any]:
    return select(Group).where(has_key(Group, actor.organization_id, parse_public_id("grp", group_id)))


def _load(actor: Actor, slug: str, group_id: str) -> GroupRecord:
    row = get_row(_select(actor, group_id), "There is no such group.")
    return _record(row, slug, count_members(actor.organization_id, [row.id]).get(row.id, 0))


def count_members(organization_id: str, group_ids: Sequence[UUID]) -> dict[UUID, int]:
    """Return how many members each of these groups has, without those that have none."""
    if not group_ids:
        return {}
    rows = db.session.execute(
        select(GroupMember.group_id, func.count())
        .where(GroupMember.organization_id == organization_id, GroupMember.group_id.in_(group_ids))
        .group_by(GroupMember.group_id)
    )
    return {group_id: int(count) for group_id, count in rows}


def _check(
    shape: type[Shape], organization_id: str, fields: Mapping[str, Any], known: Collection[Mapping[str, str]]
) -> None:
    """Check the fields that were sent; ``known`` are the group's ``provider_groups``, of deleted providers too.

    Raises InvalidInput naming every wrong field.
    """
    errors = ValidationErrors()
    check_shape(errors, shape, fields, read_only=_READ_ONLY, required=_NAME_REQUIRED)
    errors.raise_if_any()
    sent = fields.get("provider_groups") or ()
    providers = find_provider_names(organization_id).keys() | {each["provider_id"] for each in known}
    for position, each in enumerate(sent):
        if each["provider_id"] not in providers:
            message = "There is no such identity provider."
            errors.add(f"provider_groups[{position}].provider_id", "unknown_provider", message)
    errors.raise_if_any()


def _values(fields: Mapping[str, Any]) -> dict[str, Any]:
    values: dict[str, Any] = {name: fields[name] or "" for name in ("name", "description") if name in fields}
    if "provider_groups" in fields:
        values["provider_groups"] = fields["provider_groups"] or None
    return values


def _record(row: Group, slug: str, members: int) -> GroupRecord:
    provider_groups = tuple(row.provider_groups or ())
    return make_record(
        GroupRecord, row, organization_slug=slug, provider_groups=provider_groups, members=members
    )


def _name_taken() -> Conflict:
    return Conflict("A group with this name already exists.", field="name", code="taken")


def record_event(actor: Actor, action: str, group_id: UUID, **values: Any) -> None:
    """Record an event whose target is a group. The rest is as in ``audit.record``."""
    audit.record(actor, action, "group", public_id("grp", group_id), **values)
