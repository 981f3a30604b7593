"""Registration and invitations: whether users may join an organization, and with which emails."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.rules.errors import Conflict
from app.rules.mail.email_addresses import canonical_email


def is_registration_open(settings: Mapping[str, Any]) -> bool:
    """Return whether users may register themselves and sign in afterwards."""
    authentication = settings["authentication"]
    return bool(authentication["registration"]["mode"] == "open" and authentication["password"]["enabled"])


def are_passwords_enabled(settings: Mapping[str, Any]) -> bool:
    """Return whether users can sign in with a password."""
    return bool(settings["authentication"]["password"]["enabled"])


def require_invitations_possible(settings: Mapping[str, Any], *, by_passkey: bool) -> None:
    """Require that users may be invited. Raises Conflict if registration is closed or they could not sign in.

    ``by_passkey`` says whether users can sign in with a passkey alone.
    """
    if not are_passwords_enabled(settings) and not by_passkey:
        raise Conflict(
            "Invited users could not sign in, because neither passwords nor passkeys are enabled. Turn on "
            "authentication.password.enabled, or both authentication.passkeys.enabled and "
            "authentication.passkeys.passwordless, which require a domain name.",
            code="passwords_off",
        )
    if settings["authentication"]["registration"]["mode"] == "closed":
        raise Conflict(
            "This organization does not accept new users. Change authentication.registration.mode to invite users.",
            code="registration_closed",
        )


def require_invitation_by_password(settings: Mapping[str, Any]) -> None:
    """Require that invited users may choose a password. Raises Conflict."""
    if not are_passwords_enabled(settings):
        raise Conflict("This organization does not let people sign in with a password.", code="passwords_off")


def is_domain_allowed(email: str, settings: Mapping[str, Any]) -> bool:
    """Return whether the organization accepts emails of this domain. An empty list allows all."""
    allowed = settings["authentication"]["registration"]["allowed_email_domains"]
    domain = (canonical_email(email) or "").rpartition("@")[2]
    return not allowed or any(
        canonical_email(f"x@{allowed_domain}") == f"x@{domain}" for allowed_domain in allowed
    )
