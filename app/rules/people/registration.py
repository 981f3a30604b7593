"""Registration: whether people may make accounts for themselves, and with which addresses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.rules.errors import Conflict
from app.rules.people.emails import canonical_email


def is_open(settings: Mapping[str, Any]) -> bool:
    """Whether anybody may make an account, and could sign in with it."""
    authentication = settings["authentication"]
    return bool(authentication["registration"]["mode"] == "open" and authentication["password"]["enabled"])


def require_invitable(settings: Mapping[str, Any]) -> None:
    """People may be invited. Raises Conflict where the organization is closed to new ones."""
    if settings["authentication"]["registration"]["mode"] == "closed":
        raise Conflict(
            "This organization is closed to new people; its setting authentication.registration.mode says so.",
            code="registration_closed",
        )


def is_domain_allowed(email: str, settings: Mapping[str, Any]) -> bool:
    """Whether the organization takes addresses of this domain; without a list it takes all."""
    allowed = settings["authentication"]["registration"]["allowed_email_domains"]
    domain = (canonical_email(email) or "").rpartition("@")[2]
    return not allowed or any(canonical_email(f"x@{one}") == f"x@{domain}" for one in allowed)
