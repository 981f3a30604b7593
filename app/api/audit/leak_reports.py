"""``POST /leak-reports``: revoke secrets that were found in public. The response reveals nothing about them."""

from __future__ import annotations

from typing import Annotated

from flask import Response, request

from app.api.endpoints import Endpoint, add_endpoint, api, component, object_schema
from app.api.representations import Representation
from app.operations.audit import leaked_secrets
from app.rules.actor import Actor
from app.rules.audit.leaked_secrets import MAX_REPORTS
from app.rules.shapes import SchemaOnly, described
from app.web.json_api import envelope, query_parameters, read_value
from app.web.request_log import request_id

_TEXT = {"type": "string"}
_REPORT = component(
    "LeakReport",
    object_schema(
        ["token"],
        token={"type": "string", "minLength": 1, "description": "The complete string that was found."},
        type={**_TEXT, "description": "What the scanner calls it."},
        url={**_TEXT, "description": "Where it was found. The query string is not stored."},
        source={**_TEXT, "description": "What it was found in, such as `commit`."},
    )
    | {"description": "In the format of secret scanners. Other properties are ignored."},
)


class AcceptedLeakReports(Representation):
    """The number of reports."""

    accepted: Annotated[
        int, SchemaOnly(minimum=1, maximum=MAX_REPORTS), described("The number of reports that were sent.")
    ]


def report_leaks() -> Response:
    """Report leaked secrets.

    Secrets and tokens of this service are revoked before the response, and their owner and the administrators are
    notified. No authentication is required: anyone who has a secret may revoke it. The response is the same for every
    string.
    """
    query_parameters(())
    actor = Actor.anonymous("", request.remote_addr, request_id())
    return envelope({"accepted": leaked_secrets.report_leaks(actor, read_value())}, 202)


add_endpoint(
    Endpoint(
        method="POST",
        path="/leak-reports",
        tag="Leak reports",
        view=report_leaks,
        scope=None,
        # TypeScript generators cannot make a class of "one report or several".
        body={
            "type": "array",
            "description": "A single report is accepted without the array too.",
            "minItems": 1,
            "maxItems": MAX_REPORTS,
            "items": _REPORT,
        },
        returns=AcceptedLeakReports,
        status=202,
        is_idempotent=False,
        names_organization=False,
        security=[{}],
    ),
    api,
    report_leaks,
)
