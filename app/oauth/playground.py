"""Requests that the portal's playground sends to the OAuth endpoints, answered by the handlers of those."""

from __future__ import annotations

import io
import time
from typing import Any
from urllib.parse import urlencode

from app import config
from app.oauth import userinfo
from app.oauth.client_endpoints import HANDLERS
from app.oauth.protocol_request import ProtocolRequest, handle
from app.oauth.request_parsing import FORM
from app.rules.identifiers import new_public_id
from app.web.endpoint_calls import EndpointAnswer, EndpointCall
from app.web.request_log import ID


def answer(call: EndpointCall) -> EndpointAnswer:
    """Run the endpoint's handler with the request as it would arrive, and return its response.

    Only the client's authentication is missing from it: that was decided by the operation that returned ``client``.
    """
    body = urlencode(call.parameters).encode()
    request_id = new_public_id("req")
    environ: dict[str, Any] = {
        "REQUEST_METHOD": "GET" if call.bearer is not None else "POST",
        "PATH_INFO": f"/organizations/{call.organization_slug}/oauth/{call.endpoint}",
        "QUERY_STRING": "",
        "CONTENT_TYPE": FORM,
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.input": io.BytesIO(body),
        "wsgi.url_scheme": "https" if config.current().is_https else "http",
        ID: request_id,
    }
    if call.ip_address is not None:
        environ["REMOTE_ADDR"] = call.ip_address
    if call.bearer is not None:
        environ["HTTP_AUTHORIZATION"] = f"Bearer {call.bearer}"
    request = ProtocolRequest(environ, call.organization_slug)
    request.playground_client = call.client
    handler = userinfo.userinfo if call.endpoint == "userinfo" else HANDLERS[call.endpoint]
    started = time.perf_counter()
    response = handle(handler, request)
    return EndpointAnswer(
        status=response.status,
        headers=[(name, value) for name, value in response.headers if value],
        body=response.body.decode(),
        milliseconds=round((time.perf_counter() - started) * 1000),
        request_id=request_id,
        cause=request.cause,
    )
