"""Asking for a new password."""

from __future__ import annotations

from flask import make_response, redirect, render_template, request
from werkzeug.wrappers import Response

from app.account.blueprint import account
from app.operations.directory.lookups import OrganizationSnapshot, get_organization_by_slug
from app.operations.users.password_resets import is_password_recovery_offered, request_reset
from app.rules.errors import DomainError, InvalidInput, TooManyRequests
from app.web import forms
from app.web.branding import branding_of
from app.web.headers import page_class
from app.web.request_log import request_id


@account.route("/organizations/<organization>/forgot", methods=["GET", "POST"])
@page_class("account")
def forgot_page(organization: str) -> Response:
    """The address of an account; the answer is the same whether there is one or not (EN-1)."""
    named = get_organization_by_slug(organization)
    if request.method == "GET":
        return _page(named, email=request.args.get("email", "")[:254])
    try:
        request_reset(named, forms.text("email"), ip_address=request.remote_addr, request_id=request_id())
    except (InvalidInput, TooManyRequests) as error:
        return _page(named, email=forms.text("email"), error=error)
    return redirect(f"/organizations/{named.slug}/forgot?sent=1", 303)


def _page(organization: OrganizationSnapshot, *, email: str, error: DomainError | None = None) -> Response:
    branding = organization.settings["branding"]
    page = render_template(
        "account/forgot.html",
        organization=organization,
        branding=branding,
        title=branding["display_name"] or organization.name,
        email=email,
        offered=is_password_recovery_offered(organization),
        sent="sent" in request.args and error is None,
        refusal=error.description if isinstance(error, TooManyRequests) else None,
        **branding_of(organization),
        errors=forms.field_errors(error) if error else {},
    )
    response: Response = make_response(page, error.status if error else 200)
    if isinstance(error, TooManyRequests):
        response.headers["Retry-After"] = str(error.retry_after)
    return response
