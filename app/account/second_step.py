"""What a sign-in waits for after its first proof: the second factor, or that one is set up.

The pages carry the token of the sign-in that waits as ``sign_in``, and what leads on after it.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from flask import make_response, redirect, render_template, request
from werkzeug.wrappers import Response

from app.account.blueprint import account
from app.account.sign_in import destination_of, kept_fields, onward, pending_request, this_browser
from app.operations.authorization.authorization_requests import AuthorizationRequestView
from app.operations.directory.lookups import OrganizationSnapshot, get_organization_by_slug
from app.operations.sign_in import factor_enrollment
from app.operations.sign_in.factor_verification import InvalidCode, verify_code
from app.operations.sign_in.passkey_registration import begin_registration_at_sign_in
from app.operations.sign_in.passkey_sign_in import PasskeyRefused, begin_passkey_second_factor
from app.operations.sign_in.pending_sign_ins import (
    PendingSignInState,
    SignInEnded,
    find_pending_sign_in_state,
)
from app.operations.sign_in.sign_in import SecondStepRequired, postpone_enrollment
from app.rules.actor import Actor
from app.rules.errors import Conflict, DomainError, InvalidInput
from app.rules.sign_in.second_factors import MfaRequirement, allowed_methods
from app.web import forms
from app.web.branding import branding_of
from app.web.browser_session import browser_id, set_sign_in
from app.web.headers import page_class
from app.web.qr_codes import qr_svg
from app.web.request_log import request_id


@account.route("/organizations/<organization>/login/verify", methods=["GET", "POST"])
@page_class("flow")
def verify_page(organization: str) -> Response:
    """The second factor of who has one: a code of the app, or with ``use=recovery`` a recovery code."""
    named = get_organization_by_slug(organization)
    asking = pending_request(named)
    waiting = waiting_here(named)
    if waiting is None or waiting.requirement is not MfaRequirement.VERIFY:
        return start_again(named, waiting)
    if request.method == "GET":
        return verify_form(named, waiting, asking)
    typed = forms.text("code")
    if not typed:
        return verify_form(named, waiting, asking, missing=True, code=400)
    try:
        outcome = verify_code(stranger(named), named, token(), typed, this_browser(named))
    except SignInEnded:
        return start_again(named, None)
    if not isinstance(outcome, InvalidCode):
        return onward(named, outcome, asking)
    status = 429 if outcome.retry_after and not outcome.has_ended else 400
    response = verify_form(named, waiting, asking, wrong=outcome, code=status)
    if outcome.retry_after:
        response.headers["Retry-After"] = str(outcome.retry_after)
    return response


@account.route("/organizations/<organization>/login/enrol", methods=["GET", "POST"])
@page_class("flow")
def enrol_page(organization: str) -> Response:
    """A second factor is set up before the sign-in stands; who may put it off has a button for that."""
    named = get_organization_by_slug(organization)
    asking = pending_request(named)
    waiting = waiting_here(named)
    if waiting is None or waiting.requirement not in {MfaRequirement.OFFER, MfaRequirement.ENROL}:
        return start_again(named, waiting)
    if request.method == "GET":
        return enrol_form(named, waiting, asking)
    try:
        if "later" in request.form:
            browser = this_browser(named)
            return onward(
                named, postpone_enrollment(stranger(named), named, waiting.pending, browser), asking
            )
        enrolled = factor_enrollment.add_authenticator_app_at_sign_in(
            stranger(named), named, token(), forms.text("secret"), forms.text("code"), this_browser(named)
        )
    except SignInEnded:
        return start_again(named, None)
    except (InvalidInput, Conflict) as refused:
        return enrol_form(named, waiting, asking, refused)
    return enrolled_page(named, enrolled, asking)


def enrolled_page(
    organization: OrganizationSnapshot,
    enrolled: factor_enrollment.EnrollmentAtSignIn,
    asking: AuthorizationRequestView | None,
) -> Response:
    """The first recovery codes, in this answer alone, and the way on; straight on where there are none to show."""
    if isinstance(enrolled.outcome, SecondStepRequired) or not enrolled.codes:
        return onward(organization, enrolled.outcome, asking)
    page = _page(
        "account/enrolled.html",
        organization,
        codes=enrolled.codes,
        onward=destination_of(organization, enrolled.outcome, asking),
    )
    set_sign_in(page, organization.id, enrolled.outcome.token, known=enrolled.outcome.known_cookie)
    return page


def stranger(organization: OrganizationSnapshot) -> Actor:
    """Whoever asks: nobody is signed in before the sign-in stands."""
    return Actor.anonymous(organization.id, request.remote_addr, request_id())


def token() -> str:
    """The token of the sign-in that waits."""
    return request.values.get("sign_in", "")


def waiting_here(organization: OrganizationSnapshot) -> PendingSignInState | None:
    """The sign-in that waits in this browser, or None when it has ended."""
    return find_pending_sign_in_state(organization, token(), browser_id())


def start_again(organization: OrganizationSnapshot, waiting: PendingSignInState | None) -> Response:
    """The other page, where the settings or another window changed what is missing; the sign-in page at the end."""
    pages = {MfaRequirement.VERIFY: "verify", MfaRequirement.OFFER: "enrol", MfaRequirement.ENROL: "enrol"}
    page = pages.get(waiting.requirement) if waiting is not None else None
    if page is not None:
        query = urlencode({"sign_in": token(), **kept_fields()})
        return redirect(f"/organizations/{organization.slug}/login/{page}?{query}", 303)
    query = urlencode({**kept_fields(), "ended": "1"})
    return redirect(f"/organizations/{organization.slug}/login?{query}", 303)


def verify_form(
    organization: OrganizationSnapshot,
    waiting: PendingSignInState,
    asking: AuthorizationRequestView | None,
    *,
    wrong: InvalidCode | None = None,
    refused: PasskeyRefused | None = None,
    missing: bool = False,
    code: int = 200,
) -> Response:
    """The page that asks for the second factor; ``refused`` is why a passkey did not count."""
    has_ended = wrong is not None and wrong.has_ended
    return _page(
        "account/verify.html",
        organization,
        email=waiting.pending.email,
        methods=waiting.methods,
        passkey=None
        if has_ended
        else begin_passkey_second_factor(organization, token(), this_browser(organization)),
        by_recovery=request.values.get("use") == "recovery" or "totp" not in waiting.methods,
        wrong=wrong,
        refused=refused,
        missing=missing,
        client=asking.client.name if asking else None,
        kept=kept_fields(),
        code=code,
    )


def enrol_form(
    organization: OrganizationSnapshot,
    waiting: PendingSignInState,
    asking: AuthorizationRequestView | None,
    refused: DomainError | None = None,
) -> Response:
    """The page on which a second factor is set up."""
    person = waiting.to_actor(stranger(organization))
    new = (
        factor_enrollment.begin_authenticator_app(person)
        if refused is None
        else factor_enrollment.continue_authenticator_app(person, forms.text("secret"))
    )
    return _page(
        "account/enrol.html",
        organization,
        email=waiting.pending.email,
        until=waiting.until,
        methods=allowed_methods(organization.settings),
        passkey=begin_registration_at_sign_in(organization, token(), this_browser(organization)),
        new=new,
        picture=qr_svg(new.otpauth_uri),
        client=asking.client.name if asking else None,
        errors=forms.field_errors(refused) if refused else {},
        kept=kept_fields(),
        code=refused.status if refused else 200,
    )


def _page(template: str, organization: OrganizationSnapshot, *, code: int = 200, **context: Any) -> Response:
    page = render_template(
        template,
        organization=organization,
        title=organization.settings["branding"]["display_name"] or organization.name,
        token=token(),
        **branding_of(organization),
        **context,
    )
    return make_response(page, code)
