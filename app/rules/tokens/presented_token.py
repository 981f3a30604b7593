"""An access token as a request to a resource shows it."""

from __future__ import annotations

import re
from dataclasses import dataclass

_CREDENTIALS = re.compile(r"(bearer|dpop) +([A-Za-z0-9._~+/-]+=*) *", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class PresentedToken:
    """The token, whether by the scheme DPoP, and then the proof beside it and the request that it is a proof of."""

    token: str
    by_dpop: bool = False
    proof: str | None = None
    method: str = "GET"
    url: str = ""


def read_credentials(header: str) -> tuple[bool, str] | None:
    """(whether the scheme is DPoP, the token) of an Authorization header, or None when it holds neither kind.

    The scheme counts in any case (RFC 9110 section 11.1).
    """
    match = _CREDENTIALS.fullmatch(header)
    return None if match is None else (match[1].lower() == "dpop", match[2])


def is_by_dpop(header: str | None) -> bool:
    """Whether the Authorization header names the scheme DPoP, well-formed or not."""
    return (header or "").lower().startswith("dpop ")
