"""Validation of organizations: ids (slugs), names, and the fields of a creation or a change."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Struct, field

from app.rules.errors import InvalidInput
from app.rules.fields import FieldProblem, ValidationErrors
from app.rules.mail.email_addresses import email_problem
from app.rules.organizations.instance_limits import Bounds
from app.rules.organizations.settings import Document, merge_settings
from app.rules.shapes import OneOf, Rule, SchemaOnly, Shape, Text, check_shape, described, parse_shape

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
MAX_NAME_LENGTH = 100
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
Name = Annotated[str, Text(MAX_NAME_LENGTH)]
Email = Annotated[str, Rule(email_problem, (("minLength", 3), ("maxLength", 254)))]


def slug_problem(text: str) -> str | None:
    """Return why the text cannot be the id of a new organization, or None if it can."""
    if _SLUG.fullmatch(text) is None:
        return "Use 3 to 40 lowercase letters, digits and hyphens. Begin and end with a letter or digit."
    if text in RESERVED:
        return f'"{text}" is a reserved word. Choose another ID.'
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


def slug_candidates(slug: str) -> list[str]:
    """Return the derived slug, then the same with -2 to -20, in case it was taken."""
    return [slug] + [f"{slug[: MAX_SLUG_LENGTH - 4]}-{number}".replace("--", "-") for number in range(2, 21)]


def _slug_problem(value: str) -> FieldProblem | None:
    message = slug_problem(value)
    return FieldProblem("invalid_format", message) if message else None


_Slug = Annotated[str, Rule(_slug_problem, (("minLength", 3), ("maxLength", 40), ("pattern", SLUG_PATTERN)))]


class Invitee(Shape):
    """A user to invite."""

    email: Annotated[Email, described("The email address that the invitation is sent to.")]
    name: Annotated[Name | None, described("The display name that the user will have.")] = None


class NewOrganization(Shape):
    """A new organization."""

    name: Annotated[Name, described("The display name. It can be changed.")]
    id: (
        Annotated[_Slug, described("Derived from the name if omitted. It can't be changed or used again.")]
        | None
    ) = None
    admin: Annotated[Invitee, described("Is invited as the first administrator.")] | None = None
    settings: Annotated[
        Annotated[dict[str, Any], SchemaOnly(component="SettingsChange")] | None,
        described("Settings that differ from the defaults."),
    ] = None


class OrganizationChange(Shape):
    """The fields of an organization to change."""

    name: Annotated[Name, described("The new display name.")] = ""
    status: Annotated[
        str,
        OneOf(("active", "suspended")),
        described(
            "Only root can change it. Both values restore a deleted organization: use `suspended` if it was suspended "
            "before. Suspending is a pause: sessions are not terminated, so clients receive no logout notification, "
            "and all tokens are rejected until the organization is active again."
        ),
    ] = ""


class OrganizationPlan(Struct, frozen=True):
    """A valid new organization. A derived slug becomes ``…-2`` if it was ever used; a chosen one is a conflict."""

    name: str
    slug: str
    slug_was_chosen: bool
    admin_email: str | None = None
    admin_name: str = ""
    overrides: Document = field(default_factory=dict)


def parse_new_organization(fields: Mapping[str, Any], bounds: Bounds) -> OrganizationPlan:
    """Return the organization to create, within the instance limits. Raises InvalidInput with every invalid field."""
    errors = ValidationErrors()
    check_shape(
        errors,
        NewOrganization,
        fields,
        synonyms=_SYNONYMS,
        read_only=(*_READ_ONLY, "status"),
        required={"name": "Enter a name for the organization.", "admin.email": "Enter an email address."},
    )
    slug = fields.get("id")
    if slug is None and not errors.has_error("name"):
        slug = slug_from_name(fields["name"])
        if slug is None:
            errors.add("id", "required", "No ID can be derived from this name. Enter one.")
    overrides = _overrides(fields.get("settings"), bounds, errors)
    errors.raise_if_any()
    admin = fields.get("admin") or {}
    return OrganizationPlan(
        fields["name"],
        slug or "",
        fields.get("id") is not None,
        admin.get("email"),
        admin.get("name") or "",
        overrides,
    )


def parse_organization_changes(fields: Mapping[str, Any]) -> dict[str, str]:
    """Return the changes, ``name`` and ``status``. Raises InvalidInput with every invalid field."""
    parse_shape(OrganizationChange, fields, synonyms=_SYNONYMS, read_only=("id", *_READ_ONLY))
    return dict(fields)


def check_email_and_name(email: str, name: str | None, errors: ValidationErrors) -> None:
    """Add what is wrong with the email and the name of a user who signs up or is invited."""
    fields = {"email": email, "name": name}
    check_shape(errors, Invitee, fields, required={"email": "Enter an email address."})


def _overrides(settings: Any, bounds: Bounds, errors: ValidationErrors) -> Document:
    if not isinstance(settings, dict):
        return {}
    try:
        return merge_settings({}, settings, bounds)
    except InvalidInput as invalid:
        for error in invalid.errors:
            errors.add(f"settings.{error.field}", error.code, error.message)
        return {}
