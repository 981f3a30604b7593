"""Failed requests of clients to the OAuth endpoints, with the cause and a fix: list, show."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from app.api.endpoints import Endpoints, show_page
from app.api.representations import ClientId, ClientName, Representation, Slug, Source
from app.operations.audit import failed_requests
from app.operations.audit.failed_requests import FILTERS
from app.rules.audit.failed_requests import CAUSES
from app.rules.shapes import OneOf, PublicId, described
from app.web.bearer import ApiContext

endpoints = Endpoints("Failed requests", "logs")


class FailedRequest(Representation):
    """A failed request of a client."""

    id: Annotated[str, PublicId("flr", "failed request"), Source("public_id")]
    organization_id: Slug
    occurred_at: Annotated[datetime, Source("at"), described("When the request was made.")]
    request_id: Annotated[str, described("As in `X-Request-Id` and on the error page.")]
    client_id: ClientId
    client_name: ClientName
    endpoint: Annotated[str, described("`authorize`, `token`, `introspect` …")]
    method: Annotated[str, described("The HTTP method of the request.")]
    status: Annotated[int, described("The HTTP status of the response.")]
    error: Annotated[str, described("The error code in the response.")]
    error_description: Annotated[str, Source("description"), described("The description in the response.")]
    cause: Annotated[str, OneOf(tuple(CAUSES)), described("The cause, which the response did not contain.")]
    what_happened: Annotated[str, Source("explanation.what"), described("What went wrong.")]
    how_to_fix: Annotated[str, Source("explanation.fix"), described("What the developer can do about it.")]
    received: Annotated[str | None, described("The value that was rejected. Null if the cause has none.")]
    expected: Annotated[list[str], described("Each of these values would have been accepted.")]
    parameters: Annotated[
        dict[str, str], described("The parameters. Secrets are replaced by a note that they were sent.")
    ]
    ip_address: Annotated[
        str | None,
        Source("address"),
        described("The IP address of the request. Null if it is unknown or was removed."),
    ]


class FailedRequestDetails(FailedRequest):
    """A failed request, with the number of similar ones."""

    similar_requests: Annotated[
        int, Source("similar"), described("With the same client and cause in the 24 hours before.")
    ]
    similar_since: Annotated[
        datetime | None, described("When the first of the similar requests was made. Null if there are none.")
    ]


@endpoints.page("/logs/failed-requests", returns=FailedRequest, filters=FILTERS)
def list_failed_requests(context: ApiContext) -> object:
    """List failed requests of clients.

    The newest first.
    """
    return show_page(context, "failed requests", failed_requests.list_failed_requests, filters=FILTERS)


@endpoints.get("/logs/failed-requests/<failed_request_id>", returns=FailedRequestDetails)
def get_failed_request(context: ApiContext, failed_request_id: str) -> object:
    """Get a failed request."""
    return failed_requests.get_failed_request(context.actor, failed_request_id)
