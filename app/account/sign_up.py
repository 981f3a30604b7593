"""Creating an account: signing up, confirming it by a link, and accepting an invitation."""

from __future__ import annotations

from urllib.parse import urlencode

from flask import request
from werkzeug.wrappers import Response

from app.account.context import account, organization_page, return_parameters
from app.account.forms import (
    ConfirmRegistrationForm,
    InvitationForm,
    InvitationPasskeyForm,
    SignUpForm,
    password_help,
)
from app.account.sign_in import (
    continue_sign_in,
    current_browser,
    open_request,
    pending_request,
    redirect_with_notice,
)
from app.operations.directory.lookups import get_organization_by_id, get_organization_by_slug
from app.operations.directory.snapshots import OrganizationSnapshot
from app.operations.sign_in.offered_providers import list_offered_providers
from app.operations.sign_in.passkeys import InvalidChallenge, PasskeyNotVerified
from app.operations.users.invitations import (
    InvitationEnded,
    InvitationRecord,
    accept_invitation_with_passkey,
    accept_invitation_with_password,
    begin_invited_passkey,
    find_invitation,
)
from app.operations.users.registrations import RegistrationEnded, confirm_registration, find_registration
from app.operations.users.sign_up import register_user, require_registration_open
from app.rules.errors import Conflict, InvalidInput, TooManyRequests
from app.rules.sign_in.passkeys import InvalidPasskeyResponse
from app.rules.users.profile import are_passwords_enabled
from app.web.browser_session import anonymous_actor, session_for
from app.web.headers import page_class
from app.web.languages import page_language
from app.web.request_log import request_id

_SHOWN = (InvalidInput, Conflict, InvalidPasskeyResponse, PasskeyNotVerified, InvalidChallenge)


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
    if form.validate_on_submit():
        with form.show_errors(InvalidInput, TooManyRequests, Conflict):
            register_user(
                org,
                email=form.email.data,
                name=form.name.data,
                password=form.password.data,
                ip_address=request.remote_addr,
                request_id=request_id(),
                page_language=page_language(),
                authorization_request=request.values["request"] if pending is not None else None,
            )
            return redirect_with_notice(
                org, {**return_parameters(), "registered": "1"}, form.email.data or ""
            )
    return organization_page(
        "account/sign_up.html",
        org,
        form=form,
        sign_in_url=_sign_in_url(org),
        providers=list_offered_providers(org),
        return_parameters=return_parameters(),
    )


@account.route("/organizations/<organization>/confirm/<token>", methods=["GET", "POST"])
@page_class("account")
def confirm_registration_page(organization: str, token: str) -> Response:
    """Confirm a new account with its password, then go to the sign-in page: the link does not sign in.

    From there, the user returns to the app where they signed up, if its request is still open in this browser.
    """
    org = get_organization_by_slug(organization)
    parameters = open_request(org)
    registration = find_registration(org, token)
    if registration is None:
        raise RegistrationEnded
    form = ConfirmRegistrationForm()
    if form.validate_on_submit():
        with form.show_errors(InvalidInput, TooManyRequests):
            confirm_registration(
                org, token, form.password.data, ip_address=request.remote_addr, request_id=request_id()
            )
            return redirect_with_notice(org, {**parameters, "confirmed": "1"}, registration.email)
    return organization_page("account/confirm.html", org, form=form, email=registration.email)


def _sign_in_url(organization: OrganizationSnapshot) -> str:
    query = urlencode(return_parameters())
    return f"/organizations/{organization.slug}/login{'?' if query else ''}{query}"


@account.route("/organizations/<organization>/invite/<token>", methods=["GET", "POST"])
@page_class("flow")
def invitation_page(organization: str, token: str) -> Response:
    """Accept an invitation with a password.

    An organization without passwords asks for a new passkey instead. The user is signed in afterwards, or asked for
    two-step verification first.
    """
    invitation, org = _find(organization, token)
    form: InvitationForm | InvitationPasskeyForm = InvitationPasskeyForm()
    if not form.answer.raw_data:
        form = InvitationForm()
        form.password.description = password_help(org)
    if not form.is_submitted():
        form.name.data = invitation.name
    try:
        if form.validate_on_submit():
            actor, name, browser = anonymous_actor(org), form.name.data, current_browser(org)
            if isinstance(form, InvitationPasskeyForm):
                answer = form.answer.data or ""
                outcome = accept_invitation_with_passkey(actor, invitation, token, answer, name, browser)
            else:
                password = form.password.data
                outcome = accept_invitation_with_password(actor, invitation, token, password, name, browser)
            return continue_sign_in(org, outcome, None)
    except InvitationEnded:
        raise
    except _SHOWN as refused:
        form.add_errors(refused)
    return organization_page(
        "account/invitation.html",
        org,
        form=form,
        invitation=invitation,
        token=token,
        password_enabled=are_passwords_enabled(org.settings),
        providers=list_offered_providers(org),
        refused_provider=_refused_provider(org),
        session=session_for(org.id),
        passkey=begin_invited_passkey(anonymous_actor(org), invitation, current_browser(org)),
    )


def _refused_provider(organization: OrganizationSnapshot) -> tuple[str, str] | None:
    """Return why an identity provider did not accept the invitation, and its name, if one was tried."""
    names = {provider.slug: provider.name for provider in list_offered_providers(organization)}
    reason, name = request.args.get("refused", ""), names.get(request.args.get("provider", ""))
    # Whoever made up a link must not choose what the page says.
    if name is None:
        return (reason, "") if reason == "withdrawn" else None
    return reason, name


def _find(slug: str, token: str) -> tuple[InvitationRecord, OrganizationSnapshot]:
    invitation = find_invitation(token)
    if invitation is None or invitation.organization_slug != slug:
        raise InvitationEnded(
            "This invitation has expired, or was already used or revoked. Ask for a new one."
        )
    return invitation, get_organization_by_id(invitation.organization_id)
