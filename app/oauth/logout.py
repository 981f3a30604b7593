"""The end session endpoint (OpenID Connect RP-Initiated Logout 1.0).

The session ends at once if an ID token proves that the client knows it and the browser may return where the client
asks, and after a confirmation otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from authlib.oidc.rpinitiated import EndSessionEndpoint as AuthlibEndSessionEndpoint
from flask import Response, g, redirect, render_template, request
from werkzeug.wrappers import Response as BaseResponse

from app.oauth.client_authentication import ProtocolClient
from app.oauth.client_log import record_refusal
from app.oauth.protocol_request import ProtocolRequest, handle
from app.oauth.request_parsing import ParsedOAuthRequest, parse_authorization_request
from app.oauth.server import server
from app.operations.sign_in.sessions import end_session
from app.operations.tokens.logout import LogoutRequest, read_logout_request
from app.rules.clients.redirect_uris import add_query_parameters
from app.rules.errors import DomainError, OAuthError
from app.rules.languages.translation import lazy_gettext
from app.web.branding import branding_of_path, render_branded
from app.web.browser_session import account_actor, clear_sign_in, session_for, sign_in_token
from app.web.headers import page_class
from app.web.languages import apply_ui_locales
from app.web.request_log import request_id

PARAMETERS = (
    "id_token_hint",
    "logout_hint",
    "client_id",
    "post_logout_redirect_uri",
    "state",
    "ui_locales",
)
_FOR_AUTHLIB = ("post_logout_redirect_uri", "logout_hint", "ui_locales")
_SEE_OTHER = 303


class ParsedLogoutRequest(ParsedOAuthRequest):
    """A logout request in Authlib's terms, without ``id_token_hint`` and ``state``.

    The hint was verified before: Authlib would take any token that this server signed, also an access token, and
    answer a wrong one with an error. It would append ``state`` by rewriting the query of the client's URI.
    """

    def __init__(self, request: ProtocolRequest, wanted: LogoutRequest, sent: Mapping[str, str]) -> None:
        parameters = {name: sent[name] for name in _FOR_AUTHLIB if name in sent}
        if wanted.client is not None:
            request.client = ProtocolClient(wanted.client)
            parameters["client_id"] = wanted.client.client_id
        super().__init__(request, parameters)
        self.wanted = wanted


class EndSessionEndpoint(AuthlibEndSessionEndpoint):
    """Ends the session of this browser in the organization."""

    def is_post_logout_redirect_uri_legitimate(
        self, request: Any, post_logout_redirect_uri: str, client: ProtocolClient, logout_hint: str | None
    ) -> bool:
        """Return whether a verified ID token proves that the client sent the request (OR-4).

        A browser without a session has no user to sign out: to a client of strangers it would be an open redirect.
        """
        wanted: LogoutRequest = request.wanted
        if wanted.hint is None or wanted.client is None:
            return False
        return not wanted.client.is_unapproved or session_for(wanted.organization.id) is not None

    def end_session(self, end_session_request: Any) -> None:
        """End the session, if there is one."""
        actor = account_actor(end_session_request.request.wanted.organization.id)
        if actor is not None:
            end_session(actor)


server.register_endpoint(EndSessionEndpoint)


@page_class("flow")
def begin() -> BaseResponse:
    """End the session, or ask for confirmation."""
    try:
        sent = _parse()
    except OAuthError as error:
        return _error_page(error)
    wanted = read_logout_request(sent, organization_id=g.organization_id)
    if wanted is None:
        return _error_page(OAuthError(lazy_gettext("The request doesn't name a known organization or app.")))
    if request.method == "POST" and sign_in_token(wanted.organization.id) is None:
        # A POST from another site's form comes without our cookies; browsers send them with the redirect.
        return redirect(f"{request.path}?{urlencode(sent)}", _SEE_OTHER)
    apply_ui_locales(sent, wanted.organization)
    _record_unregistered_redirect(wanted, sent)
    session = session_for(wanted.organization.id)
    if session is not None and not wanted.skips_confirmation(session.user_id):
        page = render_branded(
            "oauth/logout.html",
            wanted.organization,
            client=wanted.client,
            session=session,
            returns=not wanted.has_unregistered_redirect,
            kept=sent,
        )
        return Response(page)
    return _end(wanted, sent)


@page_class("flow")
def confirm() -> BaseResponse:
    """End the session after the confirmation; the form repeats the parameters, which are validated again."""
    sent = {name: request.form[name] for name in PARAMETERS if request.form.get(name)}
    wanted = read_logout_request(sent, organization_id=g.organization_id)
    if wanted is None:
        return _error_page(OAuthError(lazy_gettext("This organization is not active.")))
    return _end(wanted, sent)


def _record_unregistered_redirect(wanted: LogoutRequest, sent: Mapping[str, str]) -> None:
    """Tell the app's developer, in its log of failed requests, why users do not return to it."""
    client = wanted.client
    if client is None or not wanted.has_unregistered_redirect:
        return
    protocol = ProtocolRequest.from_flask()
    protocol.parameters = sent
    error = OAuthError("The post_logout_redirect_uri isn't registered.").with_cause(
        "post_logout_redirect_uri_not_registered",
        received=wanted.redirect_uri,
        expected=client.document.get("post_logout_redirect_uris") or (),
    )
    record_refusal(error, protocol, client=(client.organization.id, client.id))


def _parse() -> Mapping[str, str]:
    parameters = parse_authorization_request(ProtocolRequest.from_flask())
    if parameters.repeated:
        raise OAuthError("A parameter was sent more than once.")
    return {name: value for name, value in parameters.sent.items() if name in PARAMETERS}


def _end(wanted: LogoutRequest, sent: Mapping[str, str]) -> BaseResponse:
    parsed = ParsedLogoutRequest(ProtocolRequest.from_flask(), wanted, sent)
    response: BaseResponse = handle(lambda _: _end_session(parsed, sent.get("state")), parsed.protocol)
    response.headers["Referrer-Policy"] = "no-referrer"
    clear_sign_in(response, wanted.organization.id)
    return response


def _end_session(parsed: ParsedLogoutRequest, state: str | None) -> BaseResponse:
    validated = server.validate_endpoint_request("end_session", parsed)
    server.create_endpoint_response("end_session", validated)
    response = Response(status=_SEE_OTHER)
    # Not by redirect(), which would rewrite the client's URI.
    response.headers["Location"] = (
        add_query_parameters(validated.redirect_uri, {"state": state})
        if validated.redirect_uri
        else f"/organizations/{parsed.wanted.organization.slug}/logout"
    )
    return response


def _error_page(error: DomainError) -> BaseResponse:
    page = render_template(
        "error.html",
        title=lazy_gettext("We couldn't sign you out for this app"),
        message=error.description,
        hint=lazy_gettext("You may still be signed in here. Choose the organization to sign out of."),
        error_code=error.code,
        request_id=request_id(),
        **branding_of_path(),
    )
    return Response(page, error.status)
