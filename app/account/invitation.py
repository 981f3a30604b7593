"""Accepting an invitation."""

from __future__ import annotations

from flask import make_response, redirect, render_template, request
from werkzeug.wrappers import Response

from app.account.blueprint import account
from app.account.second_step import stranger
from app.account.sign_in import onward, this_browser
from app.operations.directory.lookups import get_organization_by_id
from app.operations.sign_in.passkeys import InvalidChallenge, PasskeyNotVerified
from app.operations.sign_in.passwords import hash_new_password
from app.operations.sign_in.sign_in import SignInRefused, sign_in
from app.operations.users.invitations import (
    InvitationEnded,
    InvitationRecord,
    accept_invitation,
    find_invitation,
)
from app.operations.users.invited_passkeys import accept_invitation_with_passkey, begin_invited_passkey
from app.rules.errors import Conflict, DomainError, InvalidInput
from app.rules.sign_in.passkeys import InvalidPasskeyResponse
from app.rules.users.sign_up import require_invitation_by_password
from app.web import forms
from app.web.branding import branding_of
from app.web.browser_session import browser_id, known_browser, sign_in_token
from app.web.headers import page_class
from app.web.request_log import request_id


@account.route("/organizations/<organization>/invite/<token>", methods=["GET", "POST"])
@page_class("account")
def accept_page(organization: str, token: str) -> Response:
    """Name and password of the new user, or a passkey where nobody signs in with a password; signed in afterwards, or
    asked for a second factor first.
    """
    invitation = find_invitation(token)
    if invitation is None or invitation.organization_slug != organization:
        raise InvitationEnded(
            "This invitation was used already, was withdrawn or has expired. Ask for a new one."
        )
    if request.method == "GET":
        return _page(invitation, name=invitation.name)
    try:
        return _join(invitation, token) if "answer" in request.form else _accept(invitation, token)
    except (InvalidInput, Conflict, InvalidPasskeyResponse, PasskeyNotVerified, InvalidChallenge) as error:
        if isinstance(error, InvitationEnded):
            raise
        return _page(invitation, name=forms.text("name"), error=error)


def _join(invitation: InvitationRecord, token: str) -> Response:
    organization = get_organization_by_id(invitation.organization_id)
    name, answer = forms.text("name"), request.form["answer"]
    browser = this_browser(organization)
    outcome = accept_invitation_with_passkey(stranger(organization), invitation, token, answer, name, browser)
    return onward(organization, outcome, None)


def _accept(invitation: InvitationRecord, token: str) -> Response:
    organization = get_organization_by_id(invitation.organization_id)
    # Before the password is judged: it would be of no use, however good.
    require_invitation_by_password(organization.settings)
    name, password = forms.text("name"), request.form.get("password", "")
    personal = (invitation.email, name, organization.name, organization.slug)
    password_hash = hash_new_password(
        organization.settings,
        password,
        personal=personal,
        organization_id=organization.id,
        ip_address=request.remote_addr,
    )
    accept_invitation(token, name=name, password_hash=password_hash)
    outcome = sign_in(
        organization.id,
        invitation.email,
        password,
        ip_address=request.remote_addr,
        user_agent=request.headers.get("User-Agent", ""),
        request_id=request_id(),
        replaces=sign_in_token(organization.id),
        browser_id=browser_id(),
        known_cookie=known_browser(organization.id),
    )
    if isinstance(outcome, SignInRefused):
        return redirect(f"/organizations/{organization.slug}/login", 303)
    return onward(organization, outcome, None)


def _page(invitation: InvitationRecord, *, name: str, error: DomainError | None = None) -> Response:
    organization = get_organization_by_id(invitation.organization_id)
    page = render_template(
        "account/invitation.html",
        invitation=invitation,
        name=name,
        passkey=begin_invited_passkey(stranger(organization), invitation, this_browser(organization)),
        min_length=organization.settings["authentication"]["password"]["min_length"],
        **branding_of(organization),
        errors=forms.field_errors(error) if error else {},
    )
    return make_response(page, error.status if error else 200)
