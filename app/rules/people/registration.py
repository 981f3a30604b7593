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


def has_passwords(settings: Mapping[str, Any]) -> bool:
    """Whether whoever chooses a password can sign in with it."""
    return bool(settings["authentication"]["password"]["enabled"])


def require_invitable(settings: Mapping[str, Any]) -> None:
    """People may be invited. Raises Conflict where the organization is closed to new ones, or has no passwords."""
    if not has_passwords(settings):
        # They would choose one on the page of the invitation, and could do nothing with it.
        raise Conflict(
            "Nobody can come in by an invitation while passwords are switched off: its page asks for one. Switch "
            "authentication.password.enabled on until they are in and have a passkey.",
            code="passwords_off",
        )
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
