"""Reading users, lists with search, filters and order, and disabling and enabling users."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from msgspec import Struct, field
from sqlalchemy import ColumnElement, Select, bindparam, exists, func, or_, select

from app.fast_path.compiled_query import CompiledQuery, ListQuery
from app.models.base import has_key, is_of_user
from app.models.identity_provider import LinkedIdentity
from app.models.user import ACTIVE, DELETED, DISABLED, RoleAssignment, User
from app.operations.directory.lookups import get_organization_by_id, get_user_roles
from app.operations.directory.users import (
    USER_COLUMNS,
    UserSnapshot,
    find_user_by_email,
    get_user,
    parse_user_id,
    snapshot_of,
    update_user_row,
)
from app.operations.sign_in.actor_access import require_manageable_user
from app.operations.sign_in.second_factors import find_methods_of_user, find_methods_of_users
from app.operations.sign_in.sessions import end_access_of_user
from app.operations.store import audit
from app.operations.store.rows import Page, PageQuery, PageRequest
from app.operations.store.text_search import contains_part, searched_part, take_search_slot
from app.operations.store.transactions import read, transaction
from app.operations.users import account_links
from app.operations.users.role_assignments import require_other_administrators_everywhere
from app.rules.actor import Actor
from app.rules.directory.attributes import attributes_of, current_values
from app.rules.directory.permissions import effective_roles
from app.rules.errors import NotFound
from app.rules.filters import Filters, choice_filter, id_filter, read_filters, sort_filter, text_filter
from app.rules.identifiers import parse_public_id, public_id
from app.rules.mail.email_addresses import canonical_email
from app.rules.users.profile import STATUSES

_COLUMNS = (User.provisioned_by, User.external_id, User.user_name, *USER_COLUMNS)
_FIND = CompiledQuery(
    select(*_COLUMNS).where(
        has_key(User, bindparam("of_organization"), bindparam("of_user")), User.status != DELETED
    )
)
# Ids are time-ordered, so ordering by id is ordering by creation.
FILTERS: Filters = {
    "status": choice_filter(STATUSES, "Users with this status."),
    "role": text_filter("Users with this role."),
    "identity_provider": id_filter(
        "idp", "identity provider", "Users who have linked an account at this identity provider."
    ),
    "sort": sort_filter("email", "created_at"),
}


class Provisioning(Struct, frozen=True):
    """The identity provider that manages a user by SCIM, and its names for them.

    ``user_name`` is None if that is the email. The provider may have been deleted since.
    """

    provider_id: str
    external_id: str | None
    user_name: str | None


class UserRecord(Struct, frozen=True):
    """A user with their roles, second-factor methods and custom attributes, and who manages them.

    ``organization_slug`` is their home organization.
    """

    user: UserSnapshot
    organization_slug: str
    roles: tuple[str, ...]
    methods: tuple[str, ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)
    provisioning: Provisioning | None = None

    @property
    def version(self) -> int:
        """Version of the user."""
        return self.user.version


@read
def get_user_record(actor: Actor, user_id: str) -> UserRecord:
    """Return the user with the id ``usr_…``. Raises Forbidden, NotFound."""
    actor.require("users:read")
    return load_user_record(actor, parse_user_id(user_id))


@read
def find_user_record(actor: Actor, user: str) -> UserRecord:
    """Return the user with the id ``usr_…`` or the email, in any spelling. Raises Forbidden, NotFound."""
    actor.require("users:read")
    found = find_user_by_email(actor.organization_id, user) if "@" in user else None
    return load_user_record(actor, found.id if found else parse_user_id(user))


@read
def load_user_record(actor: Actor, user_id: UUID) -> UserRecord:
    """Return a user of the actor's organization without checking permissions. Raises NotFound."""
    organization_id = actor.organization_id
    row = _FIND.first(of_organization=organization_id, of_user=user_id)
    if row is None:
        raise NotFound("There is no such user.")
    view = snapshot_of(row)
    roles, methods = (
        get_user_roles(organization_id, organization_id, user_id),
        find_methods_of_user(organization_id, user_id),
    )
    organization = get_organization_by_id(organization_id, fresh=False)
    attributes = current_values(attributes_of(organization.settings), view.attributes)
    return UserRecord(view, organization.slug, roles, methods, attributes, _provisioning(row))


def roles_of_users(organization_id: str, user_ids: Sequence[UUID]) -> Mapping[UUID, tuple[str, ...]]:
    """Return the roles of each user of a page with a single query."""
    roles: dict[UUID, tuple[str, ...]] = {}
    if not user_ids:
        return roles
    for user_id, role in _ROLES.rows(user_ids, organization_id=organization_id):
        roles[user_id] = (*roles.get(user_id, ()), role)
    return roles


_ROLES = ListQuery(
    select(RoleAssignment.user_id, RoleAssignment.role)
    .where(
        RoleAssignment.organization_id == bindparam("organization_id"),
        RoleAssignment.user_organization_id == bindparam("organization_id"),
    )
    .order_by(RoleAssignment.role),
    RoleAssignment.user_id,
)


def list_users(
    actor: Actor,
    page_request: PageRequest = PageRequest(),
    *,
    query: str | None = None,
    filters: Mapping[str, str] = {},
) -> Page[UserRecord]:
    """Return a page of the organization's users without the deleted ones.

    ``query`` is the email of a user or a whole ``usr_…``, otherwise a part of an email or name. ``filters`` are of
    FILTERS. Raises Forbidden, and InvalidInput, also for a role that the organization does not have.
    """
    actor.require("users:read")
    organization = get_organization_by_id(actor.organization_id, fresh=False)
    roles_here = choice_filter(effective_roles(organization.settings), "")
    values = read_filters(actor, {**FILTERS, "role": roles_here}, filters)
    values["organization_id"] = organization.id
    sort, descending = values.pop("sort")
    columns = (User.email_canonical, User.id) if sort == "email" else (User.id,)
    page = Page[Any](())
    # Most searches are for a whole email, which has an index. A part is looked for in every user.
    if query and (email := canonical_email(query)) is not None:
        page = _LIST.read(columns, page_request, descending=descending, **values, email=email)
    if not page.items:
        searched = _searched(query) if query else {}
        with take_search_slot(organization.id, searched.get("part")):
            page = _LIST.read(columns, page_request, descending=descending, **values, **searched)
    ids = [row.id for row in page.items]
    roles, methods = roles_of_users(organization.id, ids), find_methods_of_users(organization.id, ids)
    definitions = attributes_of(organization.settings)
    return page.map(
        lambda row: UserRecord(
            snapshot_of(row),
            organization.slug,
            roles.get(row.id, ()),
            methods.get(row.id, ()),
            current_values(definitions, row.attributes or {}),
            _provisioning(row),
        )
    )


def _provisioning(row: Any) -> Provisioning | None:
    if row.provisioned_by is None:
        return None
    return Provisioning(public_id("idp", row.provisioned_by), row.external_id, row.user_name)


_CONDITIONS: Mapping[str, ColumnElement[bool]] = {
    "organization_id": User.organization_id == bindparam("organization_id"),
    "status": User.status == bindparam("status"),
    "role": exists().where(
        RoleAssignment.organization_id == bindparam("organization_id"),
        RoleAssignment.user_organization_id == User.organization_id,
        RoleAssignment.user_id == User.id,
        RoleAssignment.role == bindparam("role"),
    ),
    "identity_provider": exists().where(
        is_of_user(LinkedIdentity, bindparam("organization_id"), User.id),
        LinkedIdentity.provider_id == bindparam("identity_provider", type_=LinkedIdentity.provider_id.type),
    ),
    "user_id": User.id == bindparam("user_id"),
    "email": User.email_canonical == bindparam("email", type_=User.email_canonical.type),
    # INSTR compares bytes on every engine and has no wildcards to escape.
    "part": or_(
        func.instr(User.email_canonical, bindparam("part", type_=User.email_canonical.type)) > 0,
        # The email as typed too, because the canonical form has "münchen.example" in ASCII.
        contains_part(User.name + " " + User.email, bindparam("typed_part", type_=User.name.type)),
    ),
}
_LIST = PageQuery(
    lambda given: select(*_COLUMNS).where(
        User.status != DELETED, *(_CONDITIONS[name] for name in sorted(given & _CONDITIONS.keys()))
    )
)


def where_user_matches(statement: Select[Any], query: str) -> Select[Any]:
    """Return the statement with only the users whose email or name has the part ``query``, or whose id it is."""
    values = _searched(query)
    return statement.where(*(_CONDITIONS[name] for name in _CONDITIONS if name in values)).params(values)


def _searched(query: str) -> dict[str, Any]:
    user_id = parse_public_id("usr", query)
    if user_id is not None:
        return {"user_id": user_id}
    return {"part": query.lower(), "typed_part": searched_part(query)}


@transaction
def disable_user(actor: Actor, user_id: UUID) -> UserSnapshot:
    """Disable a user, and end their sessions, grants and links at once (SS-6).

    A repeated call changes nothing. Raises NotFound, Forbidden when the user has a role that the actor lacks,
    LastAdministrator. Audit: ``user.disabled``.
    """
    user = require_manageable_user(actor, user_id)
    require_other_administrators_everywhere(actor.organization_id, user_id)
    if _set_status(actor, user_id, DISABLED):
        ended = end_access_of_user(actor, user_id, reason="user_disabled")
        # A link that was sent before must not work again once the user is enabled.
        account_links.revoke_links(actor.organization_id, user_id)
        audit.record_user_event(actor, "user.disabled", user.id, after={"status": DISABLED, **ended})
    return get_user(actor.organization_id, user_id)


@transaction
def enable_user(actor: Actor, user_id: UUID) -> UserSnapshot:
    """Enable a user again, without restoring sessions or grants.

    Raises NotFound, Forbidden. Audit: ``user.enabled``.
    """
    require_manageable_user(actor, user_id)
    if _set_status(actor, user_id, ACTIVE):
        audit.record_user_event(actor, "user.enabled", user_id, after={"status": ACTIVE})
    return get_user(actor.organization_id, user_id)


def _set_status(actor: Actor, user_id: UUID, status: str) -> bool:
    # A user who was deleted in the meantime stays deleted.
    is_other = User.status.not_in((status, DELETED))
    return update_user_row(actor.organization_id, user_id, is_other, status=status)
