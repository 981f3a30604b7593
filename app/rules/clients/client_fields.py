"""Fields of a client: the type and constraints of each value on its own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from app.rules.clients.public_keys import jwks_problem
from app.rules.clients.redirect_uris import web_url_problem
from app.rules.clients.resource_indicators import identifier_problem
from app.rules.fields import FieldProblem
from app.rules.mail.email_addresses import is_email
from app.rules.scopes import MAX_SCOPE_LENGTH as MAX_SCOPE_LENGTH
from app.rules.scopes import is_scope
from app.rules.shapes import Check, Rule, Text

TRUST = ("first_party", "verified", "unverified")
STATUS = ("active", "disabled")
SOURCES = ("person", "dynamic", "metadata_document")
SIGNING_ALGORITHMS = ("RS256", "PS256", "ES256", "EdDSA")
TOKEN_FORMATS = ("opaque", "jwt")
SUBJECT_TYPES = ("public", "pairwise")
SECURITY_PROFILES = ("fapi2",)
MAX_AGE_SECONDS = 10 * 365 * 86_400
MAX_METADATA_ENTRIES = 50

_METADATA_KEY = re.compile(r"[A-Za-z0-9_.-]{1,64}")


def scope_problem(value: str) -> FieldProblem | None:
    """Return what is wrong with the name of a scope (RFC 6749 section 3.3), or None."""
    if is_scope(value):
        return None
    return FieldProblem(
        "invalid_scope",
        f"Enter 1 to {MAX_SCOPE_LENGTH} printable ASCII characters, without spaces, quotes and backslashes.",
    )


def _contact_problem(value: str) -> FieldProblem | None:
    if is_email(value) and len(value) <= 254:
        return None
    return FieldProblem("not_an_email", "Enter an email address, such as name@example.com.")


def _context_class_problem(value: str) -> FieldProblem | None:
    if 1 <= len(value) <= 128 and value.isascii() and value.isprintable() and " " not in value:
        return None
    return FieldProblem("not_allowed", "Enter 1 to 128 printable ASCII characters, without spaces.")


@dataclass(frozen=True, slots=True)
class _Entries(Check):
    """At most 50 entries of metadata: a short key and a text each."""

    def problem(self, value: Mapping[str, str]) -> FieldProblem | None:
        if len(value) <= MAX_METADATA_ENTRIES:
            return None
        return FieldProblem("too_many", f"At most {MAX_METADATA_ENTRIES} entries are allowed.")

    def json_schema(self) -> dict[str, Any]:
        return {
            "maxProperties": MAX_METADATA_ENTRIES,
            "propertyNames": {"pattern": f"^{_METADATA_KEY.pattern}$"},
        }


def _key_problem(key: str) -> FieldProblem | None:
    if _METADATA_KEY.fullmatch(key):
        return None
    return FieldProblem(
        "invalid_key", "Use 1 to 64 letters, digits, dots, hyphens and underscores as the key."
    )


_URL_LENGTH = (("minLength", 1), ("maxLength", 2000))
WebUrl = Annotated[str, Rule(web_url_problem, _URL_LENGTH)]
# What a redirect URI may be depends on the client's type and on the organization: client_metadata checks it.
RedirectUri = Annotated[str, Rule(lambda value: None, _URL_LENGTH)]
Scope = Annotated[str, Rule(scope_problem, (("minLength", 1), ("maxLength", MAX_SCOPE_LENGTH)))]
Contact = Annotated[str, Rule(_contact_problem, (("minLength", 3), ("maxLength", 254)))]
ContextClass = Annotated[str, Rule(_context_class_problem, (("minLength", 1), ("maxLength", 128)))]
ResourceIdentifier = Annotated[str, Rule(identifier_problem, (("minLength", 1), ("maxLength", 255)))]
Jwks = Annotated[Mapping[str, Any], Rule(jwks_problem)]
Metadata = Annotated[
    Mapping[Annotated[str, Rule(_key_problem)], Annotated[str, Text(500, min_length=0, multiline=True)]],
    _Entries(),
]
