"""What an administrator may say of a user: at the creation, and when the user is changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.rules.errors import InvalidInput
from app.rules.fields import Findings, find_unknown, text_problem
from app.rules.people.emails import is_email
from app.rules.people.profile import checked_profile

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
