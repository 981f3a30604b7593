"""One's own passkeys: the list, a new one, its name and its end."""

from __future__ import annotations

from flask import request
from werkzeug.wrappers import Response

from app.account.blueprint import account
from app.account.sign_in import this_browser
from app.account.visit import Visit, own_account
from app.operations.sign_in.passkey_registration import (
    begin_registration,
    can_register_passkey,
    finish_registration,
    get_passkey,
    list_passkeys,
    remove_passkey,
    rename_passkey,
)
from app.rules.errors import Conflict, DomainError, InvalidInput
from app.rules.sign_in.browser_names import browser_name
from app.web import forms
from app.web.browser_session import set_sign_in

_LIST = "/security/passkeys"


@account.get("/organizations/<organization>/account/security/passkeys")
@own_account
def passkeys_page(visit: Visit) -> Response:
    """Every passkey of the account, the newest first."""
    listed = [(passkey, browser_name(passkey.user_agent)) for passkey in list_passkeys(visit.actor)]
    return visit.render("account/passkeys.html", passkeys=listed, can_add=can_register_passkey(visit.actor))


@account.route("/organizations/<organization>/account/security/passkeys/add", methods=["GET", "POST"])
@own_account
def add_passkey_page(visit: Visit) -> Response:
    """A new passkey, made by the browser; the first second factor brings recovery codes, shown once."""
    if request.method == "GET":
        return _add_page(visit)
    try:
        added = finish_registration(
            visit.actor, request.form.get("answer", ""), forms.text("name"), this_browser(visit.organization)
        )
    except DomainError as error:
        if error.status in (401, 403):
            raise
        return _add_page(visit, error)
    response = visit.done(_LIST, "passkey-added")
    if added.codes:
        response = visit.render("account/passkey_added.html", codes=added.codes)
    if added.token is not None:
        set_sign_in(response, visit.organization.id, added.token)
    return response


@account.route(
    "/organizations/<organization>/account/security/passkeys/<passkey_id>", methods=["GET", "POST"]
)
@own_account
def passkey_page(visit: Visit, passkey_id: str) -> Response:
    """One passkey: its name, and the button that removes it."""
    if request.method == "GET":
        return _passkey_page(visit, passkey_id)
    try:
        rename_passkey(visit.actor, passkey_id, forms.text("name"))
    except InvalidInput as error:
        return _passkey_page(visit, passkey_id, error)
    return visit.done(_LIST, "saved")


@account.post("/organizations/<organization>/account/security/passkeys/<passkey_id>/remove")
@own_account
def remove_passkey_action(visit: Visit, passkey_id: str) -> Response:
    """The passkey is gone. Asks for a fresh sign-in with the second factor."""
    try:
        token = remove_passkey(visit.actor, passkey_id)
    except Conflict as refused:
        return _passkey_page(visit, passkey_id, refused)
    response = visit.done(_LIST, "passkey-removed")
    if token is not None:
        set_sign_in(response, visit.organization.id, token)
    return response


def _add_page(visit: Visit, error: DomainError | None = None) -> Response:
    browser = this_browser(visit.organization)
    return visit.render(
        "account/passkey_add.html",
        options=begin_registration(visit.actor, browser),
        suggested=forms.text("name") or browser_name(browser.user_agent),
        errors=forms.field_errors(error) if error else {},
        code=error.status if error else 200,
    )


def _passkey_page(visit: Visit, passkey_id: str, error: DomainError | None = None) -> Response:
    passkey = get_passkey(visit.actor, passkey_id)
    return visit.render(
        "account/passkey.html",
        passkey=passkey,
        browser=browser_name(passkey.user_agent),
        errors=forms.field_errors(error) if error else {},
        code=error.status if error else 200,
    )
