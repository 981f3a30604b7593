"""Security: the password, second factors and recovery codes of one's own account."""

from __future__ import annotations

from flask import request
from werkzeug.wrappers import Response

from app.account.blueprint import account
from app.account.visit import Visit, own_account
from app.operations.directory.users import get_user
from app.operations.sign_in import factor_enrollment
from app.operations.sign_in import factor_enrollment as removal
from app.operations.sign_in.passkey_registration import can_register_passkey, list_passkeys
from app.rules.errors import Conflict, DomainError, InvalidInput
from app.web import forms
from app.web.browser_session import known_browser, set_sign_in
from app.web.qr_codes import qr_svg

_HOME = "/security"


@account.get("/organizations/<organization>/account/security")
@own_account
def security_page(visit: Visit) -> Response:
    """What protects the account, and where each of it is changed."""
    return _security(visit)


@account.route("/organizations/<organization>/account/security/app", methods=["GET", "POST"])
@own_account
def app_page(visit: Visit) -> Response:
    """A new authenticator app: scanned, and proved by a code. Asks for a fresh sign-in."""
    factor_enrollment.require_fresh_own_account(visit.actor)
    if request.method == "GET":
        return _app(visit)
    try:
        known = known_browser(visit.organization.id)
        added = factor_enrollment.add_authenticator_app(
            visit.actor, forms.text("secret"), forms.text("code"), known_cookie=known
        )
    except (InvalidInput, Conflict) as refused:
        return _app(visit, refused)
    response = _codes(visit, added.codes, is_first=True) if added.codes else visit.done(_HOME, "factor-added")
    if added.token is not None:
        set_sign_in(response, visit.organization.id, added.token)
    return response


@account.route("/organizations/<organization>/account/security/app/remove", methods=["GET", "POST"])
@own_account
def app_remove_page(visit: Visit) -> Response:
    """What the end of the app means, and the button for it. Asks for a fresh sign-in with the second factor."""
    factor_enrollment.require_fresh_own_account(visit.actor)
    if request.method == "GET":
        return visit.render("account/factor_remove.html", own=removal.own_factors(visit.actor), errors={})
    try:
        token = removal.remove_authenticator_app(visit.actor)
    except Conflict as refused:
        return visit.render(
            "account/factor_remove.html",
            own=removal.own_factors(visit.actor),
            errors=forms.field_errors(refused),
            code=refused.status,
        )
    response = visit.done(_HOME, "factor-removed")
    if token is not None:
        set_sign_in(response, visit.organization.id, token)
    return response


@account.route("/organizations/<organization>/account/security/recovery-codes", methods=["GET", "POST"])
@own_account
def recovery_codes_page(visit: Visit) -> Response:
    """New recovery codes, in the answer to the form and nowhere else. Asks for a fresh sign-in."""
    factor_enrollment.require_fresh_own_account(visit.actor)
    if request.method == "GET":
        return visit.render("account/recovery_codes.html", own=removal.own_factors(visit.actor))
    try:
        return _codes(visit, removal.regenerate_recovery_codes(visit.actor), is_first=False)
    except Conflict as refused:
        return _security(visit, refused)


def _security(visit: Visit, refused: DomainError | None = None) -> Response:
    if visit.actor.user_id is None:
        raise RuntimeError("an account page without a person")
    return visit.render(
        "account/security.html",
        user=get_user(visit.organization.id, visit.actor.user_id),
        own=removal.own_factors(visit.actor),
        passkeys=len(list_passkeys(visit.actor)),
        can_add_passkey=can_register_passkey(visit.actor),
        error=refused.description if refused else None,
        code=refused.status if refused else 200,
    )


def _app(visit: Visit, refused: DomainError | None = None) -> Response:
    if refused is None:
        new = factor_enrollment.begin_authenticator_app(visit.actor)
    else:
        new = factor_enrollment.continue_authenticator_app(visit.actor, forms.text("secret"))
    return visit.render(
        "account/app_add.html",
        new=new,
        picture=qr_svg(new.otpauth_uri),
        has_app=removal.own_factors(visit.actor).app is not None,
        errors=forms.field_errors(refused) if refused else {},
        code=refused.status if refused else 200,
    )


def _codes(visit: Visit, codes: tuple[str, ...], *, is_first: bool) -> Response:
    return visit.render("account/recovery_codes_shown.html", codes=codes, is_first=is_first)
