"""One part of an import: its people are checked outside of any transaction and brought in by one.

The position of the import advances in the transaction that brings the part in, and only from where it was read: who
dies leaves whole parts behind, and of two who work on one part the second finds that it is done.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from app.extensions import db
from app.models.user import (
    CHECKED,
    CHECKING,
    DONE,
    RUNNING,
    RoleAssignment,
    User,
    UserImport,
    UserImportPart,
    UserImportRefusal,
)
from app.operations.directory.lookups import OrganizationSnapshot, get_organization_by_id
from app.operations.directory.permissions import get_user_roles
from app.operations.sign_in.actor_access import require_manageable_user, require_role_permissions
from app.operations.store import audit, clock, keyring
from app.operations.store.transactions import count_changed, is_duplicate_key, read, transaction
from app.operations.users.import_records import seal_context
from app.operations.users.import_uploads import load_importer
from app.operations.users.role_assignments import assign_role
from app.operations.users.user_changes import update_user
from app.rules.actor import Actor
from app.rules.directory.permissions import MEMBER, effective_roles
from app.rules.errors import Conflict, DomainError, FieldError, Forbidden, InvalidInput
from app.rules.identifiers import new_id, public_id
from app.rules.users.user_import import ImportedPerson, checked_person


@read
def find_users_by_email(organization_id: str, addresses: Sequence[str]) -> Mapping[str, UUID]:
    """The users of the organization who have one of the addresses, by address."""
    if not addresses:
        return {}
    rows = db.session.execute(
        select(User.email_canonical, User.id).where(
            User.organization_id == organization_id, User.email_canonical.in_(addresses)
        )
    )
    return {row.email_canonical: row.id for row in rows}


@transaction
def update_existing_user(actor: Actor, user_id: UUID, person: ImportedPerson, *, is_dry_run: bool) -> bool:
    """Name, status and claims that the row gives are the user's, and they hold its roles too; whether that is new.

    A password, an address and whether it is verified are the person's own: no import replaces them (PW-4, TN-12).
    Raises Forbidden when the user holds a role that the actor lacks, Conflict for roles of somebody who has not
    confirmed the address, LastAdministrator. Audit: as ``update_user`` and ``assign_role``.
    """
    user = require_manageable_user(actor, user_id)
    fields: dict[str, Any] = {
        name: getattr(person, name) for name in ("name", "status") if name in person.given
    }
    if person.profile:
        fields["profile"] = {**user.profile, **person.profile}
    held = get_user_roles(actor.organization_id, actor.organization_id, user_id)
    missing = [role for role in person.roles if role not in held]
    if not user.email_verified and any(role != MEMBER for role in missing):
        # Whoever signed up with somebody's address must not get the roles meant for its owner.
        raise Conflict(
            "The user with this address has not confirmed it. If you know that it is theirs, give them the roles by "
            f"their id: {user.public_id}.",
            field="roles",
            code="email_unverified",
        )
    differing = [name for name, value in fields.items() if getattr(user, name) != value]
    if is_dry_run:
        return bool(differing or missing)
    if differing:
        update_user(actor, user.public_id, fields)
    for role in missing:
        assign_role(actor, actor.organization_id, actor.organization_id, user_id, role)
    return bool(differing or missing)


RowRefusal = tuple[int, dict[str, Any], tuple[FieldError, ...]]


class ImportSuperseded(Conflict):
    """Somebody else has done this part, or ended the import."""


class UploadExpired(Conflict):
    """What was uploaded is there no more."""


@dataclass(slots=True)
class ImportPart:
    """A part and what is known of its rows."""

    job: UserImport
    importer: Actor
    organization: OrganizationSnapshot
    people: list[tuple[int, dict[str, Any], ImportedPerson]] = field(default_factory=list)
    refusals: list[RowRefusal] = field(default_factory=list)

    @property
    def is_dry_run(self) -> bool:
        """Whether nobody is brought in."""
        return self.job.status == CHECKING


def load_next_part(job: UserImport) -> ImportPart:
    """The part at the import's position. Raises Superseded, PartsGone, and Forbidden for who may not go on."""
    sealed, organization, importer = _read(job)
    part = ImportPart(job, importer, organization)
    place = seal_context("part", job.id, job.position)
    for row in json.loads(keyring.unseal(job.organization_id, sealed, place)):
        number, fields = row["number"], row["fields"]
        try:
            if row["problem"]:
                raise InvalidInput(row["problem"], field="", code="unusable_row")
            person = checked_person(fields)
            _require_allowed(part, person)
            part.people.append((number, fields, person))
        except DomainError as refusal:
            part.refusals.append(make_refusal(number, fields, refusal))
    return part


def make_refusal(number: int, fields: dict[str, Any], refusal: DomainError) -> RowRefusal:
    """The row with why it is not brought in."""
    return number, fields, refusal.errors or (FieldError("", refusal.code, refusal.description),)


@read
def _read(job: UserImport) -> tuple[bytes, OrganizationSnapshot, Actor]:
    organization = get_organization_by_id(job.organization_id)
    if not organization.is_active:
        raise Forbidden("The organization is closed.", permission="users:write")
    sealed = db.session.scalar(
        select(UserImportPart.sealed_rows).where(
            UserImportPart.organization_id == job.organization_id,
            UserImportPart.import_id == job.id,
            UserImportPart.number == job.position,
        )
    )
    if sealed is None:
        now = db.session.execute(
            select(UserImport.status, UserImport.position).where(
                UserImport.organization_id == job.organization_id, UserImport.id == job.id
            )
        ).one_or_none()
        if now is None or (now.status, now.position) != (job.status, job.position):
            raise import_superseded()
        raise UploadExpired("The uploaded rows are gone. Send the file again.", code="upload_ended")
    return sealed, organization, load_importer(job)


def _require_allowed(part: ImportPart, person: ImportedPerson) -> None:
    """The importer may say so of anybody: nobody grants what they lack (TN-11), nor vouches for addresses."""
    # Who may switch off that addresses are verified may vouch for them too; OI-5 leaves it to nobody else.
    if person.email_verified and not part.importer.has_permission("settings:write"):
        message = "Vouching for addresses needs the permission settings:write."
        raise Forbidden(message, permission="settings:write", field="email_verified")
    known = effective_roles(part.organization.settings)
    everybodys = part.organization.settings["authentication"]["registration"]["default_roles"]
    for role in person.roles:
        if role not in known:
            message = f"There is no role {role[:64]!r}. There are: {', '.join(known)}."
            raise InvalidInput(message, field="roles", code="unknown_role")
        # As at every other door; who comes in by themselves has the default ones anyway.
        if role not in everybodys and not part.importer.has_permission("admins:write"):
            message = f"Giving the role {role} needs the permission admins:write."
            raise Forbidden(message, permission="admins:write", field="roles")
        try:
            require_role_permissions(part.importer, part.organization, role)
        except Forbidden as refusal:
            raise Forbidden(refusal.description, permission=refusal.permission, field="roles") from None


def import_superseded() -> ImportSuperseded:
    """The refusal of who comes too late."""
    return ImportSuperseded("Somebody else works on this import, or it was cancelled.", code="busy")


REFUSAL_RETENTION = timedelta(days=7)
_TRIES = 5


def process_next_part(job: UserImport) -> bool:
    """The next part of the import is done; whether another one follows.

    Raises Superseded when somebody else did it, PartsGone, and Forbidden when the importer may not go on.
    """
    part = load_next_part(job)
    for attempt in range(1, _TRIES + 1):
        try:
            return _bring_in(part)
        except IntegrityError as error:
            # Somebody came to be at the same moment: the next attempt sees them.
            if attempt == _TRIES or not is_duplicate_key(error):
                raise
    raise AssertionError


@transaction
def _bring_in(part: ImportPart) -> bool:
    job = part.job
    _advance(job)
    there = find_users_by_email(job.organization_id, [person.canonical for _, _, person in part.people])
    new = [entry for entry in part.people if entry[2].canonical not in there]
    old = [entry for entry in part.people if entry[2].canonical in there]
    if not part.is_dry_run:
        _create(part, [person for _, _, person in new])
    updated = skipped = 0
    refusals = list(part.refusals)
    if job.on_existing == "update":
        for number, fields, person in old:
            try:
                changed = update_existing_user(
                    part.importer, there[person.canonical], person, is_dry_run=part.is_dry_run
                )
                updated, skipped = updated + changed, skipped + (not changed)
            except DomainError as refusal:
                refusals.append(make_refusal(number, fields, refusal))
    else:
        skipped = len(old)
    _keep_refusals(job, refusals)
    is_last = job.position + 1 >= job.parts
    _count(part, is_last, created=len(new), updated=updated, skipped=skipped, refused=len(refusals))
    if is_last and not part.is_dry_run:
        _record_end(part)
    return not is_last


def _advance(job: UserImport) -> None:
    """The part is this transaction's alone: whoever else works on it waits here, and then finds it done."""
    changed = count_changed(
        update(UserImport)
        .where(
            UserImport.organization_id == job.organization_id,
            UserImport.id == job.id,
            UserImport.status == job.status,
            UserImport.position == job.position,
        )
        .values(position=job.position + 1)
    )
    if not changed:
        raise import_superseded()


def _create(part: ImportPart, people: Sequence[ImportedPerson]) -> None:
    if not people:
        return
    now = clock.now()
    here = part.job.organization_id
    ids = [new_id() for _ in people]
    users = [
        {
            "organization_id": here,
            "id": user_id,
            "email": person.email,
            "email_canonical": person.canonical,
            "email_verified": person.email_verified,
            # Whoever made it in the system before: nobody here knows them.
            "made_unproven": not person.email_verified,
            "name": person.name,
            "profile": dict(person.profile),
            "password_hash": person.password_hash,
            "password_scheme": person.password_scheme,
            "password_changed_at": now if person.password_hash else None,
            "status": person.status,
            "created_at": now,
            "updated_at": now,
        }
        for user_id, person in zip(ids, people, strict=True)
    ]
    db.session.execute(insert(User), users)
    roles = [
        {
            "organization_id": here,
            "id": new_id(),
            "user_organization_id": here,
            "user_id": user_id,
            "role": role,
            "created_at": now,
            "created_by": part.importer.label[:200],
        }
        for user_id, person in zip(ids, people, strict=True)
        for role in person.roles
    ]
    if roles:
        db.session.execute(insert(RoleAssignment), roles)
    source = public_id("imp", part.job.id)
    for user_id, person in zip(ids, people, strict=True):
        audit.record(
            part.importer,
            "user.imported",
            target_type="user",
            target_id=public_id("usr", user_id),
            after={
                "email": person.email,
                "name": person.name,
                "profile": dict(person.profile),
                "email_verified": person.email_verified,
                "status": person.status,
                "roles": list(person.roles),
                "has_password": person.password_hash is not None,
                "import": source,
            },
        )


def _keep_refusals(job: UserImport, refusals: Sequence[RowRefusal]) -> None:
    here = job.organization_id
    rows = []
    for number, fields, errors in refusals:
        kept = {"fields": fields, "errors": [(one.field, one.code, one.message) for one in errors]}
        rows.append(
            {
                "organization_id": here,
                "import_id": job.id,
                "number": number,
                "sealed_row": keyring.seal(
                    here, json.dumps(kept).encode(), seal_context("refusal", job.id, number)
                ),
                "expires_at": clock.now() + REFUSAL_RETENTION,
            }
        )
    if rows:
        db.session.execute(insert(UserImportRefusal), rows)


def _count(part: ImportPart, is_last: bool, **counts: int) -> None:
    job = part.job
    now = clock.now()
    values: dict[Any, Any] = {name: UserImport.__table__.c[name] + count for name, count in counts.items()}
    values["worked_at"] = now
    if is_last:
        values |= {"status": CHECKED if part.is_dry_run else DONE, "ended_at": now}
    count_changed(
        update(UserImport)
        .where(UserImport.organization_id == job.organization_id, UserImport.id == job.id)
        .values(values)
    )
    if job.status == RUNNING:
        count_changed(
            delete(UserImportPart).where(
                UserImportPart.organization_id == job.organization_id,
                UserImportPart.import_id == job.id,
                UserImportPart.number == job.position,
            )
        )


def _record_end(part: ImportPart) -> None:
    db.session.expire_all()
    ended = db.session.get_one(UserImport, (part.job.organization_id, part.job.id))
    audit.record(
        part.importer,
        "user_import.ended",
        target_type="user_import",
        target_id=public_id("imp", part.job.id),
        after={name: getattr(ended, name) for name in ("created", "updated", "skipped", "refused")},
    )
