"""Profiles: the standard claims that people say of themselves, and what each may be (OpenID Connect Core 5.1)."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from datetime import date
from typing import Any
from zoneinfo import available_timezones

from app.rules.clients.redirect_uris import web_address_problem
from app.rules.errors import InvalidInput
from app.rules.fields import Findings, Problem, find_unknown, text_problem, type_name
from app.rules.mail.email_addresses import is_email

ADDRESS_PARTS = ("formatted", "street_address", "locality", "region", "postal_code", "country")
"""Core 5.1.1; the first two may have lines."""

_BIRTHDATE = re.compile(r"(\d{4})(?:-(\d{2})-(\d{2}))?", re.ASCII)
_ZONE = re.compile(r"[A-Za-z0-9_+-]+(?:/[A-Za-z0-9_+-]+){0,2}")
_LOCALE = re.compile(r"[A-Za-z]{2,8}(?:-[A-Za-z0-9]{1,8}){0,6}")
_PHONE = re.compile(r"\+[1-9][0-9]{6,14}")
_PHONE_DECORATION = str.maketrans("", "", " ()-./")

Check = Callable[[Any], Problem | None]


def checked_profile(sent: Mapping[str, Any]) -> dict[str, Any]:
    """The profile to store: each claim that has a value, in its standard form.

    ``sent`` holds claims by name, ``address`` a mapping of its parts; empty ones are left out. Raises InvalidInput
    naming every wrong one, an address part as ``address.country``.
    """
    findings = Findings()
    profile: dict[str, Any] = {}
    for name, check in CHECKS.items():
        value = _bare(name, sent.get(name))
        if value and not findings.add_problem(name, check(value)):
            profile[name] = value
    address = _address(findings, sent.get("address") or {})
    if address:
        profile["address"] = address
    for name in sent.keys() - {*CHECKS, "address"}:
        findings.add(name[:100], "unknown_field", "There is no such claim in a profile.")
    findings.raise_if_any()
    return profile


def _bare(name: str, value: Any) -> Any:
    """Without what people write for their own eyes: E.164 has digits alone."""
    if not isinstance(value, str):
        return value
    return value.translate(_PHONE_DECORATION) if name == "phone_number" else value.strip()


def _address(findings: Findings, sent: Any) -> dict[str, str]:
    if not isinstance(sent, Mapping):
        findings.add("address", "wrong_type", f"This must be an object, not {type_name(sent)}.")
        return {}
    for part in sent.keys() - set(ADDRESS_PARTS):
        findings.add(f"address.{part[:64]}", "unknown_field", "An address has no such part.")
    address = {}
    for part in ADDRESS_PARTS:
        has_lines = part in {"formatted", "street_address"}
        value = sent.get(part)
        value = value.replace("\r\n", "\n").strip() if isinstance(value, str) else value
        problem = text_problem(value, longest=500 if has_lines else 100, lines=has_lines) if value else None
        if value and not findings.add_problem(f"address.{part}", problem):
            address[part] = value
    return address


def _text(longest: int) -> Check:
    return lambda value: text_problem(value, longest=longest)


def _of_form(form: re.Pattern[str], code: str, message: str) -> Check:
    def check(value: Any) -> Problem | None:
        fits = isinstance(value, str) and form.fullmatch(value) is not None
        return None if fits else Problem(code, message)

    return check


def birthdate_problem(value: Any) -> Problem | None:
    """A day, ``0000-MM-DD`` for one whose year is nobody's business, or a year alone (ISO 8601)."""
    match = _BIRTHDATE.fullmatch(value) if isinstance(value, str) else None
    wrong = Problem("invalid_date", "Write YYYY-MM-DD, 0000-MM-DD without the year, or the year alone.")
    if match is None:
        return wrong
    year, month, day = match.groups()
    if month is None:
        return None if year != "0000" else wrong
    try:
        # Without a year the 29th of February is a birthday too.
        date(2000 if year == "0000" else int(year), int(month), int(day))
    except ValueError:
        return wrong
    return None


def zoneinfo_problem(value: Any) -> Problem | None:
    """A name of the IANA time zone database."""
    known = _zones()
    # A machine without the database can judge the form alone.
    if (
        isinstance(value, str)
        and _ZONE.fullmatch(value)
        and len(value) <= 64
        and (not known or value in known)
    ):
        return None
    return Problem("unknown_zone", "Write a time zone of the IANA database, like Europe/Zurich.")


@functools.cache
def _zones() -> frozenset[str]:
    return frozenset(available_timezones())


CHECKS: Mapping[str, Check] = {
    "given_name": _text(100),
    "family_name": _text(100),
    "middle_name": _text(100),
    "nickname": _text(100),
    "preferred_username": _text(100),
    "profile": web_address_problem,
    "picture": web_address_problem,
    "website": web_address_problem,
    "gender": _text(40),
    "birthdate": birthdate_problem,
    "zoneinfo": zoneinfo_problem,
    "locale": _of_form(_LOCALE, "invalid_locale", "Write a language tag, like de-CH (BCP 47)."),
    "phone_number": _of_form(
        _PHONE, "invalid_phone", "Write the whole number with its country, like +41 44 668 18 00 (E.164)."
    ),
}


LONGEST_NAME = 100
CREATION_FIELDS = ("email", "name", "profile")
CHANGE_FIELDS = (*CREATION_FIELDS, "status")
STATUSES = ("active", "disabled")
READ_ONLY = (
    "id",
    "organization_id",
    "email_verified",
    "has_password",
    "password",
    "password_changed_at",
    "roles",
    "created_at",
    "updated_at",
    "last_sign_in_at",
)
_SYNONYMS = {"mail": "email", "claims": "profile", "display_name": "name", "disabled": "status"}


def new_user(fields: Mapping[str, Any]) -> dict[str, Any]:
    """``email``, ``name`` and ``profile`` of a new user. Raises InvalidInput naming every wrong field."""
    found = Findings()
    find_unknown(found, fields, CREATION_FIELDS, synonyms=_SYNONYMS, read_only=(*READ_ONLY, "status"))
    if fields.get("email") is None:
        found.add("email", "required", "A user needs an e-mail address.")
    return {"name": "", "profile": {}} | _checked(fields, found)


def user_change(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that were sent, as they will be stored; null returns to the default.

    Raises InvalidInput naming every wrong one.
    """
    found = Findings()
    find_unknown(found, fields, CHANGE_FIELDS, synonyms=_SYNONYMS, read_only=READ_ONLY)
    if "email" in fields and fields["email"] is None:
        found.add("email", "required", "A user needs an e-mail address.")
    status = fields.get("status")
    if status is not None and status not in STATUSES:
        found.add("status", "not_allowed", f"This must be one of: {', '.join(STATUSES)}.")
    checked = _checked(fields, found)
    return checked | ({"status": status or "active"} if "status" in fields else {})


def _checked(fields: Mapping[str, Any], found: Findings) -> dict[str, Any]:
    checked: dict[str, Any] = {}
    email = fields.get("email")
    if email is not None:
        if isinstance(email, str) and is_email(email):
            checked["email"] = email.strip()
        else:
            found.add("email", "invalid_email", "This is not an e-mail address.")
    if "name" in fields:
        checked["name"] = "" if fields["name"] is None else fields["name"]
        found.add_problem("name", text_problem(checked["name"], longest=LONGEST_NAME, shortest=0))
    if "profile" in fields:
        checked["profile"] = _profile(fields["profile"], found)
    found.raise_if_any()
    return checked


def _profile(sent: Any, found: Findings) -> dict[str, Any]:
    if sent is None:
        return {}
    if not isinstance(sent, Mapping):
        found.add("profile", "wrong_type", "This must be an object of standard claims.")
        return {}
    try:
        return checked_profile(sent)
    except InvalidInput as wrong:
        for error in wrong.errors:
            found.add(f"profile.{error.field}", error.code, error.message)
        return {}
