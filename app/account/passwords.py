"""Requesting a password reset, resetting the password, and changing it."""

from __future__ import annotations

from urllib.parse import urlencode

from flask import redirect, request
from werkzeug.wrappers import Response

from app.account.context import AccountContext, account, account_page, organization_page
from app.account.forms import ChangePasswordForm, ForgotPasswordForm, ResetPasswordForm, password_help
from app.account.sign_in import open_request, redirect_with_notice
from app.operations.directory.lookups import get_organization_by_slug
from app.operations.sign_in.passwords import change_password
from app.operations.sign_in.sign_in import Browser
from app.operations.users.password_resets import (
    ResetEnded,
    find_reset,
    is_password_recovery_offered,
    request_reset,
    reset_password,
)
from app.rules.errors import InvalidInput, TooManyRequests
from app.web.browser_session import current_sessions, known_browser, set_known_browser
from app.web.headers import page_class
from app.web.languages import page_language
from app.web.request_log import request_id


@account.get("/.well-known/change-password")
def find_password_page() -> Response:
    """Redirect to the page that changes the password (W3C, A Well-Known URL for Changing Passwords).

    Password managers open this URL, which names no organization: the user chooses one unless only one is signed in.
    """
    sessions = current_sessions()
    if len(sessions) != 1:
        return redirect("/login?to=password", 303)
    return redirect(f"/organizations/{sessions[0].organization_slug}/account/password", 303)


@account.route("/organizations/<organization>/forgot", methods=["GET", "POST"])
@page_class("account")
def forgot_password_page(organization: str) -> Response:
    """Request a reset link; the response does not reveal whether the account exists (EN-1)."""
    org = get_organization_by_slug(organization)
    parameters = open_request(org)
    form = ForgotPasswordForm()
    if form.validate_on_submit():
        with form.show_errors(InvalidInput, TooManyRequests):
            request_reset(
                org,
                form.email.data,
                ip_address=request.remote_addr,
                request_id=request_id(),
                page_language=page_language(),
                authorization_request=parameters.get("request"),
            )
            query = urlencode({**parameters, "sent": "1"})
            return redirect(f"/organizations/{org.slug}/forgot?{query}", 303)
    return organization_page(
        "account/forgot.html",
        org,
        form=form,
        branding=org.settings["branding"],
        is_offered=is_password_recovery_offered(org),
        sent="sent" in request.args and not form.is_submitted(),
        return_parameters=parameters,
    )


@account.route("/organizations/<organization>/reset/<token>", methods=["GET", "POST"])
@page_class("account")
def reset_password_page(organization: str, token: str) -> Response:
    """Choose a new password, then go to the sign-in page: a reset does not sign in (RP-3).

    From there, the user returns to the app that asked for the sign-in, as after a sign-up.
    """
    org = get_organization_by_slug(organization)
    parameters = open_request(org)
    reset = find_reset(org, token)
    if reset is None:
        raise ResetEnded
    form = ResetPasswordForm()
    form.password.description = password_help(org)
    if form.validate_on_submit():
        with form.show_errors(InvalidInput):
            done = reset_password(
                org,
                token,
                form.password.data,
                ip_address=request.remote_addr,
                request_id=request_id(),
                browser=Browser(
                    user_agent=request.headers.get("User-Agent", ""), known_cookie=known_browser(org.id)
                ),
            )
            notice = {**parameters, "reset": "factors" if done.ended else "1"}
            response = redirect_with_notice(org, notice, reset.email)
            set_known_browser(response, org.id, done.known_cookie)
            return response
    return organization_page("account/reset.html", org, form=form, email=reset.email)


@account_page("/account/password", "GET", "POST")
def change_password_page(context: AccountContext) -> Response:
    """Change the password; this signs the user out of other browsers and apps.

    Users without a password set one with an emailed link.
    """
    user = context.user
    form = ChangePasswordForm()
    form.new_password.description = password_help(context.organization)
    if user.has_password and form.validate_on_submit():
        known = known_browser(context.organization.id)
        with form.show_errors(InvalidInput, TooManyRequests):
            session_token = change_password(
                context.actor, form.current_password.data, form.new_password.data, known_cookie=known
            )
            return context.done("/password", "password", token=session_token)
    return context.render(
        "account/password.html",
        form=form,
        user=user,
        can_set_password=is_password_recovery_offered(context.organization),
    )
