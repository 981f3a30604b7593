"""The end session endpoint (OpenID Connect RP-Initiated Logout 1.0).

The sign-in ends at once when the client proves by an ID token that it was told of it, and after a question otherwise.
Whether the browser may go back to the client is another matter and stops nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlencode

from flask import Response, g, redirect, render_template, request
from werkzeug.wrappers import Response as BaseResponse

from app.oauth.call import Call
from app.oauth.wire import read_authorization_request
from app.operations.sign_in.sessions import end_session
from app.operations.tokens.logout import LogoutRequest, read_logout_request
from app.rules.errors import DomainError
from app.rules.languages.sentences import sentence
from app.rules.oauth_errors import OAuthError
from app.web.branding import branding_of, branding_of_path
from app.web.browser_session import account_actor, clear_sign_in, session_for, sign_in_token
from app.web.headers import page_class
from app.web.languages import follow_request
from app.web.request_log import request_id

PARAMETERS = (
    "id_token_hint",
    "logout_hint",
    "client_id",
    "post_logout_redirect_uri",
    "state",
    "ui_locales",
)
_SEE_OTHER = 303


@page_class("flow")
def begin() -> BaseResponse:
    """The sign-in is over, or the question whether it shall be."""
    try:
        sent = _read()
    except OAuthError as error:
        return _error_page(error)
    wanted = read_logout_request(sent, organization_id=g.organization_id)
    if wanted is None:
        return _error_page(
            OAuthError(sentence("It names neither an organization nor an app that is known here."))
        )
    if request.method == "POST" and sign_in_token(wanted.organization.id) is None:
        # Sent by another site's form, a POST comes without our cookies; browsers send them when they follow this.
        return redirect(f"{request.path}?{urlencode(sent)}", _SEE_OTHER)
    follow_request(sent, wanted.organization)
    session = session_for(wanted.organization.id)
    if session is not None and not wanted.may_end_at_once(session.user_id):
        page = render_template(
            "oauth/logout.html",
            organization=wanted.organization,
            **branding_of(wanted.organization),
            client=wanted.client,
            session=session,
            kept=sent,
        )
        return Response(page)
    return _end(wanted)


@page_class("flow")
def confirm() -> BaseResponse:
    """The person said yes. What the client asked for comes again with the form and is judged again."""
    sent = {name: request.form[name] for name in PARAMETERS if request.form.get(name)}
    wanted = read_logout_request(sent, organization_id=g.organization_id)
    if wanted is None:
        return _error_page(OAuthError(sentence("This organization is not at work.")))
    return _end(wanted)


def _read() -> Mapping[str, str]:
    parameters = read_authorization_request(Call.current())
    if parameters.repeated:
        raise OAuthError("A parameter was sent more than once.")
    return {name: value for name, value in parameters.sent.items() if name in PARAMETERS}


def _end(wanted: LogoutRequest) -> BaseResponse:
    actor = account_actor(wanted.organization.id)
    if actor is not None:
        end_session(actor)
    # Not by redirect(), which would spell the client's address anew.
    response = Response(status=_SEE_OTHER)
    signed_out = f"/organizations/{wanted.organization.slug}/logout"
    response.headers["Location"] = wanted.redirect_to or signed_out
    response.headers["Referrer-Policy"] = "no-referrer"
    clear_sign_in(response, wanted.organization.id)
    return response


def _error_page(error: DomainError) -> BaseResponse:
    page = render_template(
        "error.html",
        title=sentence("This app's request to sign you out cannot be answered"),
        message=error.description,
        hint=sentence("You may still be signed in here. Choose the organization to sign out of."),
        error_code=error.code,
        request_id=request_id(),
        **branding_of_path(),
    )
    return Response(page, 400)
