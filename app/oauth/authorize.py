"""The authorization endpoint (RFC 6749 section 3.1) with the steps through sign-in and the consent page.

The request is checked when it arrives and then stored; the pages carry only its id and a decision. At each later step
the stored parameters are checked again against the client as it is now (RU-5).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any
from urllib.parse import urlencode

from authlib.oauth2 import OAuth2Error
from authlib.oauth2.rfc6749 import UnsupportedResponseTypeError
from flask import Response, g, redirect, request
from werkzeug.urls import iri_to_uri
from werkzeug.wrappers import Response as BaseResponse

from app.oauth.authorization_request import (
    AuthorizationRequest,
    Decision,
    PagelessRequest,
    error_page,
    refusal_to_client,
)
from app.oauth.client_log import record_refusal, record_success
from app.oauth.errors import refusal_of
from app.oauth.forms import ApprovalRequestForm
from app.oauth.grants import AuthorizationCodeGrant
from app.oauth.protocol_request import ProtocolRequest, handle
from app.oauth.protocol_response import ProtocolResponse
from app.oauth.request_parsing import parse_authorization_request
from app.oauth.server import checked_response, server
from app.operations.authorization import approval_requests, authorization_requests, pushed_requests
from app.operations.authorization.authorization_requests import AuthorizationRequestRecord, RequestEnded
from app.operations.authorization.consents import ConsentState, list_offered_expiries
from app.operations.authorization.interactions import next_interaction
from app.operations.directory.lookups import is_outdated
from app.operations.directory.snapshots import ClientSnapshot
from app.operations.sign_in.sessions import SessionRecord
from app.rules.actor import Actor
from app.rules.authorization.authorization_request import QUERY, select_response_mode
from app.rules.authorization.consents import (
    ConsentExpiry,
    max_consent_seconds,
)
from app.rules.authorization.interaction import Step, is_local
from app.rules.clients.redirect_uris import get_display_host
from app.rules.errors import (
    AuthorizationError,
    DomainError,
    InvalidInput,
    OAuthError,
    TooManyRequests,
    UnredirectableError,
)
from app.rules.identifiers import existing_creator
from app.rules.scopes import is_sensitive_scope, restrict_scopes
from app.web.branding import logo_of, render_branded
from app.web.browser_session import (
    actor_of_session,
    anonymous_actor,
    browser_id,
    has_session_cookie,
    session_for,
)
from app.web.headers import page_class
from app.web.languages import apply_ui_locales, translate

_PAGES = {
    Step.SIGN_IN: "login",
    Step.CREATE_ACCOUNT: "register",
    Step.SELECT_ACCOUNT: "oauth/authorize/account",
}
_SEE_OTHER = 303  # After a form that carried a password or decision, never 307 (RU-7).


@page_class("flow")
def begin() -> BaseResponse:
    """Answer a new request: with the next page, or with a code or error at once."""
    try:
        parameters = parse_authorization_request(ProtocolRequest.from_flask())
    except OAuthError as error:
        return error_page(error)
    apply_ui_locales(parameters.sent)
    is_from_another_site = request.headers.get("Sec-Fetch-Site") == "cross-site"
    if request.method == "POST" and is_from_another_site and not parameters.repeated:
        # Browsers send no cookies with another site's form; the GET that follows has them (RFC 6265bis 5.2).
        return redirect(f"{request.path}?{urlencode(parameters.sent)}", _SEE_OTHER)
    return _proceed(parameters.sent, parameters.repeated, None)


def issue_at_once(request: ProtocolRequest) -> ProtocolResponse | None:
    """Answer a new request with a code if the browser's user needs no page; return None where Flask must answer.

    Nothing has changed then: ``begin`` handles the request from its start.
    """
    if not has_session_cookie(request.environ):
        return None
    try:
        parameters = parse_authorization_request(request)
        request.parameters = parameters.sent
        asked = PagelessRequest(
            request, parameters.sent, repeated=parameters.repeated, has_fresh_client=False
        )
        grant = server.get_consent_grant(asked)
        client, session, sent = grant.client.view, asked.user, asked.payload.data
        if session is None or not _is_plain_redirect(sent["redirect_uri"], select_response_mode(sent)):
            return None
        interaction = next_interaction(client, asked.parameters, session, None)
        if interaction.step is not Step.ISSUE:
            return None
        ends_at = interaction.limit_end(interaction.consent_state.find_expiry(interaction.scopes))
        actor = session.actor(ip_address=request.ip_address, request_id=request.request_id)
        decision = Decision(actor, interaction.scopes, None, remember=False, ends_at=ends_at)
        response: ProtocolResponse = _issue(grant, asked, decision)
    except (OAuth2Error, DomainError):
        return None
    record_success(request, client, response.status)
    return response


@lru_cache(maxsize=4096)
def _is_plain_redirect(redirect_uri: str, response_mode: str) -> bool:
    """Return whether the response is a redirect whose Location Flask would send unchanged."""
    return response_mode == QUERY and iri_to_uri(redirect_uri) == redirect_uri


@page_class("flow")
def resume() -> BaseResponse:
    """Continue a stored request after sign-in, or show the consent page."""
    return _proceed_stored(None)


@page_class("flow")
def decide() -> BaseResponse:
    """Apply the user's decision. OAuth parameters in this form are ignored (IN-1)."""
    return _proceed_stored(request.form.get("decision", ""))


@page_class("flow")
def select_account() -> BaseResponse:
    """Let the user choose the signed-in account, or sign in with another one."""
    token = request.values.get("request", "")
    stored = authorization_requests.find_request(g.organization_id, token, browser_id())
    if stored is None:
        return error_page(RequestEnded())
    apply_ui_locales(stored.sent, stored.client.organization)
    session = session_for(stored.organization_id)
    if session is None:
        return redirect(_url_of(stored.client, Step.SIGN_IN, token), _SEE_OTHER)
    # Another tab may have signed in another user: the choice is for the account that was shown.
    if request.method == "POST" and request.form.get("account") == session.user_public_id:
        authorization_requests.record_selected_session(_actor(stored.client, session), stored, session)
        return redirect(_url_of(stored.client, Step.ISSUE, token), _SEE_OTHER)
    return account_page(stored.client, session, token)


def _proceed_stored(decision: str | None) -> BaseResponse:
    token = request.values.get("request", "")
    try:
        stored = authorization_requests.find_request(g.organization_id, token, browser_id())
        if stored is None:
            raise RequestEnded
        apply_ui_locales(stored.sent, stored.client.organization)
        return _proceed(stored.sent, frozenset(), stored, token=token, decision=decision)
    except RequestEnded as error:
        return error_page(error)


def _proceed(
    sent: Mapping[str, str],
    repeated: frozenset[str],
    stored: AuthorizationRequestRecord | None,
    *,
    token: str | None = None,
    decision: str | None = None,
) -> BaseResponse:
    protocol = ProtocolRequest.from_flask()

    def answer(*, has_fresh_client: bool) -> BaseResponse:
        protocol.parameters = sent
        asked = AuthorizationRequest(
            protocol,
            sent,
            repeated=repeated,
            is_stored=stored is not None,
            has_fresh_client=has_fresh_client,
        )
        return _answer(asked, stored, token, decision)

    def answer_with_current_client(_: ProtocolRequest) -> BaseResponse:
        try:
            return answer(has_fresh_client=stored is not None)
        except _OutdatedClient:
            return answer(has_fresh_client=True)

    return handle(answer_with_current_client, protocol)


class _OutdatedClient(Exception):
    """A request was refused for a cached client that has changed since."""


def _answer(
    asked: AuthorizationRequest,
    stored: AuthorizationRequestRecord | None,
    token: str | None,
    decision: str | None,
) -> BaseResponse:
    try:
        grant = _consent_grant(asked)
        client, session = grant.client.view, asked.user
        apply_ui_locales(asked.payload.data, client.organization)
        actor = _actor(client, session)
        if decision == "deny" and stored is not None:
            authorization_requests.deny_request(actor, client, stored)
            denied = server.create_authorization_response(asked, grant_user=None, grant=grant)
            return _to_flask(checked_response(denied))
        response = _take_step(grant, asked, actor, stored, token, decision)
        if stored is None:
            record_success(asked.protocol, client, response.status_code)
        return response
    except (UnredirectableError, RequestEnded, TooManyRequests, AuthorizationError) as error:
        if not asked.has_fresh_client and asked.client is not None and is_outdated(asked.client.view):
            raise _OutdatedClient from None
        if not isinstance(error, AuthorizationError):
            return error_page(error, asked.protocol)
        client = asked.client.view
        if stored is None and asked.pushed_id is not None:
            pushed_requests.mark_used(_actor(client, None), asked.pushed_id)
        record_refusal(error, asked.protocol, client=(client.organization.id, client.id))
        if stored is not None and error.code != "access_denied":
            authorization_requests.complete_request(_actor(client, None), stored)
        status, body, headers = refusal_to_client(
            client, asked.protocol, asked.payload.data, error, is_after_decision=decision is not None
        )
        return Response(body, status, headers)


def _consent_grant(asked: AuthorizationRequest) -> Any:
    """Return Authlib's grant for the validated request. Raises UnredirectableError, AuthorizationError."""
    try:
        return server.get_consent_grant(asked)
    except OAuth2Error as error:
        if isinstance(error, UnsupportedResponseTypeError) and error.redirect_uri is None:
            # Authlib found no registered redirect URI: say what is wrong with it, on a page.
            AuthorizationCodeGrant.validate_authorization_redirect_uri(asked, asked.client)
        raise refusal_of(error, asked) from None


def _to_flask(response: ProtocolResponse | BaseResponse) -> BaseResponse:
    return response.to_flask() if isinstance(response, ProtocolResponse) else response


def _take_step(
    grant: Any,
    asked: AuthorizationRequest,
    actor: Actor,
    stored: AuthorizationRequestRecord | None,
    token: str | None,
    decision: str | None,
) -> BaseResponse:
    client, session, parameters = grant.client.view, asked.user, asked.parameters
    interaction = next_interaction(
        client, parameters, session, stored, is_playground=asked.is_from_playground
    )
    step, standing = interaction.step, interaction.consent_state
    if step is Step.ISSUE and session is not None:
        ends_at = interaction.limit_end(standing.find_expiry(interaction.scopes))
        return _to_flask(
            _issue(grant, asked, Decision(actor, interaction.scopes, stored, remember=False, ends_at=ends_at))
        )
    if token is None or stored is None:
        token = authorization_requests.create_request(
            actor, client, asked.payload.data, browser_id(), pushed_id=asked.pushed_id
        )
        return redirect(_url_of(client, step, token), _SEE_OTHER)
    if step is Step.ASK_ADMINISTRATOR and session is not None:
        return approval_page(actor, client, session, parameters.consent_scopes, decision, request_token=token)
    if step is not Step.CONSENT or session is None:
        return redirect(_url_of(client, step, token), _SEE_OTHER)
    shown = authorization_requests.shown_digest(client, session, parameters)
    end = chosen_end(client, stored.created_at)
    if decision == "allow" and stored.shown_digest == shown and end is not None:
        chosen = chosen_scopes(client, parameters.consent_scopes)
        if not restrict_scopes(parameters.scopes, chosen):
            authorization_requests.deny_request(actor, client, stored)
            raise AuthorizationError("access_denied", "The user allowed none of the requested scopes.")
        remember, ends_at = interaction.trial_ends_at is None, interaction.limit_end(end.at)
        decided = Decision(actor, chosen, stored, remember=remember, ends_at=ends_at)
        return _to_flask(_issue(grant, asked, decided))
    authorization_requests.record_displayed_consent(actor, stored, shown)
    return _consent_page(asked, session, actor, stored, token, standing)


def _issue(grant: Any, asked: AuthorizationRequest, decision: Decision) -> Any:
    asked.decision = decision
    return checked_response(server.create_authorization_response(asked, grant_user=asked.user, grant=grant))


def _consent_page(
    asked: AuthorizationRequest,
    session: SessionRecord,
    actor: Actor,
    stored: AuthorizationRequestRecord,
    token: str,
    standing: ConsentState,
) -> BaseResponse:
    client, parameters = asked.client.view, asked.parameters
    page = render_branded(
        "oauth/consent.html",
        client.organization,
        client=client_words(client),
        **consent_words(actor, client, session, parameters.consent_scopes, standing, stored.created_at),
        bare_resources=parameters.bare_resources,
        redirect_host=get_display_host(parameters.redirect_uri),
        redirect_is_local=is_local(parameters.redirect_uri),
        request_token=token,
    )
    return Response(page)


def _url_of(client: ClientSnapshot, step: Step, token: str) -> str:
    page = _PAGES.get(step, "oauth/authorize/resume")
    return f"/organizations/{client.organization.slug}/{page}?{urlencode({'request': token})}"


def _actor(client: ClientSnapshot, session: SessionRecord | None) -> Actor:
    if session is not None:
        return actor_of_session(session)
    return anonymous_actor(client.organization)


def consent_words(
    actor: Actor,
    client: ClientSnapshot,
    session: SessionRecord,
    scopes: tuple[str, ...],
    standing: ConsentState,
    requested_at: datetime,
) -> dict[str, Any]:
    """Return the variables of a consent page, besides ``client``.

    ``standing`` is the state of an earlier consent, ``requested_at`` the time of the app's request.
    """
    optional = client.document.get("optional_scopes") or ()
    return {
        "user": {"email": session.user_email, "name": session.user_name},
        "scopes": [
            {
                "name": scope.name,
                "title": translate(scope.title or "") if scope.is_identity else scope.title,
                "description": translate(scope.description or "") if scope.is_identity else scope.description,
                "api": scope.resource_name or "",
                "is_identity": scope.is_identity,
                "is_sensitive": is_sensitive_scope(scope.name),
                "required": scope.name not in optional,
                "already_allowed": scope.name in standing.scopes,
            }
            for scope in authorization_requests.describe_scopes(actor, scopes)
        ],
        "ends": list_offered_expiries(client, requested_at),
        "longest_seconds": max_consent_seconds(client.organization.settings),
        "changes": standing.changes,
        "was_called": (standing.shown or {}).get("name"),
        "given_at": standing.given_at,
    }


def approval_page(
    actor: Actor,
    client: ClientSnapshot,
    session: SessionRecord,
    scopes: tuple[str, ...],
    decision: str | None,
    **returning: str,
) -> Response:
    """Return the page on which a member asks for administrator approval, and send the request if it was submitted.

    ``returning`` is what the page carries along: the ``request_token`` or the ``user_code``.
    """
    form = ApprovalRequestForm()
    if decision == "ask":
        try:
            approval_requests.create_client_request(actor, client, scopes, form.reason.data or "")
        except (InvalidInput, TooManyRequests) as error:
            form.add_errors(error)
    page = render_branded(
        "oauth/ask.html",
        client.organization,
        form=form,
        client=client_words(client),
        user={"email": session.user_email},
        latest=approval_requests.find_latest_request(actor, client),
        sent=decision == "ask" and not form.summary,
        **returning,
    )
    return Response(page, 400 if form.summary else 200)


def account_page(client: ClientSnapshot, session: SessionRecord, token: str) -> Response:
    """Return the account selection page; ``token`` identifies the authorization request."""
    page = render_branded(
        "oauth/select_account.html",
        client.organization,
        client=client_words(client),
        user={"id": session.user_public_id, "email": session.user_email, "name": session.user_name},
        request_token=token,
    )
    return Response(page)


def client_words(client: ClientSnapshot) -> dict[str, Any]:
    """Return what pages show about a client."""
    return {
        "name": client.name,
        "logo": logo_of(client),
        "client_id": client.client_id,
        "client_uri": client.document.get("client_uri"),
        "policy_uri": client.document.get("policy_uri"),
        "tos_uri": client.document.get("tos_uri"),
        "trust": client.trust,
        "type": client.type,
        "created_by": existing_creator(client.created_by),
        "created_at": client.created_at,
        "is_unreviewed": client.is_unreviewed,
        "document_host": get_display_host(client.metadata_document_uri)
        if client.metadata_document_uri
        else None,
    }


def chosen_scopes(client: ClientSnapshot, asked: tuple[str, ...]) -> tuple[str, ...]:
    """Return the scopes that the user selected; only those that the client declares optional can be left out."""
    optional = client.document.get("optional_scopes") or ()
    selected = request.form.getlist("scope")
    return restrict_scopes(asked, [scope for scope in asked if scope not in optional or scope in selected])


def chosen_end(client: ClientSnapshot, requested_at: datetime) -> ConsentExpiry | None:
    """Return the expiry that the user selected, or None if it is no longer offered."""
    offered = list_offered_expiries(client, requested_at)
    return next((end for end in offered if end.name == request.form.get("lasts")), None)
