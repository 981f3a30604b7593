"""Resources: the organization's APIs and their scopes, and the registry of all scopes."""

from __future__ import annotations

from typing import Annotated, Any

from app.api.endpoints import Body, Endpoints, Query, Shown, show_page
from app.api.representations import (
    Count,
    CreatedAt,
    CreatedBy,
    Deleted,
    OwnerId,
    Representation,
    Slug,
    Source,
    UpdatedAt,
    fields_of,
)
from app.operations.clients import ownership, resource_scopes, resources, scopes
from app.operations.clients.ownership import NewOwner
from app.operations.tokens.introspection import metadata_for
from app.rules.clients.resource_fields import (
    NewResource,
    ResourceChange,
    ResourceFields,
    ScopeDescription,
    ScopeText,
    ScopeTitle,
)
from app.rules.shapes import PublicId, SchemaOnly, described
from app.web.bearer import ApiContext
from app.web.json_api import (
    boolean_parameter,
    expected_version,
)

endpoints = Endpoints("Resources", "resources")
_WARNINGS = "Scopes without a title for the consent page. The request succeeded."
_CONFIRM = Query(
    "confirm",
    {"type": "string", "enum": ["true", "false"], "default": "false"},
    "Also remove the deleted scopes from clients that have them. Without it, the response is 409 `in_use` with the "
    "number of these clients.",
)

_ResourceFields: Any = fields_of("ResourceFields", ResourceFields, without=("scopes",))


class ScopeOfResource(Representation):
    """A scope of a resource."""

    name: Annotated[
        str, SchemaOnly(minLength=1, maxLength=128), described("The scope value in requests and tokens.")
    ]
    title: ScopeTitle | None
    description: ScopeDescription | None


class Resource(_ResourceFields):
    """A resource (API)."""

    id: Annotated[str, PublicId("res", "resource"), Source("public_id")]
    organization_id: Slug
    scopes: Annotated[list[ScopeOfResource], described("The scopes that clients can request for it.")]
    created_at: CreatedAt
    created_by: CreatedBy
    owner_id: OwnerId
    updated_at: UpdatedAt


class RemovedWithResource(Representation):
    """Counts of the scopes and clients that a deleted resource affected."""

    scopes: Annotated[Count, described("Scopes that were deleted.")]
    clients: Annotated[Count, described("Clients that lost access.")]


class DeletedResource(Representation):
    """A deleted resource."""

    id: Annotated[str, PublicId("res", "resource")]
    deleted: Deleted
    removed: RemovedWithResource


class RemovedWithScope(Representation):
    """Count of the clients that a deleted scope affected."""

    clients: Annotated[Count, described("Clients that lost the scope.")]


class DeletedScope(Representation):
    """A deleted scope."""

    name: Annotated[str, SchemaOnly(minLength=1, maxLength=128), described("The scope value.")]
    deleted: Deleted
    removed: RemovedWithScope


class ResourceMetadata(Representation):
    """The metadata that a resource should publish about itself (RFC 9728)."""

    document: Annotated[dict[str, Any], described("The document to publish.")]
    url: Annotated[str | None, described("Where to publish it.")]
    www_authenticate: Annotated[
        str | None, Source("challenge"), described("The header of its 401 responses.")
    ]


class Scope(Representation):
    """A scope in the registry of the organization."""

    name: Annotated[
        str, SchemaOnly(minLength=1, maxLength=128), described("The scope value in requests and tokens.")
    ]
    title: ScopeTitle | None
    description: ScopeDescription | None
    is_identity: Annotated[bool, described("Whether OpenID Connect defines it.")]
    resource_id: Annotated[
        str | None,
        Source("resource_public_id"),
        described("`res_…`, or null for a scope that belongs to no resource."),
    ]


@endpoints.page(
    "/resources", returns=Resource, search="Part of the name or the identifier.", filters=resources.FILTERS
)
def list_resources(context: ApiContext) -> object:
    """List resources (APIs)."""
    return show_page(context, "resources", resources.list_resources, filters=resources.FILTERS)


@endpoints.post("/resources", body=NewResource, returns=Resource, warnings=_WARNINGS)
def create_resource(context: ApiContext, body: Body) -> object:
    """Create a resource (API) with its scopes."""
    record = resources.define_resource(context.actor, body)
    return Shown(record, warnings=record.warnings)


@endpoints.get("/resources/<resource_id>", returns=Resource)
def get_resource(context: ApiContext, resource_id: str) -> object:
    """Get a resource."""
    return resources.get_resource(context.actor, resource_id)


@endpoints.put(
    "/resources/<resource_id>", query=(_CONFIRM,), body=ResourceChange, returns=Resource, warnings=_WARNINGS
)
def update_resource(context: ApiContext, body: Body, resource_id: str) -> object:
    """Update a resource.

    `identifier` may only repeat the present identifier.
    """
    updated = resources.update_resource(
        context.actor,
        resource_id,
        body,
        expected_version=expected_version(),
        confirmed=boolean_parameter(context.parameters, "confirm"),
    )
    return Shown(updated.record, changed=updated.changed, warnings=updated.record.warnings)


@endpoints.put("/resources/<resource_id>/owner", body=NewOwner, returns=Resource)
def change_resource_owner(context: ApiContext, body: Body, resource_id: str) -> object:
    """Change the owner of a resource.

    The new owner needs `resources:write:own`, and is notified by email. An email address that its user has not verified
    is rejected with 409: send their `user_id` instead. Tokens and the access of clients stay. A user needs a recent
    sign-in (RFC 9470).
    """
    return ownership.change_resource_owner(
        context.actor, resource_id, body, expected_version=expected_version()
    )


@endpoints.delete("/resources/<resource_id>", query=(_CONFIRM,), returns=DeletedResource, if_match=True)
def delete_resource(context: ApiContext, resource_id: str) -> object:
    """Delete a resource and its scopes.

    No more tokens are issued for it. Tokens that were issued before remain valid until they expire.
    """
    removed = resources.delete_resource(
        context.actor,
        resource_id,
        expected_version=expected_version(),
        confirmed=boolean_parameter(context.parameters, "confirm"),
    )
    counts = RemovedWithResource.to_json(removed)
    return {"id": resource_id, "deleted": True, "removed": counts}


@endpoints.get("/resources/<resource_id>/metadata", returns=ResourceMetadata)
def get_resource_metadata(context: ApiContext, resource_id: str) -> object:
    """Get the metadata that a resource should publish about itself (RFC 9728)."""
    return metadata_for(context.actor, resource_id)


@endpoints.page("/scopes", returns=Scope, search="Part of the name.")
def list_scopes(context: ApiContext) -> object:
    """List the scopes of the organization."""
    return show_page(context, "scopes", scopes.search_scopes)


@endpoints.get("/scopes/<path:scope_name>", returns=Scope)
def get_scope(context: ApiContext, scope_name: str) -> object:
    """Get a scope."""
    return scopes.get_scope(context.actor, scope_name)


@endpoints.put("/scopes/<path:scope_name>", body=ScopeText, returns=Scope)
def update_scope(context: ApiContext, body: Body, scope_name: str) -> object:
    """Update the text that the consent page shows for a scope.

    The text of a resource's scope is changed with the resource.
    """
    return scopes.update_scope(context.actor, scope_name, body, expected_version=expected_version())


@endpoints.delete("/scopes/<path:scope_name>", query=(_CONFIRM,), returns=DeletedScope, if_match=True)
def delete_scope(context: ApiContext, scope_name: str) -> object:
    """Delete a scope.

    The scopes of a resource are removed there, and those of OpenID Connect stay. Clients can no longer request the
    scope. Tokens that were issued before keep it until they expire.
    """
    clients = resource_scopes.delete_scope(
        context.actor,
        scope_name,
        expected_version=expected_version(),
        confirmed=boolean_parameter(context.parameters, "confirm"),
    )
    return {"name": scope_name, "deleted": True, "removed": {"clients": clients}}
