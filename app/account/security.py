"""The security pages: authenticator app, recovery codes and passkeys of the user."""

from __future__ import annotations

from werkzeug.wrappers import Response

from app.account.context import AccountContext, account_page
from app.account.forms import AuthenticatorAppForm, PasskeyForm, RenamePasskeyForm
from app.account.sign_in import current_browser
from app.operations.sign_in import factor_enrollment
from app.operations.sign_in.linked_identities import list_own_identities
from app.operations.sign_in.offered_providers import list_offered_providers
from app.operations.sign_in.passkey_registration import (
    begin_registration,
    can_register_passkey,
    finish_registration,
    get_passkey,
    list_passkeys,
    remove_passkey,
    rename_passkey,
)
from app.operations.users.password_resets import is_password_recovery_offered
from app.rules.errors import Conflict, DomainError, InvalidInput
from app.rules.sign_in.browser_names import browser_name
from app.web.browser_session import known_browser
from app.web.flash import clear_page_values, load_page_values, store_page_values
from app.web.forms import PageForm
from app.web.languages import translate
from app.web.qr_codes import qr_svg

_SECURITY = "/security"
_LIST = "/security/passkeys"
_CODES = "/security/recovery-codes"


@account_page("/account/security", "GET")
def security_page(context: AccountContext, form: PageForm | None = None) -> Response:
    """Show what protects the account, with a link to change each of it."""
    has_providers = bool(list_offered_providers(context.organization))
    return context.render(
        "account/security.html",
        form=form or PageForm(),
        user=context.user,
        can_set_password=is_password_recovery_offered(context.organization),
        own=factor_enrollment.own_factors(context.actor),
        passkeys=len(list_passkeys(context.actor)),
        can_add_passkey=can_register_passkey(context.actor),
        identities=list_own_identities(context.actor) if has_providers else None,
    )


@account_page("/account/security/app", "GET", "POST")
def add_app_page(context: AccountContext) -> Response:
    """Set up an authenticator app. Requires a recent sign-in."""
    factor_enrollment.require_fresh_own_account(context.actor)
    form = AuthenticatorAppForm()
    if form.validate_on_submit():
        known = known_browser(context.organization.id)
        with form.show_errors(InvalidInput, Conflict):
            added = factor_enrollment.add_authenticator_app(
                context.actor, form.secret.data or "", form.code.data, known_cookie=known
            )
            return clear_page_values(_added(context, added.codes, added.token, _SECURITY, "factor-added"))
    # A phone may load the page again when the user comes back from the app, which has the secret by then.
    sealed = form.secret.data or load_page_values(context.organization.id).get("app", "")
    app = factor_enrollment.begin_authenticator_app(context.actor, sealed)
    form.secret.data, form.code.data = app.sealed, ""
    page = context.render(
        "account/app_add.html",
        form=form,
        new=app,
        picture=qr_svg(app.otpauth_uri),
        has_app=factor_enrollment.own_factors(context.actor).app is not None,
    )
    return store_page_values(page, {"app": app.sealed}, organization_id=context.organization.id)


@account_page("/account/security/app/remove", "GET", "POST")
def remove_app_factor_page(context: AccountContext) -> Response:
    """Remove the authenticator app. Requires a recent sign-in with two-step verification."""
    factor_enrollment.require_fresh_own_account(context.actor)
    form = PageForm()
    if form.validate_on_submit():
        with form.show_errors(Conflict):
            token = factor_enrollment.remove_authenticator_app(context.actor)
            return context.done(_SECURITY, "factor-removed", token=token)
    removal = factor_enrollment.describe_factor_removal(context.actor)
    return context.render("account/factor_remove.html", form=form, removal=removal)


@account_page("/account/security/recovery-codes", "GET", "POST")
def recovery_codes_page(context: AccountContext) -> Response:
    """Create recovery codes, and show new ones once. Requires a recent sign-in."""
    factor_enrollment.require_fresh_own_account(context.actor)
    form = PageForm()
    if form.validate_on_submit():
        with form.show_errors(Conflict):
            codes = factor_enrollment.regenerate_recovery_codes(context.actor)
            return context.done(_CODES, "codes-replaced", kind="recovery_codes", codes=codes)
        return security_page(context, form)
    own = factor_enrollment.own_factors(context.actor)
    return context.render("account/recovery_codes.html", form=form, own=own)


def _added(
    context: AccountContext, codes: tuple[str, ...], token: str | None, back: str, notice_key: str
) -> Response:
    """Redirect to the list, or first to the recovery codes if this was the first verification method."""
    if not codes:
        return context.done(back, notice_key, token=token)
    return context.done(
        _CODES, notice_key, token=token, kind="recovery_codes", codes=codes, next=context.url(back)
    )


@account_page("/account/security/passkeys", "GET")
def passkeys_page(context: AccountContext) -> Response:
    """List the user's passkeys, newest first."""
    passkeys = [(passkey, browser_name(passkey.user_agent)) for passkey in list_passkeys(context.actor)]
    return context.render(
        "account/passkeys.html", passkeys=passkeys, can_add=can_register_passkey(context.actor)
    )


@account_page("/account/security/passkeys/add", "GET", "POST")
def add_passkey_page(context: AccountContext) -> Response:
    """Add a passkey that the browser created; the first verification method comes with recovery codes, shown once."""
    form = PasskeyForm()
    browser = current_browser(context.organization)
    if form.validate_on_submit():
        try:
            added = finish_registration(context.actor, form.answer.data or "", form.name.data or "", browser)
        except DomainError as refused:
            if refused.status in (401, 403):
                raise
            form.add_errors(refused)
        else:
            return _added(context, added.codes, added.token, _LIST, "passkey-added")
    form.name.data = form.name.data or translate(browser_name(browser.user_agent))
    return context.render(
        "account/passkey_add.html",
        form=form,
        options=begin_registration(context.actor, browser),
    )


@account_page("/account/security/passkeys/<passkey_id>", "GET", "POST")
def passkey_page(context: AccountContext, passkey_id: str) -> Response:
    """Show a passkey, and rename it."""
    form = RenamePasskeyForm()
    if form.validate_on_submit():
        with form.show_errors(InvalidInput):
            rename_passkey(context.actor, passkey_id, form.name.data)
            return context.done(_LIST, "saved")
    return _passkey_page(context, passkey_id, form)


@account_page("/account/security/passkeys/<passkey_id>/remove", "POST")
def remove_passkey_action(context: AccountContext, passkey_id: str) -> Response:
    """Remove a passkey. Requires a recent sign-in with two-step verification."""
    form = RenamePasskeyForm()
    with form.show_errors(Conflict):
        token = remove_passkey(context.actor, passkey_id)
        return context.done(_LIST, "passkey-removed", token=token)
    return _passkey_page(context, passkey_id, form)


def _passkey_page(context: AccountContext, passkey_id: str, form: RenamePasskeyForm) -> Response:
    passkey = get_passkey(context.actor, passkey_id)
    if form.name.data is None:
        form.name.data = passkey.name
    removal = factor_enrollment.describe_factor_removal(context.actor)
    return context.render("account/passkey.html", form=form, passkey=passkey, removal=removal)
