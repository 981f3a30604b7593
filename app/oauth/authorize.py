"""The authorization endpoint (RFC 6749 section 3.1) and the way through sign-in and consent.

The request is checked at its first arrival and stored; the pages carry only its id and a decision. At each later step
the stored parameters are checked again against the client as it is now (RU-5).
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlencode

from flask import Response, g, redirect, render_template, request
from werkzeug.wrappers import Response as BaseResponse

from app.oauth.call import Call
from app.oauth.grants.authorization_code import AuthorizationCodeGrant
from app.oauth.server import server
from app.oauth.wire import WireRequest, read_authorization_request
from app.operations import clock
from app.operations.directory import ClientView
from app.operations.people.sessions import SessionView
from app.operations.protocol import authorization_requests, consents
from app.operations.protocol.authorization_requests import AuthorizationRequestView, RequestEnded
from app.rules.actor import Actor
from app.rules.protocol.interaction import SignIn, Step, is_local, needs_consent, next_step
from app.rules.protocol.oauth_errors import AuthorizationRefusal, OAuthRefusal, PageRefusal
from app.rules.protocol.redirects import host_of, with_parameters
from app.rules.protocol.scopes import narrow
from app.web.branding import branding_of
from app.web.browser_session import browser_id, session_for
from app.web.headers import page_class
from app.web.request_log import request_id

NATIVE = "native"
_SEE_OTHER = 303  # After a form that carried a password or decision, never 307 (RU-7).


@page_class("flow")
def begin() -> BaseResponse:
    """A fresh request from a client: the next page, or the answer at once."""
    try:
        parameters = read_authorization_request(Call.current())
    except OAuthRefusal as error:
        return _error_page(error)
    return _proceed(parameters.sent, parameters.repeated, None)


@page_class("flow")
def resume() -> BaseResponse:
    """The browser comes back from sign-in, or asks for the consent page."""
    return _proceed_stored(None)


@page_class("flow")
def decide() -> BaseResponse:
    """The person allowed or refused; OAuth parameters in this form count for nothing (IN-1)."""
    return _proceed_stored(request.form.get("decision", ""))


def _proceed_stored(decision: str | None) -> BaseResponse:
    token = request.values.get("request", "")
    try:
        stored = authorization_requests.find_request(g.organization_id, token, browser_id())
        if stored is None:
            raise RequestEnded
        return _proceed(stored.sent, frozenset(), stored, token=token, decision=decision)
    except RequestEnded as error:
        return _error_page(error)


def _proceed(
    sent: Mapping[str, str],
    repeated: frozenset[str],
    stored: AuthorizationRequestView | None,
    *,
    token: str | None = None,
    decision: str | None = None,
) -> BaseResponse:
    grant = AuthorizationCodeGrant(WireRequest(sent, Call.current()), server)
    grant.repeated = repeated
    try:
        grant.validate_consent_request()
        client = grant.client.view
        session = session_for(client.organization.id)
        actor = _actor(client, session)
        if decision == "deny" and stored is not None:
            authorization_requests.deny(actor, client, stored)
            raise AuthorizationRefusal("access_denied", "The user refused.")
        return _take_step(grant, client, session, actor, stored, token, decision)
    except PageRefusal as error:
        return _error_page(error)
    except AuthorizationRefusal as error:
        client = grant.client.view
        if stored is not None and error.code != "access_denied":
            authorization_requests.end_request(_actor(client, None), stored)
        return _back_to_client(client, sent, {"error": error.code, "error_description": error.description})


def _take_step(
    grant: AuthorizationCodeGrant,
    client: ClientView,
    session: SessionView | None,
    actor: Actor,
    stored: AuthorizationRequestView | None,
    token: str | None,
    decision: str | None,
) -> BaseResponse:
    parameters = grant.parameters
    allowed = consents.allowed_scopes(client, session.user_id) if session is not None else ()
    now = clock.now()
    must_ask = needs_consent(
        parameters,
        trust=client.trust,
        is_public=client.is_public or client.type == NATIVE,
        allowed=allowed,
        settings=client.organization.settings,
    )
    step = next_step(
        parameters,
        began_at=stored.created_at if stored is not None else now,
        now=now,
        sign_in=SignIn(session.authenticated_at) if session is not None else None,
        needs_consent=must_ask,
    )
    if step is Step.ISSUE and session is not None:
        return _issue(grant, client, session, actor, stored, parameters.scopes, remember=False)
    if token is None or stored is None:
        token = authorization_requests.begin_request(actor, client, grant.request.form, browser_id())
        return redirect(_address_of(client, step, token), _SEE_OTHER)
    if step is Step.SIGN_IN or session is None:
        return redirect(_address_of(client, Step.SIGN_IN, token), _SEE_OTHER)
    shown = authorization_requests.shown_digest(client, session, parameters)
    if decision == "allow" and stored.shown_digest == shown:
        chosen = _chosen(client, parameters.scopes)
        if not chosen:
            authorization_requests.deny(actor, client, stored)
            raise AuthorizationRefusal("access_denied", "The user allowed nothing of what was asked for.")
        return _issue(grant, client, session, actor, stored, chosen, remember=True)
    authorization_requests.note_shown(actor, stored, shown)
    return _consent_page(grant, client, session, actor, token, allowed)


def _issue(
    grant: AuthorizationCodeGrant,
    client: ClientView,
    session: SessionView,
    actor: Actor,
    stored: AuthorizationRequestView | None,
    scopes: tuple[str, ...],
    *,
    remember: bool,
) -> BaseResponse:
    code = authorization_requests.allow(
        actor, client, grant.parameters, session, scopes=scopes, request=stored, remember=remember
    )
    return _back_to_client(client, grant.request.form, {"code": code})


def _chosen(client: ClientView, asked: tuple[str, ...]) -> tuple[str, ...]:
    """What the person ticked: only scopes that the client calls optional can be left out."""
    optional = client.document.get("optional_scopes") or ()
    ticked = request.form.getlist("scope")
    return narrow(asked, [scope for scope in asked if scope not in optional or scope in ticked])


def _consent_page(
    grant: AuthorizationCodeGrant,
    client: ClientView,
    session: SessionView,
    actor: Actor,
    token: str,
    allowed: tuple[str, ...],
) -> BaseResponse:
    parameters = grant.parameters
    optional = client.document.get("optional_scopes") or ()
    words = authorization_requests.words_for(actor, parameters.scopes)
    page = render_template(
        "oauth/consent.html",
        client={
            "name": client.name,
            "client_id": client.client_id,
            "client_uri": client.document.get("client_uri"),
            "policy_uri": client.document.get("policy_uri"),
            "tos_uri": client.document.get("tos_uri"),
            "trust": client.trust,
            "type": client.type,
            "created_by": client.created_by,
            "created_at": client.created_at,
        },
        organization={"name": client.organization.name, "slug": client.organization.slug},
        **branding_of(client.organization),
        user={"email": session.user_email, "name": session.user_name},
        scopes=[
            {
                "name": scope.name,
                "title": scope.title,
                "description": scope.description,
                "is_identity": scope.is_identity,
                "required": scope.name not in optional,
                "already_allowed": scope.name in allowed,
            }
            for scope in words
        ],
        refresh_days=client.organization.settings["oauth"]["refresh_token"]["ttl_seconds"] // 86400,
        redirect_host=host_of(parameters.redirect_uri),
        redirect_is_local=is_local(parameters.redirect_uri),
        request_token=token,
    )
    return Response(page)


def _address_of(client: ClientView, step: Step, token: str) -> str:
    slug = client.organization.slug
    page = "login" if step is Step.SIGN_IN else "oauth/authorize/resume"
    return f"/organizations/{slug}/{page}?{urlencode({'request': token})}"


def _back_to_client(client: ClientView, sent: Mapping[str, str], answer: Mapping[str, str]) -> BaseResponse:
    """By redirect, with ``state`` byte for byte and ``iss`` on errors too (RFC 9207, MX-1)."""
    parameters = {**answer, "state": sent.get("state"), "iss": client.organization.issuer}
    response = Response(status=_SEE_OTHER)
    response.headers["Location"] = with_parameters(sent["redirect_uri"], parameters)
    response.headers["Referrer-Policy"] = "no-referrer"
    return response


def _error_page(error: OAuthRefusal | RequestEnded) -> BaseResponse:
    page = render_template(
        "error.html",
        title="This app's request cannot be answered",
        message=error.description,
        hint="Go back to the app and try again. If it happens again, tell the people who make the app.",
        error_code=error.code,
        request_id=request_id(),
    )
    return Response(page, 400)


def _actor(client: ClientView, session: SessionView | None) -> Actor:
    if session is not None:
        return session.actor(address=request.remote_addr, request_id=request_id())
    return Actor.anonymous(client.organization.id, request.remote_addr, request_id())
