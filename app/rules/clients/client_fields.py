"""Fields of a client: what each single value may be. How they fit together is in client_metadata."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Any

from app.rules.clients.client_types import APPROVALS, AUTH_METHODS, CLIENT_TYPES, GRANT_TYPES, POLICIES
from app.rules.clients.public_keys import jwks_problem
from app.rules.clients.redirect_uris import web_url_problem
from app.rules.clients.resource_indicators import MAX_RESOURCES as MOST_RESOURCES
from app.rules.clients.resource_indicators import identifier_problem
from app.rules.fields import Findings, Problem, text_problem, type_name
from app.rules.mail.email_addresses import is_email
from app.rules.scopes import MAX_SCOPE_LENGTH as LONGEST_SCOPE
from app.rules.scopes import MAX_SCOPES as MOST_SCOPES
from app.rules.scopes import is_scope

TRUST = ("first_party", "verified", "unverified")
STATUS = ("active", "disabled")
SOURCES = ("person", "dynamic", "metadata_document")
SIGNING_ALGORITHMS = ("RS256", "PS256", "ES256", "EdDSA")
TOKEN_FORMATS = ("opaque", "jwt")
SUBJECT_TYPES = ("public", "pairwise")
SECURITY_PROFILES = ("fapi2",)
LONGEST_MAX_AGE = 10 * 365 * 86_400

Check = Callable[[Findings, str, Any], None]
ItemCheck = Callable[[Any], Problem | None]
_METADATA_KEY = re.compile(r"[A-Za-z0-9_.-]{1,64}")


def check_list(findings: Findings, field: str, value: Any, check: ItemCheck, *, most: int) -> None:
    """Each wrong item is noted under ``field[i]``; so is one that stands twice."""
    if not isinstance(value, (list, tuple)):
        findings.add(field, "wrong_type", f"This must be an array, not {type_name(value)}.")
        return
    if len(value) > most:
        findings.add(field, "too_many", f"There are {len(value)} entries; at most {most} are allowed.")
        return
    seen: set[str] = set()
    for position, item in enumerate(value):
        name = f"{field}[{position}]"
        if not findings.add_problem(name, check(item)) and item in seen:
            findings.add(name, "duplicate", "This stands in the list already.")
        elif isinstance(item, str):
            seen.add(item)


def choice_problem(value: Any, choices: Collection[str]) -> Problem | None:
    """The value is one of the choices."""
    if not isinstance(value, str):
        return Problem("wrong_type", f"This must be a string, not {type_name(value)}.")
    if value not in choices:
        return Problem("not_allowed", f"This must be one of: {', '.join(choices)}.")
    return None


def _one_of(choices: Collection[str]) -> Check:
    return lambda findings, field, value: _note(findings, field, choice_problem(value, choices))


def _text(longest: int, *, shortest: int = 1, lines: bool = False) -> Check:
    return lambda findings, field, value: _note(
        findings, field, text_problem(value, longest=longest, shortest=shortest, lines=lines)
    )


def _of(problem: ItemCheck) -> Check:
    return lambda findings, field, value: _note(findings, field, problem(value))


def _list_of(problem: ItemCheck, most: int) -> Check:
    return lambda findings, field, value: check_list(findings, field, value, problem, most=most)


def _choices(choices: Collection[str]) -> Check:
    return _list_of(lambda item: choice_problem(item, choices), len(choices))


def _note(findings: Findings, field: str, problem: Problem | None) -> None:
    findings.add_problem(field, problem)


def _boolean(findings: Findings, field: str, value: Any) -> None:
    if not isinstance(value, bool):
        findings.add(field, "wrong_type", f"This must be true or false, not {type_name(value)}.")


def _seconds(findings: Findings, field: str, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        findings.add(field, "wrong_type", f"This must be a whole number of seconds, not {type_name(value)}.")
    elif not 0 <= value <= LONGEST_MAX_AGE:
        findings.add(field, "out_of_range", f"This must be from 0 to {LONGEST_MAX_AGE} seconds.")


def _scope_problem(value: Any) -> Problem | None:
    if not isinstance(value, str):
        return Problem("wrong_type", f"A scope must be a string, not {type_name(value)}.")
    if not is_scope(value):
        message = (
            f"A scope is 1 to {LONGEST_SCOPE} printable ASCII characters without space, quote and backslash."
        )
        return Problem("invalid_scope", message)
    return None


def _contact_problem(value: Any) -> Problem | None:
    if not isinstance(value, str):
        return Problem("wrong_type", f"A contact must be a string, not {type_name(value)}.")
    return (
        None
        if is_email(value) and len(value) <= 254
        else Problem("not_an_email", "This is no e-mail address.")
    )


def _acr_problem(value: Any) -> Problem | None:
    if not isinstance(value, str):
        return Problem("wrong_type", f"A context class must be a string, not {type_name(value)}.")
    if not 1 <= len(value) <= 128 or not value.isascii() or not value.isprintable() or " " in value:
        return Problem("not_allowed", "A context class is 1 to 128 printable ASCII characters without space.")
    return None


def _metadata(findings: Findings, field: str, value: Any) -> None:
    if not isinstance(value, dict):
        findings.add(field, "wrong_type", f"This must be an object of strings, not {type_name(value)}.")
    elif len(value) > 50:
        findings.add(field, "too_many", "At most 50 entries are allowed.")
    else:
        for key, item in value.items():
            name = f"{field}.{key[:64]}"
            if _METADATA_KEY.fullmatch(key) is None:
                findings.add(
                    name, "bad_key", "A key is 1 to 64 letters, digits, dots, dashes and underscores."
                )
            else:
                _note(findings, name, text_problem(item, longest=500, shortest=0, lines=True))


# Redirect URIs are not here: what they may be depends on the client's type and on the organization.
CHECKS: dict[str, Check] = {
    "name": _text(100),
    "type": _one_of(CLIENT_TYPES),
    "scopes": _list_of(_scope_problem, MOST_SCOPES),
    "optional_scopes": _list_of(_scope_problem, MOST_SCOPES),
    "grant_types": _choices(GRANT_TYPES),
    "response_types": _choices(("code",)),
    "token_endpoint_auth_method": _one_of(AUTH_METHODS),
    "jwks": _of(jwks_problem),
    "jwks_uri": _of(web_url_problem),
    "client_uri": _of(web_url_problem),
    "logo_uri": _of(web_url_problem),
    "policy_uri": _of(web_url_problem),
    "tos_uri": _of(web_url_problem),
    "contacts": _list_of(_contact_problem, 10),
    "backchannel_logout_uri": _of(web_url_problem),
    "backchannel_logout_session_required": _boolean,
    "initiate_login_uri": _of(web_url_problem),
    "subject_type": _one_of(SUBJECT_TYPES),
    "sector_identifier_uri": _of(web_url_problem),
    "default_max_age": _seconds,
    "require_auth_time": _boolean,
    "default_acr_values": _list_of(_acr_problem, 10),
    "id_token_signed_response_alg": _one_of(SIGNING_ALGORITHMS),
    "userinfo_signed_response_alg": _one_of(SIGNING_ALGORITHMS),
    "introspection_signed_response_alg": _one_of(SIGNING_ALGORITHMS),
    "request_object_signing_alg": _one_of(SIGNING_ALGORITHMS),
    "require_signed_request_object": _boolean,
    "token_endpoint_auth_signing_alg": _one_of(SIGNING_ALGORITHMS),
    "access_token_format": _one_of(TOKEN_FORMATS),
    "dpop_bound_access_tokens": _boolean,
    "require_pushed_authorization_requests": _boolean,
    "security_profile": _one_of(SECURITY_PROFILES),
    "token_exchange": _one_of(POLICIES),
    "resources": _list_of(identifier_problem, MOST_RESOURCES),
    "software_id": _text(100),
    "software_version": _text(100),
    "trust": _one_of(TRUST),
    "approval": _one_of(APPROVALS),
    "approved_scopes": _list_of(_scope_problem, MOST_SCOPES),
    "status": _one_of(STATUS),
    "description": _text(1000, shortest=0, lines=True),
    "metadata": _metadata,
}
