"""Access of clients to APIs: list, give, request, approve, decline, withdraw."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from app.api.endpoints import (
    Body,
    Endpoints,
    show_page,
)
from app.api.representations import ClientId, ClientName, CreatedAt, CreatedBy, Representation, Slug, Source
from app.operations.clients import access_decisions, access_records, access_requests
from app.operations.clients.access_records import FILTERS
from app.rules.clients.client_access import (
    MAX_TEXT_LENGTH,
    STATUSES,
    AccessDecision,
    AccessGrant,
    AccessRequest,
)
from app.rules.clients.resource_indicators import ACCESS_POLICIES
from app.rules.shapes import OneOf, PublicId, SchemaOnly, described
from app.web.bearer import ApiContext

endpoints = Endpoints("Client access", "resources")
_Message = Annotated[str, SchemaOnly(maxLength=MAX_TEXT_LENGTH), described("The message for the developer.")]


class ClientAccess(Representation):
    """The access of a client to a resource (API), or a request for it.

    Access decides which scopes of the resource the client gets by client credentials and token exchange, and for a
    resource for listed clients also from users. A client and a resource have at most one of each status.
    """

    id: Annotated[str, PublicId("acc", "client access"), Source("public_id")]
    organization_id: Slug
    client_id: ClientId
    client_name: ClientName
    resource_id: Annotated[str, PublicId("res", "resource")]
    resource_name: Annotated[str, described("The display name of the resource.")]
    resource_identifier: Annotated[str, described("The resource indicator.")]
    status: Annotated[str, OneOf(STATUSES), described("Only `granted` gives access.")]
    scopes: Annotated[list[str], described("The scopes of the resource that were requested or granted.")]
    reason: Annotated[str, SchemaOnly(maxLength=MAX_TEXT_LENGTH), described("The developer's reason.")] | None
    message: _Message | None
    created_at: CreatedAt
    created_by: CreatedBy
    decided_at: Annotated[
        datetime | None, described("When an administrator decided. Null while it is undecided.")
    ]
    decided_by: Annotated[
        str | None,
        described(
            "The email address or name of the user or client who decided, or the ID of a user who was deleted since. "
            "Null while it is undecided."
        ),
    ]


class RequestableScope(Representation):
    """A scope that can be requested."""

    name: Annotated[str, described("The scope value to request.")]
    title: Annotated[str | None, described("What the consent page shows. Null if it shows the name.")]
    description: Annotated[
        str | None, described("The explanation on the consent page. Null if there is none.")
    ]


class RequestableResource(Representation):
    """A resource (API) to which access can be requested."""

    id: Annotated[str, PublicId("res", "resource"), Source("public_id")]
    identifier: Annotated[str, described("The resource indicator (RFC 8707).")]
    name: Annotated[str, described("The name that users see when they are asked for consent.")]
    access_policy: Annotated[str, OneOf(ACCESS_POLICIES), described("Which clients can use the resource.")]
    scopes: Annotated[list[RequestableScope], described("The scopes that can be requested.")]


@endpoints.page("/client-access", returns=ClientAccess, filters=FILTERS)
def list_client_access(context: ApiContext) -> object:
    """List the access of clients to resources (APIs), and requests for it.

    The newest first. With `status=requested`, the requests that wait for a decision.
    """
    return show_page(context, "client access", access_records.list_client_access, filters=FILTERS)


@endpoints.post(
    "/resources/<resource_id>/access/<client_id>", status=200, body=AccessGrant, returns=ClientAccess
)
def give_client_access(context: ApiContext, body: Body, resource_id: str, client_id: str) -> object:
    """Give a client access to a resource (API) without a request.

    The scopes are added to those that the client already has access to.
    """
    return access_decisions.give_access(context.actor, resource_id, client_id, body)


@endpoints.get("/client-access/<client_access_id>", returns=ClientAccess)
def get_client_access(context: ApiContext, client_access_id: str) -> object:
    """Get the access of a client, or a request."""
    return access_records.get_client_access(context.actor, client_access_id)


_DECIDES: dict[str, Any] = {
    "status": 200,
    "body": AccessDecision,
    "is_body_optional": True,
    "returns": ClientAccess,
}


@endpoints.post("/client-access/<client_access_id>/approve", **_DECIDES)
def approve_client_access(context: ApiContext, body: Body, client_access_id: str) -> object:
    """Approve a request for access.

    Who requested it is notified. The response is 409 if the request was already decided.
    """
    return access_decisions.approve_access(context.actor, client_access_id, body)


@endpoints.post("/client-access/<client_access_id>/decline", **_DECIDES)
def decline_client_access(context: ApiContext, body: Body, client_access_id: str) -> object:
    """Decline a request for access.

    Who requested it is notified. Access that the client already has does not change. The response is 409 if the request
    was already decided.
    """
    return access_decisions.decline_access(context.actor, client_access_id, body)


@endpoints.post("/client-access/<client_access_id>/withdraw", **_DECIDES)
def withdraw_client_access(context: ApiContext, body: Body, client_access_id: str) -> object:
    """Withdraw the access of a client.

    Its tokens for the resource are revoked, and it gets no new ones. Tokens that users allowed are affected only if the
    resource is for listed clients. The response is 409 if the access was already withdrawn.
    """
    return access_decisions.withdraw_access(context.actor, client_access_id, body)


@endpoints.page("/clients/<client_id>/access", scope="clients:read", returns=ClientAccess)
def list_access_of_client(context: ApiContext, client_id: str) -> object:
    """List the access of a client to resources (APIs), and its requests."""
    return show_page(context, f"access of {client_id}", access_records.list_access_of_client, client_id)


@endpoints.post(
    "/clients/<client_id>/access/<resource_id>",
    status=200,
    scope="clients:write",
    body=AccessRequest,
    returns=ClientAccess,
)
def request_client_access(context: ApiContext, body: Body, client_id: str, resource_id: str) -> object:
    """Request access to a resource (API) for a client.

    The owner of the resource is notified, and decides. Your own resources give access at once. The client's pending
    request for the resource is replaced. The response is 409 for a resource that is open to all clients.
    """
    return access_requests.request_access(context.actor, client_id, resource_id, body)


@endpoints.delete(
    "/clients/<client_id>/access/<resource_id>/request", scope="clients:write", returns=ClientAccess
)
def cancel_access_request(context: ApiContext, client_id: str, resource_id: str) -> object:
    """Cancel a client's pending request for access to a resource (API).

    Access that the client already has does not change. Returns the request as it was. The response is 404 if no request
    is pending, also because it was decided.
    """
    return access_requests.cancel_request(context.actor, client_id, resource_id)


@endpoints.get(
    "/clients/<client_id>/requestable-resources", scope="clients:write", returns=list[RequestableResource]
)
def list_requestable_resources(context: ApiContext, client_id: str) -> object:
    """List the resources (APIs) to which access can be requested for a client.

    Resources that are open to all clients are not listed, nor resources for listed clients that you can't see.
    """
    return access_requests.list_requestable_resources(context.actor, client_id)
