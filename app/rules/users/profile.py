"""Fields of users: validation of the standard claims (OpenID Connect Core 5.1), and who may sign up or be invited."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import date
from typing import Annotated, Any
from zoneinfo import available_timezones

from app.rules.clients.redirect_uris import web_url_problem
from app.rules.directory.attributes import Attribute, validate_attributes
from app.rules.errors import Conflict
from app.rules.fields import FieldProblem, ValidationErrors, text_problem, wrong_type
from app.rules.mail.email_addresses import canonical_email, email_problem
from app.rules.shapes import OneOf, Rule, SchemaOnly, Shape, Text, check_shape, described

ADDRESS_PARTS = ("formatted", "street_address", "locality", "region", "postal_code", "country")
"""Core 5.1.1. The first two may have several lines."""
_BIRTHDATE = re.compile(r"(\d{4})(?:-(\d{2})-(\d{2}))?", re.ASCII)
_ZONE = re.compile(r"[A-Za-z0-9_+-]+(?:/[A-Za-z0-9_+-]+){0,2}")
_LOCALE = re.compile(r"[A-Za-z]{2,8}(?:-[A-Za-z0-9]{1,8}){0,6}")
_PHONE = re.compile(r"\+[1-9][0-9]{6,14}")
_PHONE_DECORATION = str.maketrans("", "", " ()-./")
Check = Callable[[Any], FieldProblem | None]
MAX_NAME_LENGTH = 100
MAX_USER_NAME_BYTES = 320
"""Of the name by which a provider that manages a user knows them, such as an email."""
STATUSES = ("active", "disabled")
READ_ONLY = (
    "id",
    "organization_id",
    "email_verified",
    "has_password",
    "provisioning",
    "password",
    "password_changed_at",
    "roles",
    "created_at",
    "updated_at",
    "last_sign_in_at",
)
_SYNONYMS = {"mail": "email", "claims": "profile", "display_name": "name", "disabled": "status"}
_EMAIL_REQUIRED = {"email": "Enter an email address."}


_ATTRIBUTES = described(
    "Custom attributes by key, as the setting `user_profile.attributes` defines them. Replaced as a whole."
)


_EMAIL = Rule(email_problem, (("minLength", 3), ("maxLength", 320)))
_Name = Annotated[
    Annotated[str, Text(MAX_NAME_LENGTH, min_length=0)] | None,
    described("The display name. It may be empty."),
]
_Profile = Annotated[
    Annotated[dict[str, Any], SchemaOnly(component="UserProfile")] | None,
    described("Profile fields of OpenID Connect. Replaced as a whole."),
]


class NewUser(Shape):
    """A new user."""

    email: Annotated[str, _EMAIL, described("The address that the user signs in with.")]
    name: _Name = None
    profile: _Profile = None
    attributes: Annotated[dict[str, Any], _ATTRIBUTES] | None = None


class UserChange(Shape):
    """The fields of a user to change."""

    email: Annotated[str, _EMAIL, described("A new email address is not verified.")] = ""
    name: _Name = None
    profile: _Profile = None
    attributes: Annotated[dict[str, Any], _ATTRIBUTES] | None = None
    status: (
        Annotated[
            str,
            OneOf(STATUSES),
            described("`disabled` ends the user's sessions and revokes their grants immediately."),
        ]
        | None
    ) = None


def validate_profile(
    sent: Mapping[str, Any], errors: ValidationErrors, *, prefix: str = ""
) -> dict[str, Any]:
    """Return the profile to store: each claim with a value, in its standard form. Empty claims are left out.

    ``sent`` maps claims to values, ``address`` to a mapping of its parts. Wrong claims are added to ``errors`` with
    ``prefix`` before its name, a part of the address as ``address.country``.
    """
    profile: dict[str, Any] = {}
    for name, check in CHECKS.items():
        value = _strip(name, sent.get(name))
        if value and not errors.add_problem(f"{prefix}{name}", check(value)):
            profile[name] = value
    address = _validate_address(errors, sent.get("address") or {}, f"{prefix}address")
    if address:
        profile["address"] = address
    for name in sent.keys() - {*CHECKS, "address"}:
        errors.add(f"{prefix}{name[:100]}", "unknown_field", "A profile doesn't have this claim.")
    return profile


def birthdate_problem(value: Any) -> FieldProblem | None:
    """Check a date, ``0000-MM-DD`` for one without the year, or a year alone (ISO 8601)."""
    match = _BIRTHDATE.fullmatch(value) if isinstance(value, str) else None
    error = FieldProblem(
        "invalid_date", "Enter a date as YYYY-MM-DD, as 0000-MM-DD to leave out the year, or only the year."
    )
    if match is None:
        return error
    year, month, day = match.groups()
    if month is None:
        return None if year != "0000" else error
    try:
        # February 29 is a valid birthday without a year.
        date(2000 if year == "0000" else int(year), int(month), int(day))
    except ValueError:
        return error
    return None


def zoneinfo_problem(value: Any) -> FieldProblem | None:
    """Check a name from the IANA time zone database."""
    known = _time_zones()
    # Without the database only the form can be checked.
    if (
        isinstance(value, str)
        and _ZONE.fullmatch(value)
        and len(value) <= 64
        and (not known or value in known)
    ):
        return None
    return FieldProblem("unknown_zone", "Enter an IANA time zone, for example Europe/Zurich.")


def validate_new_user(fields: Mapping[str, Any], attributes: Iterable[Attribute] = ()) -> dict[str, Any]:
    """Return ``email``, ``name`` and ``profile`` of a new user, and the ``attributes`` if they were sent.

    ``attributes`` are the definitions of the organization. Raises InvalidInput with every invalid field.
    """
    errors = ValidationErrors()
    check_shape(
        errors,
        NewUser,
        fields,
        synonyms=_SYNONYMS,
        read_only=(*READ_ONLY, "status"),
        required=_EMAIL_REQUIRED,
    )
    return {"name": "", "profile": {}} | _values(fields, attributes, errors)


def validate_user_change(fields: Mapping[str, Any], attributes: Iterable[Attribute] = ()) -> dict[str, Any]:
    """Return the values to store of the fields that were sent; null restores the default.

    Raises InvalidInput with every invalid field.
    """
    errors = ValidationErrors()
    check_shape(errors, UserChange, fields, synonyms=_SYNONYMS, read_only=READ_ONLY, required=_EMAIL_REQUIRED)
    values = _values(fields, attributes, errors)
    return values | ({"status": fields["status"] or "active"} if "status" in fields else {})


def join_names(*names: str | None) -> str:
    """Return the name that consists of a given and a family name, as long as a name may be."""
    return " ".join(filter(None, names))[:MAX_NAME_LENGTH].rstrip()


def _strip(name: str, value: Any) -> Any:
    """Return the value without surrounding spaces, a phone number without separators (E.164 has only digits).

    Some products write a locale as en_US (OpenID Connect Core section 5.1).
    """
    if not isinstance(value, str):
        return value
    if name == "phone_number":
        return value.translate(_PHONE_DECORATION)
    return value.strip().replace("_", "-") if name == "locale" else value.strip()


def _validate_address(errors: ValidationErrors, sent: Any, field: str) -> dict[str, str]:
    if not isinstance(sent, Mapping):
        errors.add_problem(field, wrong_type("an object", sent))
        return {}
    for part in sent.keys() - set(ADDRESS_PARTS):
        errors.add(f"{field}.{part[:64]}", "unknown_field", "An address doesn't have this part.")
    address = {}
    for part in ADDRESS_PARTS:
        has_lines = part in {"formatted", "street_address"}
        value = sent.get(part)
        value = value.replace("\r\n", "\n").strip() if isinstance(value, str) else value
        problem = (
            text_problem(value, max_length=500 if has_lines else 100, multiline=has_lines) if value else None
        )
        if value and not errors.add_problem(f"{field}.{part}", problem):
            address[part] = value
    return address


def _text_check(max_length: int) -> Check:
    return lambda value: text_problem(value, max_length=max_length)


def _pattern_check(pattern: re.Pattern[str], code: str, message: str) -> Check:
    def check(value: Any) -> FieldProblem | None:
        matches = isinstance(value, str) and pattern.fullmatch(value) is not None
        return None if matches else FieldProblem(code, message)

    return check


@functools.cache
def _time_zones() -> frozenset[str]:
    return frozenset(available_timezones())


def _values(
    fields: Mapping[str, Any], attributes: Iterable[Attribute], errors: ValidationErrors
) -> dict[str, Any]:
    values: dict[str, Any] = {}
    if isinstance(fields.get("email"), str):
        values["email"] = fields["email"].strip()
    if "name" in fields:
        values["name"] = fields["name"] or ""
    if "profile" in fields:
        profile = fields["profile"] if isinstance(fields["profile"], Mapping) else {}
        values["profile"] = validate_profile(profile, errors, prefix="profile.")
    if isinstance(fields.get("attributes", 0), Mapping | None):
        values["attributes"] = validate_attributes(attributes, fields["attributes"] or {}, {}, errors)
    errors.raise_if_any()
    return values


CHECKS: Mapping[str, Check] = {
    "given_name": _text_check(100),
    "family_name": _text_check(100),
    "middle_name": _text_check(100),
    "nickname": _text_check(100),
    "preferred_username": _text_check(100),
    "profile": web_url_problem,
    "picture": web_url_problem,
    "website": web_url_problem,
    "gender": _text_check(40),
    "birthdate": birthdate_problem,
    "zoneinfo": zoneinfo_problem,
    "locale": _pattern_check(_LOCALE, "invalid_locale", "Enter a language tag, for example de-CH (BCP 47)."),
    "phone_number": _pattern_check(
        _PHONE,
        "invalid_phone",
        "Enter the full number with country code, for example +41 44 668 18 00 (E.164).",
    ),
}


def is_registration_open(settings: Mapping[str, Any]) -> bool:
    """Return whether users may register themselves and sign in afterwards."""
    authentication = settings["authentication"]
    return bool(authentication["registration"]["mode"] == "open" and authentication["password"]["enabled"])


def are_passwords_enabled(settings: Mapping[str, Any]) -> bool:
    """Return whether users can sign in with a password."""
    return bool(settings["authentication"]["password"]["enabled"])


def are_new_users_accepted(settings: Mapping[str, Any]) -> bool:
    """Return whether users may join at all, at least by invitation."""
    return bool(settings["authentication"]["registration"]["mode"] != "closed")


def require_invitations_possible(settings: Mapping[str, Any], *, without_password: bool) -> None:
    """Require that users may be invited. Raises Conflict if registration is closed or they could not sign in.

    ``without_password`` says whether users can sign in with a passkey alone or an identity provider.
    """
    if not are_passwords_enabled(settings) and not without_password:
        raise Conflict(
            "Invited users could not sign in, because neither passwords nor passkeys are enabled, and there is no "
            "identity provider. Turn on authentication.password.enabled, or both authentication.passkeys.enabled "
            "and authentication.passkeys.passwordless, which require a domain name.",
            code="passwords_off",
        )
    if not are_new_users_accepted(settings):
        raise Conflict(
            "This organization does not accept new users. Change authentication.registration.mode to invite users.",
            code="registration_closed",
        )


def require_invitation_by_password(settings: Mapping[str, Any]) -> None:
    """Require that invited users may choose a password. Raises Conflict."""
    if not are_passwords_enabled(settings):
        raise Conflict("This organization does not allow signing in with a password.", code="passwords_off")


def is_domain_allowed(email: str, settings: Mapping[str, Any]) -> bool:
    """Return whether the organization accepts emails of this domain. An empty list allows all."""
    allowed = settings["authentication"]["registration"]["allowed_email_domains"]
    domain = (canonical_email(email) or "").rpartition("@")[2]
    return not allowed or any(
        canonical_email(f"x@{allowed_domain}") == f"x@{domain}" for allowed_domain in allowed
    )
