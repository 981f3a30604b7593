"""The sign-in page of an organization."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from flask import make_response, redirect, render_template, request
from werkzeug.wrappers import Response

from app.account.blueprint import account
from app.operations.authorization.authorization_requests import (
    AuthorizationRequestView,
    RequestEnded,
    find_request,
)
from app.operations.directory.lookups import OrganizationSnapshot, get_organization_by_slug
from app.operations.sign_in.passkey_sign_in import (
    PasskeyRefused,
    begin_passkey_sign_in,
    is_passkey_sign_in_offered,
)
from app.operations.sign_in.sessions import find_session
from app.operations.sign_in.sign_in import Browser, SecondStepRequired, SignedIn, SignInRefused, sign_in
from app.operations.users.sign_up import next_registration_step
from app.rules.sign_in.second_factors import MfaRequirement
from app.rules.users.sign_up import is_registration_open
from app.web import forms
from app.web.branding import branding_of, logo_of
from app.web.browser_session import browser_id, known_browser, session_for, set_sign_in, sign_in_token
from app.web.headers import page_class
from app.web.languages import follow_request
from app.web.local_paths import own_path
from app.web.request_log import request_id

_STATUS = {
    "mismatch": 400,
    "wait": 429,
    "capped": 429,
    "disabled": 403,
    "suspended": 403,
    "password_off": 403,
}


@account.route("/organizations/<organization>/login", methods=["GET", "POST"])
@page_class("flow")
def sign_in_page(organization: str) -> Response:
    """Email and password; afterwards back to the application that asked, or to where the person wanted to go.

    ``request`` is the token of an authorization request under way, ``next`` an own path, ``reauthenticate`` asks
    for the password even of somebody who is signed in, ``account=another`` says that it will be somebody else.
    """
    named = get_organization_by_slug(organization)
    pending = pending_request(named)
    if request.method == "POST":
        return _post(named, pending)
    standing = session_for(named.id)
    if standing is not None and pending is None and "reauthenticate" not in request.args:
        return redirect(_destination(named, bool(standing.permissions)), 303)
    hint = pending.sent.get("login_hint", "") if pending is not None else request.args.get("login_hint", "")
    if not hint and standing is not None and "account" not in request.args:
        hint = standing.user_email
    return sign_in_form(
        named, pending, email=hint[:254], again=standing is not None and hint == standing.user_email
    )


def _post(organization: OrganizationSnapshot, pending: AuthorizationRequestView | None) -> Response:
    email, password = forms.text("email"), request.form.get("password", "")
    if not email or not password:
        return sign_in_form(organization, pending, email=email, missing=True, code=400)
    outcome = sign_in(
        organization.id,
        email,
        password,
        ip_address=request.remote_addr,
        user_agent=request.headers.get("User-Agent", ""),
        request_id=request_id(),
        replaces=sign_in_token(organization.id),
        browser_id=browser_id(),
        known_cookie=known_browser(organization.id),
    )
    if isinstance(outcome, SignInRefused):
        response = sign_in_form(
            organization, pending, email=email, refused=outcome, code=_STATUS[outcome.reason]
        )
        if outcome.retry_after:
            response.headers["Retry-After"] = str(outcome.retry_after)
        return response
    return onward(organization, outcome, pending)


def onward(
    organization: OrganizationSnapshot,
    outcome: SignedIn | SecondStepRequired,
    pending: AuthorizationRequestView | None,
) -> Response:
    """Off to where the person wanted to go, signed in, or to what the sign-in waits for first.

    303, so that no browser sends the password again (RU-7).
    """
    if isinstance(outcome, SecondStepRequired):
        page = "verify" if outcome.purpose is MfaRequirement.VERIFY else "enrol"
        query = urlencode({"sign_in": outcome.token, **kept_fields()})
        return redirect(f"/organizations/{organization.slug}/login/{page}?{query}", 303)
    response = redirect(destination_of(organization, outcome, pending), 303)
    set_sign_in(response, organization.id, outcome.token, known=outcome.known_cookie)
    return response


def destination_of(
    organization: OrganizationSnapshot, signed_in: SignedIn, pending: AuthorizationRequestView | None
) -> str:
    """Where somebody who has just signed in wanted to go: back to the request under way, to ``next``, or home."""
    if pending is not None:
        query = urlencode({"request": request.values["request"]})
        return f"/organizations/{organization.slug}/oauth/authorize/resume?{query}"
    view = find_session(signed_in.token)
    return _destination(organization, view is not None and bool(view.permissions))


def this_browser(organization: OrganizationSnapshot) -> Browser:
    """The browser that asks, as operations know it."""
    return Browser(
        browser_id(),
        request.headers.get("User-Agent", ""),
        sign_in_token(organization.id),
        known_browser(organization.id),
    )


def pending_request(organization: OrganizationSnapshot) -> AuthorizationRequestView | None:
    """The authorization request that the page is on the way to, if any. Raises RequestEnded."""
    token = request.values.get("request")
    if not token:
        return None
    pending = find_request(organization.id, token, browser_id())
    if pending is None:
        raise RequestEnded
    follow_request(pending.sent, pending.client.organization)
    return pending


def kept_fields() -> dict[str, str]:
    """What leads on after this page, and after the one that it leads to."""
    names = ("request", "next", "reauthenticate", "account")
    return {name: request.values[name] for name in names if name in request.values}


def _destination(organization: OrganizationSnapshot, has_rights: bool) -> str:
    home = f"/portal/{organization.slug}" if has_rights else f"/organizations/{organization.slug}/account"
    return own_path(request.values.get("next"), home)


def _words_of(pending: AuthorizationRequestView) -> dict[str, Any]:
    client = pending.client
    links = {name: client.document.get(name) for name in ("policy_uri", "tos_uri")}
    return {"name": client.name, "logo": logo_of(client), **links}


def sign_in_form(
    organization: OrganizationSnapshot,
    pending: AuthorizationRequestView | None,
    *,
    email: str,
    refused: SignInRefused | None = None,
    refused_passkey: PasskeyRefused | None = None,
    missing: bool = False,
    again: bool = False,
    code: int = 200,
) -> Response:
    """The page, with why nobody was signed in by what it sent."""
    branding = organization.settings["branding"]
    page = render_template(
        "account/sign_in.html",
        organization=organization,
        branding=branding,
        **branding_of(organization),
        title=branding["display_name"] or organization.name,
        client=_words_of(pending) if pending else None,
        email=email,
        refused=refused,
        refused_passkey=refused_passkey,
        passkey=begin_passkey_sign_in(organization, browser_id())
        if is_passkey_sign_in_offered(organization)
        else None,
        missing=missing,
        again=again,
        registered=next_registration_step(organization) if "registered" in request.args else None,
        confirmed="confirmed" in request.args,
        reset=request.args.get("reset"),
        ended="ended" in request.args,
        can_register=is_registration_open(organization.settings),
        wants_account=pending is not None and "create" in pending.sent.get("prompt", "").split(),
        password_enabled=organization.settings["authentication"]["password"]["enabled"],
        kept=kept_fields(),
    )
    return make_response(page, code)
