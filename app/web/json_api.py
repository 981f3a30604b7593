"""The JSON API over HTTP: strict bodies, query parameters, ETags, envelopes and idempotency keys."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from hashlib import sha256
from typing import Any
from urllib.parse import urlencode

from flask import Blueprint, Response, json, request
from msgspec.structs import asdict
from werkzeug.exceptions import HTTPException, RequestEntityTooLarge

from app.config import current
from app.extensions import csrf
from app.operations.clients.dpop_proofs import fresh_nonce
from app.operations.sign_in.reauthentication import FreshSignInRequired
from app.operations.store.idempotency import IdempotentResult, run_once
from app.operations.tokens.introspection import management_metadata_url
from app.rules.actor import Actor
from app.rules.errors import DomainError, Forbidden, InvalidInput, PreconditionFailed, Unauthenticated
from app.rules.fields import ValidationErrors, find_unknown
from app.rules.strict_json import MAX_BODY_BYTES, load_object, load_value
from app.web.headers import challenges, is_by_dpop
from app.web.request_log import request_id

_HTTP_ERRORS = {
    400: ("invalid_request", "The request is invalid."),
    403: ("forbidden", "You don't have permission to do this."),
    404: ("not_found", "There is no resource at this path."),
    405: ("method_not_allowed", "This path does not support the method. See the header Allow."),
    413: ("too_large", "The request body is larger than 64 KiB."),
    415: ("unsupported_media_type", "Send the request body as application/json in UTF-8."),
    429: ("too_many_requests", "Too many requests. Wait a moment and try again."),
    500: ("internal_error", "Something went wrong on our side. Include this request ID when you report it."),
    503: ("temporarily_unavailable", "The service is temporarily unavailable. Try again in a moment."),
}
_PRESERVED_HEADERS = ("Allow", "Retry-After")
_KEY = re.compile(r"[\x21-\x7e]{1,200}")
_SECRETS = frozenset(
    {
        *("client_secret", "link", "invitation_link", "initial_access_token", "provisioning_token"),
        "signing_secret",
    }
)


class UnsupportedMediaType(DomainError):
    """The body has a media type that the endpoint does not accept."""

    status = 415
    code = "unsupported_media_type"


def blueprint(name: str) -> Blueprint:
    """Return a blueprint whose errors are envelopes. It accepts no cookies, so it needs no CSRF token (CF-3)."""
    result = Blueprint(name, name)
    csrf.exempt(result)
    result.register_error_handler(DomainError, error_response)
    result.register_error_handler(HTTPException, http_error_response)
    result.after_request(_add_dpop_nonce)
    result.after_request(_make_conditional)
    return result


def envelope(
    data: Any,
    status: int = 200,
    *,
    meta: Mapping[str, Any] | None = None,
    version: int | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Return a success response, with the ETag of the version. An empty ``meta`` is left out."""
    body = {"success": True, "data": data}
    if meta:
        body["meta"] = dict(meta)
    return _json(body, status, {**(headers or {}), **etag_headers(version)})


def error_response(error: DomainError) -> Response:
    """Return the envelope of an error, with the headers that its status requires."""
    challenge: dict[str, str] | None = None
    more: dict[str, Any] = {"details": error.details} if error.details else {}
    if isinstance(error, Forbidden) and error.permission is not None:
        more["required_scope"] = error.permission
        challenge = {"error": "insufficient_scope", "scope": error.permission}
    if isinstance(error, Unauthenticated):
        # RFC 6750 section 3.1: without credentials the challenge names no error.
        sent = "Authorization" in request.headers
        challenge = {"error": error.code} if sent else {}
    if isinstance(error, FreshSignInRequired):
        challenge = {"error": error.code, "max_age": str(error.max_age)}
        challenge |= {"acr_values": error.acr_values} if error.acr_values else {}
    retry_after = getattr(error, "retry_after", None)
    headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
    errors = [asdict(invalid) for invalid in error.errors]
    response = _error(error.status, error.code, error.description, headers, errors=errors, **more)
    if challenge is not None:
        by_dpop = is_by_dpop(request.headers.get("Authorization"))
        for header in challenges(_resource(), challenge, by_dpop=by_dpop):
            response.headers.add("WWW-Authenticate", header)
    return response


def read_object(*, optional: bool = False) -> dict[str, Any]:
    """Return the JSON object in the request's body. With ``optional``, no body at all is an empty object.

    Raises UnsupportedMediaType, InvalidJson, and 413 for more than 64 KiB, also for a body without a length.
    """
    body = _body()
    if not body and optional and not request.content_type:
        return {}
    _require_json()
    return load_object(body) if body or not optional else {}


def require_no_fields(parameters: Collection[str]) -> None:
    """Reject a body with fields, so that none is ignored. No body at all or an empty object is accepted.

    ``parameters`` are the query parameters of the endpoint. Raises InvalidInput with every field, and what
    ``read_object`` does.
    """
    if not _body():
        return
    errors, sent = ValidationErrors(), read_object()
    for name in parameters:
        if name in sent:
            errors.add(name, "unknown_field", "Send this in the query: this request has no body.")
    find_unknown(errors, [name for name in sent if name not in parameters], ())
    errors.raise_if_any()


def read_value() -> Any:
    """Return the JSON value in the request's body, which may be an array; raises what ``read_object`` does."""
    body = _body()
    _require_json()
    return load_value(body)


def _body() -> bytes:
    body = request.get_data(cache=True)
    # Werkzeug silently truncates a body without a length at the limit. Only what is left over shows it.
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


def http_error_response(error: HTTPException) -> Response:
    """Return the envelope of an HTTP error of Werkzeug, or the response that it contains."""
    if error.response is not None:
        return error.response  # type: ignore[return-value]
    headers = {name: value for name, value in error.get_headers() if name in _PRESERVED_HEADERS}
    status = error.code or 500
    return _error(status, *_http_error(status), headers, errors=[])


def error_code(status: int) -> str:
    """Return the stable error code of a status."""
    return _http_error(status)[0]


def _http_error(status: int) -> tuple[str, str]:
    return _HTTP_ERRORS.get(status, _HTTP_ERRORS[400 if status < 500 else 500])


def _resource() -> str:
    """Return the parameters of a challenge that identify this API."""
    described = f'realm="{current().base_url}/management"'
    # A client that knows only this API's URL finds the authorization server here (RFC 9728 section 5.1).
    return f'{described}, resource_metadata="{management_metadata_url()}"'


def _add_dpop_nonce(response: Response) -> Response:
    """Add the nonce for the next DPoP proof, if the request has one (RFC 9449 section 8.2)."""
    if "DPoP" in request.headers:
        response.headers["DPoP-Nonce"] = fresh_nonce()
    return response


def _make_conditional(response: Response) -> Response:
    """Give each response to GET an ETag, and answer 304 if the caller has it (RFC 9110 section 13.1.2).

    If-Match is evaluated before, as in other requests: Werkzeug would compare it with the whole ETag, reject ``*``, and
    answer 412 with the content.
    """
    if request.method in {"GET", "HEAD"} and response.status_code == 200 and not response.is_streamed:
        add_content_to_etag(response)
        try:
            _require_match(response)
        except DomainError as error:
            return error_response(error)
        response.make_conditional({**request.environ, "HTTP_IF_MATCH": ""})
    return response


def _require_match(response: Response) -> None:
    """Raise PreconditionFailed unless If-Match names the version of this response, or its content without one."""
    header, current = _if_match(), response.get_etag()[0] or ""
    if header is None:
        return
    tags = {tag.partition("-")[0] for weak, tag in _TAGS.findall(header) if not weak}
    if current.partition("-")[0] not in tags:
        raise PreconditionFailed(_STALE)


def _error(status: int, code: str, description: str, headers: Mapping[str, str], **more: Any) -> Response:
    body = {"success": False, "error_code": status, "error_msg": description, "error": code}
    return _json({**body, "request_id": request_id(), **more}, status, headers)


def _json(body: Mapping[str, Any], status: int, headers: Mapping[str, str] | None) -> Response:
    response = Response(json.dumps(body), status, mimetype="application/json")
    response.headers["Cache-Control"] = "no-store"
    for name, value in (headers or {}).items():
        response.headers[name] = value
    return response


def created(
    data: Any,
    name: str,
    *,
    meta: Mapping[str, Any] | None = None,
    version: int | None = None,
    collection: str | None = None,
) -> IdempotentResult:
    """Return a 201 outcome with the Location of the new object and the ETag of its version.

    ``name`` is the last part of its path, ``collection`` the path above it, by default that of the request. If the
    request names the organization, the Location does too: it is not found without.
    """
    location = f"{collection or request.path.rstrip('/')}/{name}"
    if named := request.args.get("organization_id"):
        location += "?" + urlencode({"organization_id": named})
    return IdempotentResult(data, 201, meta or {}, {"Location": location, **etag_headers(version)})


def sent_key() -> str | None:
    """Return the Idempotency-Key of the request, or None. Raises InvalidInput for an invalid key."""
    key = request.headers.get("Idempotency-Key")
    if key is not None and _KEY.fullmatch(key) is None:
        message = "An Idempotency-Key must be 1 to 200 printable ASCII characters, without spaces."
        raise InvalidInput(message, field="Idempotency-Key", code="invalid_key")
    return key


def run_idempotently(actor: Actor, body: Mapping[str, Any], work: Callable[[], IdempotentResult]) -> Response:
    """Return the response of ``work``. With an Idempotency-Key, it runs once, and repeats have no secrets."""
    key = sent_key()
    if key is None:
        outcome = work()
    else:
        path = request.path.removeprefix("/api/v1")
        acting = request.args.get("organization_id", "")
        outcome = run_once(
            actor,
            work,
            key=key,
            route=f"{request.method} {path} {acting}",
            body=body,
            secret_fields=_SECRETS,
        )
    return respond(outcome)


def respond(outcome: IdempotentResult) -> Response:
    """Return the response of a view."""
    meta = {**outcome.meta, **({"repeated": True} if outcome.is_repeated else {})}
    return envelope(outcome.data, outcome.status, meta=meta, headers=outcome.headers)


MAX_LENGTH = 1000
_NUMBER = re.compile(r"0|[1-9][0-9]{0,11}")
_TAG = r'"[\x21\x23-\x7e]{1,64}"'
_TAGS = re.compile(r'(W/)?"([\x21\x23-\x7e]{1,64})"')
_STALE = "This is not the current version. Read it again."
_LIST = re.compile(rf"(?:W/)?{_TAG}(?:\s*,\s*(?:W/)?{_TAG})*")
_VERSION = re.compile(r'(?<!W/)"v([1-9][0-9]{0,9})(?:-[0-9a-f]{16})?"')


def query_parameters(known: Collection[str]) -> dict[str, str]:
    """Return the parameters of the request.

    Raises InvalidInput with every parameter that is unknown, empty, too long or sent more than once.
    """
    errors = ValidationErrors()
    find_unknown(errors, request.args, known, noun="parameter")
    for name, values in request.args.lists():
        if len(values) > 1:
            errors.add(name[:100], "repeated", "Send this parameter only once.")
        elif not values[0]:
            errors.add(name[:100], "empty", "Enter a value, or omit the parameter.")
        elif len(values[0]) > MAX_LENGTH or any(char < " " for char in values[0]):
            errors.add(name[:100], "malformed", "This value is too long or contains control characters.")
    errors.raise_if_any()
    return {name: values[0] for name, values in request.args.lists()}


def boolean_parameter(parameters: dict[str, str], name: str) -> bool:
    """Return a parameter that is ``true`` or ``false``. The default is false."""
    value = parameters.get(name, "false")
    if value not in ("true", "false"):
        raise InvalidInput("Enter true or false.", field=name, code="not_allowed")
    return value == "true"


def integer_parameter(
    parameters: Mapping[str, str], name: str, *, minimum: int, maximum: int, default: int
) -> int:
    """Return a parameter that is a whole number within bounds, both included."""
    value = parameters.get(name, str(default))
    if _NUMBER.fullmatch(value) is None or not minimum <= int(value) <= maximum:
        raise InvalidInput(f"Enter a number from {minimum} to {maximum}.", field=name, code="out_of_range")
    return int(value)


def etag_headers(version: int | None) -> dict[str, str]:
    """Return the header with the ETag of a version. A response to GET adds a digest of its content."""
    return {} if version is None else {"ETag": f'"v{version}"'}


def add_content_to_etag(response: Response) -> None:
    """Add a digest of the content to the ETag of a response, or give it one.

    A representation also shows what is not part of the version, such as when a secret was last used, and a 304 must
    not hide that (RFC 9110 section 8.8.3). If-Match looks only at the version.
    """
    content = sha256(response.get_data()).hexdigest()[:16]
    version, _ = response.get_etag()
    response.set_etag(content if version is None else f"{version}-{content}")


def expected_version() -> frozenset[int] | None:
    """Return the versions in If-Match, or None if there is no such header or it is ``*``.

    Raises InvalidInput for a malformed header, PreconditionFailed for ETags that this service does not use.
    """
    header = _if_match()
    if header is None:
        return None
    versions = frozenset(int(version) for version in _VERSION.findall(header))
    if not versions:
        raise PreconditionFailed(_STALE)
    return versions


def _if_match() -> str | None:
    """Return If-Match, or None if there is no such header or it is ``*``. Raises InvalidInput if it is malformed."""
    header = request.headers.get("If-Match", "*").strip()
    if header == "*":
        return None
    if _LIST.fullmatch(header) is None:
        raise InvalidInput('If-Match must be an ETag from a response, such as "v3".', field="If-Match")
    return header
