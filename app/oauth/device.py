"""Device authorization (RFC 8628): the endpoint of devices, and the pages on which a user allows one.

The user enters the code, confirms the device, and only then sees what it requests. A link that contains the code only
fills in the field, because an attacker may have sent it (section 5.4).
"""

from __future__ import annotations

from math import ceil
from typing import Any
from urllib.parse import urlencode

from authlib.oauth2.rfc8628 import DeviceAuthorizationEndpoint as AuthlibDeviceAuthorizationEndpoint
from flask import g, make_response, redirect, render_template, request
from werkzeug.datastructures import MultiDict
from werkzeug.wrappers import Response

from app.oauth.authorize import approval_page, chosen_end, chosen_scopes, client_words, consent_words
from app.oauth.client_authentication import (
    ProtocolClient,
    authenticate,
    retry_with_fresh_client,
)
from app.oauth.forms import DeviceOrganizationForm, UserCodeForm
from app.oauth.protocol_request import ProtocolRequest, current_request
from app.oauth.protocol_response import ProtocolResponse, error_response
from app.oauth.request_parsing import parse_form
from app.oauth.server import checked_response, server
from app.operations.authorization import device_codes
from app.operations.authorization.consents import get_consent_state
from app.operations.authorization.device_codes import DeviceRequest, WrongUserCode
from app.operations.authorization.interactions import (
    can_allow_client,
    requires_consent_page,
    scopes_without_page,
)
from app.operations.directory import lookups
from app.operations.directory.snapshots import OrganizationSnapshot
from app.operations.sign_in.reauthentication import FreshSignInRequired
from app.operations.sign_in.sessions import SessionRecord
from app.operations.store.transactions import transaction
from app.operations.tokens import access_tokens
from app.rules.actor import Actor
from app.rules.authorization.authorization_request import AuthorizationParameters
from app.rules.authorization.interaction import format_user_code, generate_user_code, parse_user_code
from app.rules.clients.client_types import AUTH_METHODS, DEVICE_CODE, scopes_for_a_user
from app.rules.clients.resource_indicators import parse_resources
from app.rules.errors import (
    DomainError,
    NotFound,
    OrganizationMoving,
    TooManyRequests,
    UnauthorizedClient,
)
from app.web.branding import render_branded
from app.web.browser_session import actor_of_session, current_sessions, session_for
from app.web.headers import page_class
from app.web.languages import duration, gettext, ngettext, translate

MAX_DRAWS = 5
_SEE_OTHER = 303


def page_of(organization: OrganizationSnapshot) -> str:
    """Return the URL that the device shows (``verification_uri``)."""
    return f"{organization.base_url}/organizations/{organization.slug}/device"


class DeviceAuthorizationEndpoint(AuthlibDeviceAuthorizationEndpoint):
    """Issues a device code to poll with, and a shorter user code to enter elsewhere."""

    CLIENT_AUTH_METHODS = AUTH_METHODS

    @property
    def EXPIRES_IN(self) -> int:  # noqa: N802 - Authlib's name
        """The lifetime in seconds that the organization set."""
        return int(self._client.view.organization.settings["oauth"]["device_code_ttl_seconds"])

    @property
    def INTERVAL(self) -> int:  # noqa: N802 - Authlib's name
        """The seconds between two polls that the organization set."""
        return int(self._client.view.organization.settings["oauth"]["device_poll_interval_seconds"])

    @property
    def _client(self) -> ProtocolClient:
        return authenticate(current_request())

    def get_verification_uri(self) -> str:
        """Return the organization's page for user codes."""
        return page_of(self._client.view.organization)

    def generate_device_code(self) -> str:
        """Return a random code that names its organization."""
        return device_codes.generate_device_code(self._client.view.organization)

    def generate_user_code(self) -> str:
        """Return a random code as people read it."""
        return format_user_code(generate_user_code())

    def save_device_credential(self, client_id: str, scope: str | None, data: dict[str, Any]) -> None:
        """Store both codes. Raises UnauthorizedClient, InvalidScope, InvalidTarget, UserCodeTaken."""
        request, client = current_request(), self._client
        if not client.check_grant_type(DEVICE_CODE):
            raise UnauthorizedClient(DEVICE_CODE)
        registered = (
            access_tokens.default_user_scopes(client.view) if not scope else client.view.document["scopes"]
        )
        device_codes.store_device_code(
            request.actor_of(client.authenticated),
            client.view,
            scopes_for_a_user(scope or "", registered),
            device_code=data["device_code"],
            user_code=data["user_code"],
            resources=parse_resources(request.parameters.get("resource", "")),
        )


server.register_endpoint(DeviceAuthorizationEndpoint)


def authorize_device(request: ProtocolRequest) -> ProtocolResponse:
    """Return a device code and a user code, after the commit."""
    try:
        parse_form(request)
        return retry_with_fresh_client(request, lambda: _authorize_device(request))
    except DomainError as error:
        return error_response(error, request)


def _authorize_device(request: ProtocolRequest) -> Any:
    authenticate(request)
    for _ in range(MAX_DRAWS):
        try:
            return checked_response(_create_response(request))
        except device_codes.UserCodeTaken:
            continue
    raise TooManyRequests("No code is available at the moment. Try again.", retry_after=1)


@transaction
def _create_response(request: ProtocolRequest) -> Any:
    return server.create_endpoint_response("device_authorization", request)


@page_class("account")
def choose_organization() -> Response:
    """Ask for the organization, at the URL without one."""
    form = DeviceOrganizationForm(request.args)
    typed = _readable(request.args.get("user_code", ""))
    sessions = current_sessions()
    if sessions:
        form.organization.label.text = gettext("Another organization")
    if form.organization.data:
        slug = form.organization.data.lower()
        try:
            slug = lookups.get_organization_by_slug(slug).slug
        except OrganizationMoving:
            # Its own path leads to the cell that serves it.
            return redirect(_address(slug, typed), _SEE_OTHER)
        except NotFound:
            form.add_error(
                gettext(
                    "There is no organization with this name. The name is in the URL shown on your device."
                ),
                "organization",
            )
        else:
            return redirect(_address(slug, typed), _SEE_OTHER)
    page = render_template(
        "oauth/device_organization.html",
        sessions=[(session, _address(session.organization_slug, typed)) for session in sessions],
        form=form,
        user_code=typed,
    )
    return make_response(page, 404 if form.errors else 200)


@page_class("account")
def enter() -> Response:
    """Show the field for the code, after sign-in."""
    organization = lookups.get_organization_by_id(g.organization_id)
    typed = _readable(request.args.get("user_code", ""))
    session = session_for(organization.id)
    if session is None:
        return _sign_in(organization, typed)
    return _entry(organization, session, typed)


@page_class("account")
def decide() -> Response:
    """Return the next page after a button: the device, its request, and the decision."""
    organization = lookups.get_organization_by_id(g.organization_id)
    typed = UserCodeForm().user_code.data or ""
    session = session_for(organization.id)
    if session is None:
        return _sign_in(organization, _readable(typed))
    actor = actor_of_session(session)
    try:
        found = device_codes.find_device_request(actor, typed)
        return _step(actor, session, found, request.form.get("decision", ""))
    except TooManyRequests as refused:
        wait = duration(60 * ceil(refused.retry_after / 60))
        words = gettext("Too many incorrect codes. Try again in %(retry_after)s.", retry_after=wait)
        page = _entry(organization, session, typed, error=words, code=429)
        page.headers["Retry-After"] = str(refused.retry_after)
        return page
    except WrongUserCode as refused:
        return _entry(organization, session, typed, error=_words(refused), code=400)
    except FreshSignInRequired:
        # The session ended while the button was pressed.
        return _sign_in(organization, _readable(typed))


def _step(actor: Actor, session: SessionRecord, found: DeviceRequest, decision: str) -> Response:
    if decision == "deny":
        device_codes.deny_device(actor, found)
        return _page("oauth/device_done.html", found, allowed=False)
    if decision not in {"continue", "allow", "ask"}:
        return _page("oauth/device_confirm.html", found, user={"email": session.user_email})
    if not can_allow_client(found.client, session):
        return approval_page(
            actor,
            found.client,
            session,
            found.scopes,
            decision,
            user_code=format_user_code(found.user_code),
        )
    standing = get_consent_state(found.client, session.user_id)
    asked = _asked(found)
    if not requires_consent_page(found.client, asked, standing):
        scopes = scopes_without_page(found.client, asked, standing)
        ends_at = standing.find_expiry(scopes)
        device_codes.allow_device(actor, found, session, scopes, remember=False, ends_at=ends_at)
        return _page("oauth/device_done.html", found, allowed=True)
    end = chosen_end(found.client, found.requested_at)
    if (
        decision == "allow"
        and end is not None
        and device_codes.matches_displayed_consent(actor, found, session)
    ):
        chosen = chosen_scopes(found.client, found.scopes)
        if not chosen:
            device_codes.deny_device(actor, found)
            return _page("oauth/device_done.html", found, allowed=False)
        device_codes.allow_device(actor, found, session, chosen, remember=True, ends_at=end.at)
        return _page("oauth/device_done.html", found, allowed=True)
    device_codes.record_displayed_device_consent(actor, found, session)
    return _page(
        "oauth/device_consent.html",
        found,
        **consent_words(actor, found.client, session, found.scopes, standing, found.requested_at),
    )


def _asked(found: DeviceRequest) -> AuthorizationParameters:
    """Return the request as parameters of an authorization request, without a redirect URI."""
    return AuthorizationParameters(
        redirect_uri="", scopes=found.scopes, code_challenge=None, bare_resources=found.bare_resources
    )


def _entry(
    organization: OrganizationSnapshot,
    session: SessionRecord,
    typed: str,
    *,
    error: str | None = None,
    code: int = 200,
) -> Response:
    form = UserCodeForm(MultiDict({"user_code": typed}))
    if error:
        form.add_error(translate(error), "user_code")
    page = render_branded(
        "oauth/device.html",
        organization,
        user={"email": session.user_email},
        form=form,
        here=_address(organization.slug, _readable(typed)),
    )
    return make_response(page, code)


def _page(template: str, found: DeviceRequest, **context: Any) -> Response:
    page = render_branded(
        template,
        found.client.organization,
        client=client_words(found.client),
        device=found,
        user_code=format_user_code(found.user_code),
        **context,
    )
    return make_response(page)


def _sign_in(organization: OrganizationSnapshot, typed: str) -> Response:
    following = urlencode({"next": _address(organization.slug, typed)})
    return redirect(f"/organizations/{organization.slug}/login?{following}", _SEE_OTHER)


def _address(slug: str, user_code: str) -> str:
    query = f"?{urlencode({'user_code': user_code})}" if user_code else ""
    return f"/organizations/{slug}/device{query}"


def _readable(typed: str) -> str:
    """Return the code as pages show it, or an empty string if it is malformed."""
    user_code = parse_user_code(typed)
    return "" if user_code is None else format_user_code(user_code)


def _words(refused: WrongUserCode) -> str:
    message = translate(refused.description)
    if not refused.attempts_left:
        return message
    more = ngettext(
        "You have %(num)s attempt left.", "You have %(num)s attempts left.", refused.attempts_left
    )
    return f"{message} {more}"
