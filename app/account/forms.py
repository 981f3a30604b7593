"""The forms of the account pages. The rules behind them decide; their errors are shown at these fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wtforms import (
    HiddenField,
    PasswordField,
    StringField,
    SubmitField,
    TelField,
    TextAreaField,
    URLField,
)
from wtforms.validators import DataRequired, InputRequired

from app.operations.directory.snapshots import OrganizationSnapshot
from app.rules.errors import DomainError
from app.rules.users.profile import ADDRESS_PARTS, CHECKS
from app.web.forms import EmailField, PageForm, VersionField
from app.web.languages import gettext, lazy_gettext

_PLAIN = {"autocapitalize": "none", "spellcheck": "false"}
_EMAIL = {"maxlength": 254}
_ENTER_EMAIL = lazy_gettext("Enter your email.")
_ENTER_CODE = lazy_gettext("Enter the code.")


def _username() -> EmailField:
    """Return the field of the email that a user signs in with."""
    return EmailField(
        lazy_gettext("Email"),
        [DataRequired(_ENTER_EMAIL)],
        id="username",
        render_kw={**_EMAIL, "autocomplete": "username"},
    )


def _password(label: str, autocomplete: str) -> PasswordField:
    return PasswordField(
        label,
        [InputRequired(lazy_gettext("Enter your password."))],
        render_kw={"autocomplete": autocomplete},
    )


def _name(**more: Any) -> StringField:
    return StringField(
        lazy_gettext("Your name"),
        [DataRequired(lazy_gettext("Enter your name."))],
        render_kw={"autocomplete": "name", "maxlength": 100},
        **more,
    )


def _code(**more: Any) -> StringField:
    """Return the field of a code of the authenticator app."""
    return StringField(
        lazy_gettext("Code"),
        [DataRequired(_ENTER_CODE)],
        render_kw={"autocomplete": "one-time-code", "inputmode": "numeric", "maxlength": 10},
        **more,
    )


class FindOrganizationForm(PageForm):
    """Find an organization by its short name. The form is sent with GET and needs no CSRF token."""

    class Meta(PageForm.Meta):
        """Settings of a form that changes nothing."""

        csrf = False

    organization = StringField(
        lazy_gettext("Organization"),
        [DataRequired()],
        description=lazy_gettext("The short name from the URL of its sign-in page, such as acme"),
        render_kw={**_PLAIN, "maxlength": 40},
    )


class SignInForm(PageForm):
    """Sign in with email and password."""

    email = _username()
    password = _password(lazy_gettext("Password"), "current-password")


class SignUpForm(PageForm):
    """Create an account."""

    name = _name()
    email = _username()
    password = _password(lazy_gettext("Password"), "new-password")


class ConfirmRegistrationForm(PageForm):
    """Confirm a new account with the password that was chosen for it."""

    password = _password(lazy_gettext("Password"), "current-password")


class ForgotPasswordForm(PageForm):
    """Request a password reset link."""

    email = _username()


class ResetPasswordForm(PageForm):
    """Choose a new password after opening a reset link."""

    password = _password(lazy_gettext("New password"), "new-password")


class ChangePasswordForm(PageForm):
    """Change the password of a signed-in user."""

    current_password = _password(lazy_gettext("Current password"), "current-password")
    new_password = _password(lazy_gettext("New password"), "new-password")


class InvitationForm(PageForm):
    """Accept an invitation with a name and a password."""

    name = _name()
    password = _password(lazy_gettext("Password"), "new-password")


class InvitationPasskeyForm(PageForm):
    """Accept an invitation with a name and a new passkey; ``answer`` is the browser's response as JSON."""

    name = _name()
    answer = HiddenField()


class PasskeyForm(PageForm):
    """Use a passkey, or create one with a name; ``answer`` is the browser's response as JSON."""

    answer = HiddenField()
    name = StringField(
        lazy_gettext("Name"),
        description=lazy_gettext("A name to help you recognize it, such as “Phone” or “Blue key”."),
        render_kw={"autocomplete": "off", "maxlength": 60},
    )


class RenamePasskeyForm(PageForm):
    """Rename a passkey."""

    name = StringField(
        lazy_gettext("Name"),
        [DataRequired(lazy_gettext("Enter a name for the passkey."))],
        render_kw={"autocomplete": "off", "maxlength": 60},
    )


class CodeForm(PageForm):
    """Enter a code of the authenticator app."""

    code = _code(description=lazy_gettext("Enter the six-digit code from your authenticator app."))


class RecoveryCodeForm(PageForm):
    """Enter a recovery code."""

    code = StringField(
        lazy_gettext("Recovery code"),
        [DataRequired(_ENTER_CODE)],
        description=lazy_gettext("Enter one of the recovery codes you saved. Each code works once."),
        render_kw={**_PLAIN, "autocomplete": "off", "maxlength": 64},
    )


class AuthenticatorAppForm(PageForm):
    """Set up an authenticator app, or skip it; ``secret`` is the sealed secret that the page showed."""

    secret = HiddenField()
    code = _code()
    later = SubmitField(lazy_gettext("Not now"))


class ChangeEmailForm(PageForm):
    """Request a link that verifies an email address."""

    email = EmailField(
        lazy_gettext("New email"),
        [DataRequired(lazy_gettext("Enter your new email."))],
        description=lazy_gettext(
            "We'll send a link to your new address. The change takes effect when you open it. "
            "We'll also notify your old address."
        ),
        render_kw={**_EMAIL, "autocomplete": "email"},
    )


class DeleteAccountForm(PageForm):
    """Delete the account, confirmed by its email."""

    email = StringField(
        lazy_gettext("Enter your email address to delete the account"),
        [DataRequired(_ENTER_EMAIL)],
        render_kw={**_PLAIN, "autocomplete": "off"},
    )


def _claim(
    label: str, autocomplete: str | None = None, kind: type[StringField] = StringField, **more: Any
) -> StringField:
    """Return a field of the profile; rules check its value."""
    attributes: dict[str, Any] = {"maxlength": 2000 if kind is URLField else 100}
    if autocomplete:
        attributes["autocomplete"] = autocomplete
    return kind(label, render_kw=attributes, **more)


def _address_part(name: str, label: str, autocomplete: str) -> StringField:
    return StringField(
        label, name=f"address.{name}", render_kw={"autocomplete": autocomplete, "maxlength": 100}
    )


class ProfileForm(PageForm):
    """The user's name and standard claims (OpenID Connect Core 1.0, section 5.1)."""

    version = VersionField()
    name = _name(description=lazy_gettext("Shown to apps that you allow to see your profile."))
    given_name = _claim(lazy_gettext("Given name"), "given-name")
    family_name = _claim(lazy_gettext("Family name"), "family-name")
    middle_name = _claim(lazy_gettext("Middle name"), "additional-name")
    nickname = _claim(lazy_gettext("Nickname"))
    preferred_username = _claim(
        lazy_gettext("Username"),
        description=lazy_gettext("Shown by apps that use usernames. You can't sign in with it."),
    )
    birthdate = _claim(
        lazy_gettext("Birthday"),
        "bday",
        description=lazy_gettext("YYYY-MM-DD. Use 0000-MM-DD to leave out the year."),
    )
    gender = _claim(lazy_gettext("Gender"), "sex")
    locale = _claim(
        lazy_gettext("Language"), "language", description=lazy_gettext("A language tag, for example de-CH.")
    )
    zoneinfo = _claim(lazy_gettext("Time zone"), description=lazy_gettext("For example Europe/Zurich."))
    website = _claim(lazy_gettext("Website"), "url", URLField)
    profile = _claim(
        lazy_gettext("Profile page"), kind=URLField, description=lazy_gettext("The URL of a page about you.")
    )
    picture = _claim(
        lazy_gettext("Picture"), "photo", URLField, description=lazy_gettext("The URL of a picture of you.")
    )
    phone_number = _claim(
        lazy_gettext("Phone"),
        "tel",
        TelField,
        description=lazy_gettext("With country code, for example +41 44 668 18 00."),
    )
    address_street_address = TextAreaField(
        lazy_gettext("Street"),
        name="address.street_address",
        render_kw={"rows": 2, "maxlength": 500, "autocomplete": "street-address"},
    )
    address_postal_code = _address_part("postal_code", lazy_gettext("Postal code"), "postal-code")
    address_locality = _address_part("locality", lazy_gettext("City"), "address-level2")
    address_region = _address_part("region", lazy_gettext("Region"), "address-level1")
    address_country = _address_part("country", lazy_gettext("Country"), "country-name")
    address_formatted = TextAreaField(
        lazy_gettext("Full address"),
        name="address.formatted",
        description=lazy_gettext("As you would write it on an envelope."),
        render_kw={"rows": 3, "maxlength": 500},
    )

    def add_errors(self, error: DomainError, fields: Mapping[str, str] | None = None) -> None:
        """Show the errors of an operation; ``address.country`` belongs to the field ``address_country``."""
        super().add_errors(error, {f"address.{part}": f"address_{part}" for part in ADDRESS_PARTS})

    def claims(self) -> dict[str, object]:
        """Return the claims as operations expect them."""
        address = {part: self[f"address_{part}"].data or "" for part in ADDRESS_PARTS}
        return {**{name: self[name].data or "" for name in CHECKS}, "address": address}


def password_help(organization: OrganizationSnapshot) -> str:
    """Return the help text of a field for a new password."""
    min_length = organization.settings["authentication"]["password"]["min_length"]
    return gettext("Use at least %(least)s characters. A few unrelated words work well.", least=min_length)
