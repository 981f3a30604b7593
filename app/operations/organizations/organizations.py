"""Organizations: create, rename, suspend, delete and restore. A deleted organization keeps its id reserved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct
from sqlalchemy import Select, String, func, literal, or_, select, update

from app.extensions import db
from app.fast_path import cache_invalidation
from app.models.organization import ACTIVE, DELETED, PURGED, SUSPENDED, Organization
from app.operations.clients.scopes import seed_identity_scopes
from app.operations.directory.lookups import (
    current_limits,
    get_organization_by_id,
    get_root_organization,
)
from app.operations.grants.grants import log_revocation
from app.operations.mail.notices import email_administrators
from app.operations.organizations.settings import require_changeable
from app.operations.sign_in.actor_access import enter_organization
from app.operations.sign_in.reauthentication import require_fresh_user_sign_in
from app.operations.store import audit, clock, keyring
from app.operations.store.rows import Page, PageRequest, Updated, has_rows, make_record, read_page
from app.operations.store.text_search import contains_part, searched_part
from app.operations.store.transactions import (
    OutdatedRead,
    count_changed,
    current_unit_of_work,
    read,
    savepoint,
    transaction,
)
from app.operations.users.invitations import NewInvitation, create_invitation
from app.rules.actor import Actor
from app.rules.errors import Busy, Conflict, Forbidden, NotFound, OrganizationMoved
from app.rules.filters import Filters, choice_filter, read_filters, sort_filter
from app.rules.identifiers import new_routing_key
from app.rules.languages.translation import lazy_gettext
from app.rules.organizations.organizations import (
    OrganizationPlan,
    parse_new_organization,
    parse_organization_changes,
    slug_candidates,
)
from app.rules.organizations.settings import overridden_paths
from app.rules.versions import ExpectedVersion, require_version

DELETED_ACTION = "organization.deleted"
LISTED_STATUSES = (ACTIVE, SUSPENDED, DELETED)
FILTERS: Filters = {
    "status": choice_filter(LISTED_STATUSES, "Organizations with this status."),
    "sort": sort_filter("id"),
}
DELETION_RETENTION = timedelta(days=30)


class SlugTaken(Conflict):
    """The id belongs or belonged to an organization. Ids are never reused (TN-8)."""

    code = "id_taken"


@transaction
def insert_organization(
    actor: Actor, *, slug: str, name: str, is_root: bool = False, overrides: Mapping[str, Any] | None = None
) -> str:
    """Create the row of an organization with its data key and identity scopes, and return its routing key.

    Part of setup, demo data and organization creation. Raises SlugTaken. Audit: ``organization.created`` in its own
    log.
    """
    unit = current_unit_of_work()
    key: str = unit.stable_value(f"organization {slug}", new_routing_key)
    now = clock.now()
    organization = Organization(
        id=key,
        slug=slug,
        name=name,
        is_root=is_root,
        settings=dict(overrides or {}),
        # An earlier attempt may have put it into the cache of this process, which seals with it.
        data_key=unit.stable_value(f"data key {slug}", lambda: keyring.new_data_key(key)),
        created_at=now,
        created_by=actor.author,
        updated_at=now,
    )
    with savepoint(on_duplicate=slug_taken_error(slug)):
        db.session.add(organization)
    seed_identity_scopes(key)
    inside = (
        Actor.system(key, actor.label) if actor.kind == "system" else actor.acting_in(key, actor.permissions)
    )
    audit.record(inside, "organization.created", "organization", slug, after={"name": name})
    return key


def is_slug_taken(slug: str) -> bool:
    """Return whether an organization has or had the slug."""
    return db.session.scalar(select(Organization.id).where(Organization.slug == slug)) is not None


def slug_taken_error(slug: str) -> SlugTaken:
    """Return the error for a slug that is or was taken."""
    return SlugTaken(
        lazy_gettext("The ID %(slug)s is in use or was used before. Choose another ID.", slug=slug),
        field="id",
    )


def action_for_change(old_status: str, changed: Mapping[str, Any]) -> str:
    """Return the audit action for changes to an organization that had ``old_status``."""
    if "status" not in changed:
        return "organization.updated"
    if old_status == DELETED:
        return "organization.restored"
    return "organization.resumed" if changed["status"] == ACTIVE else "organization.suspended"


def record_organization_event(
    actor: Actor, slug: str, action: str, before: Mapping[str, Any], after: Mapping[str, Any]
) -> None:
    """Record the event in the organization's audit log and, where needed, in root's.

    Root's log has what root's users and clients did, and every deletion, because the organization's own log is deleted
    with its data. Both rows are written in the current transaction.
    """
    logs = [actor]
    if actor.home_organization_id != actor.organization_id or action == DELETED_ACTION:
        root = _root_id()
        if root is not None and root != actor.organization_id:
            # The same actor without permissions in root. The row shows where it belongs.
            logs.insert(0, actor.acting_in(root, frozenset()))
    for log in logs:
        audit.record(log, action, "organization", slug, before=dict(before), after=dict(after))


def _root_id() -> str | None:
    try:
        return get_root_organization().id
    except NotFound:
        return None


class RootProtected(Conflict):
    """The root organization can be neither suspended nor deleted."""

    code = "root_protected"


class OrganizationRecord(Struct, frozen=True):
    """An organization as its administrators see it; ``slug`` is its id in the API."""

    id: str
    slug: str
    name: str
    status: str
    is_root: bool
    version: int
    created_at: datetime
    created_by: str | None
    updated_at: datetime
    purge_at: datetime | None

    def issuer(self, base_url: str) -> str:
        """Return the issuer of its tokens. For root this is the base URL."""
        return base_url if self.is_root else f"{base_url}/organizations/{self.slug}"


class CreatedOrganization(Struct, frozen=True):
    """The new organization, and the invitation of its first administrator if one was requested.

    ``shares_name``: another organization that is not deleted has the same name.
    """

    organization: OrganizationRecord
    invitation: NewInvitation | None
    shares_name: bool


@transaction
def create_organization(actor: Actor, fields: Mapping[str, Any]) -> CreatedOrganization:
    """Create an organization with its keys, scopes and settings, and invite its first administrator.

    ``fields`` are ``name`` and optionally ``id``, ``admin: {email, name}`` and ``settings``. Raises InvalidInput naming
    every invalid field, SlugTaken, and Forbidden, also for ``limits`` in the settings without ``instance:write``.
    Audit: ``organization.created``, in root's log and in its own.
    """
    actor.require("organizations:write")
    _require_at_root(actor)
    wanted = parse_new_organization(fields, current_limits())
    require_changeable(actor, overridden_paths(wanted.overrides), field_prefix="settings.")
    slugs = [wanted.slug] if wanted.slug_was_chosen else slug_candidates(wanted.slug)
    slug, organization_id = _insert_with_free_slug(actor, slugs, wanted)
    audit.record(
        actor,
        "organization.created",
        "organization",
        slug,
        after={"name": wanted.name, "settings": wanted.overrides},
    )
    invitation = None
    if wanted.admin_email is not None:
        inside = actor.acting_in(organization_id, actor.permissions)
        invitation = create_invitation(
            inside, slug, email=wanted.admin_email, name=wanted.admin_name, role="admin"
        )
    shares_name = has_rows(_others_of_same_name(organization_id, wanted.name))
    return CreatedOrganization(_record(_row(Organization.id == organization_id)), invitation, shares_name)


def _insert_with_free_slug(actor: Actor, slugs: Sequence[str], wanted: OrganizationPlan) -> tuple[str, str]:
    """Insert the organization with the first of the slugs that is free, and return the slug and the routing key."""
    for slug in slugs:
        # Another request may take it meanwhile.
        with suppress(SlugTaken):
            if not is_slug_taken(slug):
                return slug, insert_organization(
                    actor, slug=slug, name=wanted.name, overrides=wanted.overrides
                )
    raise slug_taken_error(slugs[0])


def _others_of_same_name(organization_id: str, name: str) -> Select[Any]:
    return select(Organization.id).where(
        Organization.id != organization_id, Organization.name == name, Organization.status != DELETED
    )


@read
def get_organization(actor: Actor, slug: str) -> OrganizationRecord:
    """Return the organization. Raises NotFound unless it is the actor's own. Root also sees deleted ones."""
    inside, row = _reach(actor, slug)
    inside.require("organization:read")
    return _record(row)


@read
def list_organizations(
    actor: Actor,
    page_request: PageRequest = PageRequest(),
    *,
    query: str | None = None,
    filters: Mapping[str, str] = {},
) -> Page[OrganizationRecord]:
    """List organizations by id: all for root, and only their own for other actors.

    ``query`` is a part of an id or a name, ``filters`` are of FILTERS; without a status deleted organizations are left
    out. Raises InvalidInput, Forbidden.
    """
    values = read_filters(actor, FILTERS, filters)
    status, (_, descending) = values.get("status"), values["sort"]
    if not actor.has_permission("organizations:read"):
        actor.require("organization:read")
        own = _record(_row(Organization.id == actor.organization_id))
        matches = (status in {None, own.status}) and _matches(own, query) and page_request.after is None
        return Page((own,) if matches else ())
    shown = (Organization.status == status) if status else Organization.status.in_((ACTIVE, SUSPENDED))
    statement = select(Organization).where(shown, Organization.status != PURGED)
    if query:
        part = literal(query.lower(), Organization.slug.type)
        statement = statement.where(
            or_(
                func.instr(Organization.slug, part) > 0,
                contains_part(Organization.name, literal(searched_part(query), String())),
            )
        )
    return read_page(statement, (Organization.slug,), page_request, descending=descending).map(_record)


@transaction
def update_organization(
    actor: Actor, slug: str, fields: Mapping[str, Any], *, expected_version: ExpectedVersion = None
) -> Updated[OrganizationRecord]:
    """Change the name or the status of an organization.

    ``name`` requires ``organization:write``, ``status`` root's ``organizations:write``. ``active`` resumes a suspended
    organization. Both statuses restore a deleted one until the purge is due; after that all users sign in again and
    clients request new tokens. Raises InvalidInput, NotFound, RootProtected, Conflict, PreconditionFailed. Audit:
    ``organization.updated``, ``.suspended``, ``.resumed`` or ``.restored``, as ``record_organization_event`` says.
    """
    inside, row = _reach(actor, slug)
    if "status" in fields or row.status == DELETED:
        actor.require("organizations:write")
    if row.status != DELETED and ("name" in fields or "status" not in fields):
        inside.require("organization:write")
    changes = parse_organization_changes(fields)
    require_version(row.version, expected_version)
    before = {name: getattr(row, name) for name in changes}
    changed = {name: value for name, value in changes.items() if value != before[name]}
    _require_not_moved(row)
    if row.status == DELETED and changed.keys() != {"status"}:
        raise Conflict(
            "The organization is deleted. Restore it first, with status active or suspended.", code="deleted"
        )
    if not changed:
        return Updated(_record(row), ())
    if row.is_root and "status" in changed:
        raise RootProtected("The root organization cannot be suspended.", field="status")
    values: dict[str, Any] = dict(changed)
    if row.status == DELETED:
        if row.purge_at is not None and row.purge_at <= clock.now():
            raise Conflict(
                "The data of the organization is being purged. It cannot be restored.", code="purged"
            )
        values |= {"deleted_at": None, "purge_at": None, "tokens_valid_from": clock.now()}
    _change(row, values)
    action = action_for_change(row.status, changed)
    record_organization_event(inside, row.slug, action, {name: before[name] for name in changed}, changed)
    return Updated(_record(_row(Organization.id == row.id)), tuple(changed))


@transaction
def delete_organization(
    actor: Actor, slug: str, *, expected_version: ExpectedVersion = None
) -> OrganizationRecord:
    """Delete an organization: sessions, tokens and API stop working now, and the data is purged 30 days later.

    Its administrators are notified by email, without a limit per hour: this is their only chance to have it restored.
    Raises NotFound, RootProtected, PreconditionFailed, and FreshSignInRequired if the user signed in too long ago.
    Audit: ``organization.deleted``, in its log and in root's.
    """
    inside, row = _reach(actor, slug)
    _require_not_moved(row)
    if row.status == DELETED:
        raise NotFound("There is no such organization.")
    inside.require("organization:delete")
    require_fresh_user_sign_in(inside)
    if row.is_root:
        raise RootProtected("The root organization cannot be deleted.")
    require_version(row.version, expected_version)
    now = clock.now()
    purge_at = now + DELETION_RETENTION
    told = {"by": actor.label, "at": now.isoformat(), "address": actor.ip_address or ""}
    email_administrators(
        get_organization_by_id(row.id), "organization_deleted", told | {"ends": purge_at.isoformat()}
    )
    _change(row, {"status": DELETED, "deleted_at": now, "purge_at": purge_at})
    log_revocation(row.id, "organization", row.id.encode())
    after = {"status": DELETED, "purge_at": purge_at.isoformat()}
    record_organization_event(inside, slug, "organization.deleted", {"status": row.status}, after)
    return _record(_row(Organization.id == row.id))


def restore_organization(actor: Actor, slug: str) -> OrganizationRecord:
    """Restore a deleted organization whose purge is not due yet. Root only. Audit: ``organization.restored``."""
    return update_organization(actor, slug, {"status": ACTIVE}).record


def _reach(actor: Actor, slug: str) -> tuple[Actor, Organization]:
    """Return the actor inside the organization, and its row.

    A root actor who may list all organizations reaches every one, including deleted ones, with read access only: their
    permissions in root are not permissions in the organization.
    """
    try:
        inside, view = enter_organization(actor, slug)
        return inside, _row(Organization.id == view.id)
    except (NotFound, OrganizationMoved):
        found = _find(Organization.slug == slug)
        if found is None or not _sees_all(actor):
            raise
        return actor.acting_in(found.id, frozenset({"organization:read"})), found


def _require_at_root(actor: Actor) -> None:
    """Raise Forbidden unless an actor of root is acting in root."""
    is_at_home = actor.is_root and actor.organization_id == actor.home_organization_id
    if actor.kind != "system" and not is_at_home:
        raise Forbidden(
            "Only actors of the root organization can create organizations, acting in root.",
            permission="organizations:write",
        )


def _sees_all(actor: Actor) -> bool:
    if actor.kind == "system":
        return True
    return actor.is_root and (
        actor.has_permission("organizations:read") or actor.has_permission("organizations:write")
    )


def _find(condition: Any) -> Organization | None:
    statement = select(Organization).where(condition, Organization.status != PURGED)
    return db.session.scalar(statement, execution_options={"populate_existing": True})


def _row(condition: Any) -> Organization:
    row = _find(condition)
    if row is None:
        raise NotFound("There is no such organization.")
    return row


def _require_not_moved(row: Organization) -> None:
    if row.moved_to is not None:
        raise Conflict(
            lazy_gettext("The organization has moved to %(place)s. Change it there.", place=row.moved_to),
            code="organization_moved",
        )


def _change(row: Organization, values: Mapping[str, Any]) -> None:
    """Update the row. Raises OutdatedRead if it was changed since it was read."""
    statement = (
        update(Organization)
        .where(
            Organization.id == row.id,
            Organization.version == row.version,
            # The janitor sets it when it begins to purge the organization.
            Organization.purge_at == row.purge_at,
        )
        .values(**values, version=row.version + 1, updated_at=clock.now())
    )
    if count_changed(statement) != 1:
        raise OutdatedRead(Busy("The organization is being changed by others right now. Try again."))
    cache_invalidation.invalidate(row.id)


def _matches(own: OrganizationRecord, query: str | None) -> bool:
    return not query or query.lower() in own.slug or query.casefold() in own.name.casefold()


def _record(row: Organization) -> OrganizationRecord:
    return make_record(OrganizationRecord, row)
