"""Making an account for oneself."""

from __future__ import annotations

from urllib.parse import urlencode

from flask import make_response, redirect, render_template, request
from werkzeug.wrappers import Response

from app.account.blueprint import account
from app.account.sign_in import kept_fields, pending_request
from app.operations.directory.lookups import OrganizationSnapshot, get_organization_by_slug
from app.operations.users.sign_up import register_user, require_registration_open
from app.rules.errors import DomainError, InvalidInput, TooManyRequests
from app.web import forms
from app.web.branding import branding_of
from app.web.headers import page_class
from app.web.request_log import request_id


@account.route("/organizations/<organization>/register", methods=["GET", "POST"])
@page_class("flow")
def sign_up_page(organization: str) -> Response:
    """Name, e-mail and password; then the sign-in page, whether or not the address was free (EN-1)."""
    named = get_organization_by_slug(organization)
    pending = pending_request(named)
    require_registration_open(named)
    if request.method == "GET":
        return _page(named, email=pending.sent.get("login_hint", "")[:254] if pending else "")
    try:
        register_user(
            named,
            email=forms.text("email"),
            name=forms.text("name"),
            password=request.form.get("password", ""),
            ip_address=request.remote_addr,
            request_id=request_id(),
        )
    except (InvalidInput, TooManyRequests) as error:
        return _page(named, email=forms.text("email"), error=error)
    return redirect(_sign_in_address(named, registered="1"), 303)


def _sign_in_address(organization: OrganizationSnapshot, **more: str) -> str:
    query = urlencode({**kept_fields(), **more})
    return f"/organizations/{organization.slug}/login{'?' if query else ''}{query}"


def _page(organization: OrganizationSnapshot, *, email: str, error: DomainError | None = None) -> Response:
    branding = organization.settings["branding"]
    page = render_template(
        "account/sign_up.html",
        organization=organization,
        title=branding["display_name"] or organization.name,
        email=email,
        name=forms.text("name"),
        min_length=organization.settings["authentication"]["password"]["min_length"],
        sign_in_url=_sign_in_address(organization),
        kept=kept_fields(),
        **branding_of(organization),
        errors=forms.field_errors(error) if error else {},
    )
    response: Response = make_response(page, error.status if error else 200)
    if isinstance(error, TooManyRequests):
        response.headers["Retry-After"] = str(error.retry_after)
    return response
