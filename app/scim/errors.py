"""Error responses of SCIM (RFC 7644 section 3.12)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flask import Response, json
from werkzeug.exceptions import HTTPException

from app.config import current
from app.rules.errors import Conflict, DomainError, InvalidInput, Unauthenticated
from app.rules.strict_json import InvalidJson

MEDIA_TYPE = "application/scim+json"
_SCHEMA = "urn:ietf:params:scim:api:messages:2.0:Error"
# Which attributes the fields of operations come from.
_ATTRIBUTES = {
    "email": "emails.value",
    "name": "displayName",
    "profile.given_name": "name.givenName",
    "profile.middle_name": "name.middleName",
    "profile.family_name": "name.familyName",
    "profile.nickname": "nickName",
    "profile.profile": "profileUrl",
    "profile.zoneinfo": "timezone",
    "profile.locale": "locale",
    "profile.phone_number": "phoneNumbers.value",
    "profile.address": "addresses",
    "attributes.user_type": "userType",
    "attributes.employee_number": "employeeNumber",
    "attributes.cost_center": "costCenter",
}
_HTTP_DETAILS = {
    404: "There is no resource at this path.",
    413: "The request body is larger than 256 KiB. Send fewer members at a time.",
    500: "Something went wrong on our side.",
    501: "This service searches users or groups, and has neither bulk operations nor /Me.",
}


def respond(
    content: Mapping[str, Any] | None, status: int = 200, headers: Mapping[str, str] = {}
) -> Response:
    """Return a response with a JSON object, or without content."""
    response = Response("" if content is None else json.dumps(content), status, mimetype=MEDIA_TYPE)
    response.headers["Cache-Control"] = "no-store"
    response.headers.update(headers)
    return response


def scim_error(
    status: int, detail: str, scim_type: str | None = None, headers: Mapping[str, str] = {}
) -> Response:
    """Return the response of an error. ``scim_type`` is a keyword of RFC 7644, table 9."""
    content = {"schemas": [_SCHEMA], "status": str(status), "detail": detail}
    return respond(content | ({"scimType": scim_type} if scim_type else {}), status, headers)


def error_response(error: DomainError) -> Response:
    """Return the response of an error of an operation, which names every invalid attribute."""
    headers: dict[str, str] = {}
    if isinstance(error, Unauthenticated):
        headers["WWW-Authenticate"] = f'Bearer realm="{current().base_url}/scim"'
    if (retry_after := getattr(error, "retry_after", None)) is not None:
        headers["Retry-After"] = str(retry_after)
    scim_type = None
    if isinstance(error, Conflict) and error.field is not None:
        scim_type = "uniqueness"
    elif isinstance(error, InvalidJson):
        scim_type = "invalidSyntax"
    elif isinstance(error, InvalidInput):
        scim_type = "tooMany" if error.code == "too_many" else "invalidValue"
    detail = " ".join(f"{_attribute(each.field)}: {each.message}" for each in error.errors)
    return scim_error(error.status, detail or str(error.description), scim_type, headers)


def http_error_response(error: HTTPException) -> Response:
    """Return the response of an HTTP error of Werkzeug."""
    status = error.code or 500
    headers = {name: value for name, value in error.get_headers() if name in {"Allow", "Retry-After"}}
    return scim_error(
        status, _HTTP_DETAILS.get(status, error.description or "The request is invalid."), None, headers
    )


def _attribute(field: str) -> str:
    named = (name for key, name in _ATTRIBUTES.items() if field == key or field.startswith(f"{key}."))
    return next(named, field.removeprefix("attributes."))
