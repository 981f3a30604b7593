"""Authentication context classes: how strongly somebody signed in, as ``acr`` (OpenID Connect Core section 2).

Few and true: a class stands here when a sign-in of this service reaches it.
"""

from __future__ import annotations

from collections.abc import Collection

PASSWORD = "urn:oasis:names:tc:SAML:2.0:ac:classes:PasswordProtectedTransport"
"""A password, sent by TLS (SAML 2.0 Authentication Context section 3.4.14)."""

SUPPORTED = (PASSWORD,)
"""``acr_values_supported``, the weakest first."""


def reached_by(amr: Collection[str]) -> str | None:
    """The class that a sign-in by these methods (RFC 8176) reaches, or None."""
    return PASSWORD if "pwd" in amr else None
