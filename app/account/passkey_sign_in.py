"""Passkeys on the way in: in place of the password, after it, or set up before the sign-in stands."""

from __future__ import annotations

from flask import jsonify, make_response, request
from werkzeug.wrappers import Response

from app.account.blueprint import account
from app.account.second_step import (
    enrol_form,
    enrolled_page,
    start_again,
    stranger,
    token,
    verify_form,
    waiting_here,
)
from app.account.sign_in import onward, pending_request, sign_in_form, this_browser
from app.operations.directory.lookups import get_organization_by_slug
from app.operations.sign_in.passkey_registration import finish_registration_at_sign_in
from app.operations.sign_in.passkey_sign_in import (
    PasskeyRefused,
    begin_passkey_sign_in,
    sign_in_with_passkey,
    verify_passkey_second_factor,
)
from app.operations.sign_in.pending_sign_ins import SignInEnded
from app.rules.errors import DomainError
from app.rules.sign_in.second_factors import MfaRequirement
from app.web import forms
from app.web.browser_session import browser_id
from app.web.headers import page_class

_STATUS = {"expired": 400, "unknown": 400, "copied": 403, "disabled": 403, "suspended": 403, "off": 403}


@account.get("/organizations/<organization>/login/passkey")
def passkey_options(organization: str) -> Response:
    """What the browser is asked, anew: a sign-in page may stay open longer than a challenge lives."""
    return make_response(jsonify(begin_passkey_sign_in(get_organization_by_slug(organization), browser_id())))


@account.post("/organizations/<organization>/login/passkey")
@page_class("flow")
def passkey_sign_in(organization: str) -> Response:
    """The person is signed in by the passkey alone, and goes on as after a password."""
    named = get_organization_by_slug(organization)
    asking = pending_request(named)
    outcome = sign_in_with_passkey(
        stranger(named), named, request.form.get("answer", ""), this_browser(named)
    )
    if isinstance(outcome, PasskeyRefused):
        return sign_in_form(named, asking, email="", refused_passkey=outcome, code=_STATUS[outcome.reason])
    return onward(named, outcome, asking)


@account.post("/organizations/<organization>/login/verify/passkey")
@page_class("flow")
def passkey_verify(organization: str) -> Response:
    """The sign-in that waits goes on by a passkey."""
    named = get_organization_by_slug(organization)
    asking = pending_request(named)
    waiting = waiting_here(named)
    if waiting is None or waiting.requirement is not MfaRequirement.VERIFY:
        return start_again(named, waiting)
    try:
        outcome = verify_passkey_second_factor(
            stranger(named), named, token(), request.form.get("answer", ""), this_browser(named)
        )
        if isinstance(outcome, PasskeyRefused):
            return verify_form(named, waiting, asking, refused=outcome, code=_STATUS[outcome.reason])
    except SignInEnded:
        return start_again(named, None)
    return onward(named, outcome, asking)


@account.post("/organizations/<organization>/login/enrol/passkey")
@page_class("flow")
def passkey_enrol(organization: str) -> Response:
    """The sign-in that waited for a second factor goes on with a new passkey."""
    named = get_organization_by_slug(organization)
    asking = pending_request(named)
    waiting = waiting_here(named)
    if waiting is None or waiting.requirement not in {MfaRequirement.OFFER, MfaRequirement.ENROL}:
        return start_again(named, waiting)
    try:
        enrolled = finish_registration_at_sign_in(
            stranger(named),
            named,
            token(),
            request.form.get("answer", ""),
            forms.text("name"),
            this_browser(named),
        )
    except SignInEnded:
        return start_again(named, None)
    except DomainError as refused:
        return enrol_form(named, waiting, asking, refused)
    return enrolled_page(named, enrolled, asking)
