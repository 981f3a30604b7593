"""Requests that pages send to the OAuth endpoints of this service, without a connection to its own public URL.

Interfaces do not import each other: the endpoints register here what answers, and the playground of the portal calls
it. The request runs through the same handlers as one from the network.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from flask import Flask

from app.config import application
from app.operations.directory.snapshots import AuthenticatedClient


@dataclass(frozen=True, slots=True)
class EndpointCall:
    """A request to an endpoint under an organization's issuer.

    ``client`` was authenticated by an operation, in place of credentials in the request; ``bearer`` is an access token.
    """

    organization_slug: str
    endpoint: str
    parameters: Mapping[str, str] = field(repr=False)
    client: AuthenticatedClient | None = None
    bearer: str | None = field(default=None, repr=False)
    ip_address: str | None = None


@dataclass(frozen=True, slots=True)
class EndpointAnswer:
    """The response, how long it took, and for an error its cause in the log of failed requests."""

    status: int
    headers: list[tuple[str, str]]
    body: str = field(repr=False)
    milliseconds: int
    request_id: str
    cause: str | None


def register(app: Flask, answer: Callable[[EndpointCall], EndpointAnswer]) -> None:
    """Let ``answer`` handle the calls of the application."""
    app.extensions["endpoint_calls"] = answer


def call_endpoint(call: EndpointCall) -> EndpointAnswer:
    """Send the request and return the response."""
    answer: EndpointAnswer = application().extensions["endpoint_calls"](call)
    return answer
