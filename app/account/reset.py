"""Choosing a new password by a link."""

from __future__ import annotations

from flask import make_response, redirect, render_template, request
from werkzeug.wrappers import Response

from app.account.blueprint import account
from app.operations.directory.lookups import OrganizationSnapshot, get_organization_by_slug
from app.operations.users.password_resets import PasswordResetRecord, ResetEnded, find_reset, reset_password
from app.rules.errors import DomainError, InvalidInput
from app.web import forms
from app.web.branding import branding_of
from app.web.browser_session import known_browser, set_known_browser
from app.web.headers import page_class
from app.web.request_log import request_id


@account.route("/organizations/<organization>/reset/<token>", methods=["GET", "POST"])
@page_class("account")
def reset_page(organization: str, token: str) -> Response:
    """The new password; then the sign-in page: a reset signs nobody in (RP-3)."""
    named = get_organization_by_slug(organization)
    reset = find_reset(named, token)
    if reset is None:
        raise ResetEnded(
            "This link was used already, has expired, or a newer one was sent. Ask for a new one."
        )
    if request.method == "GET":
        return _page(named, reset)
    try:
        done = reset_password(
            named,
            token,
            request.form.get("password", ""),
            ip_address=request.remote_addr,
            request_id=request_id(),
            known_cookie=known_browser(named.id),
            user_agent=request.headers.get("User-Agent", ""),
        )
    except InvalidInput as error:
        return _page(named, reset, error)
    what = "factors" if done.ended else "1"
    response = redirect(f"/organizations/{named.slug}/login?reset={what}", 303)
    set_known_browser(response, named.id, done.known_cookie)
    return response


def _page(
    organization: OrganizationSnapshot, reset: PasswordResetRecord, error: DomainError | None = None
) -> Response:
    page = render_template(
        "account/reset.html",
        title=organization.settings["branding"]["display_name"] or organization.name,
        email=reset.email,
        min_length=organization.settings["authentication"]["password"]["min_length"],
        **branding_of(organization),
        errors=forms.field_errors(error) if error else {},
    )
    return make_response(page, error.status if error else 200)
