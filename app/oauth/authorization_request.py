"""Authorization requests and responses in Authlib's terms: requests by query, form, request object or push."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from flask import Response, render_template
from msgspec import Struct
from werkzeug.wrappers import Response as BaseResponse

from app.oauth.client_authentication import ProtocolClient
from app.oauth.client_log import record_refusal, url_of_entry
from app.oauth.protocol_request import ProtocolRequest, UnreadableBody
from app.oauth.request_parsing import ParsedOAuthRequest, ParsedPayload
from app.operations.authorization import authorization_requests, playground
from app.operations.authorization.authorization_requests import (
    AuthorizationRequestRecord,
    RequestEnded,
    RequestParameters,
)
from app.operations.directory.snapshots import ClientSnapshot
from app.operations.sign_in.sessions import SessionRecord
from app.rules.actor import Actor
from app.rules.authorization.authorization_request import FORM_POST, select_response_mode
from app.rules.clients.redirect_uris import add_query_parameters, get_display_host
from app.rules.errors import ClientBlocked, DomainError, TooManyRequests, UnredirectableError
from app.rules.languages.translation import lazy_gettext
from app.web.branding import branding_of_client, render_branded
from app.web.browser_session import browser_id, session_for, session_of
from app.web.headers import page_policy
from app.web.request_log import request_id


class Decision(Struct, frozen=True):
    """The user's decision: the allowed scopes, until when, and whether to remember it as a consent."""

    actor: Actor
    scopes: tuple[str, ...]
    stored: AuthorizationRequestRecord | None
    remember: bool
    ends_at: datetime | None


class AuthorizationRequest(ParsedOAuthRequest):
    """An authorization request. ``user`` is the session of the browser, once the organization is known.

    ``repeated`` are the names that came more than once. ``refusal`` is an error of the pushed request or request
    object, which may be sent to the client once its redirect URI was checked. ``parameters`` are the checked ones.
    ``has_fresh_client`` means that the client is read from the database. ``is_from_playground``: the user of this
    browser began it in the portal's playground, whose redirect URI is valid for this request alone.
    """

    def __init__(
        self,
        request: ProtocolRequest,
        parameters: Mapping[str, str],
        *,
        repeated: Collection[str] = (),
        is_pushed: bool = False,
        is_stored: bool = False,
        has_fresh_client: bool = True,
    ) -> None:
        super().__init__(request, parameters)
        self.has_fresh_client = has_fresh_client
        self.repeated = repeated
        self.is_pushed, self.is_stored = is_pushed, is_stored
        self.pushed_id: UUID | None = None
        # Set by RequestPolicy, so always there once Authlib has validated the request.
        self.parameters: Any = None
        self.decision: Decision | None = None
        self.issued_code: str | None = None
        self.is_from_playground = False

    def find_session(self, organization_id: str) -> SessionRecord | None:
        """Return this browser's active session at the organization."""
        return session_for(organization_id)

    def check_playground(self) -> bool:
        """Return whether the playground's redirect URI, which no client registers, is valid for this request."""
        session: SessionRecord | None = self.user
        self.is_from_playground = session is not None and playground.is_started_here(
            session.actor(), self.client.view, self.payload.data, browser_id=browser_id()
        )
        return self.is_from_playground

    def use_parameters(self, parameters: Mapping[str, str]) -> None:
        """Replace the parameters by those of a pushed request or request object."""
        self.protocol.parameters = parameters
        if parameters.get("response_type", "code") != "code":
            # Authlib quotes the value in its error, which fails with a 500 for quotes and beyond ASCII.
            parameters = {**parameters, "response_type": "unsupported"}
        self.payload = ParsedPayload(parameters)


class PagelessRequest(AuthorizationRequest):
    """An authorization request that is answered without Flask, and therefore without a page."""

    def find_session(self, organization_id: str) -> SessionRecord | None:
        """Return the active session of the browser that sent the request."""
        return session_of(self.protocol.environ, organization_id)

    def check_playground(self) -> bool:
        """Return False: the playground's requests are answered with Flask, whose cookie names the browser."""
        return False


class RequestResolver:
    """Server extension: find the client, and the parameters behind a ``request_uri`` or in a request object.

    It replaces the payload before Authlib chooses the grant, as Authlib's own extension for RFC 9101 does.
    """

    def __init__(self, server: Any) -> None:
        server.register_hook("before_get_authorization_grant", self.resolve)

    def resolve(self, _server: Any, request: AuthorizationRequest) -> None:
        """Set client, user and parameters.

        Raises UnredirectableError if the client is unknown, AuthorizationError for a pushed request that is wrong.
        """
        client = self._find_client(request)
        asked = self._read(client, request)
        if request.is_pushed and asked.refusal is not None:
            raise asked.refusal  # A pushed request is answered directly: no redirect URI must be checked first.
        request.pushed_id, request.refusal = asked.pushed_id, asked.refusal
        request.use_parameters(asked.sent)
        if not request.is_pushed:
            request.user = request.find_session(client.organization.id)

    def _find_client(self, request: AuthorizationRequest) -> ClientSnapshot:
        protocol, client_id = request.protocol, request.payload.client_id
        client = None
        if client_id is not None:
            client = authorization_requests.find_requesting_client(
                client_id,
                organization_id=protocol.organization_id,
                ip_address=protocol.ip_address,
                # The client of a stored request was read with it.
                fresh=request.has_fresh_client and not request.is_stored,
            )
        if {"client_id", "redirect_uri"} & set(request.repeated):
            raise UnredirectableError(
                "The app's request contains client_id or redirect_uri more than once."
            ).with_cause("parameter_repeated", received=", ".join(sorted(request.repeated)))
        if client is None:
            raise UnredirectableError("This app isn't registered here.")
        if client.is_blocked:
            raise ClientBlocked(client.organization.title)
        request.client = protocol.client = ProtocolClient(client)
        return client

    def _read(self, client: ClientSnapshot, request: AuthorizationRequest) -> RequestParameters:
        if request.is_stored:
            return RequestParameters(request.payload.data)
        read = (
            authorization_requests.read_pushed_parameters
            if request.is_pushed
            else authorization_requests.read_request_parameters
        )
        return read(client, request.payload.data)


_HINT = lazy_gettext("Go back to the app and try again. If it happens again, contact the app's developer.")
_BLOCKED = (
    lazy_gettext("This app is blocked"),
    lazy_gettext("If you need this app, contact your administrator."),
)
_HTML = "text/html; charset=utf-8"
_SEE_OTHER = 303  # After a form that carried a password or decision, never 307 (RU-7).


def response_to_client(
    client: ClientSnapshot, sent: Mapping[str, str], answer: Mapping[str, str]
) -> tuple[int, str, dict[str, str]]:
    """Return status, body and headers that send the client a code or an error in its response mode.

    ``state`` is returned byte for byte, and ``iss`` on errors too (RFC 9207, MX-1).
    """
    parameters = _response_parameters(client, sent, answer)
    if select_response_mode(sent) == FORM_POST:
        return 200, *_form(client, sent["redirect_uri"], parameters)
    location = add_query_parameters(sent["redirect_uri"], parameters)
    return _SEE_OTHER, "", {"Location": location, "Referrer-Policy": "no-referrer"}


def _response_parameters(
    client: ClientSnapshot, sent: Mapping[str, str], answer: Mapping[str, str]
) -> dict[str, str]:
    parameters = {**answer, "iss": client.organization.issuer}
    return parameters | {"state": sent["state"]} if "state" in sent else parameters


def refusal_to_client(
    client: ClientSnapshot,
    request: ProtocolRequest,
    sent: Mapping[str, str],
    error: DomainError,
    *,
    is_after_decision: bool,
) -> tuple[int, str, dict[str, str]]:
    """Return status, body and headers that tell the client about the error, at its matched redirect URI.

    Anyone may register a client where the organization allows it, and would get a link on our host that redirects
    anywhere at once. The user therefore continues from a page to a client that is not reviewed, except
    ``is_after_decision``, which the user took on a page that showed the client and its host (OR-2, RFC 9700 section
    4.11.2). With prompt=none no page may be shown (OpenID Connect Core section 3.1.2.1): an organization decides
    whether such clients can use that.
    """
    answer = {"error": error.code, "error_description": error.description}
    is_silent = sent.get("prompt") == "none" and client.remembers_consent
    if is_after_decision or is_silent or not client.is_unapproved:
        return response_to_client(client, sent, answer)
    is_form = select_response_mode(sent) == FORM_POST
    parameters = _response_parameters(client, sent, answer)
    page = render_branded(
        "oauth/return_error.html",
        client.organization,
        client_name=client.name,
        host=get_display_host(sent["redirect_uri"]),
        message=error.description,
        error_code=error.code,
        inspect_url=url_of_entry(request),
        action=sent["redirect_uri"] if is_form else add_query_parameters(sent["redirect_uri"], parameters),
        parameters=parameters if is_form else None,
    )
    return 400, page, _page_headers(sent["redirect_uri"]) if is_form else {"Content-Type": _HTML}


def error_page(error: DomainError, request: ProtocolRequest | None = None) -> BaseResponse:
    """Return the error page for a request that has no valid redirect URI, has expired, or exceeds a limit.

    Never a redirect (law 9).

    The error is recorded for the client that ``request`` names; a signed-in developer of it sees a link to the entry.
    """
    if request is not None:
        record_refusal(error, request)
    page = render_template(
        "error.html",
        title=_BLOCKED[0]
        if isinstance(error, ClientBlocked)
        else lazy_gettext("This app's request can't be completed"),
        message=error.description,
        hint=_hint(error),
        error_code=error.code,
        request_id=request_id(),
        inspect_url=url_of_entry(request) if request is not None else None,
        **branding_of_client(request.parameters.get("client_id") if request is not None else None),
    )
    if isinstance(error, TooManyRequests):
        return Response(page, error.status, {"Retry-After": str(error.retry_after)})
    return Response(page, error.status if isinstance(error, UnreadableBody) else 400)


def _hint(error: DomainError) -> str | None:
    if isinstance(error, ClientBlocked):
        return _BLOCKED[1]
    # Its message says what to do, and no developer can help.
    return None if isinstance(error, RequestEnded) else _HINT


def _form(
    client: ClientSnapshot, redirect_uri: str, parameters: Mapping[str, str]
) -> tuple[str, dict[str, str]]:
    """OAuth 2.0 Form Post Response Mode, section 2; without scripts, the user presses its button."""
    page = render_branded(
        "oauth/form_post.html",
        client.organization,
        action=redirect_uri,
        host=get_display_host(redirect_uri),
        parameters=parameters,
        client_name=client.name,
    )
    return page, _page_headers(redirect_uri)


def _page_headers(redirect_uri: str) -> dict[str, str]:
    # Chromium applies form-action to every redirect that follows, and the client may redirect anywhere: so only the
    # scheme is restricted. The page itself contains nothing but the registered redirect URI.
    policy = page_policy("https:" if redirect_uri.startswith("https:") else "http: https:")
    # Clients may check who posts: they see our origin, but no path.
    return {"Content-Type": _HTML, "Content-Security-Policy": policy, "Referrer-Policy": "origin"}
