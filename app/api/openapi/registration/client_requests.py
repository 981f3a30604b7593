"""Requests of members for clients in the OpenAPI document."""

from __future__ import annotations

from app.api.openapi.common import CLIENT_ID, SLUG, public_id
from app.api.openapi.parts import (
    Schema,
    answer,
    array,
    closed,
    created,
    flag,
    listed,
    moment,
    nullable,
    operation,
    path_item,
    query_parameter,
    ref,
    shown,
    text,
)
from app.rules.authorization.consents import LONGEST_REASON, STATUSES
from app.rules.clients.client_fields import SOURCES, TRUST

_TAG = "Client requests"


def _optional(properties: Schema) -> Schema:
    return closed(properties, optional=tuple(properties))


SCHEMAS: Schema = {
    "ClientRequest": closed(
        {
            "id": public_id("crq"),
            "organization_id": SLUG,
            "client_id": CLIENT_ID,
            "client_name": text(),
            "client_trust": text(enum=list(TRUST)),
            "client_source": text("How the client came here.", enum=list(SOURCES)),
            "client_uri": nullable(text("The home page that the client names.")),
            "redirect_hosts": {
                "type": "array",
                "items": text(),
                "description": "Where people and codes go from here: the hosts of its redirect URIs, or the scheme of "
                "an app's own address.",
            },
            "client_version": {
                "type": "integer",
                "description": "Another number once the client is changed.",
            },
            "user_id": public_id("usr"),
            "user_email": text(),
            "status": text(enum=list(STATUSES)),
            "scopes": array(text(), "What the client had asked for."),
            "reason": text("The member's words.", maxLength=LONGEST_REASON),
            "created_at": moment(),
            "decided_at": nullable(moment()),
            "decided_by": nullable(text()),
            "message": nullable(text("The decider's words for the member.", maxLength=LONGEST_REASON)),
        }
    ),
    "ClientApproval": _optional(
        {
            "verified": flag("The client gets the mark of review, too."),
            "client_version": nullable(
                {
                    "type": "integer",
                    "description": "The one that was looked at: 409 where it is another by now.",
                }
            ),
        }
    ),
    "ClientRefusal": _optional(
        {"message": nullable(text("Words for the member.", maxLength=LONGEST_REASON))}
    ),
}
PATHS: Schema = {
    "/client-requests": path_item(
        (),
        get=operation(
            "listClientRequests",
            "List requests for clients",
            tag=_TAG,
            scope="clients:read",
            description="Members ask here for clients that they may not allow by themselves: see `approval` of a "
            "client and the setting `oauth.consent.members_may_allow`. The newest first.",
            parameters=("Limit", "Cursor", "Acting"),
            query=(
                query_parameter("status", text(enum=list(STATUSES)), "Of this status."),
                query_parameter("client_id", CLIENT_ID, "For this client."),
            ),
            answers=listed("A page.", "ClientRequest"),
        ),
    ),
    "/client-requests/{clientRequestId}": path_item(
        ("ClientRequestId", "Acting"),
        get=operation(
            "getClientRequest",
            "Show a request",
            tag=_TAG,
            scope="clients:read",
            answers=shown("The request.", "ClientRequest"),
        ),
    ),
    "/client-requests/{clientRequestId}/approve": path_item(
        ("ClientRequestId", "Acting"),
        post=operation(
            "approveClientRequest",
            "Approve a request",
            tag=_TAG,
            scope="clients:trust",
            description="Members may allow the client from now on; all requests for it are closed and their members "
            "told. 409 for one that is decided, and for a client that is blocked.",
            parameters=("IdempotencyKey",),
            body=ref("ClientApproval"),
            is_body_optional=True,
            answers={"200": answer("As it was decided.", created(ref("ClientRequest")))},
            extra=("409",),
        ),
    ),
    "/client-requests/{clientRequestId}/decline": path_item(
        ("ClientRequestId", "Acting"),
        post=operation(
            "declineClientRequest",
            "Decline a request",
            tag=_TAG,
            scope="clients:trust",
            description="The member is told. The client stays as it is: to keep it out, set its `approval` to "
            "`blocked`. 409 for one that is decided.",
            parameters=("IdempotencyKey",),
            body=ref("ClientRefusal"),
            is_body_optional=True,
            answers={"200": answer("As it was decided.", created(ref("ClientRequest")))},
            extra=("409",),
        ),
    ),
}
