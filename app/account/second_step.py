"""Two-step verification at sign-in: enter a code, use a passkey, or set up a method first.

The pages carry the token of the pending sign-in as ``sign_in``, and the parameters that say where it leads.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from urllib.parse import urlencode

from flask import jsonify, make_response, redirect, request
from werkzeug.wrappers import Response

from app.account.context import account, organization_page, return_parameters
from app.account.forms import AuthenticatorAppForm, CodeForm, PasskeyForm, RecoveryCodeForm, SignInForm
from app.account.sign_in import (
    continue_sign_in,
    current_browser,
    destination_of,
    pending_request,
    second_step_url,
    sign_in_form,
)
from app.operations.authorization.authorization_requests import AuthorizationRequestRecord
from app.operations.directory.lookups import get_organization_by_slug
from app.operations.directory.snapshots import OrganizationSnapshot
from app.operations.sign_in import factor_enrollment
from app.operations.sign_in.factor_verification import InvalidCode, verify_code
from app.operations.sign_in.passkey_registration import (
    begin_registration_at_sign_in,
    finish_registration_at_sign_in,
)
from app.operations.sign_in.passkey_sign_in import (
    PasskeyRefused,
    begin_passkey_second_factor,
    begin_passkey_sign_in,
    sign_in_with_passkey,
    verify_passkey_second_factor,
)
from app.operations.sign_in.pending_sign_ins import (
    PendingSignInState,
    SignInEnded,
    find_pending_sign_in_state,
)
from app.operations.sign_in.sign_in import SecondStepRequired, postpone_enrollment
from app.rules.errors import Conflict, DomainError, InvalidInput
from app.rules.sign_in.second_factors import MfaRequirement, allowed_methods
from app.web.browser_session import anonymous_actor, browser_id, own_path, session_for, set_sign_in
from app.web.flash import (
    clear_page_values,
    flash,
    load_page_values,
    store_page_values,
    take_flash,
)
from app.web.headers import page_class
from app.web.qr_codes import qr_svg

_STATUS = {"expired": 400, "unknown": 400, "copied": 403, "disabled": 403, "suspended": 403, "off": 403}
_View = Callable[[OrganizationSnapshot, PendingSignInState, AuthorizationRequestRecord | None], Response]


def _during_sign_in(*requirements: MfaRequirement) -> Callable[[_View], Callable[[str], Response]]:
    """Decorate a view for a pending sign-in with one of the requirements.

    The view gets the organization, the pending sign-in and the authorization request. Any other sign-in, and one that
    ends meanwhile, is redirected to the page that it needs.
    """

    def decorate(view: _View) -> Callable[[str], Response]:
        @wraps(view)
        def page(organization: str) -> Response:
            org = get_organization_by_slug(organization)
            pending = pending_request(org)
            waiting = find_pending_sign_in_state(org, _token(), browser_id())
            if waiting is None or waiting.requirement not in requirements:
                return _restart(org, waiting)
            try:
                return view(org, waiting, pending)
            except SignInEnded:
                return _restart(org, None)

        return page

    return decorate


@account.route("/organizations/<organization>/login/verify", methods=["GET", "POST"])
@page_class("flow")
@_during_sign_in(MfaRequirement.VERIFY)
def verify_page(
    org: OrganizationSnapshot, waiting: PendingSignInState, pending: AuthorizationRequestRecord | None
) -> Response:
    """Verify a code of the authenticator app or, with ``use=recovery``, a recovery code."""
    form = _code_form(waiting)
    if not form.validate_on_submit():
        return _verify_page(org, waiting, pending, form, code=400 if form.is_submitted() else 200)
    outcome = verify_code(anonymous_actor(org), org, _token(), form.code.data, current_browser(org))
    if not isinstance(outcome, InvalidCode):
        return continue_sign_in(org, outcome, pending)
    form.code.data = ""
    status = 429 if outcome.retry_after and not outcome.has_ended else 400
    response = _verify_page(org, waiting, pending, form, wrong=outcome, code=status)
    if outcome.retry_after:
        response.headers["Retry-After"] = str(outcome.retry_after)
    return response


@account.post("/organizations/<organization>/login/verify/passkey")
@page_class("flow")
@_during_sign_in(MfaRequirement.VERIFY)
def verify_with_passkey(
    org: OrganizationSnapshot, waiting: PendingSignInState, pending: AuthorizationRequestRecord | None
) -> Response:
    """Complete the pending sign-in with a passkey."""
    answer = PasskeyForm().answer.data or ""
    outcome = verify_passkey_second_factor(anonymous_actor(org), org, _token(), answer, current_browser(org))
    if isinstance(outcome, PasskeyRefused):
        form = _code_form(waiting)
        return _verify_page(org, waiting, pending, form, refused=outcome, code=_STATUS[outcome.reason])
    return continue_sign_in(org, outcome, pending)


@account.route("/organizations/<organization>/login/enrol", methods=["GET", "POST"])
@page_class("flow")
@_during_sign_in(MfaRequirement.OFFER, MfaRequirement.ENROL)
def enrol_page(
    org: OrganizationSnapshot, waiting: PendingSignInState, pending: AuthorizationRequestRecord | None
) -> Response:
    """Set up an authenticator app before the sign-in is complete, or skip it where that is allowed."""
    form = AuthenticatorAppForm()
    actor, browser = anonymous_actor(org), current_browser(org)
    try:
        if form.is_submitted() and form.later.data:
            postponed = postpone_enrollment(actor, org, waiting.pending, browser)
            return _clear_app_secret(org, continue_sign_in(org, postponed, pending))
        if not form.validate_on_submit():
            return _enrol_page(org, waiting, pending, form)
        enrolled = factor_enrollment.add_authenticator_app_at_sign_in(
            actor, org, _token(), form.secret.data or "", form.code.data, browser
        )
    except (InvalidInput, Conflict) as error:
        form.add_errors(error)
        return _enrol_page(org, waiting, pending, form)
    return _clear_app_secret(org, _enrolled_page(org, enrolled, pending))


@account.post("/organizations/<organization>/login/enrol/passkey")
@page_class("flow")
@_during_sign_in(MfaRequirement.OFFER, MfaRequirement.ENROL)
def enrol_passkey(
    org: OrganizationSnapshot, waiting: PendingSignInState, pending: AuthorizationRequestRecord | None
) -> Response:
    """Create a passkey before the sign-in is complete."""
    form = PasskeyForm()
    try:
        enrolled = finish_registration_at_sign_in(
            anonymous_actor(org),
            org,
            _token(),
            form.answer.data or "",
            form.name.data or "",
            current_browser(org),
        )
    except SignInEnded:
        raise  # to the decorator; a DomainError as well, but no error of the form
    except DomainError as error:
        app_form = AuthenticatorAppForm()
        app_form.add_errors(error)
        return _enrol_page(org, waiting, pending, app_form)
    return _clear_app_secret(org, _enrolled_page(org, enrolled, pending))


@account.get("/organizations/<organization>/login/passkey")
def passkey_options(organization: str) -> Response:
    """Return new options for the browser as JSON: a sign-in page may stay open longer than a challenge is valid."""
    return make_response(jsonify(begin_passkey_sign_in(get_organization_by_slug(organization), browser_id())))


@account.post("/organizations/<organization>/login/passkey")
@page_class("flow")
def sign_in_by_passkey(organization: str) -> Response:
    """Sign in with a passkey in place of the password."""
    org = get_organization_by_slug(organization)
    pending = pending_request(org)
    outcome = sign_in_with_passkey(
        anonymous_actor(org), org, PasskeyForm().answer.data or "", current_browser(org)
    )
    if isinstance(outcome, PasskeyRefused):
        return sign_in_form(org, pending, SignInForm(), refused_passkey=outcome, code=_STATUS[outcome.reason])
    return continue_sign_in(org, outcome, pending)


def _token() -> str:
    """Return the token of the pending sign-in."""
    return request.values.get("sign_in", "")


def _restart(organization: OrganizationSnapshot, waiting: PendingSignInState | None) -> Response:
    """Redirect to the page that the pending sign-in needs now, or to the sign-in page if it has expired."""
    if waiting is not None and waiting.requirement is not MfaRequirement.NOTHING:
        return redirect(second_step_url(organization, _token(), waiting.requirement), 303)
    query = urlencode({**return_parameters(), "ended": "1"})
    return redirect(f"/organizations/{organization.slug}/login?{query}", 303)


def _code_form(waiting: PendingSignInState) -> CodeForm | RecoveryCodeForm:
    is_recovery = request.values.get("use") == "recovery" or "totp" not in waiting.methods
    return RecoveryCodeForm() if is_recovery else CodeForm()


def _verify_page(
    organization: OrganizationSnapshot,
    waiting: PendingSignInState,
    pending: AuthorizationRequestRecord | None,
    form: CodeForm | RecoveryCodeForm,
    *,
    wrong: InvalidCode | None = None,
    refused: PasskeyRefused | None = None,
    code: int = 200,
) -> Response:
    """Render the page that asks for the second step; ``refused`` says why a passkey was rejected."""
    has_ended = wrong is not None and wrong.has_ended
    return organization_page(
        "account/verify.html",
        organization,
        form=form,
        code=code,
        token=_token(),
        email=waiting.pending.email,
        methods=waiting.methods,
        passkey=None
        if has_ended
        else begin_passkey_second_factor(organization, _token(), current_browser(organization)),
        is_recovery=isinstance(form, RecoveryCodeForm),
        wrong=wrong,
        refused=refused,
        client=pending.client.name if pending else None,
        return_parameters=return_parameters(),
    )


def _enrol_page(
    organization: OrganizationSnapshot,
    waiting: PendingSignInState,
    pending: AuthorizationRequestRecord | None,
    form: AuthenticatorAppForm,
) -> Response:
    """Render the page on which two-step verification is set up."""
    user = waiting.pending.to_actor(anonymous_actor(organization))
    # As on the page of a signed-in user, the secret stays when the page is loaded again.
    path = _enrol_path(organization)
    app = factor_enrollment.begin_authenticator_app(
        user, form.secret.data or load_page_values(organization.id, path).get("app", "")
    )
    form.secret.data, form.code.data = app.sealed, ""
    page = organization_page(
        "account/enrol.html",
        organization,
        form=form,
        token=_token(),
        email=waiting.pending.email,
        until=waiting.until,
        methods=allowed_methods(organization.settings),
        passkey=begin_registration_at_sign_in(organization, _token(), current_browser(organization)),
        new=app,
        picture=qr_svg(app.otpauth_uri),
        client=pending.client.name if pending else None,
        return_parameters=return_parameters(),
    )
    return store_page_values(page, {"app": app.sealed}, organization_id=organization.id, path=path)


def _clear_app_secret(organization: OrganizationSnapshot, response: Response) -> Response:
    """Forget the secret of the authenticator app that the page kept over a reload, and return the response."""
    return clear_page_values(response, _enrol_path(organization))


def _enrol_path(organization: OrganizationSnapshot) -> str:
    # A rejected passkey shows the page at another path.
    return f"/organizations/{organization.slug}/login/enrol"


def _enrolled_page(
    organization: OrganizationSnapshot,
    enrolled: factor_enrollment.EnrollmentAtSignIn,
    pending: AuthorizationRequestRecord | None,
) -> Response:
    """Redirect to the first recovery codes, which are shown once, or to the destination if there are none."""
    if isinstance(enrolled.outcome, SecondStepRequired) or not enrolled.codes:
        return continue_sign_in(organization, enrolled.outcome, pending)
    token = enrolled.outcome.token
    query = urlencode({"next": destination_of(organization, enrolled.outcome, pending)})
    response = redirect(f"/organizations/{organization.slug}/login/enrolled?{query}", 303)
    set_sign_in(response, organization.id, token, known=enrolled.outcome.known_cookie)
    return flash(
        response,
        {"kind": "recovery_codes", "codes": enrolled.codes},
        organization_id=organization.id,
        token=token,
    )


@account.get("/organizations/<organization>/login/enrolled")
@page_class("flow")
def enrolled_page(organization: str) -> Response:
    """Show the first recovery codes once, with a link to where the sign-in leads."""
    org = get_organization_by_slug(organization)
    home = f"/organizations/{org.slug}/account"
    session = session_for(org.id)
    return organization_page(
        "account/enrolled.html",
        org,
        email=session.user_email if session is not None else "",
        codes=take_flash(org.id).get("codes"),
        security_url=f"{home}/security",
        destination=own_path(request.args.get("next"), home),
    )
