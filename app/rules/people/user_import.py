"""One person of an import: what a row may say, and the user that it makes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from app.rules.errors import InvalidInput
from app.rules.fields import Findings, find_unknown, text_problem, type_name
from app.rules.people import passwords
from app.rules.people.emails import canonical_email
from app.rules.people.foreign_hashes import UnusableHash, parse
from app.rules.people.profile import ADDRESS_PARTS, CHECKS, checked_profile
from app.rules.people.user_fields import LONGEST_NAME, STATUSES

ON_EXISTING = ("skip", "update")
MOST_ROLES = 20
_OWN_FIELDS = ("email", "name", "email_verified", "password_hash", "roles", "status")
_ADDRESS_FIELDS = tuple(f"address.{part}" for part in ADDRESS_PARTS)
CSV_FIELDS = (*_OWN_FIELDS, *CHECKS, *_ADDRESS_FIELDS)
JSON_FIELDS = (*CSV_FIELDS, "address")
REPORT_FIELDS = ("row", "errors")
"""What a report of refused rows adds; of no account when it is sent again."""
SYNONYMS = {
    "mail": "email",
    "e-mail": "email",
    "email address": "email",
    "password": "password_hash",
    "hash": "password_hash",
    "role": "roles",
    "first_name": "given_name",
    "firstname": "given_name",
    "last_name": "family_name",
    "lastname": "family_name",
    "surname": "family_name",
    "display_name": "name",
    "phone": "phone_number",
    "verified": "email_verified",
    "enabled": "status",
}
_BOOLEANS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_BETWEEN_ROLES = re.compile(r"[\s,;]+")


@dataclass(frozen=True, slots=True)
class ImportedPerson:
    """A row that is right in itself. ``given`` names what it says; the rest are defaults.

    ``password_scheme`` is None for a hash with our own parameters, and without one.
    """

    email: str
    canonical: str
    name: str = ""
    email_verified: bool = False
    status: str = "active"
    roles: tuple[str, ...] = ()
    profile: Mapping[str, Any] = field(default_factory=dict)
    password_hash: str | None = None
    password_scheme: str | None = None
    given: frozenset[str] = frozenset()


def checked_person(fields: Mapping[str, Any]) -> ImportedPerson:
    """The person of a row. Raises InvalidInput naming every wrong field."""
    found = Findings()
    find_unknown(found, fields, JSON_FIELDS, synonyms=SYNONYMS)
    given = {name: value for name, value in fields.items() if value is not None and name in JSON_FIELDS}
    email = given.get("email")
    canonical = canonical_email(email) if isinstance(email, str) else None
    if email is None:
        found.add("email", "required", "A user needs an e-mail address.")
    elif canonical is None:
        found.add("email", "invalid_email", "This is not an e-mail address.")
    name = given.get("name", "")
    found.add_problem("name", text_problem(name, longest=LONGEST_NAME, shortest=0))
    status = given.get("status", "active")
    if status not in STATUSES:
        found.add("status", "not_allowed", f"This must be one of: {', '.join(STATUSES)}.")
    is_verified = _boolean(given.get("email_verified", False), found)
    roles = _roles(given.get("roles", ()), found)
    profile = _profile(given, found)
    stored, scheme = _hash(given.get("password_hash"), found)
    found.raise_if_any()
    return ImportedPerson(
        email=str(email).strip(),
        canonical=str(canonical),
        name=name,
        email_verified=is_verified,
        status=status,
        roles=roles,
        profile=profile,
        password_hash=stored,
        password_scheme=scheme,
        given=frozenset(given),
    )


def _boolean(sent: Any, found: Findings) -> bool:
    if isinstance(sent, bool):
        return sent
    known = _BOOLEANS.get(sent.strip().lower()) if isinstance(sent, str) else None
    if known is None:
        found.add("email_verified", "wrong_type", "Write true or false.")
    return bool(known)


def _roles(sent: Any, found: Findings) -> tuple[str, ...]:
    names = [name for name in _BETWEEN_ROLES.split(sent) if name] if isinstance(sent, str) else sent
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        found.add("roles", "wrong_type", "Write the keys of roles, parted by spaces, or a list of them.")
        return ()
    if len(names) > MOST_ROLES:
        found.add("roles", "too_many", f"At most {MOST_ROLES} roles.")
        return ()
    return tuple(dict.fromkeys(names))


def _profile(given: Mapping[str, Any], found: Findings) -> dict[str, Any]:
    claims = {name: given[name] for name in CHECKS if name in given}
    parts = {name.partition(".")[2]: given[name] for name in _ADDRESS_FIELDS if name in given}
    address = given.get("address", {})
    if not isinstance(address, Mapping):
        found.add("address", "wrong_type", f"This must be an object, not {type_name(address)}.")
        address = {}
    try:
        return checked_profile(claims | {"address": {**address, **parts}})
    except InvalidInput as wrong:
        for error in wrong.errors:
            found.add(error.field, error.code, error.message)
        return {}


def _hash(sent: Any, found: Findings) -> tuple[str | None, str | None]:
    if sent is None:
        return None, None
    try:
        # In a cell Keycloak's object stands as text.
        foreign = parse(json.loads(sent) if isinstance(sent, str) and sent.startswith("{") else sent)
    except (ValueError, RecursionError):
        found.add("password_hash", "malformed_hash", "This is not valid JSON.")
        return None, None
    except UnusableHash as refusal:
        found.add_problem("password_hash", refusal.problem)
        return None, None
    return foreign.stored, foreign.scheme if passwords.needs_rehash(foreign.stored) else None
