"""Validation of organizations: ids (slugs), names, and the fields of a creation or a change."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from app.rules.errors import InvalidInput
from app.rules.fields import Findings, find_unknown, text_problem, type_name
from app.rules.mail.email_addresses import is_email
from app.rules.organizations.settings import Document, merge_settings

SLUG_PATTERN = r"^[a-z0-9](?:[a-z0-9-]{1,38}[a-z0-9])$"
_SLUG = re.compile(SLUG_PATTERN)
MAX_SLUG_LENGTH = 40

# Words that are or may become part of a URL next to a slug, and words that would mislead users.
_RESERVED_WORDS = """
about account accounts admin administrator administrators admins all api app apps assets audit auth authorize
billing callback clients consent consents credentials current dashboard default device discovery
docs error false favicon forgot gatehouse health healthz help home instance introspect invitations invite issuer
jwks list login logout logs management me metrics mfa new none null oauth oauth2 oidc openapi openid organization
organizations password permissions portal profile public readyz register registration reset resources revocations
revoke robots roles root scopes search security sessions settings setup signin signout signup sso static status
statistics stats support system theme token tokens true undefined user userinfo users webhooks well-known www
"""
RESERVED = frozenset(_RESERVED_WORDS.split())
ROOT_SLUG = "root"


def slug_problem(text: str) -> str | None:
    """Return why the text cannot be the id of a new organization, or None if it can."""
    if _SLUG.fullmatch(text) is None:
        return "Use 3 to 40 lower-case letters, digits and hyphens; begin and end with a letter or digit."
    if text in RESERVED:
        return f'"{text}" is a reserved word. Choose another id.'
    return None


def slug_from_name(name: str) -> str | None:
    """Derive a slug from a name, or return None if the name has too few plain letters."""
    plain = unicodedata.normalize("NFKD", name.replace("ß", "ss").replace("ẞ", "ss"))
    words = re.findall(r"[a-z0-9]+", plain.encode("ascii", "ignore").decode().lower())
    slug = "-".join(words)[:MAX_SLUG_LENGTH].strip("-")
    if len(slug) < 3 and slug:
        slug = f"{slug}-org"
    if slug in RESERVED:
        slug = f"{slug[: MAX_SLUG_LENGTH - 4]}-org"
    return slug if _SLUG.fullmatch(slug) else None


def slug_candidates(slug: str, attempts: int = 20) -> list[str]:
    """Return the derived slug, then the same with -2, -3 …, in case it was taken."""
    return [slug] + [
        f"{slug[: MAX_SLUG_LENGTH - 4]}-{number}".replace("--", "-") for number in range(2, attempts + 1)
    ]


MAX_NAME_LENGTH = 100
CREATION_FIELDS = ("name", "id", "admin", "settings")
CHANGE_FIELDS = ("name", "status")
_SYNONYMS = {
    "slug": "id",
    "title": "name",
    "display_name": "name",
    "administrator": "admin",
    "state": "status",
}
_READ_ONLY = (
    "organization_id",
    "issuer",
    "created_at",
    "created_by",
    "updated_at",
    "purge_at",
    "is_root",
    "version",
)


@dataclass(frozen=True, slots=True)
class NewOrganization:
    """A validated creation. If the slug was derived and not chosen, ``…-2`` is used when it was taken."""

    name: str
    slug: str
    slug_was_chosen: bool
    admin_email: str | None = None
    admin_name: str = ""
    overrides: Document = field(default_factory=dict)


def parse_new_organization(fields: Mapping[str, Any]) -> NewOrganization:
    """Validate the fields of a creation. Raises InvalidInput naming every invalid field."""
    found = Findings()
    find_unknown(found, fields, CREATION_FIELDS, synonyms=_SYNONYMS, read_only=(*_READ_ONLY, "status"))
    if "name" not in fields:
        found.add("name", "required", "An organization needs a name.")
    else:
        found.add_problem("name", text_problem(fields["name"], longest=MAX_NAME_LENGTH))
    slug = _slug(fields, found)
    admin = _admin(fields.get("admin"), found) if fields.get("admin") is not None else (None, "")
    overrides = _overrides(fields.get("settings"), found)
    found.raise_if_any()
    return NewOrganization(fields["name"], slug, fields.get("id") is not None, admin[0], admin[1], overrides)


def parse_organization_changes(fields: Mapping[str, Any]) -> dict[str, str]:
    """Validate changes of ``name`` and ``status``. Raises InvalidInput naming every invalid field."""
    found = Findings()
    find_unknown(found, fields, CHANGE_FIELDS, synonyms=_SYNONYMS, read_only=("id", *_READ_ONLY))
    if "name" in fields:
        found.add_problem("name", text_problem(fields["name"], longest=MAX_NAME_LENGTH))
    if "status" in fields:
        status = fields["status"]
        if not isinstance(status, str):
            found.add("status", "wrong_type", f"This must be a string, not {type_name(status)}.")
        elif status not in {"active", "suspended"}:
            found.add(
                "status",
                "not_allowed",
                "This must be active or suspended. Use DELETE to delete the organization.",
            )
    found.raise_if_any()
    return {name: fields[name] for name in CHANGE_FIELDS if name in fields}


def parse_email_and_name(fields: Mapping[str, Any], found: Findings, head: str = "") -> tuple[str, str]:
    """Validate the ``email`` and ``name`` of a user to invite, and add problems under ``head``."""
    email, name = fields.get("email"), fields.get("name")
    if email is None:
        found.add(f"{head}email", "required", "Enter an email address.")
    elif not isinstance(email, str):
        found.add(f"{head}email", "wrong_type", f"This must be a string, not {type_name(email)}.")
    elif not is_email(email):
        found.add(f"{head}email", "invalid_email", "Enter a valid email address.")
    if name is not None:
        found.add_problem(f"{head}name", text_problem(name, longest=MAX_NAME_LENGTH))
    return str(email), str(name or "")


def _slug(fields: Mapping[str, Any], found: Findings) -> str:
    slug = fields.get("id")
    if slug is None:
        derived = slug_from_name(fields["name"]) if isinstance(fields.get("name"), str) else None
        if derived is None and not found.touches("name"):
            found.add("id", "required", "No id can be derived from this name. Choose one.")
        return derived or ""
    if not isinstance(slug, str):
        found.add("id", "wrong_type", f"This must be a string, not {type_name(slug)}.")
        return ""
    if problem := slug_problem(slug):
        found.add("id", "invalid_format", problem)
    return slug


def _admin(admin: Any, found: Findings) -> tuple[str | None, str]:
    if not isinstance(admin, dict):
        found.add("admin", "wrong_type", f"This must be an object, not {type_name(admin)}.")
        return None, ""
    for name in admin:
        if name not in {"email", "name"}:
            found.add(
                f"admin.{name}"[:200], "unknown_field", "Send only email and name for the administrator."
            )
    return parse_email_and_name(admin, found, "admin.")


def _overrides(settings: Any, found: Findings) -> Document:
    if settings is None:
        return {}
    if not isinstance(settings, dict):
        found.add("settings", "wrong_type", f"This must be an object, not {type_name(settings)}.")
        return {}
    try:
        return merge_settings({}, settings)
    except InvalidInput as refusal:
        for error in refusal.errors:
            found.add(f"settings.{error.field}", error.code, error.message)
        return {}
