"""The sign-in page of an organization."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from flask import make_response, redirect, render_template, request
from werkzeug.wrappers import Response

from app.account.blueprint import account
from app.operations.directory import OrganizationView, organization_by_slug
from app.operations.people.sessions import find_session
from app.operations.people.sign_in import Refused, SignedIn, sign_in
from app.operations.protocol.authorization_requests import (
    AuthorizationRequestView,
    RequestEnded,
    find_request,
)
from app.rules.people.registration import is_open
from app.web import forms
from app.web.branding import branding_of, logo_of
from app.web.browser_session import browser_id, session_for, set_sign_in, sign_in_token
from app.web.headers import page_class
from app.web.local_paths import own_path
from app.web.request_log import request_id

_STATUS = {"mismatch": 400, "wait": 429, "disabled": 403, "suspended": 403, "password_off": 403}


@account.route("/organizations/<organization>/login", methods=["GET", "POST"])
@page_class("flow")
def sign_in_page(organization: str) -> Response:
    """Email and password; afterwards back to the application that asked, or to where the person wanted to go.

    ``request`` is the token of an authorization request under way, ``next`` an own path, ``reauthenticate`` asks
    for the password even of somebody who is signed in, ``account=another`` says that it will be somebody else.
    """
    named = organization_by_slug(organization)
    pending = pending_request(named)
    if request.method == "POST":
        return _post(named, pending)
    standing = session_for(named.id)
    if standing is not None and pending is None and "reauthenticate" not in request.args:
        return redirect(_destination(named, bool(standing.permissions)), 303)
    hint = pending.sent.get("login_hint", "") if pending is not None else request.args.get("login_hint", "")
    if not hint and standing is not None and "account" not in request.args:
        hint = standing.user_email
    return _page(named, pending, email=hint[:254], again=standing is not None and hint == standing.user_email)


def _post(organization: OrganizationView, pending: AuthorizationRequestView | None) -> Response:
    email, password = forms.text("email"), request.form.get("password", "")
    if not email or not password:
        return _page(organization, pending, email=email, missing=True, code=400)
    outcome = sign_in(
        organization.id,
        email,
        password,
        address=request.remote_addr,
        user_agent=request.headers.get("User-Agent", ""),
        request_id=request_id(),
        replaces=sign_in_token(organization.id),
    )
    if isinstance(outcome, Refused):
        response = _page(organization, pending, email=email, refused=outcome, code=_STATUS[outcome.reason])
        if outcome.retry_after:
            response.headers["Retry-After"] = str(outcome.retry_after)
        return response
    return signed_in(
        organization,
        outcome,
        f"/organizations/{organization.slug}/oauth/authorize/resume" if pending else None,
    )


def signed_in(organization: OrganizationView, outcome: SignedIn, resume: str | None = None) -> Response:
    """Off to where the person wanted to go, signed in; 303, so that no browser sends the password again (RU-7)."""
    if resume is not None:
        target = f"{resume}?{urlencode({'request': request.values['request']})}"
    else:
        view = find_session(outcome.token)
        target = _destination(organization, view is not None and bool(view.permissions))
    response = redirect(target, 303)
    set_sign_in(response, organization.id, outcome.token)
    return response


def pending_request(organization: OrganizationView) -> AuthorizationRequestView | None:
    """The authorization request that the page is on the way to, if any. Raises RequestEnded."""
    token = request.values.get("request")
    if not token:
        return None
    pending = find_request(organization.id, token, browser_id())
    if pending is None:
        raise RequestEnded
    return pending


def kept_fields() -> dict[str, str]:
    """What leads on after this page, and after the one that it leads to."""
    names = ("request", "next", "reauthenticate", "account")
    return {name: request.values[name] for name in names if name in request.values}


def _destination(organization: OrganizationView, has_rights: bool) -> str:
    home = f"/portal/{organization.slug}" if has_rights else f"/organizations/{organization.slug}/account"
    return own_path(request.values.get("next"), home)


def _words_of(pending: AuthorizationRequestView) -> dict[str, Any]:
    client = pending.client
    links = {name: client.document.get(name) for name in ("policy_uri", "tos_uri")}
    return {"name": client.name, "logo": logo_of(client), **links}


def _page(
    organization: OrganizationView,
    pending: AuthorizationRequestView | None,
    *,
    email: str,
    refused: Refused | None = None,
    missing: bool = False,
    again: bool = False,
    code: int = 200,
) -> Response:
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
        missing=missing,
        again=again,
        registered="registered" in request.args,
        reset="reset" in request.args,
        can_register=is_open(organization.settings),
        wants_account=pending is not None and "create" in pending.sent.get("prompt", "").split(),
        password_enabled=organization.settings["authentication"]["password"]["enabled"],
        kept=kept_fields(),
    )
    return make_response(page, code)
