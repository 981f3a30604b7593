"""Requests for access to an API, and the decisions about them: their fields and states."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated, Any

from app.rules.clients.client_types import Scope
from app.rules.fields import ValidationErrors
from app.rules.shapes import Items, Shape, Text, described, parse_shape

REQUESTED, GRANTED, DECLINED, WITHDRAWN = "requested", "granted", "declined", "withdrawn"
STATUSES = (REQUESTED, GRANTED, DECLINED, WITHDRAWN)
MAX_TEXT_LENGTH = 300

_Scopes = Annotated[tuple[Scope, ...], Items(100)]
_Message = (
    Annotated[
        str,
        Text(MAX_TEXT_LENGTH, min_length=0, multiline=True),
        described("A message for the client's developer."),
    ]
    | None
)


class AccessRequest(Shape):
    """A request for access to an API."""

    scopes: Annotated[_Scopes, described("Scopes of the resource.")]
    reason: Annotated[
        str, Text(MAX_TEXT_LENGTH, multiline=True), described("Why the client needs the access.")
    ]


class AccessGrant(Shape):
    """Access that is given without a request."""

    scopes: Annotated[_Scopes, described("Scopes of the resource, added to those of the client's access.")]


class AccessDecision(Shape):
    """A decision about a request, or a withdrawal."""

    message: _Message = None


_REQUIRED = {
    "reason": "Say in one sentence why the client needs the access.",
    "scopes": "Enter the scopes that the client needs. An empty list is access without scopes.",
}


def check_request(fields: Mapping[str, Any]) -> tuple[tuple[str, ...], str]:
    """Return the scopes and the reason. Raises InvalidInput with every invalid field."""
    sent = dict(fields)
    if isinstance(sent.get("reason"), str):
        sent["reason"] = sent["reason"].replace("\r\n", "\n").strip() or None
    request = parse_shape(AccessRequest, sent, required=_REQUIRED)
    return request.scopes, request.reason


def check_grant(fields: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the scopes. Raises InvalidInput with every invalid field."""
    return parse_shape(AccessGrant, fields, required=_REQUIRED).scopes


def check_decision(fields: Mapping[str, Any]) -> str | None:
    """Return the message for the developer, or None. Raises InvalidInput."""
    return parse_shape(AccessDecision, fields).message or None


def require_scopes_of_resource(wanted: Collection[str], existing: Collection[str]) -> None:
    """Raise InvalidInput for each scope that is not one of the resource's."""
    errors = ValidationErrors()
    for position, name in enumerate(wanted):
        if name not in existing:
            errors.add(f"scopes[{position}]", "unknown_scope", "This API has no such scope.")
    errors.raise_if_any()
