"""Importing one part of a file: its rows are validated outside of any transaction and written in one.

The import's position advances in the transaction that writes the part, and only from the value that was read.
A worker that dies leaves only complete parts behind, and of two workers on the same part the second finds it
done.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from msgspec import Struct, field
from sqlalchemy import delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from app.database_errors import is_duplicate_key
from app.extensions import db
from app.models.base import has_key
from app.models.user import (
    CHECKED,
    CHECKING,
    DONE,
    RUNNING,
    GroupMember,
    RoleAssignment,
    User,
    UserImport,
    UserImportPart,
    UserImportRefusal,
)
from app.operations.directory.lookups import get_organization_by_id
from app.operations.directory.snapshots import OrganizationSnapshot
from app.operations.directory.users import USER_COLUMNS, count_free_places, snapshot_of, too_many_users_error
from app.operations.sign_in.actor_access import require_role_permissions
from app.operations.store import audit, clock, keyring
from app.operations.store.transactions import count_changed, read, transaction
from app.operations.users.groups import hold_groups
from app.operations.users.import_records import as_stored_message, record_import_event, seal_context
from app.operations.users.import_updates import differing_fields, update_existing_user
from app.operations.users.import_uploads import load_importer
from app.operations.users.role_assignments import announce_role
from app.rules.actor import Actor
from app.rules.directory.attributes import attributes_of
from app.rules.directory.permissions import effective_roles
from app.rules.errors import (
    Conflict,
    DomainError,
    FieldError,
    Forbidden,
    HasDefaultText,
    InvalidInput,
    NotFound,
)
from app.rules.identifiers import new_id, public_id
from app.rules.languages.translation import lazy_gettext
from app.rules.users.user_import import ImportedUser, validate_imported_user

ImportRow = tuple[int, dict[str, Any], ImportedUser]
"""The number of a row, what was sent, and the user whom it describes."""
RowRefusal = tuple[int, dict[str, Any], tuple[FieldError, ...]]
REFUSAL_RETENTION = timedelta(days=7)
_MAX_ATTEMPTS = 5


class ImportSuperseded(HasDefaultText, Conflict):
    """Another worker has finished this part, or the import was cancelled."""

    code = "busy"
    default_description = lazy_gettext("Another process is working on this import, or it was cancelled.")


class UploadExpired(HasDefaultText, Conflict):
    """The uploaded rows were deleted."""

    code = "upload_ended"
    default_description = lazy_gettext("The uploaded rows have expired. Upload the file again.")


class ImportPart(Struct):
    """A part of an import with its valid rows and its rejected ones."""

    job: UserImport
    importer: Actor
    organization: OrganizationSnapshot
    imported_users: list[ImportRow] = field(default_factory=list)
    refusals: list[RowRefusal] = field(default_factory=list)
    groups: Mapping[str, tuple[UUID, str]] = field(default_factory=dict)
    """(id, name) of the groups by their names in the rows."""

    @property
    def is_dry_run(self) -> bool:
        """Return whether the import only checks the file."""
        return self.job.status == CHECKING


@read
def find_users_by_email(organization_id: str, emails: Sequence[str]) -> Mapping[str, UUID]:
    """Find the organization's users with these canonical emails, by email."""
    if not emails:
        return {}
    rows = db.session.execute(
        select(User.email_canonical, User.id).where(
            User.organization_id == organization_id, User.email_canonical.in_(emails)
        )
    )
    return {row.email_canonical: row.id for row in rows}


def load_next_part(job: UserImport) -> ImportPart:
    """Load and validate the part at the import's position.

    Raises ImportSuperseded, UploadExpired, and Forbidden if the importer may not continue.
    """
    sealed, organization, importer = _read_part(job)
    part = ImportPart(job, importer, organization)
    place = seal_context("part", job.id, job.position)
    for row in json.loads(keyring.unseal(job.organization_id, sealed, place)):
        number, fields = row["number"], row["fields"]
        try:
            if row["problem"]:
                raise InvalidInput(row["problem"], field="", code="unusable_row")
            imported = validate_imported_user(fields, attributes_of(organization.settings))
            _require_allowed(part, imported)
            part.imported_users.append((number, fields, imported))
        except DomainError as error:
            part.refusals.append(make_refusal(number, fields, error))
    return part


def make_refusal(number: int, fields: dict[str, Any], error: DomainError) -> RowRefusal:
    """Return the row with its errors."""
    return number, fields, error.errors or (FieldError("", error.code, error.description),)


def process_next_part(job: UserImport) -> bool:
    """Import the next part, and return whether another one follows.

    Raises ImportSuperseded when another worker did it, UploadExpired, and Forbidden if the importer may not
    continue.
    """
    part = load_next_part(job)
    for attempt in range(1, _MAX_ATTEMPTS + 1):
        try:
            return _import_part(part)
        except IntegrityError as error:
            # A user was created concurrently. The next attempt finds them.
            if attempt == _MAX_ATTEMPTS or not is_duplicate_key(error):
                raise
    raise AssertionError


@read
def _read_part(job: UserImport) -> tuple[bytes, OrganizationSnapshot, Actor]:
    organization = _find_organization(job.organization_id)
    if organization is None or not organization.is_active:
        raise Forbidden("The organization is suspended or deleted.", permission="users:write")
    sealed = db.session.scalar(
        select(UserImportPart.sealed_rows).where(
            UserImportPart.organization_id == job.organization_id,
            UserImportPart.import_id == job.id,
            UserImportPart.number == job.position,
        )
    )
    if sealed is None:
        current = db.session.execute(
            select(UserImport.status, UserImport.position).where(
                has_key(UserImport, job.organization_id, job.id)
            )
        ).one_or_none()
        if current is None or (current.status, current.position) != (job.status, job.position):
            raise ImportSuperseded
        raise UploadExpired
    return sealed, organization, load_importer(job)


def _find_organization(organization_id: str) -> OrganizationSnapshot | None:
    try:
        return get_organization_by_id(organization_id)
    except NotFound:
        return None


def _require_allowed(part: ImportPart, imported: ImportedUser) -> None:
    """Require that the importer may assign the row's roles (TN-11) and declare its email verified."""
    # Only those who may turn off email verification may declare emails verified (OI-5).
    if imported.email_verified and not part.importer.has_permission("settings:write"):
        message = "Importing verified emails requires the permission settings:write."
        raise Forbidden(message, permission="settings:write", field="email_verified")
    known = effective_roles(part.organization.settings)
    default_roles = part.organization.settings["authentication"]["registration"]["default_roles"]
    for role in imported.roles:
        if role not in known:
            message = (
                f"There is no role {role[:64]!r}. Available roles: {', '.join(known)}. For roles in your apps, use"
                " groups."
            )
            raise InvalidInput(message, field="roles", code="unknown_role")
        # As everywhere else. Users who register themselves get the default roles anyway.
        if role not in default_roles and not part.importer.has_permission("admins:write"):
            message = f"Assigning the role {role} requires the permission admins:write."
            raise Forbidden(message, permission="admins:write", field="roles")
        require_role_permissions(part.importer, part.organization, role, field="roles")


@transaction
def _import_part(part: ImportPart) -> bool:
    job = part.job
    _advance(job)
    unknown = _hold_groups(part)
    existing = find_users_by_email(
        job.organization_id, [imported.canonical for _, _, imported in part.imported_users]
    )
    accepted = [entry for entry in part.imported_users if entry[0] not in unknown]
    new = [entry for entry in accepted if entry[2].canonical not in existing]
    known = [entry for entry in accepted if entry[2].canonical in existing]
    refusals = [*part.refusals, *unknown.values()]
    places = count_free_places(job.organization_id)
    if places is not None:
        # A preview creates no users, so the users that it counted before take up places too.
        places = max(0, places - (job.created if part.is_dry_run else 0))
        error = too_many_users_error(job.organization_id)
        refusals += [make_refusal(number, fields, error) for number, fields, _ in new[places:]]
        new = new[:places]
    if not part.is_dry_run:
        _create_users(part, [imported for _, _, imported in new])
    updated = skipped = 0
    if job.on_existing == "update":
        changing = _find_changing(part, known, existing)
        skipped = len(known) - len(changing)
        for number, fields, imported in changing:
            try:
                changed = update_existing_user(
                    part.importer,
                    existing[imported.canonical],
                    imported,
                    _groups_of(part, imported),
                    is_dry_run=part.is_dry_run,
                )
                updated, skipped = updated + changed, skipped + (not changed)
            except DomainError as error:
                refusals.append(make_refusal(number, fields, error))
    else:
        skipped = len(known)
    _store_refusals(job, refusals)
    is_last = job.position + 1 >= job.parts
    _update_counts(part, is_last, created=len(new), updated=updated, skipped=skipped, refused=len(refusals))
    if is_last and not part.is_dry_run:
        _audit_end(part)
    return not is_last


def _find_changing(
    part: ImportPart, rows: Sequence[ImportRow], existing: Mapping[str, UUID]
) -> list[ImportRow]:
    """Return the rows that differ from their users.

    Most rows of a file that is imported again do not. Three queries find them, instead of some for each row.
    """
    organization_id = part.job.organization_id
    ids = [existing[imported.canonical] for _, _, imported in rows]
    selected = db.session.execute(
        select(*USER_COLUMNS).where(User.organization_id == organization_id, User.id.in_(ids))
    )
    users = {user.id: user for user in map(snapshot_of, selected)}
    roles, groups = (
        {tuple(row) for row in db.session.execute(statement)}
        for statement in (
            select(RoleAssignment.user_id, RoleAssignment.role).where(
                RoleAssignment.organization_id == organization_id,
                RoleAssignment.user_organization_id == organization_id,
                RoleAssignment.user_id.in_(ids),
            ),
            select(GroupMember.user_id, GroupMember.group_id).where(
                GroupMember.organization_id == organization_id, GroupMember.user_id.in_(ids)
            ),
        )
    )

    def is_changing(imported: ImportedUser) -> bool:
        user = users.get(existing[imported.canonical])
        return (
            user is None
            or bool(differing_fields(user, imported, part.organization))
            or any((user.id, role) not in roles for role in imported.roles)
            or any((user.id, group_id) not in groups for group_id in _groups_of(part, imported))
        )

    return [row for row in rows if is_changing(row[2])]


def _hold_groups(part: ImportPart) -> dict[int, RowRefusal]:
    """Find the groups that the rows name, and return the rows that name one that does not exist, by number."""
    names = {name for _, _, imported in part.imported_users for name in imported.groups}
    part.groups = hold_groups(part.job.organization_id, names)
    refused = {}
    for number, fields, imported in part.imported_users:
        missing = [name for name in imported.groups if name not in part.groups]
        if missing:
            message = lazy_gettext(
                "There is no group %(name)s. Create it, or correct the name.", name=repr(missing[0][:100])
            )
            error = InvalidInput(message, field="groups", code="unknown_group")
            refused[number] = make_refusal(number, fields, error)
    return refused


def _groups_of(part: ImportPart, imported: ImportedUser) -> dict[UUID, str]:
    """Return the names of the row's groups by id."""
    return dict(part.groups[name] for name in imported.groups)


def _advance(job: UserImport) -> None:
    """Advance the position. Another worker on the same part waits here and then finds it done."""
    changed = count_changed(
        update(UserImport)
        .where(
            has_key(UserImport, job.organization_id, job.id),
            UserImport.status == job.status,
            UserImport.position == job.position,
        )
        .values(position=job.position + 1)
    )
    if not changed:
        raise ImportSuperseded


def _create_users(part: ImportPart, imported_users: Sequence[ImportedUser]) -> None:
    if not imported_users:
        return
    now = clock.now()
    organization_id = part.job.organization_id
    ids = [new_id() for _ in imported_users]
    users = [
        {
            "organization_id": organization_id,
            "id": user_id,
            "email": imported.email,
            "email_canonical": imported.canonical,
            "email_verified": imported.email_verified,
            # The account was created in another system, so its owner is unknown here unless the email is verified.
            "made_unproven": not imported.email_verified,
            "name": imported.name,
            "profile": dict(imported.profile),
            "attributes": dict(imported.attributes),
            "password_hash": imported.password_hash,
            "password_scheme": imported.password_scheme,
            "password_changed_at": now if imported.password_hash else None,
            "status": imported.status,
            "created_at": now,
            "updated_at": now,
        }
        for user_id, imported in zip(ids, imported_users, strict=True)
    ]
    db.session.execute(insert(User), users)
    roles = [
        {
            "organization_id": organization_id,
            "id": new_id(),
            "user_organization_id": organization_id,
            "user_id": user_id,
            "role": role,
            "created_at": now,
            "created_by": part.importer.author,
        }
        for user_id, imported in zip(ids, imported_users, strict=True)
        for role in imported.roles
    ]
    if roles:
        db.session.execute(insert(RoleAssignment), roles)
    memberships = [
        {
            "organization_id": organization_id,
            "group_id": group_id,
            "user_id": user_id,
            "created_at": now,
            "created_by": part.importer.author,
        }
        for user_id, imported in zip(ids, imported_users, strict=True)
        for group_id in _groups_of(part, imported)
    ]
    if memberships:
        db.session.execute(insert(GroupMember), memberships)
    source = public_id("imp", part.job.id)
    for user_id, imported in zip(ids, imported_users, strict=True):
        audit.record_user_event(
            part.importer,
            "user.imported",
            user_id,
            after={
                "email": imported.email,
                "name": imported.name,
                "profile": dict(imported.profile),
                "attributes": dict(imported.attributes),
                "email_verified": imported.email_verified,
                "status": imported.status,
                "roles": list(imported.roles),
                "groups": list(_groups_of(part, imported).values()),
                "has_password": imported.password_hash is not None,
                "import": source,
            },
        )
        for role in imported.roles:
            announce_role(part.importer, part.organization, user_id, imported.email, role)


def _store_refusals(job: UserImport, refusals: Sequence[RowRefusal]) -> None:
    organization_id = job.organization_id
    rows = []
    for number, fields, errors in refusals:
        stored = {
            "fields": fields,
            "errors": [(error.field, error.code, error.message) for error in errors],
            "messages": [as_stored_message(error.message) for error in errors],
        }
        rows.append(
            {
                "organization_id": organization_id,
                "import_id": job.id,
                "number": number,
                "sealed_row": keyring.seal(
                    organization_id, json.dumps(stored).encode(), seal_context("refusal", job.id, number)
                ),
                "expires_at": clock.now() + REFUSAL_RETENTION,
            }
        )
    if rows:
        db.session.execute(insert(UserImportRefusal), rows)


def _update_counts(part: ImportPart, is_last: bool, **counts: int) -> None:
    job = part.job
    now = clock.now()
    values: dict[Any, Any] = {name: UserImport.__table__.c[name] + count for name, count in counts.items()}
    values["worked_at"] = now
    if is_last:
        values |= {"status": CHECKED if part.is_dry_run else DONE, "ended_at": now}
    if part.is_dry_run:
        values |= _reduced_importer(part)
    count_changed(update(UserImport).where(has_key(UserImport, job.organization_id, job.id)).values(values))
    if job.status == RUNNING:
        count_changed(
            delete(UserImportPart).where(
                UserImportPart.organization_id == job.organization_id,
                UserImportPart.import_id == job.id,
                UserImportPart.number == job.position,
            )
        )


def _reduced_importer(part: ImportPart) -> dict[str, Any]:
    """Return the importer with fewer permissions, if some were lost since the upload: no start brings them back."""
    if part.importer.kind == "system" or part.importer.permissions == frozenset(
        part.job.importer["permissions"]
    ):
        return {}
    current = db.session.scalar(
        select(UserImport.importer)
        .where(has_key(UserImport, part.job.organization_id, part.job.id))
        .with_for_update()
    )
    return {"importer": {**(current or {}), "permissions": sorted(part.importer.permissions)}}


def _audit_end(part: ImportPart) -> None:
    db.session.expire_all()
    finished = db.session.get_one(UserImport, (part.job.organization_id, part.job.id))
    counts = {name: getattr(finished, name) for name in ("created", "updated", "skipped", "refused")}
    record_import_event(part.importer, "user_import.ended", part.job.id, counts)
