"""``WWW-Authenticate`` challenges (RFC 6750 section 3, RFC 9449 section 7.1, RFC 9470 section 3)."""

from __future__ import annotations

from collections.abc import Mapping

from app.rules.clients.dpop import ALGORITHMS

_ALGS = f'algs="{" ".join(ALGORITHMS)}"'


def challenges(resource: str, why: Mapping[str, str], *, by_dpop: bool) -> list[str]:
    """Return the values of the ``WWW-Authenticate`` headers.

    ``resource`` are the parameters that describe it (``realm="…"``), ``why`` those that tell the error, none of it
    user text; ``by_dpop`` says that the caller presented its token so. Others are told that DPoP is an answer too.
    """
    told = "".join(f', {name}="{value}"' for name, value in why.items())
    if by_dpop:
        return [f"DPoP {resource}{told}, {_ALGS}"]
    return [f"Bearer {resource}{told}", f"DPoP {resource}, {_ALGS}"]
