"""Slugs: the immutable public id of an organization, as it stands in addresses and issuers."""

from __future__ import annotations

import re
import unicodedata

SLUG_PATTERN = r"^[a-z0-9](?:[a-z0-9-]{1,38}[a-z0-9])$"
_SLUG = re.compile(SLUG_PATTERN)
LONGEST = 40

# Words that stand, or may come to stand, beside a slug in an address, and words that would mislead people.
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
    """Why the text cannot be the id of a new organization, in words, or None when it can."""
    if _SLUG.fullmatch(text) is None:
        return "Use 3 to 40 lower-case letters, digits and hyphens; begin and end with a letter or digit."
    if text in RESERVED:
        return f'"{text}" is a reserved word. Choose another.'
    return None


def slug_from_name(name: str) -> str | None:
    """The slug that a name suggests, or None when too few plain letters are in it."""
    plain = unicodedata.normalize("NFKD", name.replace("ß", "ss").replace("ẞ", "ss"))
    words = re.findall(r"[a-z0-9]+", plain.encode("ascii", "ignore").decode().lower())
    slug = "-".join(words)[:LONGEST].strip("-")
    if len(slug) < 3 and slug:
        slug = f"{slug}-org"
    if slug in RESERVED:
        slug = f"{slug[: LONGEST - 4]}-org"
    return slug if _SLUG.fullmatch(slug) else None


def slug_candidates(slug: str, attempts: int = 20) -> list[str]:
    """The derived slug, then the same with -2, -3 …, for when the plain one was ever given."""
    return [slug] + [
        f"{slug[: LONGEST - 4]}-{number}".replace("--", "-") for number in range(2, attempts + 1)
    ]
