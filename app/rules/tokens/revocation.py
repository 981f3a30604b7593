"""The body of a bulk revocation: what is selected, the cutoff of issue times, and the reason."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

from msgspec import Struct

from app.rules.fields import FieldProblem, ValidationErrors
from app.rules.shapes import (
    ClientId,
    OneOf,
    PublicId,
    Rule,
    SchemaOnly,
    Shape,
    Text,
    Time,
    check_shape,
    described,
    parse_shape,
    parse_time,
)

TOKEN_TYPES = ("refresh_token", "access_token")
_SYNONYMS = {"token_type_hint": "token_type", "organization": "organization_id", "access_token": "token"}


_EMPTY = FieldProblem("too_short", "This must not be empty.")
_NotEmpty = Annotated[str, Rule(lambda value: None if value else _EMPTY, (("minLength", 1),))]
GRANT, CLIENT, CREDENTIAL, USER, SESSION, ORGANIZATION = (
    "grant",
    "client",
    "credential",
    "user",
    "session",
    "organization",
)
# By the field that selects: exactly one of them is sent.
SELECTORS: Mapping[str, str] = {
    "grant_id": GRANT,
    "client_id": CLIENT,
    "credential_id": CREDENTIAL,
    "user_id": USER,
    "session_id": SESSION,
    "all": ORGANIZATION,
}
PREFIXES: Mapping[str, str] = {GRANT: "grt", CREDENTIAL: "sec", USER: "usr", SESSION: "ses"}
# The selections whose sessions can be ended, too.
WITH_SESSIONS = frozenset({USER, SESSION, ORGANIZATION})
MAX_REASON_LENGTH = 500
_BULK_SYNONYMS = {
    "grant": "grant_id",
    "client": "client_id",
    "credential": "credential_id",
    "user": "user_id",
    "session": "session_id",
    "organization": "all",
    "everything": "all",
    "before": "issued_before",
    "sessions": "include_sessions",
}
_ALL_IS_TRUE = FieldProblem("not_allowed", "Send true to revoke everything, or omit the field.")


class Revoke(Shape):
    """A token to revoke."""

    organization_id: Annotated[_NotEmpty, described("The caller's organization.")]
    token_type: Annotated[
        _NotEmpty, OneOf(TOKEN_TYPES), described("The type to look up first. Both types are searched.")
    ]
    token: Annotated[_NotEmpty, described("The token to revoke.")]


def revocation_request(fields: Mapping[str, Any]) -> Revoke:
    """Return the request in a body. Raises InvalidInput with every invalid field."""
    return parse_shape(Revoke, fields, synonyms=_SYNONYMS)


class NewRevocation(Shape):
    """A bulk revocation. Send exactly one of the fields from `grant_id` to `all`."""

    grant_id: Annotated[str, PublicId(PREFIXES[GRANT], "grant")] | None = None
    client_id: Annotated[str, ClientId()] | None = None
    credential_id: (
        Annotated[
            str,
            PublicId(PREFIXES[CREDENTIAL], "credential"),
            described("Revokes the tokens issued with this client secret. The secret stays active."),
        ]
        | None
    ) = None
    user_id: Annotated[str, PublicId(PREFIXES[USER], "user")] | None = None
    session_id: Annotated[str, PublicId(PREFIXES[SESSION], "session")] | None = None
    all: (
        Annotated[
            bool,
            Rule(lambda value: None if value else _ALL_IS_TRUE),
            SchemaOnly(**{"not": {"const": False}}),
            described("Revokes everything in the organization."),
        ]
        | None
    ) = None
    issued_before: Annotated[
        Time | None, described("Must not be in the future. The default is the current time.")
    ] = None
    include_sessions: (
        Annotated[
            bool,
            described(
                "Also end sessions. Requires `users:write`. The default is true for a user or session, and false for "
                "the organization."
            ),
        ]
        | None
    ) = None
    reason: Annotated[str, Text(MAX_REASON_LENGTH), described("Stored with the revocation.")] | None = None
    dry_run: Annotated[bool, described("Count what would be revoked without revoking it.")] | None = None


class RevocationOrder(Struct, frozen=True):
    """A valid bulk revocation. ``subject`` is the id that was sent, empty for the whole organization.

    With ``issued_before`` None, the cutoff is the time of the database when the revocation is done.
    """

    kind: str
    subject: str
    issued_before: datetime | None
    sessions: bool
    reason: str | None
    dry_run: bool


def revocation_order(fields: Mapping[str, Any], now: datetime) -> RevocationOrder:
    """Return the revocation in a body. ``now`` is the database's time.

    Raises InvalidInput with every invalid field.
    """
    errors = ValidationErrors()
    check_shape(errors, NewRevocation, fields, synonyms=_BULK_SYNONYMS)
    sent = {name: value for name, value in fields.items() if value is not None}
    kind, subject = _selection(errors, sent)
    issued_before = parse_time(sent.get("issued_before"))
    if issued_before is not None and issued_before > now:
        # Tokens of the future can't be revoked: disable the client or the user instead.
        message = "This time is in the future. Omit the field to use the current time."
        errors.add("issued_before", "in_the_future", message)
    if not errors.has_error("include_sessions"):
        _check_sessions(errors, kind, sent.get("include_sessions"))
    errors.raise_if_any()
    return RevocationOrder(
        kind,
        subject,
        issued_before,
        sessions=sent.get("include_sessions", kind in {USER, SESSION}),
        reason=sent.get("reason"),
        dry_run=sent.get("dry_run", False),
    )


def _selection(errors: ValidationErrors, sent: Mapping[str, Any]) -> tuple[str, str]:
    names = [name for name in SELECTORS if name in sent]
    if len(names) == 1:
        name = names[0]
        return SELECTORS[name], "" if name == "all" else str(sent[name])
    for name in names or ["client_id"]:
        code = "too_many" if names else "required"
        errors.add(name, code, f"Send exactly one of: {', '.join(SELECTORS)}.")
    return "", ""


def _check_sessions(errors: ValidationErrors, kind: str, sessions: bool | None) -> None:
    if sessions and kind and kind not in WITH_SESSIONS:
        allowed = ", ".join(name for name, which in SELECTORS.items() if which in WITH_SESSIONS)
        errors.add("include_sessions", "not_allowed", f"Sessions can be ended only with one of: {allowed}.")
    if sessions is False and kind == SESSION:
        errors.add("include_sessions", "not_allowed", "The selected session always ends. Omit this field.")
