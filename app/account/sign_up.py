"""Creating an account, and confirming it with the link that was sent to its email."""

from __future__ import annotations

from urllib.parse import urlencode

from flask import redirect, request
from werkzeug.wrappers import Response

from app.account.blueprint import account
from app.account.context import organization_page
from app.account.forms import ConfirmRegistrationForm, SignUpForm, password_help
from app.account.sign_in import pending_request, return_parameters
from app.operations.directory.lookups import OrganizationSnapshot, get_organization_by_slug
from app.operations.users.registrations import RegistrationEnded, confirm_registration, find_registration
from app.operations.users.sign_up import register_user, require_registration_open
from app.rules.errors import DomainError, InvalidInput, TooManyRequests
from app.web.headers import page_class
from app.web.request_log import request_id


@account.route("/organizations/<organization>/register", methods=["GET", "POST"])
@page_class("flow")
def sign_up_page(organization: str) -> Response:
    """Create an account, then go to the sign-in page, whether or not the email was available (EN-1)."""
    org = get_organization_by_slug(organization)
    pending = pending_request(org)
    require_registration_open(org)
    form = SignUpForm()
    form.password.description = password_help(org)
    if not form.is_submitted() and pending is not None:
        form.email.data = pending.sent.get("login_hint", "")[:254]
    error: DomainError | None = None
    if form.validate_on_submit():
        try:
            register_user(
                org,
                email=form.email.data,
                name=form.name.data,
                password=form.password.data,
                ip_address=request.remote_addr,
                request_id=request_id(),
            )
        except (InvalidInput, TooManyRequests) as refused:
            error = refused
        else:
            return redirect(_sign_in_url(org, registered="1"), 303)
    return organization_page(
        "account/sign_up.html",
        org,
        form=form,
        error=error,
        sign_in_url=_sign_in_url(org),
        return_parameters=return_parameters(),
    )


@account.route("/organizations/<organization>/confirm/<token>", methods=["GET", "POST"])
@page_class("account")
def confirm_registration_page(organization: str, token: str) -> Response:
    """Confirm a new account with its password, then go to the sign-in page: a link signs nobody in."""
    org = get_organization_by_slug(organization)
    registration = find_registration(org, token)
    if registration is None:
        raise RegistrationEnded
    form, error = ConfirmRegistrationForm(), None
    if form.validate_on_submit():
        try:
            confirm_registration(
                org, token, form.password.data, ip_address=request.remote_addr, request_id=request_id()
            )
        except (InvalidInput, TooManyRequests) as refused:
            error = refused
        else:
            return redirect(f"/organizations/{org.slug}/login?confirmed=1", 303)
    return organization_page("account/confirm.html", org, form=form, error=error, email=registration.email)


def _sign_in_url(organization: OrganizationSnapshot, **more: str) -> str:
    query = urlencode({**return_parameters(), **more})
    return f"/organizations/{organization.slug}/login{'?' if query else ''}{query}"
