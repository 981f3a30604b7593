"""Responses to authorization requests: a redirect, a form that posts itself, or an error page."""

from __future__ import annotations

from collections.abc import Mapping

from flask import Response, render_template
from werkzeug.wrappers import Response as BaseResponse

from app.oauth.failures import record_refusal, url_of_entry
from app.oauth.protocol_request import ProtocolRequest
from app.operations.directory.lookups import ClientSnapshot
from app.rules.authorization.authorization_request import FORM_POST, select_response_mode
from app.rules.clients.redirect_uris import add_query_parameters, get_display_host
from app.rules.errors import DomainError, TooManyRequests
from app.rules.languages.sentences import lazy_gettext
from app.rules.oauth_errors import ClientBlocked
from app.web.branding import branding_of, branding_of_client
from app.web.headers import page_policy
from app.web.request_log import request_id

_HINT = lazy_gettext("Go back to the app and try again. If it happens again, contact the app's developer.")
_BLOCKED = (
    lazy_gettext("This app is blocked"),
    lazy_gettext("If you need this app, contact your administrator."),
)
_SEE_OTHER = 303  # After a form that carried a password or decision, never 307 (RU-7).


def response_to_client(
    client: ClientSnapshot, sent: Mapping[str, str], answer: Mapping[str, str]
) -> tuple[int, str, dict[str, str]]:
    """Return status, body and headers that send the client a code or an error in its response mode.

    ``state`` is returned byte for byte, and ``iss`` on errors too (RFC 9207, MX-1).
    """
    parameters = {**answer, "iss": client.organization.issuer}
    if "state" in sent:
        parameters["state"] = sent["state"]
    if select_response_mode(sent) == FORM_POST:
        return 200, *_form(client, sent["redirect_uri"], parameters)
    location = add_query_parameters(sent["redirect_uri"], parameters)
    return _SEE_OTHER, "", {"Location": location, "Referrer-Policy": "no-referrer"}


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
        hint=_BLOCKED[1] if isinstance(error, ClientBlocked) else _HINT,
        error_code=error.code,
        request_id=request_id(),
        inspect_url=url_of_entry(request) if request is not None else None,
        **branding_of_client(request.parameters.get("client_id") if request is not None else None),
    )
    if isinstance(error, TooManyRequests):
        return Response(page, error.status, {"Retry-After": str(error.retry_after)})
    return Response(page, 400)


def _form(
    client: ClientSnapshot, redirect_uri: str, parameters: Mapping[str, str]
) -> tuple[str, dict[str, str]]:
    """OAuth 2.0 Form Post Response Mode, section 2; without scripts, the user presses its button."""
    page = render_template(
        "oauth/form_post.html",
        action=redirect_uri,
        host=get_display_host(redirect_uri),
        parameters=parameters,
        client_name=client.name,
        organization={"name": client.organization.name},
        **branding_of(client.organization),
    )
    # Chromium applies form-action to every redirect that follows, and the client may redirect anywhere: so only the
    # scheme is restricted. The page itself contains nothing but the registered redirect URI.
    policy = page_policy("https:" if redirect_uri.startswith("https:") else "http: https:")
    # Clients may check who posts: they see our origin, but no path.
    headers = {"Content-Security-Policy": policy, "Referrer-Policy": "origin"}
    return page, {"Content-Type": "text/html; charset=utf-8", **headers}
