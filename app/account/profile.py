"""The user's profile, email and deletion of the account."""

from __future__ import annotations

from flask import redirect
from werkzeug.wrappers import Response

from app.account.context import AccountContext, account_page, organization_page
from app.account.forms import ChangeEmailForm, DeleteAccountForm, ProfileForm
from app.operations.sign_in.reauthentication import require_fresh_sign_in
from app.operations.users.deletion import can_delete_account, delete_own_account, preview_account_deletion
from app.operations.users.email_change import (
    EmailVerificationEnded,
    can_verify_emails,
    find_email_verification,
    request_email_verification,
    verify_email,
)
from app.operations.users.own_profile import can_change_profile, change_profile
from app.rules.directory.attributes import USER, attributes_of, current_values
from app.rules.errors import Conflict, InvalidInput, TooManyRequests
from app.web.browser_session import clear_sign_in, known_browser
from app.web.flash import flash
from app.web.forms import PageForm, attribute_data, attribute_fields, attribute_values, with_attributes
from app.web.headers import page_class
from app.web.languages import gettext, page_language


@account_page("/account", "GET")
def account_home(context: AccountContext) -> Response:
    """Redirect to the profile."""
    return redirect(context.url("/profile"), 303)


@account_page("/account/profile", "GET", "POST")
def profile_page(context: AccountContext) -> Response:
    """Show the profile; change it where the organization allows that."""
    user = context.user
    address = {f"address_{part}": value for part, value in user.profile.get("address", {}).items()}
    defined = attributes_of(context.organization.settings)
    values = current_values(defined, user.attributes)
    editable = [attribute for attribute in defined if attribute.editable_by == USER]
    form = with_attributes(ProfileForm, editable)(
        data={
            **user.profile,
            **address,
            "name": user.name,
            "version": user.version,
            **attribute_data(editable, values),
        }
    )
    if form.validate_on_submit():
        with form.show_edit_errors(gettext("your profile"), user.version):
            change_profile(
                context.actor,
                name=form.name.data,
                profile=form.claims(),
                attributes=attribute_values(form, editable),
                expected_version=form.version.data,
            )
            return context.done("/profile", "saved")
    return context.render(
        "account/profile.html",
        form=form,
        user=user,
        attribute_fields=attribute_fields(form, editable),
        attributes=[
            (attribute.name, values[attribute.key])
            for attribute in defined
            if attribute.key in values and attribute not in editable
        ],
        may_edit=can_change_profile(context.actor),
        can_send=can_verify_emails(),
        may_delete=can_delete_account(context.actor),
    )


@account_page("/account/email", "GET", "POST")
def email_page(context: AccountContext) -> Response:
    """Request a link that verifies the current or a new email. Requires a recent sign-in.

    The response does not reveal whether another account has the email.
    """
    if can_verify_emails():
        # Before the form is filled in, which would be empty after the sign-in.
        require_fresh_sign_in(context.actor)
    form = ChangeEmailForm()
    if form.validate_on_submit():
        with form.show_errors(InvalidInput, TooManyRequests, Conflict):
            request_email_verification(context.actor, form.email.data, page_language=page_language())
            return context.done("/email", sent_to=form.email.data)
    return context.render(
        "account/email.html",
        form=form,
        user=context.user,
        can_send=can_verify_emails(),
        may_change=can_change_profile(context.actor),
    )


@account_page("/confirm-address/<token>", "GET", "POST")
@page_class("account")
def verify_email_page(context: AccountContext, token: str) -> Response:
    """Verify an email with a button, so that programs that open links in emails change nothing."""
    proof = find_email_verification(context.actor, token)
    if proof is None:
        raise EmailVerificationEnded
    form = PageForm()
    if form.validate_on_submit():
        has_revoked = verify_email(context.actor, token, known_cookie=known_browser(context.organization.id))
        return context.done("/profile", "address-first" if has_revoked else "address")
    return organization_page("account/confirm_address.html", context.organization, form=form, proof=proof)


@account_page("/account/delete", "GET", "POST")
def delete_account_page(context: AccountContext) -> Response:
    """Show what happens, then delete the account. Requires a recent sign-in."""
    form = DeleteAccountForm()
    if form.validate_on_submit():
        with form.show_errors(InvalidInput, Conflict):
            delete_own_account(context.actor, email=form.email.data)
            response = redirect("/login", 303)
            clear_sign_in(response, context.organization.id)
            once = {"notice": "account-deleted", "name": context.organization.title}
            return flash(response, once, organization_id=None)
    return context.render("account/delete.html", form=form, end=preview_account_deletion(context.actor))
