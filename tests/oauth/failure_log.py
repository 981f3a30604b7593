"""Read the failed-request log in tests."""

from __future__ import annotations

from app.operations.audit.failed_requests import FailedRequestRecord, list_failed_requests
from app.web.failed_requests import FailedRequests
from tests.oauth.conftest import Flow


def kept(flow: Flow) -> list[FailedRequestRecord]:
    """Return the log entries of the client's organization, newest first."""
    waiting: FailedRequests = flow.app.extensions["failed_requests"]
    with flow.app.app_context():
        waiting.write_waiting()
        return list(list_failed_requests(flow.make.system(flow.organization)).items)


def only(flow: Flow) -> FailedRequestRecord:
    """Return the only entry."""
    [entry] = kept(flow)
    return entry
