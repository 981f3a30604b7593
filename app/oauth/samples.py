"""Recording a sample of the successful requests, for the client's log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.operations.audit.failed_requests import LoggedRequest
from app.operations.store import clock
from app.rules.audit.failed_requests import redact_parameters
from app.web.failed_requests import failed_requests

if TYPE_CHECKING:
    from app.oauth.protocol_request import ProtocolRequest
    from app.operations.directory.snapshots import ClientSnapshot


def record_success(request: ProtocolRequest, client: ClientSnapshot, status: int) -> None:
    """Queue a sample of the request, if the limits allow one more now."""
    queue, named = failed_requests(), (client.organization.id, client.id)
    # Checked first: requests beyond the limits then cost no more than this.
    if not queue.has_room_for_sample(named):
        return
    queue.add_sample(
        LoggedRequest(
            client=named,
            at=clock.now(),
            request_id=request.request_id or "",
            endpoint=request.endpoint,
            method=request.method,
            status=status,
            parameters=redact_parameters(request.parameters),
            address=request.ip_address,
        )
    )
