"""Registration: whether people may make accounts for themselves, and with which addresses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.rules.errors import Conflict
from app.rules.mail.email_addresses import canonical_email


def is_open(settings: Mapping[str, Any]) -> bool:
    """Whether anybody may make an account, and could sign in with it."""
    authentication = settings["authentication"]
    return bool(authentication["registration"]["mode"] == "open" and authentication["password"]["enabled"])


def has_passwords(settings: Mapping[str, Any]) -> bool:
    """Whether whoever chooses a password can sign in with it."""
    return bool(settings["authentication"]["password"]["enabled"])


def require_invitable(settings: Mapping[str, Any], *, by_passkey: bool) -> None:
    """People may be invited. Raises Conflict where the organization is closed, or they would have no way in.

    ``by_passkey`` says whether a passkey alone signs in here.
    """
    if not has_passwords(settings) and not by_passkey:
        raise Conflict(
            "Nobody can come in by an invitation while neither passwords nor passkeys sign in: its page asks for one "
            "of them. Switch authentication.password.enabled on first, or authentication.passkeys.enabled and "
            ".passwordless, which need an address with a domain name.",
            code="passwords_off",
        )
    if settings["authentication"]["registration"]["mode"] == "closed":
        raise Conflict(
            "This organization is closed to new people; its setting authentication.registration.mode says so.",
            code="registration_closed",
        )


def require_passwords_to_join(settings: Mapping[str, Any]) -> None:
    """Who is invited may choose a password: it would be their way in. Raises Conflict."""
    if not has_passwords(settings):
        raise Conflict("This organization does not let people sign in with a password.", code="passwords_off")


def is_domain_allowed(email: str, settings: Mapping[str, Any]) -> bool:
    """Whether the organization takes addresses of this domain; without a list it takes all."""
    allowed = settings["authentication"]["registration"]["allowed_email_domains"]
    domain = (canonical_email(email) or "").rpartition("@")[2]
    return not allowed or any(canonical_email(f"x@{one}") == f"x@{domain}" for one in allowed)
