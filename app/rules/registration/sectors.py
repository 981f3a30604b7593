"""Sectors: the clients that share a user's pairwise subject (OpenID Connect Core section 8.1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from app.rules.authorization.redirects import origin_of
from app.rules.fields import Problem

PAIRWISE = "pairwise"


def sector_of(document: Mapping[str, Any]) -> str | None:
    """The host that names the client's sector: of its ``sector_identifier_uri``, or the one of all its redirect URIs.

    None when neither tells one.
    """
    address = document.get("sector_identifier_uri")
    if address:
        return urlsplit(str(address)).hostname
    hosts = {
        urlsplit(uri).hostname if origin_of(uri) else None for uri in document.get("redirect_uris") or ()
    }
    return hosts.pop() if len(hosts) == 1 else None


def sector_problem(document: Mapping[str, Any]) -> Problem | None:
    """Why a pairwise client's sector cannot be told, or None."""
    if document.get("subject_type") != PAIRWISE or sector_of(document) is not None:
        return None
    return Problem(
        "inconsistent",
        "The redirect URIs of a pairwise client have one host, or it names a sector_identifier_uri.",
    )


def listing_problem(listed: Any, document: Mapping[str, Any]) -> Problem | None:
    """Why the document at ``sector_identifier_uri`` does not vouch for the client, or None.

    ``listed`` is what it holds: an array of redirect URIs, each of the client's among them.
    """
    if not isinstance(listed, list):
        return Problem("bad_document", "There is no JSON array of redirect URIs at this address.")
    missing = [uri for uri in document.get("redirect_uris") or () if uri not in listed]
    if missing:
        return Problem("not_listed", f"The array at this address does not hold {missing[0]}.")
    return None
