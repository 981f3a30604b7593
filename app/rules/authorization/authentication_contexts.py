"""Authentication context classes: how strongly somebody signed in, as ``acr`` (OpenID Connect Core section 2).

Few and true: a class stands here when a sign-in of this service reaches it.
"""

from __future__ import annotations

from collections.abc import Collection

from app.rules.people.second_factors import used_second_factor

PASSWORD = "urn:oasis:names:tc:SAML:2.0:ac:classes:PasswordProtectedTransport"
"""A password, sent by TLS (SAML 2.0 Authentication Context section 3.4.14)."""
MULTI_FACTOR = "https://refeds.org/profile/mfa"
"""Two factors of different kinds, of which neither gives access to the other (REFEDS MFA Profile 1.2)."""

SUPPORTED = (PASSWORD, MULTI_FACTOR)
"""``acr_values_supported``, the weakest first."""


def reached_by(amr: Collection[str]) -> tuple[str, ...]:
    """The classes that a sign-in by these methods (RFC 8176) reaches, the strongest first."""
    found = [MULTI_FACTOR] if used_second_factor(amr) else []
    return (*found, PASSWORD) if "pwd" in amr else tuple(found)


def context_of(amr: Collection[str], wanted: Collection[str] = ()) -> str | None:
    """What ``acr`` says of such a sign-in: the first class that is ``wanted`` and reached, else the strongest."""
    reached = reached_by(amr)
    return next((name for name in (*wanted, *reached) if name in reached), None)
