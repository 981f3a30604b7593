"""Requests for access to an API, and the decisions about them: their fields and states."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from app.rules.clients.client_types import Scope
from app.rules.errors import InvalidInput
from app.rules.fields import ValidationErrors
from app.rules.shapes import ClientId, Items, PublicId, Shape, Text, check_shape, described

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

    resource_id: Annotated[str, PublicId("res", "resource")]
    scopes: Annotated[_Scopes, described("Scopes of the resource.")]
    reason: Annotated[
        str, Text(MAX_TEXT_LENGTH, multiline=True), described("Why the client needs the access.")
    ]


class AccessGrant(Shape):
    """Access that is given without a request."""

    client_id: Annotated[str, ClientId()]
    resource_id: Annotated[str, PublicId("res", "resource")]
    scopes: Annotated[
        _Scopes, described("Scopes of the resource. They are added to those of the client's access.")
    ]


class AccessDecision(Shape):
    """A decision about a request, or a withdrawal."""

    message: _Message = None


@dataclass(frozen=True, slots=True)
class WantedAccess:
    """A valid request."""

    resource_id: str
    scopes: tuple[str, ...]
    reason: str


_REQUIRED = {
    "reason": "Say in one sentence why the client needs the access.",
    "resource_id": "Choose an API.",
}


def check_request(fields: Mapping[str, Any]) -> WantedAccess:
    """Return the request. Raises InvalidInput with every invalid field."""
    sent = dict(fields)
    if isinstance(sent.get("reason"), str):
        sent["reason"] = sent["reason"].replace("\r\n", "\n").strip() or None
    errors = ValidationErrors()
    check_shape(errors, AccessRequest, sent, required=_REQUIRED)
    errors.raise_if_any()
    return WantedAccess(sent["resource_id"], tuple(sent["scopes"]), sent["reason"])


def check_grant(fields: Mapping[str, Any]) -> tuple[str, str, tuple[str, ...]]:
    """Return client id, resource id and scopes. Raises InvalidInput with every invalid field."""
    errors = ValidationErrors()
    check_shape(errors, AccessGrant, fields, required=_REQUIRED)
    errors.raise_if_any()
    return fields["client_id"], fields["resource_id"], tuple(fields["scopes"])


def check_decision(fields: Mapping[str, Any]) -> str | None:
    """Return the message for the developer, or None. Raises InvalidInput."""
    errors = ValidationErrors()
    check_shape(errors, AccessDecision, fields)
    errors.raise_if_any()
    return fields.get("message") or None


def require_scopes_of_resource(wanted: Collection[str], existing: Collection[str]) -> None:
    """Raise InvalidInput for each scope that is not one of the resource's."""
    errors = ValidationErrors()
    for position, name in enumerate(wanted):
        if name not in existing:
            errors.add(f"scopes[{position}]", "unknown_scope", "This API has no such scope.")
    errors.raise_if_any()


def unknown_resource() -> InvalidInput:
    """Return the error for a resource that does not exist, or that the client cannot request."""
    return InvalidInput("There is no such API.", field="resource_id", code="unknown_resource")
