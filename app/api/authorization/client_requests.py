"""Requests of members for clients that need administrator approval: list, show, approve, decline."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from app.api.endpoints import Body, Endpoints, show_page
from app.api.representations import (
    ClientId,
    ClientName,
    CreatedAt,
    Representation,
    Slug,
    Source,
    UserEmail,
    UserId,
)
from app.operations.authorization import approval_requests
from app.operations.authorization.approval_requests import FILTERS
from app.rules.authorization.consents import MAX_REASON_LENGTH, STATUSES, ClientApproval, ClientRefusal
from app.rules.clients.client_types import SOURCES, TRUST
from app.rules.shapes import OneOf, PublicId, SchemaOnly, described
from app.web.bearer import ApiContext

endpoints = Endpoints("Client requests", "clients")


class ClientRequest(Representation):
    """A member's request for a client."""

    id: Annotated[str, PublicId("crq", "request"), Source("public_id")]
    organization_id: Slug
    client_id: ClientId
    client_name: ClientName
    client_trust: Annotated[
        str, OneOf(TRUST), Source("trust"), described("How far the organization trusts the client.")
    ]
    client_source: Annotated[
        str, OneOf(SOURCES), Source("source"), described("How the client was registered.")
    ]
    client_uri: Annotated[str | None, Source("home_page"), described("The home page of the client.")]
    redirect_hosts: Annotated[
        list[str],
        described("Where users are redirected to: the hosts of its redirect URIs, or an app's own scheme."),
    ]
    client_version: Annotated[int, described("Changes whenever the client changes.")]
    user_id: UserId
    user_email: UserEmail
    status: Annotated[str, OneOf(STATUSES), described("Whether an administrator has decided.")]
    scopes: Annotated[list[str], described("What the client requested.")]
    reason: Annotated[str, SchemaOnly(maxLength=MAX_REASON_LENGTH), described("The member's reason.")]
    created_at: CreatedAt
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
    message: (
        Annotated[str, SchemaOnly(maxLength=MAX_REASON_LENGTH), described("The message for the member.")]
        | None
    )


@endpoints.page("/client-requests", returns=ClientRequest, filters=FILTERS)
def list_client_requests(context: ApiContext) -> object:
    """List requests for clients.

    Members request clients that they can't consent to themselves: see `approval` of a client and the setting
    `oauth.consent.members_may_allow`. The newest first.
    """
    return show_page(context, "client requests", approval_requests.list_client_requests, filters=FILTERS)


@endpoints.get("/client-requests/<client_request_id>", returns=ClientRequest)
def get_client_request(context: ApiContext, client_request_id: str) -> object:
    """Get a request."""
    return approval_requests.get_client_request(context.actor, client_request_id)


@endpoints.post(
    "/client-requests/<client_request_id>/approve",
    status=200,
    scope="clients:trust",
    body=ClientApproval,
    is_body_optional=True,
    returns=ClientRequest,
)
def approve_client_request(context: ApiContext, body: Body, client_request_id: str) -> object:
    """Approve a request.

    Members may now consent to the client. All requests for it are closed, and up to 50 of their members are notified.
    The response is 409 if the request was already decided or the client is blocked.
    """
    return approval_requests.approve_client_request(context.actor, client_request_id, body)


@endpoints.post(
    "/client-requests/<client_request_id>/decline",
    status=200,
    scope="clients:trust",
    body=ClientRefusal,
    is_body_optional=True,
    returns=ClientRequest,
)
def decline_client_request(context: ApiContext, body: Body, client_request_id: str) -> object:
    """Decline a request.

    The member is notified. The client does not change: to block it, set its `approval` to `blocked`. The response is
    409 if the request was already decided.
    """
    return approval_requests.decline_client_request(context.actor, client_request_id, body)
