"""How an authorization request is answered: by redirect, by a form that posts itself, or by a page of ours."""

from __future__ import annotations

from collections.abc import Mapping

from flask import Response, render_template
from werkzeug.wrappers import Response as BaseResponse

from app.oauth.call import Call
from app.oauth.failures import address_of_entry, note_refusal
from app.operations.directory.lookups import ClientSnapshot
from app.rules.authorization.authorization_request import FORM_POST, mode_of
from app.rules.clients.redirect_uris import add_query_parameters, get_display_host
from app.rules.errors import DomainError, TooManyRequests
from app.rules.languages.sentences import sentence
from app.rules.oauth_errors import ClientBlocked
from app.web.branding import branding_of, branding_of_client
from app.web.headers import page_policy
from app.web.request_log import request_id

_HINT = sentence("Go back to the app and try again. If it happens again, tell the people who make the app.")
_BLOCKED = (
    sentence("This app is blocked"),
    sentence("If you need it, ask an administrator of your organization."),
)
_SEE_OTHER = 303  # After a form that carried a password or decision, never 307 (RU-7).


def back_to_client(
    client: ClientSnapshot, sent: Mapping[str, str], answer: Mapping[str, str]
) -> BaseResponse:
    """The answer or error, with ``state`` byte for byte and ``iss`` on errors too (RFC 9207, MX-1)."""
    parameters = {**answer, "iss": client.organization.issuer}
    if "state" in sent:
        parameters["state"] = sent["state"]
    if mode_of(sent) == FORM_POST:
        return _form(client, sent["redirect_uri"], parameters)
    response = Response(status=_SEE_OTHER)
    response.headers["Location"] = add_query_parameters(sent["redirect_uri"], parameters)
    response.headers["Referrer-Policy"] = "no-referrer"
    return response


def error_page(error: DomainError, call: Call | None = None) -> BaseResponse:
    """The refusal of a request whose client or redirect URI is wrong, that is over, or that is one too many.

    Never a redirect (law 9).

    The makers of the client that ``call`` names find it in their log, and one who is signed in here a link to it.
    """
    if call is not None:
        note_refusal(error, call)
    page = render_template(
        "error.html",
        title=_BLOCKED[0]
        if isinstance(error, ClientBlocked)
        else sentence("This app's request cannot be answered"),
        message=error.description,
        hint=_BLOCKED[1] if isinstance(error, ClientBlocked) else _HINT,
        error_code=error.code,
        request_id=request_id(),
        inspect_url=address_of_entry(call) if call is not None else None,
        **branding_of_client((call.sent or {}).get("client_id") if call is not None else None),
    )
    if isinstance(error, TooManyRequests):
        return Response(page, error.status, {"Retry-After": str(error.retry_after)})
    return Response(page, 400)


def _form(client: ClientSnapshot, redirect_uri: str, parameters: Mapping[str, str]) -> BaseResponse:
    """OAuth 2.0 Form Post Response Mode, section 2; without a script the person presses its button."""
    page = render_template(
        "oauth/form_post.html",
        action=redirect_uri,
        host=get_display_host(redirect_uri),
        parameters=parameters,
        client_name=client.name,
        organization={"name": client.organization.name},
        **branding_of(client.organization),
    )
    response = Response(page)
    # Chromium holds form-action against all redirects that follow, and where the client sends people on is its own
    # affair: so the scheme is bound, and the address is the registered one that the page holds.
    scheme = redirect_uri.partition(":")[0]
    response.headers["Content-Security-Policy"] = page_policy(
        "https:" if scheme == "https" else "http: https:"
    )
    # The client may want to see who posts; it is told our origin, and no address.
    response.headers["Referrer-Policy"] = "origin"
    return response
