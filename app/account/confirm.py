"""Confirming an address by the link that went to it: of an account that was asked for, and of one that stands."""

from __future__ import annotations

from flask import make_response, redirect, render_template, request
from werkzeug.wrappers import Response

from app.account.blueprint import account
from app.account.visit import Visit, own_account
from app.operations.directory.lookups import OrganizationSnapshot, get_organization_by_slug
from app.operations.users.email_change import (
    EmailVerificationEnded,
    EmailVerificationRecord,
    find_email_verification,
    verify_email,
)
from app.operations.users.registrations import (
    RegistrationEnded,
    RegistrationRecord,
    confirm_registration,
    find_registration,
)
from app.rules.errors import DomainError, InvalidInput, TooManyRequests
from app.web import forms
from app.web.branding import branding_of
from app.web.browser_session import known_browser
from app.web.headers import page_class
from app.web.request_log import request_id


@account.route("/organizations/<organization>/confirm/<token>", methods=["GET", "POST"])
@page_class("account")
def confirm_page(organization: str, token: str) -> Response:
    """The password that was chosen makes the account; then the sign-in page: a link signs nobody in."""
    named = get_organization_by_slug(organization)
    registration = find_registration(named, token)
    if registration is None:
        raise RegistrationEnded
    if request.method == "GET":
        return _confirm(named, registration)
    try:
        confirm_registration(
            named,
            token,
            request.form.get("password", ""),
            ip_address=request.remote_addr,
            request_id=request_id(),
        )
    except (InvalidInput, TooManyRequests) as error:
        return _confirm(named, registration, error)
    return redirect(f"/organizations/{named.slug}/login?confirmed=1", 303)


@account.route("/organizations/<organization>/confirm-address/<token>", methods=["GET", "POST"])
@page_class("account")
@own_account
def confirm_address_page(visit: Visit, token: str) -> Response:
    """A button, so that a program that looks at links in mails changes nothing; whose account it is signs in first."""
    proof = find_email_verification(visit.actor, token)
    if proof is None:
        raise EmailVerificationEnded
    if request.method == "GET":
        return _confirm_address(visit.organization, proof)
    done = verify_email(visit.actor, token, known_cookie=known_browser(visit.organization.id))
    return visit.done("/email", "address-first" if done.has_ended else "address")


def _confirm(
    organization: OrganizationSnapshot, registration: RegistrationRecord, error: DomainError | None = None
) -> Response:
    page = render_template(
        "account/confirm.html",
        title=organization.settings["branding"]["display_name"] or organization.name,
        email=registration.email,
        name=registration.name,
        refusal=error.description if isinstance(error, TooManyRequests) else None,
        **branding_of(organization),
        errors=forms.field_errors(error) if error else {},
    )
    response: Response = make_response(page, error.status if error else 200)
    if isinstance(error, TooManyRequests):
        response.headers["Retry-After"] = str(error.retry_after)
    return response


def _confirm_address(organization: OrganizationSnapshot, proof: EmailVerificationRecord) -> Response:
    page = render_template(
        "account/confirm_address.html",
        title=organization.settings["branding"]["display_name"] or organization.name,
        proof=proof,
        **branding_of(organization),
    )
    return make_response(page)
