"""A row of an import file: its fields, validated as a user. ``import_files`` reads the rows."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from app.rules.directory.attributes import Attribute, validate_attributes
from app.rules.fields import ValidationErrors, find_unknown, text_problem, wrong_type
from app.rules.languages.translation import lazy_gettext
from app.rules.mail.email_addresses import canonical_email, is_email
from app.rules.sign_in import passwords
from app.rules.sign_in.imported_hashes import UnsupportedHash, parse_hash
from app.rules.strict_json import InvalidJson, load_object
from app.rules.users.profile import ADDRESS_PARTS, CHECKS, MAX_NAME_LENGTH, STATUSES, validate_profile

ON_EXISTING = ("skip", "update")
MAX_IMPORTED_ROLES, MAX_IMPORTED_GROUPS = 20, 100
_OWN_FIELDS = ("email", "name", "email_verified", "password_hash", "roles", "groups", "status", "attributes")
_ADDRESS_FIELDS = tuple(f"address.{part}" for part in ADDRESS_PARTS)
CSV_FIELDS = (*_OWN_FIELDS, *CHECKS, *_ADDRESS_FIELDS)
JSON_FIELDS = (*CSV_FIELDS, "address")
SYNONYMS = {
    "mail": "email",
    "e-mail": "email",
    "email address": "email",
    "password": "password_hash",
    "hash": "password_hash",
    "role": "roles",
    "group": "groups",
    "first_name": "given_name",
    "firstname": "given_name",
    "last_name": "family_name",
    "lastname": "family_name",
    "surname": "family_name",
    "display_name": "name",
    "displayname": "name",
    "user_metadata": "attributes",
    "app_metadata": "attributes",
    "mobile": "phone_number",
    "credentials": "password_hash",
    "phone": "phone_number",
    "verified": "email_verified",
    "enabled": "status",
}
_BOOLEANS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_ROLE_SEPARATORS = re.compile(r"[\s,;]+")


class ImportedUser(Struct, frozen=True):
    """A valid row. ``given`` names the fields that it contains. The others have defaults.

    ``password_scheme`` is None without a hash, and for one with the current parameters.
    """

    email: str
    canonical: str
    name: str = ""
    email_verified: bool = False
    status: str = "active"
    roles: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    profile: Mapping[str, Any] = field(default_factory=dict)
    attributes: Mapping[str, Any] = field(default_factory=dict)
    password_hash: str | None = None
    password_scheme: str | None = None
    given: frozenset[str] = frozenset()


def validate_imported_user(fields: Mapping[str, Any], attributes: Iterable[Attribute] = ()) -> ImportedUser:
    """Return the user of a row. Raises InvalidInput naming every wrong field.

    ``attributes`` are the definitions of the organization.
    """
    found = ValidationErrors()
    find_unknown(found, fields, JSON_FIELDS, synonyms=SYNONYMS)
    given = {name: value for name, value in fields.items() if value is not None and name in JSON_FIELDS}
    email = given.get("email")
    canonical = canonical_email(email) if isinstance(email, str) and is_email(email) else None
    if email is None:
        found.add("email", "required", "Enter an email address.")
    elif canonical is None:
        found.add("email", "invalid_email", "Enter a valid email address.")
    name = given.get("name", "")
    found.add_problem("name", text_problem(name, max_length=MAX_NAME_LENGTH, min_length=0))
    status = given.get("status", "active")
    found.add_choice("status", status, STATUSES)
    is_verified = _boolean(given.get("email_verified", False), found)
    roles = _roles(given.get("roles", ()), found)
    groups = _groups(given.get("groups", ()), found)
    profile = _profile(given, found)
    custom = _attributes(given, attributes, found)
    stored, scheme = _hash(given.get("password_hash"), found)
    found.raise_if_any()
    return ImportedUser(
        email=str(email).strip(),
        canonical=str(canonical),
        name=name,
        email_verified=is_verified,
        status=status,
        roles=roles,
        groups=groups,
        profile=profile,
        attributes=custom,
        password_hash=stored,
        password_scheme=scheme,
        given=frozenset(given),
    )


def _boolean(sent: Any, found: ValidationErrors) -> bool:
    if isinstance(sent, bool):
        return sent
    known = _BOOLEANS.get(sent.strip().lower()) if isinstance(sent, str) else None
    if known is None:
        found.add("email_verified", "wrong_type", "Write true or false.")
    return bool(known)


def _roles(sent: Any, found: ValidationErrors) -> tuple[str, ...]:
    names = [name for name in _ROLE_SEPARATORS.split(sent) if name] if isinstance(sent, str) else sent
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        found.add("roles", "wrong_type", "Write the keys of roles separated by spaces, or a list of them.")
        return ()
    if len(names) > MAX_IMPORTED_ROLES:
        found.add("roles", "too_many", f"A user can have at most {MAX_IMPORTED_ROLES} roles.")
        return ()
    return tuple(dict.fromkeys(names))


def _groups(sent: Any, found: ValidationErrors) -> tuple[str, ...]:
    names = sent
    if isinstance(sent, str):
        try:
            names = json.loads(sent) if sent.startswith("[") else sent.split(";")
        except (ValueError, RecursionError):
            names = None
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        message = lazy_gettext("Write the names of groups separated by semicolons, or a JSON list of them.")
        found.add("groups", "wrong_type", message)
        return ()
    if len(names) > MAX_IMPORTED_GROUPS:
        message = lazy_gettext("A user can be in at most %(max)s groups.", max=MAX_IMPORTED_GROUPS)
        found.add("groups", "too_many", message)
        return ()
    return tuple(dict.fromkeys(name.strip() for name in names if name.strip()))


def _profile(given: Mapping[str, Any], found: ValidationErrors) -> dict[str, Any]:
    claims = {name: given[name] for name in CHECKS if name in given}
    parts = {name.partition(".")[2]: given[name] for name in _ADDRESS_FIELDS if name in given}
    address = given.get("address", {})
    if not isinstance(address, Mapping):
        found.add_problem("address", wrong_type("an object", address))
        address = {}
    return validate_profile(claims | {"address": {**address, **parts}}, found)


def _attributes(
    given: Mapping[str, Any], attributes: Iterable[Attribute], found: ValidationErrors
) -> dict[str, Any]:
    sent = given.get("attributes", {})
    if isinstance(sent, str):
        try:
            sent = load_object(sent.encode())
        except InvalidJson:
            found.add("attributes", "wrong_type", 'Write a JSON object, such as {"department": "Fruit"}.')
            return {}
    # A row sets some of the attributes. Whether all required ones are there is decided where they are merged.
    optional = [replace(attribute, required=False) for attribute in attributes]
    return validate_attributes(optional, sent, {}, found)


def _hash(sent: Any, found: ValidationErrors) -> tuple[str | None, str | None]:
    if sent is None:
        return None, None
    try:
        # In a CSV cell Keycloak's object is JSON text.
        imported = parse_hash(json.loads(sent) if isinstance(sent, str) and sent.startswith("{") else sent)
    except (ValueError, RecursionError):
        found.add("password_hash", "malformed_hash", "This is not valid JSON.")
        return None, None
    except UnsupportedHash as error:
        found.add_problem("password_hash", error.problem)
        return None, None
    return imported.stored, imported.scheme if passwords.needs_rehash(imported.stored) else None
