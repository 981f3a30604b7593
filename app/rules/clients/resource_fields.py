"""Resources as the API takes them: their fields, the scopes inside, and one message for each wrong one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import fields as fields_of
from typing import Any

from app.rules.clients.resource_indicators import identifier_problem, is_service_url
from app.rules.directory.permissions import ALL_PERMISSIONS
from app.rules.fields import Findings, Problem, find_unknown, text_problem, type_name
from app.rules.scopes import IDENTITY_SCOPES, is_scope
from app.rules.scopes import MAX_SCOPE_LENGTH as LONGEST_SCOPE

STATUS = ("active", "disabled")
TOKEN_FORMATS = ("opaque", "jwt")
LEAST_SECONDS, MOST_SECONDS, MOST_JWT_SECONDS = 60, 86_400, 3_600
MOST_SCOPES = 100
LONGEST_NAME, LONGEST_TITLE, LONGEST_DESCRIPTION = 100, 200, 1000
READ_ONLY = frozenset({"id", "organization_id", "created_at", "created_by", "updated_at"})
_SYNONYMS = {
    "uri": "identifier",
    "audience": "identifier",
    "resource": "identifier",
    "scope": "scopes",
    "permissions": "scopes",
    "access_token_ttl": "access_token_ttl_seconds",
    "enabled": "status",
}
_SCOPE_FIELDS = ("name", "title", "description")


def wants_words(name: str) -> str:
    """What is said of a scope that has no title."""
    return f'The scope "{name}" wants words for the consent page: people see its bare name.'


@dataclass(frozen=True, slots=True)
class ScopeWords:
    """A scope of a resource; without a title it wants words for the consent page."""

    name: str
    title: str | None = None
    description: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceFields:
    """What an organization decides about a resource. None leaves format and life to client and organization."""

    identifier: str
    name: str
    description: str = ""
    access_token_format: str | None = None
    access_token_ttl_seconds: int | None = None
    scopes: tuple[ScopeWords, ...] = ()
    status: str = "active"

    @property
    def warnings(self) -> list[str]:
        """A sentence for each scope that people would see by its bare name alone when they are asked for consent."""
        return [wants_words(scope.name) for scope in self.scopes if scope.title is None]


FIELDS = tuple(field.name for field in fields_of(ResourceFields))


def complete(sent: Mapping[str, Any], base_url: str) -> ResourceFields:
    """The fields of a new resource. Raises InvalidInput naming every wrong one at once."""
    findings = Findings()
    find_unknown(findings, sent, FIELDS, synonyms=_SYNONYMS, read_only=READ_ONLY)
    for name in ("identifier", "name"):
        if sent.get(name) is None:
            findings.add(
                name, "required", f"A resource needs {'an identifier' if name[0] == 'i' else 'a name'}."
            )
    return _checked(findings, {}, sent, base_url)


def change(current: ResourceFields, sent: Mapping[str, Any], base_url: str) -> ResourceFields:
    """The fields after a change: what is sent is replaced, ``null`` returns to the default, the rest stays.

    The identifier is in tokens and in the configuration of who checks them: it stays. Raises InvalidInput.
    """
    findings = Findings()
    find_unknown(findings, sent, FIELDS, synonyms=_SYNONYMS, read_only=READ_ONLY)
    if sent.get("identifier", current.identifier) != current.identifier:
        findings.add(
            "identifier", "fixed", "The identifier stays as it was. Define another resource instead."
        )
    if "name" in sent and sent["name"] is None:
        findings.add("name", "required", "A resource needs a name.")
    kept = {name: getattr(current, name) for name in FIELDS if name not in sent or name == "identifier"}
    changes = {name: value for name, value in sent.items() if name != "identifier"}
    return _checked(findings, kept, changes, base_url)


def changed_fields(before: ResourceFields, after: ResourceFields) -> list[str]:
    """The names of the fields that differ, in their order; that of scopes means nothing."""
    return [name for name in FIELDS if _compared(before, name) != _compared(after, name)]


def _compared(fields: ResourceFields, name: str) -> Any:
    return frozenset(fields.scopes) if name == "scopes" else getattr(fields, name)


def check_words(findings: Findings, sent: Mapping[str, Any], at: str = "") -> None:
    """Note what is wrong with the title and description of a scope; ``at`` is what stands before their names."""
    for name, longest in (("title", LONGEST_TITLE), ("description", LONGEST_DESCRIPTION)):
        if sent.get(name) is not None:
            findings.add_problem(f"{at}{name}", text_problem(sent[name], longest=longest))


def _checked(
    findings: Findings, kept: Mapping[str, Any], sent: Mapping[str, Any], base_url: str
) -> ResourceFields:
    given = {name: value for name, value in sent.items() if name in FIELDS and value is not None}
    if "identifier" in given:
        _check_identifier(findings, given["identifier"], base_url)
    if "name" in given:
        findings.add_problem("name", text_problem(given["name"], longest=LONGEST_NAME))
    if "description" in given:
        problem = text_problem(given["description"], longest=LONGEST_DESCRIPTION, shortest=0, lines=True)
        findings.add_problem("description", problem)
    for name, choices in (("access_token_format", TOKEN_FORMATS), ("status", STATUS)):
        if name in given and given[name] not in choices:
            findings.add(name, "not_allowed", f"This must be one of: {', '.join(choices)}.")
    if "access_token_ttl_seconds" in given:
        findings.add_problem("access_token_ttl_seconds", _seconds_problem(given["access_token_ttl_seconds"]))
    if "scopes" in given:
        given["scopes"] = _scopes(findings, given["scopes"])
    merged = {**kept, **given}
    if not findings.touches("access_token_ttl_seconds"):
        _check_life(findings, merged)
    findings.raise_if_any()
    return ResourceFields(**merged)


def _check_identifier(findings: Findings, identifier: Any, base_url: str) -> None:
    is_uri = not findings.add_problem("identifier", identifier_problem(identifier))
    if is_uri and is_service_url(identifier, base_url):
        message = "This is an address of the service itself: its tokens are for it alone."
        findings.add("identifier", "own_resource", message)


def _check_life(findings: Findings, merged: Mapping[str, Any]) -> None:
    seconds = merged.get("access_token_ttl_seconds")
    if merged.get("access_token_format") == "jwt" and seconds is not None and seconds > MOST_JWT_SECONDS:
        message = (
            f"A JWT outlives its revocation where nobody asks about it: at most {MOST_JWT_SECONDS} seconds."
        )
        findings.add("access_token_ttl_seconds", "out_of_range", message)


def _seconds_problem(value: Any) -> Problem | None:
    if not isinstance(value, int) or isinstance(value, bool):
        return Problem("wrong_type", f"This must be a whole number of seconds, not {type_name(value)}.")
    if not LEAST_SECONDS <= value <= MOST_SECONDS:
        return Problem("out_of_range", f"This must be from {LEAST_SECONDS} to {MOST_SECONDS} seconds.")
    return None


def _scopes(findings: Findings, value: Any) -> tuple[ScopeWords, ...]:
    if not isinstance(value, (list, tuple)):
        findings.add("scopes", "wrong_type", f"This must be an array, not {type_name(value)}.")
        return ()
    if len(value) > MOST_SCOPES:
        findings.add(
            "scopes", "too_many", f"There are {len(value)} entries; at most {MOST_SCOPES} are allowed."
        )
        return ()
    found: dict[str, ScopeWords] = {}
    for position, item in enumerate(value):
        at = f"scopes[{position}]"
        if not isinstance(item, dict):
            findings.add(at, "wrong_type", f"This must be an object with a name, not {type_name(item)}.")
            continue
        for name in item:
            if name not in _SCOPE_FIELDS:
                findings.add(f"{at}.{name[:64]}", "unknown_field", "A scope has name, title and description.")
        check_words(findings, item, f"{at}.")
        name = item.get("name")
        if findings.add_problem(f"{at}.name", _scope_name_problem(name)):
            continue
        if name in found:
            findings.add(f"{at}.name", "duplicate", "This stands in the list already.")
        found[name] = ScopeWords(name, item.get("title"), item.get("description"))
    return tuple(found.values())


def _scope_name_problem(name: Any) -> Problem | None:
    if not isinstance(name, str):
        return Problem("wrong_type", f"A scope needs a name, which is a string, not {type_name(name)}.")
    if not is_scope(name):
        message = (
            f"A scope is 1 to {LONGEST_SCOPE} printable ASCII characters without space, quote and backslash."
        )
        return Problem("invalid_scope", message)
    if name in ALL_PERMISSIONS or name in IDENTITY_SCOPES:
        return Problem("reserved", "This scope is the service's own.")
    return None
