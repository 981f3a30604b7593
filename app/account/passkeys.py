"""The user's passkeys: list, add, rename and remove."""

from __future__ import annotations

from werkzeug.wrappers import Response

from app.account.blueprint import account
from app.account.context import AccountContext, account_page
from app.account.forms import PasskeyForm, RenamePasskeyForm
from app.account.sign_in import current_browser
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
from app.web.browser_session import set_sign_in
from app.web.languages import translate

_LIST = "/security/passkeys"


@account.get("/organizations/<organization>/account/security/passkeys")
@account_page
def passkeys_page(context: AccountContext) -> Response:
    """List the user's passkeys, newest first."""
    passkeys = [(passkey, browser_name(passkey.user_agent)) for passkey in list_passkeys(context.actor)]
    return context.render(
        "account/passkeys.html", passkeys=passkeys, can_add=can_register_passkey(context.actor)
    )


@account.route("/organizations/<organization>/account/security/passkeys/add", methods=["GET", "POST"])
@account_page
def add_passkey_page(context: AccountContext) -> Response:
    """Add a passkey that the browser created; the first verification method comes with recovery codes, shown once."""
    form = PasskeyForm()
    browser = current_browser(context.organization)
    error: DomainError | None = None
    if form.validate_on_submit():
        try:
            added = finish_registration(context.actor, form.answer.data or "", form.name.data or "", browser)
        except DomainError as refused:
            if refused.status in (401, 403):
                raise
            error = refused
        else:
            response = (
                context.render("account/passkey_added.html", codes=added.codes)
                if added.codes
                else context.done(_LIST, "passkey-added")
            )
            if added.token is not None:
                set_sign_in(response, context.organization.id, added.token)
            return response
    form.name.data = form.name.data or translate(browser_name(browser.user_agent))
    return context.render(
        "account/passkey_add.html",
        form=form,
        error=error,
        options=begin_registration(context.actor, browser),
    )


@account.route(
    "/organizations/<organization>/account/security/passkeys/<passkey_id>", methods=["GET", "POST"]
)
@account_page
def passkey_page(context: AccountContext, passkey_id: str) -> Response:
    """Show a passkey, and rename it."""
    form = RenamePasskeyForm()
    error: DomainError | None = None
    if form.validate_on_submit():
        try:
            rename_passkey(context.actor, passkey_id, form.name.data)
        except InvalidInput as refused:
            error = refused
        else:
            return context.done(_LIST, "saved")
    return _passkey_page(context, passkey_id, form, error)


@account.post("/organizations/<organization>/account/security/passkeys/<passkey_id>/remove")
@account_page
def remove_passkey_action(context: AccountContext, passkey_id: str) -> Response:
    """Remove a passkey. Requires a recent sign-in with two-step verification."""
    try:
        token = remove_passkey(context.actor, passkey_id)
    except Conflict as refused:
        return _passkey_page(context, passkey_id, RenamePasskeyForm(), refused)
    response = context.done(_LIST, "passkey-removed")
    if token is not None:
        set_sign_in(response, context.organization.id, token)
    return response


def _passkey_page(
    context: AccountContext, passkey_id: str, form: RenamePasskeyForm, error: DomainError | None = None
) -> Response:
    passkey = get_passkey(context.actor, passkey_id)
    if form.name.data is None:
        form.name.data = passkey.name
    return context.render("account/passkey.html", form=form, error=error, passkey=passkey)
