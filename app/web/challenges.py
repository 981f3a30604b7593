"""``WWW-Authenticate`` challenges (RFC 6750 section 3, RFC 9449 section 7.1, RFC 9470 section 3)."""

from __future__ import annotations

from collections.abc import Mapping

from app.rules.clients.dpop import ALGORITHMS

_ALGS = f'algs="{" ".join(ALGORITHMS)}"'


def challenges(resource: str, why: Mapping[str, str], *, by_dpop: bool) -> list[str]:
    """Return the values of the ``WWW-Authenticate`` headers.

    ``resource`` holds the parameters that describe the resource (``realm="…"``), ``why`` those of the error, none of
    them user input. ``by_dpop`` means that the token was presented by DPoP; other callers see both schemes.
    """
    error = "".join(f', {name}="{value}"' for name, value in why.items())
    if by_dpop:
        return [f"DPoP {resource}{error}, {_ALGS}"]
    return [f"Bearer {resource}{error}", f"DPoP {resource}, {_ALGS}"]
