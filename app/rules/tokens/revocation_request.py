"""The body of ``POST /api/v1/revoke``: three strings, each required."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from app.rules.fields import Findings, find_unknown, type_name

FIELDS = ("organization_id", "token_type", "token")
TOKEN_TYPES = ("refresh_token", "access_token")
_SYNONYMS = {"token_type_hint": "token_type", "organization": "organization_id", "access_token": "token"}


@dataclass(frozen=True, slots=True)
class RevocationRequest:
    """A checked body. ``token_type`` says where to look first and narrows nothing (RFC 7009 section 2.1)."""

    organization_id: str
    token_type: str
    token: str


def revocation_request(fields: Mapping[str, Any]) -> RevocationRequest:
    """The checked body; raises InvalidInput naming every wrong field."""
    found = Findings()
    find_unknown(found, fields, FIELDS, synonyms=_SYNONYMS)
    for name in FIELDS:
        value = fields.get(name)
        if name not in fields:
            found.add(name, "required", "This is required.")
        elif not isinstance(value, str):
            found.add(name, "wrong_type", f"This must be a string, not {type_name(value)}.")
        elif not value:
            found.add(name, "too_short", "This must not be empty.")
    if not found.touches("token_type") and fields["token_type"] not in TOKEN_TYPES:
        found.add("token_type", "not_allowed", f"This must be one of: {', '.join(TOKEN_TYPES)}.")
    found.raise_if_any()
    return RevocationRequest(fields["organization_id"], fields["token_type"], fields["token"])
