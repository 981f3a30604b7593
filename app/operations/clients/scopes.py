"""Scopes of an organization, with the titles and descriptions that the consent page shows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import ColumnElement, Select, bindparam, func, literal, or_, select, true, update
from sqlalchemy.exc import IntegrityError

from app.database import ACROSS
from app.database_errors import is_duplicate_key
from app.extensions import db
from app.fast_path import cache_invalidation
from app.fast_path.compiled_query import ListQuery
from app.models.base import is_same
from app.models.client import Resource, Scope
from app.models.organization import Organization
from app.operations.directory.lookups import is_served_here
from app.operations.store import audit, clock
from app.operations.store.rows import Page, PageRequest, Updated, count_rows, make_record, read_page
from app.operations.store.transactions import (
    OutdatedRead,
    count_changed,
    read,
    transaction,
    transaction_part,
)
from app.rules.actor import Actor
from app.rules.clients.resource_fields import ScopeText
from app.rules.clients.resource_indicators import LISTED
from app.rules.errors import Busy, Conflict, NotFound
from app.rules.identifiers import new_id, public_id
from app.rules.languages.translation import lazy_gettext
from app.rules.scopes import GROUPS, ROLES
from app.rules.shapes import parse_shape
from app.rules.versions import ExpectedVersion, require_version

MAX_SCOPES = 1000
IDENTITY_SCOPES = {
    "openid": (lazy_gettext("Sign you in"), lazy_gettext("The app learns which account you use.")),
    "profile": (lazy_gettext("See your name"), lazy_gettext("Your name and other profile details.")),
    "email": (
        lazy_gettext("See your email address"),
        lazy_gettext("Your email address, and whether it is verified."),
    ),
    "address": (lazy_gettext("See your postal address"), lazy_gettext("The postal address in your profile.")),
    "phone": (
        lazy_gettext("See your phone number"),
        lazy_gettext("The phone number in your profile, and whether it is verified."),
    ),
    "groups": (lazy_gettext("See your groups"), lazy_gettext("The groups that you belong to.")),
    "roles": (
        lazy_gettext("See your roles in the app"),
        lazy_gettext("The roles that you have in this app."),
    ),
    "offline_access": (
        lazy_gettext("Keep access while you are away"),
        lazy_gettext("Even when you aren’t signed in."),
    ),
}


class ScopeRecord(Struct, frozen=True):
    """One scope. ``title`` is None until someone sets the text for the consent page."""

    name: str
    title: str | None
    description: str | None
    is_identity: bool
    resource_id: UUID | None = None
    resource_name: str | None = None
    version: int = 1

    @property
    def resource_public_id(self) -> str | None:
        """``res_…`` of its resource, or None for a scope that is valid at any resource."""
        return None if self.resource_id is None else public_id("res", self.resource_id)


@read
def list_scopes(actor: Actor) -> list[ScopeRecord]:
    """List all scopes of the actor's organization by name. There are at most 1,000."""
    rows = db.session.execute(_select_scopes(actor).order_by(Scope.name).limit(MAX_SCOPES))
    return [_record(scope, resource_name) for scope, resource_name in rows]


def find_scopes(organization_id: str, names: Sequence[str]) -> dict[str, ScopeRecord]:
    """Find the organization's scopes with these names."""
    if not names:
        return {}
    rows = _FIND.rows(names, organization_id=organization_id)
    return {row.name: _record(row, row.resource_name) for row in rows}


@read
def list_offered_scopes(actor: Actor, *, also: Collection[str] = ()) -> list[ScopeRecord]:
    """List the scopes that the actor can choose for a client, by name.

    Those of APIs for listed clients are left out, unless the actor can see the API or they are among ``also``.
    """
    offered = or_(_is_visible(actor), Scope.name.in_(list(also)))
    rows = db.session.execute(_select_scopes(actor).where(offered).order_by(Scope.name).limit(MAX_SCOPES))
    return [_record(scope, resource_name) for scope, resource_name in rows]


def list_public_scopes(organization_id: str) -> tuple[str, ...]:
    """List the names of the scopes that anyone can choose for a client."""
    return tuple(scope.name for scope in list_offered_scopes(Actor.anonymous(organization_id)))


@read
def search_scopes(
    actor: Actor, page_request: PageRequest = PageRequest(), *, query: str | None = None
) -> Page[ScopeRecord]:
    """List a page of scopes by name. ``query`` is a part of a name. Raises Forbidden."""
    actor.require_for_own("resources:read")
    statement = _select_scopes(actor).where(_is_visible(actor))
    if query:
        statement = statement.where(func.instr(Scope.name, literal(query, Scope.name.type)) > 0)
    return read_page(statement, (Scope.name,), page_request, descending=False).map(lambda row: _record(*row))


@read
def get_scope(actor: Actor, name: str) -> ScopeRecord:
    """Return the scope with this name. Raises NotFound, Forbidden."""
    actor.require_for_own("resources:read")
    return find_scope(actor, name, _is_visible(actor))


def can_edit_scope(actor: Actor, scope: ScopeRecord) -> bool:
    """Return whether the actor can change the scope's texts. Those of a resource are changed in the resource."""
    return scope.resource_id is None and actor.has_permission("resources:write")


def can_delete_scope(actor: Actor, scope: ScopeRecord) -> bool:
    """Return whether the actor can delete the scope: one of no resource that OpenID Connect does not define."""
    return can_edit_scope(actor, scope) and not scope.is_identity


@transaction
def update_scope(
    actor: Actor, name: str, fields: Mapping[str, Any], *, expected_version: ExpectedVersion = None
) -> Updated[ScopeRecord]:
    """Change the texts of a scope. Return it with the names of the fields that changed.

    ``null`` removes a text. Raises InvalidInput naming every wrong field, NotFound, Forbidden,
    PreconditionFailed, and Conflict for a scope of a resource, whose texts belong to the resource. Audit:
    ``scope.updated``.
    """
    actor.require("resources:write")
    scope = find_scope(actor, name)
    sent = parse_shape(ScopeText, fields, read_only=("name", "is_identity", "resource_id"))
    require_version(scope.version, expected_version)
    if scope.resource_id is not None:
        raise Conflict(
            "This scope belongs to an API. Change its description there.", code="belongs_to_resource"
        )
    texts = sent.model_dump(exclude_unset=True)
    values = {field: text for field, text in texts.items() if text != getattr(scope, field)}
    if not values:
        return Updated(scope, [])
    statement = update(Scope).where(
        Scope.organization_id == actor.organization_id,
        Scope.name == name,
        Scope.version == scope.version,
        Scope.resource_id.is_(None),
    )
    if count_changed(statement.values(**values, version=scope.version + 1)) != 1:
        raise OutdatedRead(Busy("The scope is being changed by others right now. Try again."))
    before = {field: getattr(scope, field) for field in values}
    audit.record(actor, "scope.updated", "scope", name[:64], before=before, after=values)
    return Updated(replace(scope, **values, version=scope.version + 1), list(values))


@transaction
def add_scopes(actor: Actor, names: Iterable[str]) -> list[str]:
    """Add unknown scopes, without texts yet. Return the new names.

    Raises Conflict past 1,000 scopes, OutdatedRead if another transaction just added one of them. Audit:
    ``scope.added``.
    """
    actor.require("resources:write")
    wanted = list(dict.fromkeys(names))
    known = set(
        db.session.scalars(
            select(Scope.name).where(Scope.organization_id == actor.organization_id, Scope.name.in_(wanted))
        )
    )
    new = [name for name in wanted if name not in known]
    enforce_scope_limit(actor.organization_id, len(new))
    try:
        with db.session.begin_nested():
            # Sorted, so that two transactions that add the same do not wait for each other.
            for name in sorted(new):
                db.session.add(
                    Scope(
                        organization_id=actor.organization_id,
                        id=new_id(),
                        name=name,
                        created_at=clock.now(),
                        created_by=actor.author,
                    )
                )
    except IntegrityError as error:
        if not is_duplicate_key(error):
            raise
        raise OutdatedRead from error
    for name in new:
        audit.record(actor, "scope.added", "scope", name[:64])
    if new:
        # The discovery document lists them.
        cache_invalidation.invalidate(actor.organization_id)
    return new


def enforce_scope_limit(organization_id: str, new: int) -> None:
    """Raise Conflict if the organization would have more than 1,000 scopes with the new ones."""
    if not new:
        return
    if count_rows(select(Scope.name).where(Scope.organization_id == organization_id)) + new > MAX_SCOPES:
        raise Conflict(
            lazy_gettext("An organization has at most %(max)s scopes.", max=MAX_SCOPES), code="too_many"
        )


@transaction_part
def seed_identity_scopes(organization_id: str) -> None:
    """Add the standard scopes that the organization lacks."""
    existing = select(Scope.name).where(
        Scope.organization_id == organization_id, Scope.name.in_(list(IDENTITY_SCOPES))
    )
    known, now = set(db.session.scalars(existing)), clock.now()
    for name, (title, description) in IDENTITY_SCOPES.items():
        if name not in known:
            db.session.add(
                Scope(
                    organization_id=organization_id,
                    id=new_id(),
                    name=name,
                    title=title,
                    description=description,
                    is_identity=True,
                    created_at=now,
                )
            )
    # The discovery document lists them.
    cache_invalidation.invalidate(organization_id)


@read
def find_without_identity_scopes(limit: int) -> list[str]:
    """Return organizations without ``groups`` or ``roles``.

    A host of release 0.1 has created them during an upgrade, or they had a scope of this name, which they have deleted.
    """
    has = (Scope.organization_id == Organization.id) & Scope.name.in_([GROUPS, ROLES])
    count = select(func.count()).select_from(Scope).where(has).scalar_subquery()
    found = select(Organization.id).where(is_served_here(Organization.id), count < 2)
    return list(db.session.scalars(found.limit(limit).execution_options(**ACROSS)))


def _select_scopes(actor: Actor) -> Select[Scope, str]:
    return (
        select(Scope, Resource.name)
        .outerjoin(Resource, is_same(Resource.id, Scope.resource_id))
        .where(Scope.organization_id == actor.organization_id)
    )


def _is_visible(actor: Actor) -> ColumnElement[bool]:
    """Scopes of APIs for listed clients exist only for those who can see the API."""
    if actor.has_permission("resources:read"):
        return true()
    visible = or_(Resource.id.is_(None), Resource.access_policy != LISTED)
    if actor.user_id is None or not actor.has_permission_for_own("resources:read"):
        return visible
    return or_(visible, Resource.owner_id == actor.user_id)


def find_scope(actor: Actor, name: str, *conditions: ColumnElement[bool]) -> ScopeRecord:
    """Return the scope with this name, which must meet the conditions. Raises NotFound."""
    row = db.session.execute(
        _select_scopes(actor).where(Scope.name == name, *conditions).execution_options(populate_existing=True)
    ).first()
    if row is None:
        raise NotFound("There is no such scope.")
    return _record(*row)


_FIND = ListQuery(
    select(
        Scope.name,
        Scope.title,
        Scope.description,
        Scope.is_identity,
        Scope.resource_id,
        Scope.version,
        Resource.name.label("resource_name"),
    )
    .outerjoin(Resource, is_same(Resource.id, Scope.resource_id))
    .where(Scope.organization_id == bindparam("organization_id")),
    Scope.name,
)


def _record(scope: Any, resource_name: str | None) -> ScopeRecord:
    return make_record(ScopeRecord, scope, resource_name=resource_name)
