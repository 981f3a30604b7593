"""Clients: list, register, show, update, delete."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from app.api.endpoints import Body, Endpoints, Shown, show_page
from app.api.representations import (
    CappedCount,
    ClientId,
    CreatedAt,
    CreatedBy,
    Deleted,
    OwnerId,
    Representation,
    Slug,
    Source,
    UpdatedAt,
    fields_of,
    optional,
)
from app.operations.clients import client_records, clients, ownership, sector_documents
from app.operations.clients.client_records import FILTERS
from app.operations.clients.ownership import NewOwner
from app.rules.clients.client_metadata import ClientChange, ClientMetadata, NewClient
from app.rules.clients.client_types import SOURCES, Metadata
from app.rules.errors import InvalidInput
from app.rules.shapes import OneOf, SchemaOnly, create_shape, described, rfc3339
from app.web.bearer import ApiContext
from app.web.json_api import created, expected_version

endpoints = Endpoints("Clients", "clients")
_WARNINGS = "Possible problems. The request succeeded."


_ClientFields: Any = fields_of("ClientFields", ClientMetadata, without=("metadata",))
# A registration may repeat the organization that the request applies to.
_Registration = create_shape(
    "NewClientInOrganization",
    NewClient,
    required=("name",),
    extra={"organization_id": Annotated[Slug, described("May repeat the organization of the request.")]},
)


class Client(_ClientFields):
    """A client application, without secrets."""

    client_id: ClientId
    organization_id: Slug
    metadata: Annotated[
        Metadata,
        Source(lambda record: record.metadata or {}),
        described("Custom attributes by key. Not shown to users."),
    ]
    source: Annotated[
        str,
        OneOf(SOURCES),
        described("Who registered it: a person, the client itself (RFC 7591), or its metadata document."),
    ]
    metadata_document_uri: (
        Annotated[
            str,
            SchemaOnly(maxLength=500),
            described("The URL that is its client_id, if it registered with a metadata document."),
        ]
        | None
    )
    created_at: CreatedAt
    created_by: CreatedBy
    owner_id: OwnerId
    updated_at: UpdatedAt
    last_used_at: Annotated[datetime | None, described("Updated about once a minute.")]
    pkce_used_at: Annotated[
        datetime | None, described("When it last redeemed a code with PKCE. Updated about once a minute.")
    ]
    pkce_omitted_at: Annotated[
        datetime | None, described("When it last redeemed a code without PKCE. Updated about once a minute.")
    ]


class RegisteredClient(Client):
    """A new client with its first secret."""

    client_secret: Annotated[
        str | None, described("Keep it confidential. Null for a client without a secret.")
    ] = optional()
    client_secret_expires_at: Annotated[
        datetime | None, described("When the secret expires. Null if it does not expire.")
    ] = optional()
    credential_id: Annotated[
        str | None, described("The ID of the first secret. Null for a client without a secret.")
    ] = optional()


class RevokedWithClient(Representation):
    """Counts of everything that was revoked with a client."""

    access_tokens: CappedCount
    grants: CappedCount
    consents: CappedCount
    credentials: CappedCount


class DeletedClient(Representation):
    """A deleted client."""

    client_id: ClientId
    deleted: Deleted
    revoked: RevokedWithClient


@endpoints.page(
    "/clients", returns=Client, search="Part of the name, or a complete client_id.", filters=FILTERS
)
def list_clients(context: ApiContext) -> object:
    """List registered client applications."""
    return show_page(context, "clients", client_records.list_clients, filters=FILTERS)


def _prepare_registration(context: ApiContext, body: Body) -> None:
    """Check that ``organization_id`` repeats the organization of the request, and fetch the sector document."""
    if body.get("organization_id", context.organization.slug) != context.organization.slug:
        message = "To register a client in another organization, use the query parameter organization_id."
        raise InvalidInput(message, field="organization_id", code="other_organization")
    if sector_documents.FIELD in body:
        sector_documents.prefetch_sector_document(context.actor, body[sector_documents.FIELD])


@endpoints.post(
    "/clients",
    body=_Registration,
    prepare=_prepare_registration,
    returns=RegisteredClient,
    warnings=_WARNINGS,
)
def register_client(context: ApiContext, body: Body) -> object:
    """Register a new client application.

    A user needs a recent sign-in (RFC 9470) to give it scopes of this API.
    """
    fields = {name: value for name, value in body.items() if name != "organization_id"}
    registered = clients.register_client(context.actor, fields)
    data = Client.shown_in(context, registered.client)
    if registered.credential is not None:
        data["credential_id"] = registered.credential.public_id
        data["client_secret"] = registered.secret
        data["client_secret_expires_at"] = rfc3339(registered.credential.expires_at)
    meta = {"warnings": registered.warnings} if registered.warnings else {}
    return created(data, registered.client.client_id, meta=meta, version=registered.client.version)


@endpoints.get("/clients/<client_id>", returns=Client)
def get_client(context: ApiContext, client_id: str) -> object:
    """Get a client application."""
    return clients.get_client(context.actor, client_id)


@endpoints.put("/clients/<client_id>", body=ClientChange, returns=Client, warnings=_WARNINGS)
def update_client(context: ApiContext, body: Body, client_id: str) -> object:
    """Update an existing client application.

    Without `clients:trust`, only the description, contacts and metadata of a trusted client can be changed. Other
    changes are rejected with 403 and the code `trusted` for each field. A user needs a recent sign-in (RFC 9470) to add
    scopes of this API, to let a client with such scopes act without a user, or to change `jwks`, `jwks_uri` or
    `token_endpoint_auth_method`.
    """
    updated = clients.update_client(context.actor, client_id, body, expected_version=expected_version())
    return Shown(updated.client, changed=updated.changed, warnings=updated.warnings)


@endpoints.put("/clients/<client_id>/owner", body=NewOwner, returns=Client)
def change_client_owner(context: ApiContext, body: Body, client_id: str) -> object:
    """Change the owner of a client application.

    The new owner needs `clients:write:own`, and is notified by email. An email address that its user has not verified
    is rejected with 409: send their `user_id` instead. Secrets and tokens stay valid. A user needs a recent sign-in
    (RFC 9470).
    """
    updated = ownership.change_client_owner(
        context.actor, client_id, body, expected_version=expected_version()
    )
    return Shown(updated.client, changed=updated.changed)


@endpoints.delete("/clients/<client_id>", returns=DeletedClient, if_match=True)
def delete_client(context: ApiContext, client_id: str) -> object:
    """Delete a client application.

    Its tokens, codes, consents and credentials are revoked immediately.
    """
    counts = clients.delete_client(context.actor, client_id, expected_version=expected_version())
    revoked = RevokedWithClient.to_json(counts)
    return {"client_id": client_id, "deleted": True, "revoked": revoked}
