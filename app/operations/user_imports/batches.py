"""One part of an import: its people are checked outside of any transaction and brought in by one.

The position of the import advances in the transaction that brings the part in, and only from where it was read: who
dies leaves whole parts behind, and of two who work on one part the second finds that it is done.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import delete, insert, update
from sqlalchemy.exc import IntegrityError

from app.extensions import db
from app.models.user import RoleAssignment, User
from app.models.user_import import (
    CHECKED,
    DONE,
    RUNNING,
    UserImport,
    UserImportPart,
    UserImportRefusal,
)
from app.operations import audit, clock, keyring
from app.operations.database_errors import is_duplicate_key
from app.operations.transaction import count_changed, transaction
from app.operations.user_imports import existing
from app.operations.user_imports.parts import Part, Refusal, next_part, refusal_of, superseded
from app.operations.user_imports.records import place_of
from app.rules.errors import DomainError
from app.rules.identifiers import new_id, public_id
from app.rules.people.user_import import ImportedPerson

REFUSALS_LAST = timedelta(days=7)
_TRIES = 5


def work_on_part(job: UserImport) -> bool:
    """The next part of the import is done; whether another one follows.

    Raises Superseded when somebody else did it, PartsGone, and Forbidden when the importer may not go on.
    """
    part = next_part(job)
    for attempt in range(1, _TRIES + 1):
        try:
            return _bring_in(part)
        except IntegrityError as error:
            # Somebody came to be at the same moment: the next attempt sees them.
            if attempt == _TRIES or not is_duplicate_key(error):
                raise
    raise AssertionError


@transaction
def _bring_in(part: Part) -> bool:
    job = part.job
    _advance(job)
    there = existing.find(job.organization_id, [person.canonical for _, _, person in part.people])
    new = [entry for entry in part.people if entry[2].canonical not in there]
    old = [entry for entry in part.people if entry[2].canonical in there]
    if not part.is_dry_run:
        _create(part, [person for _, _, person in new])
    updated = skipped = 0
    refusals = list(part.refusals)
    if job.on_existing == "update":
        for number, fields, person in old:
            try:
                changed = existing.update_existing(
                    part.importer, there[person.canonical], person, is_dry_run=part.is_dry_run
                )
                updated, skipped = updated + changed, skipped + (not changed)
            except DomainError as refusal:
                refusals.append(refusal_of(number, fields, refusal))
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
        raise superseded()


def _create(part: Part, people: Sequence[ImportedPerson]) -> None:
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


def _keep_refusals(job: UserImport, refusals: Sequence[Refusal]) -> None:
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
                    here, json.dumps(kept).encode(), place_of("refusal", job.id, number)
                ),
                "expires_at": clock.now() + REFUSALS_LAST,
            }
        )
    if rows:
        db.session.execute(insert(UserImportRefusal), rows)


def _count(part: Part, is_last: bool, **counts: int) -> None:
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


def _record_end(part: Part) -> None:
    db.session.expire_all()
    ended = db.session.get_one(UserImport, (part.job.organization_id, part.job.id))
    audit.record(
        part.importer,
        "user_import.ended",
        target_type="user_import",
        target_id=public_id("imp", part.job.id),
        after={name: getattr(ended, name) for name in ("created", "updated", "skipped", "refused")},
    )
