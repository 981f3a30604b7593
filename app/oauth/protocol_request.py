"""The request of an OAuth endpoint, read from WSGI with or without Flask around it.

Machines call token, introspection, revocation and userinfo all day, and those need no session, template or URL map.
Their handlers take a ``ProtocolRequest`` and return a ``ProtocolResponse``; Flask and the fast path share them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID

from flask import g
from flask import request as flask_request
from msgspec.structs import replace
from werkzeug.exceptions import RequestEntityTooLarge
from werkzeug.wsgi import get_input_stream

from app import config
from app.operations.clients.client_authentication import Presented
from app.operations.directory import lookups
from app.operations.directory.snapshots import AuthenticatedClient
from app.operations.grants import grants
from app.rules.actor import Actor
from app.rules.errors import OAuthError
from app.web.request_bodies import EncodedBody, is_encoded
from app.web.request_log import FACTS, ID

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

    from app.oauth.client_authentication import ProtocolClient

T = TypeVar("T")
MAX_BODY = 64 * 1024
_current: ContextVar[ProtocolRequest] = ContextVar("gatehouse protocol request")


class UnreadableBody(OAuthError):
    """The body is not read."""


class TooLarge(UnreadableBody):
    """The body is longer than 64 KiB."""

    status = 413

    def __init__(self) -> None:
        super().__init__("The body is longer than 64 KiB.")
        self.with_cause("body_too_large", expected="at most 64 KiB")


class Encoded(UnreadableBody):
    """The body has a Content-Encoding."""

    status = 415

    def __init__(self) -> None:
        super().__init__(EncodedBody().description)
        self.with_cause("body_encoded", expected="no Content-Encoding")


class ProtocolRequest:
    """A request of an OAuth endpoint.

    ``parameters`` are those that were parsed, ``presented`` the credentials of the client, ``authenticated`` the client
    once they were verified and ``client`` the same client as Authlib needs it. ``dpop_jkt`` is the thumbprint of the
    key whose DPoP proof was verified and spent. ``has_claimed_assertion`` means that this very request has spent the
    client assertion that it carries. ``playground_client`` is set by this service alone, for a request that the
    portal's playground sends: the client that it acts for. ``cause`` is that of a rejection in the log of failed
    requests, ``user_id`` names the user whose sign-in to the client this request completes.
    """

    __slots__ = (
        "_organization_id",
        "authenticated",
        "cause",
        "client",
        "dpop_jkt",
        "environ",
        "has_claimed_assertion",
        "organization_slug",
        "parameters",
        "playground_client",
        "presented",
        "used_pkce",
        "user_id",
    )

    def __init__(self, environ: WSGIEnvironment, organization_slug: str | None) -> None:
        self.environ = environ
        self.organization_slug = organization_slug
        self.authenticated: AuthenticatedClient | None = None
        self.cause: str | None = None
        self.client: ProtocolClient | None = None
        self.playground_client: AuthenticatedClient | None = None
        self.dpop_jkt: str | None = None
        self.has_claimed_assertion = False
        self.parameters: Mapping[str, str] = {}
        self.presented: Presented | None = None
        # Whether a code was redeemed with PKCE; None if none was.
        self.used_pkce: bool | None = None
        self.user_id: UUID | None = None
        self._organization_id: str | None = None

    @classmethod
    def from_flask(cls) -> ProtocolRequest:
        """Return the request that Flask is handling."""
        return cls(flask_request.environ, g.get("organization_slug"))

    @property
    def organization_id(self) -> str | None:
        """The organization in the path; None where the client decides. Raises NotFound."""
        if self._organization_id is None and self.organization_slug is not None:
            self._organization_id = lookups.get_organization_by_slug(self.organization_slug, fresh=False).id
        return self._organization_id

    @property
    def method(self) -> str:
        """GET or POST."""
        return str(self.environ["REQUEST_METHOD"])

    @property
    def endpoint(self) -> str:
        """The name of the endpoint in the path: ``token``, ``authorize`` …"""
        path: str = self.environ.get("PATH_INFO", "")
        # After the last one: a request may name an organization "oauth", which does not exist.
        return path.rpartition("/oauth/")[2].partition("/")[0] or path[:32]

    @property
    def has_query(self) -> bool:
        """Return whether the URL has a query string."""
        return bool(self.environ.get("QUERY_STRING"))

    @property
    def content_type(self) -> str:
        """The media type of the body, without its parameters."""
        return str(self.environ.get("CONTENT_TYPE", "")).partition(";")[0].strip().lower()

    @property
    def authorization(self) -> str | None:
        """The Authorization header."""
        return self.environ.get("HTTP_AUTHORIZATION")

    @property
    def dpop_proof(self) -> str | None:
        """The DPoP header (RFC 9449); several of them arrive joined by a comma."""
        return self.environ.get("HTTP_DPOP")

    @property
    def path(self) -> str:
        """The decoded path."""
        path: str = self.environ["PATH_INFO"]
        return path.encode("latin-1").decode("utf-8", "replace")

    @property
    def url(self) -> str:
        """The URL as the caller knows it, without its query: the configured base URL and the path."""
        return config.current().base_url + self.path

    @property
    def origin(self) -> str | None:
        """The web origin of the page that sends the request, where a browser names it."""
        return self.environ.get("HTTP_ORIGIN")

    @property
    def ip_address(self) -> str | None:
        """The caller's IP address."""
        return self.environ.get("REMOTE_ADDR")

    @property
    def request_id(self) -> str | None:
        """``req_…``."""
        return self.environ.get(ID)

    @property
    def is_secure(self) -> bool:
        """Return whether the request came over https."""
        return bool(self.environ.get("wsgi.url_scheme") == "https")

    def accepts(self, media_type: str) -> bool:
        """Return whether the Accept header names the media type itself; wildcards do not count."""
        ranges = str(self.environ.get("HTTP_ACCEPT", "")).lower().split(",")
        return any(
            name.strip() == media_type and not _has_zero_weight(parameters)
            for name, _, parameters in (item.partition(";") for item in ranges)
        )

    def actor_of(self, authenticated: AuthenticatedClient) -> Actor:
        """Return the authenticated client as the actor of this request."""
        actor = grants.client_actor(authenticated.client, self.ip_address, self.request_id)
        if authenticated.playground_uri is None:
            return actor
        return replace(actor, label=f"{actor.label} (playground)")

    def add_log_fields(self, **fields: str | None) -> None:
        """Add fields to this request's line in the log."""
        self.environ.setdefault(FACTS, {}).update(fields)

    def read_body(self) -> bytes:
        """Return the whole body. Raises Encoded, and TooLarge beyond 64 KiB, with or without an announced length."""
        if is_encoded(self.environ):
            raise Encoded
        length = self.environ.get("CONTENT_LENGTH", "")
        if length.isascii() and length.isdigit():
            if len(length) >= 10 or int(length) > MAX_BODY:
                raise TooLarge
            body: bytes = self.environ["wsgi.input"].read(int(length))
            return body
        try:
            # The stream ends silently at its limit: one byte more shows that a body is too long.
            body = get_input_stream(self.environ, max_content_length=MAX_BODY + 1).read()
        except RequestEntityTooLarge:
            raise TooLarge from None
        if len(body) > MAX_BODY:
            raise TooLarge
        return body


def current_request() -> ProtocolRequest:
    """Return the request that is being handled, for Authlib's extension points that receive none."""
    return _current.get()


def handle(handler: Callable[[ProtocolRequest], T], request: ProtocolRequest) -> T:
    """Call the handler with the request as the current one."""
    token = _current.set(request)
    try:
        return handler(request)
    finally:
        _current.reset(token)


def _has_zero_weight(parameters: str) -> bool:
    # A weight of zero means "not acceptable" (RFC 9110 section 12.4.2).
    weights = [part.strip() for part in parameters.split(";") if part.strip().startswith("q=")]
    return bool(weights) and weights[0].removeprefix("q=").strip("0.") == ""
