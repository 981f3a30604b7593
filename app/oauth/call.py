"""One request of the wire as WSGI carries it: with Flask's request around it or without.

What machines call all day needs no session, no template and no URL map. The handlers of token, introspection,
revocation and userinfo take a ``Call`` and give an ``Answer``; Flask's routes and the ``lane`` before them share them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from flask import g, request
from werkzeug.exceptions import RequestEntityTooLarge
from werkzeug.wsgi import get_input_stream

from app import config
from app.operations.clients.client_authentication import Presented
from app.operations.directory import lookups
from app.operations.directory.lookups import AuthenticatedClient
from app.rules.oauth_errors import OAuthError
from app.web.request_log import FACTS, ID

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

LONGEST_BODY = 64 * 1024


class TooLarge(OAuthError):
    """The body is longer than 64 KiB."""

    status = 413

    def __init__(self) -> None:
        super().__init__("The body is longer than 64 KiB.")
        self.with_cause("body_too_large", expected="at most 64 KiB")


class Call:
    """A request of the wire. ``authenticated`` is the client once it has proven who it is.

    ``proven_key`` is the thumbprint of the key that its DPoP proof showed, once the proof was found good and is spent.
    ``has_claimed_assertion``: the assertion by which its client authenticates is spent, by this very request.
    ``sent`` are the parameters and ``presented`` is what it authenticates with, once they were read.
    """

    __slots__ = (
        "_organization_id",
        "authenticated",
        "environ",
        "has_claimed_assertion",
        "organization_slug",
        "presented",
        "proven_key",
        "sent",
    )

    def __init__(self, environ: WSGIEnvironment, organization_slug: str | None) -> None:
        self.environ = environ
        self.organization_slug = organization_slug
        self.authenticated: AuthenticatedClient | None = None
        self.proven_key: str | None = None
        self.has_claimed_assertion = False
        self.sent: Mapping[str, str] | None = None
        self.presented: Presented | None = None
        self._organization_id: str | None = None

    @classmethod
    def current(cls) -> Call:
        """The request that Flask is answering."""
        return cls(request.environ, g.get("organization_slug"))

    @property
    def organization_id(self) -> str | None:
        """The organization of the path; None where the client decides. Raises NotFound."""
        if self._organization_id is None and self.organization_slug is not None:
            self._organization_id = lookups.get_organization_by_slug(self.organization_slug, fresh=False).id
        return self._organization_id

    @property
    def method(self) -> str:
        """GET or POST."""
        return str(self.environ["REQUEST_METHOD"])

    @property
    def endpoint(self) -> str:
        """Which endpoint it is for: ``token``, ``authorize`` …"""
        path: str = self.environ.get("PATH_INFO", "")
        return path.partition("/oauth/")[2].partition("/")[0] or path[:32]

    @property
    def has_query(self) -> bool:
        """Whether the address carries parameters."""
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
    def proof(self) -> str | None:
        """The DPoP header (RFC 9449); two of them come joined by a comma."""
        return self.environ.get("HTTP_DPOP")

    @property
    def url(self) -> str:
        """The address of the request as its sender knows it, without a query: the configured base and the path."""
        path: str = self.environ["PATH_INFO"].encode("latin-1").decode("utf-8", "replace")
        return config.current().base_url + path

    @property
    def origin(self) -> str | None:
        """The web origin that asks, where a browser says so."""
        return self.environ.get("HTTP_ORIGIN")

    def accepts(self, media_type: str) -> bool:
        """Whether the caller names the media type in its Accept header, by itself and not as one of all."""
        ranges = str(self.environ.get("HTTP_ACCEPT", "")).lower().split(",")
        return any(
            name.strip() == media_type and not _is_refused(parameters)
            for name, _, parameters in (item.partition(";") for item in ranges)
        )

    @property
    def address(self) -> str | None:
        """The caller's network address."""
        return self.environ.get("REMOTE_ADDR")

    @property
    def request_id(self) -> str | None:
        """``req_…``."""
        return self.environ.get(ID)

    @property
    def is_secure(self) -> bool:
        """Whether it came by https."""
        return bool(self.environ.get("wsgi.url_scheme") == "https")

    def note(self, **facts: str | None) -> None:
        """Add to this request's log line who asked."""
        self.environ.setdefault(FACTS, {}).update(facts)

    def read_body(self) -> bytes:
        """The whole body. Raises TooLarge past 64 KiB, whether or not its length was announced."""
        length = self.environ.get("CONTENT_LENGTH", "")
        if length.isascii() and length.isdigit():
            if len(length) >= 10 or int(length) > LONGEST_BODY:
                raise TooLarge
            body: bytes = self.environ["wsgi.input"].read(int(length))
            return body
        try:
            # The stream ends in silence at its limit: one byte more tells a body that is too long.
            body = get_input_stream(self.environ, max_content_length=LONGEST_BODY + 1).read()
        except RequestEntityTooLarge:
            raise TooLarge from None
        if len(body) > LONGEST_BODY:
            raise TooLarge
        return body


def _is_refused(parameters: str) -> bool:
    # A weight of nothing says no (RFC 9110 section 12.4.2).
    weights = [part.strip() for part in parameters.split(";") if part.strip().startswith("q=")]
    return bool(weights) and weights[0].removeprefix("q=").strip("0.") == ""
