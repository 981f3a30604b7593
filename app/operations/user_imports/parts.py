"""A part of an import as it is before it is brought in: opened, each row judged by itself and by who imports it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import select

from app.extensions import db
from app.models.user_import import CHECKING, UserImport, UserImportPart
from app.operations import keyring
from app.operations.directory import OrganizationView, organization_by_id
from app.operations.people.role_assignments import require_holding
from app.operations.transaction import read
from app.operations.user_imports.importers import importer_of
from app.operations.user_imports.records import place_of
from app.rules.actor import Actor
from app.rules.errors import Conflict, DomainError, FieldError, Forbidden, InvalidInput
from app.rules.people.permissions import roles_of
from app.rules.people.user_import import ImportedPerson, checked_person

Refusal = tuple[int, dict[str, Any], tuple[FieldError, ...]]


class Superseded(Conflict):
    """Somebody else has done this part, or ended the import."""


class PartsGone(Conflict):
    """What was uploaded is there no more."""


@dataclass(slots=True)
class Part:
    """A part and what is known of its rows."""

    job: UserImport
    importer: Actor
    organization: OrganizationView
    people: list[tuple[int, dict[str, Any], ImportedPerson]] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)

    @property
    def is_dry_run(self) -> bool:
        """Whether nobody is brought in."""
        return self.job.status == CHECKING


def next_part(job: UserImport) -> Part:
    """The part at the import's position. Raises Superseded, PartsGone, and Forbidden for who may not go on."""
    sealed, organization, importer = _read(job)
    part = Part(job, importer, organization)
    place = place_of("part", job.id, job.position)
    for row in json.loads(keyring.unseal(job.organization_id, sealed, place)):
        number, fields = row["number"], row["fields"]
        try:
            if row["problem"]:
                raise InvalidInput(row["problem"], field="", code="unusable_row")
            person = checked_person(fields)
            _require_allowed(part, person)
            part.people.append((number, fields, person))
        except DomainError as refusal:
            part.refusals.append(refusal_of(number, fields, refusal))
    return part


def refusal_of(number: int, fields: dict[str, Any], refusal: DomainError) -> Refusal:
    """The row with why it is not brought in."""
    return number, fields, refusal.errors or (FieldError("", refusal.code, refusal.description),)


@read
def _read(job: UserImport) -> tuple[bytes, OrganizationView, Actor]:
    organization = organization_by_id(job.organization_id)
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
            raise superseded()
        raise PartsGone("The uploaded rows are gone. Send the file again.", code="upload_ended")
    return sealed, organization, importer_of(job)


def _require_allowed(part: Part, person: ImportedPerson) -> None:
    """The importer may say so of anybody: nobody grants what they lack (TN-11), nor vouches for addresses."""
    # Who may switch off that addresses are verified may vouch for them too; OI-5 leaves it to nobody else.
    if person.email_verified and not part.importer.may("settings:write"):
        message = "Vouching for addresses needs the permission settings:write."
        raise Forbidden(message, permission="settings:write", field="email_verified")
    known = roles_of(part.organization.settings)
    everybodys = part.organization.settings["authentication"]["registration"]["default_roles"]
    for role in person.roles:
        if role not in known:
            message = f"There is no role {role[:64]!r}. There are: {', '.join(known)}."
            raise InvalidInput(message, field="roles", code="unknown_role")
        # As at every other door; who comes in by themselves has the default ones anyway.
        if role not in everybodys and not part.importer.may("admins:write"):
            message = f"Giving the role {role} needs the permission admins:write."
            raise Forbidden(message, permission="admins:write", field="roles")
        try:
            require_holding(part.importer, part.organization, role)
        except Forbidden as refusal:
            raise Forbidden(refusal.description, permission=refusal.permission, field="roles") from None


def superseded() -> Superseded:
    """The refusal of who comes too late."""
    return Superseded("Somebody else works on this import, or it was cancelled.", code="busy")
