"""Organizations: list, create, show, change, delete."""

from __future__ import annotations

from typing import Any

from flask import Response

from app.api import representations
from app.api.blueprint import api
from app.api.lists import listed
from app.operations.organizations import organizations
from app.operations.organizations.organizations import OrganizationRecord
from app.operations.store.idempotency import IdempotentResult
from app.operations.users.invitations import InvitationRecord
from app.web.bearer import Call, management
from app.web.etag import etag_of, expected_version
from app.web.idempotency import created, once
from app.web.json_api import envelope, read_object
from app.web.pagination import PARAMETERS
from app.web.parameters import is_descending


def organization(record: OrganizationRecord, issuer: str) -> dict[str, Any]:
    """An organization; its ``id`` is the slug."""
    return {
        "id": record.slug,
        "name": record.name,
        "status": record.status,
        "issuer": issuer,
        "is_root": record.is_root,
        "created_at": representations.time(record.created_at),
        "created_by": record.created_by,
        "updated_at": representations.time(record.updated_at),
        "purge_at": representations.time(record.purge_at),
    }


def invitation(view: InvitationRecord) -> dict[str, Any]:
    """An invitation, without its link."""
    return {
        "id": view.public_id,
        "organization_id": view.organization_slug,
        "email": view.email,
        "name": view.name,
        "role": view.role,
        "created_at": representations.time(view.created_at),
        "created_by": view.created_by,
        "expires_at": representations.time(view.expires_at),
    }


@api.get("/organizations")
@management(*PARAMETERS, "q", "status", "sort", names_organization=False)
def list_organizations(call: Call) -> Response:
    """Root sees every organization, others their own."""
    return listed(
        call,
        "organizations",
        organizations.list_organizations,
        show=lambda record: organization(record, _issuer(call, record)),
        query=call.parameters.get("q"),
        status=call.parameters.get("status"),
        descending=is_descending(call.parameters, "id"),
    )


@api.post("/organizations")
@management(names_organization=False)
def create_organization(call: Call) -> Response:
    """A new organization; ``admin`` is invited, and the answer holds the link."""
    body = read_object()

    def work() -> IdempotentResult:
        made = organizations.create_organization(call.actor, body)
        record = made.organization
        data = organization(record, _issuer(call, record)) | {"invitation": None}
        if made.invitation is not None:
            data["invitation"] = invitation(made.invitation.invitation)
            if made.invitation.link is not None:
                data["invitation"]["link"] = made.invitation.link
        return created(data, record.slug, headers={"ETag": etag_of(record.version)})

    return once(call.actor, body, work)


@api.get("/organizations/<slug>")
@management(names_organization=False)
def get_organization(call: Call, slug: str) -> Response:
    """One organization."""
    record = organizations.get_organization(call.actor, slug)
    return envelope(organization(record, _issuer(call, record)), headers={"ETag": etag_of(record.version)})


@api.put("/organizations/<slug>")
@management(names_organization=False)
def update_organization(call: Call, slug: str) -> Response:
    """The fields sent are replaced; ``meta.changed`` lists those that differ now."""
    updated = organizations.update_organization(
        call.actor, slug, read_object(), expected_version=expected_version()
    )
    record = updated.organization
    return envelope(
        organization(record, _issuer(call, record)),
        meta={"changed": list(updated.changed)},
        headers={"ETag": etag_of(record.version)},
    )


@api.delete("/organizations/<slug>")
@management(names_organization=False)
def delete_organization(call: Call, slug: str) -> Response:
    """All stops at once; the answer says when the data goes."""
    record = organizations.delete_organization(call.actor, slug, expected_version=expected_version())
    return envelope(organization(record, _issuer(call, record)))


def _issuer(call: Call, record: OrganizationRecord) -> str:
    return record.issuer(call.organization.base_url)
