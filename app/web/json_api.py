"""The envelope of the JSON API: how a body is read, how an answer and a refusal look (contract, section 3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flask import Blueprint, Response, current_app, json, request
from werkzeug.exceptions import HTTPException, RequestEntityTooLarge

from app.config import Config
from app.extensions import csrf
from app.operations.clients.dpop_proofs import fresh_nonce
from app.operations.sign_in.reauthentication import FreshSignInRequired
from app.operations.tokens.introspection import management_metadata_address
from app.rules.errors import DomainError, Forbidden, Unauthenticated
from app.rules.strict_json import MAX_BODY_BYTES, load_object, load_value
from app.rules.tokens.protected_resources import is_by_dpop
from app.web.challenges import challenges
from app.web.request_log import request_id

_HTTP_ERRORS = {
    400: ("invalid_request", "The request cannot be understood."),
    403: ("forbidden", "You may not do this."),
    404: ("not_found", "There is nothing at this path."),
    405: ("method_not_allowed", "This path does not answer that method."),
    413: ("too_large", "A body may have at most 64 KiB."),
    415: ("unsupported_media_type", "Send application/json in UTF-8."),
    429: ("too_many_requests", "Too many requests. Wait a moment."),
    500: ("internal_error", "A fault of this service. The request id finds it in the log."),
    503: ("temporarily_unavailable", "The service cannot answer right now. Try again in a moment."),
}
_KEPT_HEADERS = ("Allow", "Retry-After")


class UnsupportedMediaType(DomainError):
    """The body is not what this API reads."""

    status = 415
    code = "unsupported_media_type"


def blueprint(name: str) -> Blueprint:
    """A blueprint whose every refusal is an envelope. It takes no cookie, so it needs no form token (CF-3)."""
    made = Blueprint(name, name)
    csrf.exempt(made)
    made.register_error_handler(DomainError, refuse)
    made.register_error_handler(HTTPException, refuse_http)
    made.after_request(_offer_nonce)
    return made


def envelope(
    data: Any,
    status: int = 200,
    *,
    meta: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """A success. ``meta`` is left out when there is none."""
    body = {"success": True, "data": data}
    if meta:
        body["meta"] = dict(meta)
    return _json(body, status, headers)


def refuse(error: DomainError) -> Response:
    """A refusal in its envelope, with the headers that its status asks for."""
    headers: dict[str, str] = {}
    why: dict[str, str] | None = None
    body: dict[str, Any] = {
        "success": False,
        "error_code": error.status,
        "error_msg": error.description,
        "error": error.code,
        "errors": [
            {"field": wrong.field, "code": wrong.code, "message": wrong.message} for wrong in error.errors
        ],
        "request_id": request_id(),
    }
    if error.details:
        body["details"] = error.details
    if isinstance(error, Forbidden) and error.permission is not None:
        body["required_scope"] = error.permission
        why = {"error": "insufficient_scope", "scope": error.permission}
    if isinstance(error, Unauthenticated):
        # RFC 6750 section 3.1: without credentials the challenge names no error.
        sent = "Authorization" in request.headers
        why = {"error": error.code} if sent else {}
    if isinstance(error, FreshSignInRequired):
        why = {"error": error.code, "max_age": str(error.max_age)}
        why |= {"acr_values": error.acr_values} if error.acr_values else {}
    retry_after = getattr(error, "retry_after", None)
    if retry_after is not None:
        headers["Retry-After"] = str(retry_after)
    response = _json(body, error.status, headers)
    if why is not None:
        by_dpop = is_by_dpop(request.headers.get("Authorization"))
        for challenge in challenges(_resource(), why, by_dpop=by_dpop):
            response.headers.add("WWW-Authenticate", challenge)
    return response


def read_object(*, optional: bool = False) -> dict[str, Any]:
    """The JSON object in the request's body. ``optional`` takes no body at all for an empty object.

    Raises UnsupportedMediaType, InvalidJson, and 413 for more than 64 KiB, also of a body without a length.
    """
    body = _body()
    if not body and optional and not request.content_type:
        return {}
    _require_json()
    return load_object(body) if body or not optional else {}


def read_value() -> Any:
    """The JSON value in the request's body, an array as well; raises what ``read_object`` does."""
    body = _body()
    _require_json()
    return load_value(body)


def _body() -> bytes:
    body = request.get_data(cache=True)
    # Werkzeug cuts a body without a length off at its bound and says nothing: what is left over tells.
    if (
        request.content_length is None
        and len(body) >= MAX_BODY_BYTES
        and request.environ["wsgi.input"].read(1)
    ):
        raise RequestEntityTooLarge
    return body


def _require_json() -> None:
    parameters = {name.lower(): value.lower() for name, value in request.mimetype_params.items()}
    if request.mimetype != "application/json" or parameters not in ({}, {"charset": "utf-8"}):
        raise UnsupportedMediaType(_HTTP_ERRORS[415][1])
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise UnsupportedMediaType("Send the body without a Content-Encoding.")


def refuse_http(error: HTTPException) -> Response:
    """The envelope of what Werkzeug refuses, or the answer that it brings."""
    if error.response is not None:
        return error.response  # type: ignore[return-value]
    headers = {name: value for name, value in error.get_headers() if name in _KEPT_HEADERS}
    status = error.code or 500
    body = {
        "success": False,
        "error_code": status,
        "error_msg": _HTTP_ERRORS.get(status, _HTTP_ERRORS[400 if status < 500 else 500])[1],
        "error": error_code(status),
        "errors": [],
        "request_id": request_id(),
    }
    return _json(body, status, headers)


def error_code(status: int) -> str:
    """The stable code of a status."""
    return _HTTP_ERRORS.get(status, _HTTP_ERRORS[400 if status < 500 else 500])[0]


def _resource() -> str:
    """How a challenge describes this API."""
    config: Config = current_app.config["GATEHOUSE"]
    described = f'realm="{config.base_url}/management"'
    # Who knows this API's address alone finds out where tokens are had (RFC 9728 section 5.1).
    return f'{described}, resource_metadata="{management_metadata_address()}"'


def _offer_nonce(response: Response) -> Response:
    """Who sends proofs is told the nonce for the next one (RFC 9449 section 8.2)."""
    if "DPoP" in request.headers:
        response.headers["DPoP-Nonce"] = fresh_nonce()
    return response


def _json(body: Mapping[str, Any], status: int, headers: Mapping[str, str] | None) -> Response:
    response = Response(json.dumps(body), status, mimetype="application/json")
    response.headers["Cache-Control"] = "no-store"
    for name, value in (headers or {}).items():
        response.headers[name] = value
    return response
