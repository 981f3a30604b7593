"""``POST /leak-reports``: strings that somebody found; the answer is the same whatever they are."""

from __future__ import annotations

from flask import Response, request

from app.api.blueprint import api
from app.operations.audit.leaked_secrets import report_leaks
from app.rules.actor import Actor
from app.web.json_api import envelope, read_value
from app.web.parameters import query_parameters
from app.web.request_log import request_id


@api.post("/leak-reports")
def create_leak_reports() -> Response:
    """What of them is ours is dead."""
    query_parameters(())
    stranger = Actor.anonymous("", request.remote_addr, request_id())
    return envelope({"accepted": report_leaks(stranger, read_value())}, 202)
