"""The log of failed requests as tests read it."""

from __future__ import annotations

from app.operations.audit.failed_requests import FailedRequestRecord, list_failed_requests
from app.web.failed_requests import FailedRequests
from tests.oauth.conftest import Flow


def kept(flow: Flow) -> list[FailedRequestRecord]:
    """The log of the client's organization, the newest first."""
    waiting: FailedRequests = flow.app.extensions["failed_requests"]
    with flow.app.app_context():
        waiting.write_waiting()
        return list(list_failed_requests(flow.make.system(flow.organization)).items)


def only(flow: Flow) -> FailedRequestRecord:
    """The one entry."""
    [entry] = kept(flow)
    return entry
