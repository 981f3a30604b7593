"""Administrators of an organization: list, add or invite, show, remove."""

from __future__ import annotations

from typing import Any

from flask import Response

from app.api import representations
from app.api.blueprint import api
from app.api.lists import listed
from app.operations.organizations import administrators
from app.operations.organizations.administrators import AddedAdministrator, AdministratorRecord
from app.operations.store.idempotency import IdempotentResult
from app.operations.users.invitations import NewInvitation
from app.rules.identifiers import public_id
from app.web.bearer import Call, management
from app.web.etag import etag_of, expected_version
from app.web.idempotency import created, once
from app.web.json_api import envelope, read_object
from app.web.pagination import PARAMETERS
from app.web.parameters import is_descending


def administrator(record: AdministratorRecord) -> dict[str, Any]:
    """A role that a person holds."""
    return {
        "id": record.public_id,
        "organization_id": record.organization_slug,
        "user_id": public_id("usr", record.user_id),
        "user_organization_id": record.user_organization,
        "email": record.email,
        "name": record.name,
        "role": record.role,
        "status": record.status,
        "created_at": representations.time(record.created_at),
        "created_by": record.created_by,
    }


def invited(new: NewInvitation) -> dict[str, Any]:
    """Somebody who is invited to the role, in the form of an administrator; with the link, unless it went by mail."""
    view = new.invitation
    link = {"invitation_link": new.link} if new.link is not None else {}
    return link | {
        "id": view.public_id,
        "organization_id": view.organization_slug,
        "user_id": None,
        "user_organization_id": None,
        "email": view.email,
        "name": view.name,
        "role": view.role,
        "status": "invited",
        "created_at": representations.time(view.created_at),
        "created_by": view.created_by,
        "expires_at": representations.time(view.expires_at),
    }


@api.get("/organizations/<slug>/admins")
@management(*PARAMETERS, "role", "sort", names_organization=False)
def list_administrators(call: Call, slug: str) -> Response:
    """Everybody who holds a role in the organization."""
    return listed(
        call,
        f"admins {slug}",
        administrators.list_administrators,
        slug,
        show=administrator,
        role=call.parameters.get("role"),
        descending=is_descending(call.parameters, "created_at"),
    )


@api.post("/organizations/<slug>/admins")
@management(names_organization=False)
def add_administrator(call: Call, slug: str) -> Response:
    """A known person holds the role; an unknown address is invited."""
    body = read_object()
    return once(
        call.actor,
        body,
        lambda: _outcome(slug, administrators.add_administrator_from_json(call.actor, slug, body)),
    )


@api.get("/organizations/<slug>/admins/<admin_id>")
@management(names_organization=False)
def get_administrator(call: Call, slug: str, admin_id: str) -> Response:
    """One role that a person holds."""
    record = administrators.get_administrator(call.actor, slug, admin_id)
    return envelope(administrator(record), headers={"ETag": etag_of(record.version)})


@api.delete("/organizations/<slug>/admins/<admin_id>")
@management(names_organization=False)
def remove_administrator(call: Call, slug: str, admin_id: str) -> Response:
    """From the next call on the person may no longer."""
    removed = administrators.remove_administrator(
        call.actor, slug, admin_id, expected_version=expected_version()
    )
    return envelope(administrator(removed))


def _outcome(slug: str, added: AddedAdministrator) -> IdempotentResult:
    if added.admin is not None:
        etag = {"ETag": etag_of(added.admin.version)}
        return created(administrator(added.admin), added.admin.public_id, headers=etag)
    if added.invitation is None:
        raise RuntimeError("somebody was added or invited")
    view = added.invitation.invitation
    outcome = created(invited(added.invitation), view.public_id, headers={"ETag": etag_of(view.version)})
    location = outcome.headers["Location"].replace("/admins/", "/invitations/")
    return IdempotentResult(
        outcome.status, outcome.data, outcome.meta, {**outcome.headers, "Location": location}
    )
