"""What an app said of itself when it was allowed, and what is different now."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

NAME, LOGO, REDIRECTS, POLICY, TERMS, REVIEWED = (
    "name", "logo_uri", "redirect_uris", "policy_uri", "tos_uri", "reviewed",
)  # fmt: skip
SCOPES = "scopes"
_KEPT = 22


def as_shown(name: str, trust: str, document: Mapping[str, Any]) -> dict[str, Any]:
    """What of a client a consent rests on: its name, and short digests of the rest.

    Its scopes are no reason to ask again: the consent names those it covers, and more is asked for anyway. Their
    digest says until when what a person left out stays left out.
    """
    return {
        NAME: name,
        LOGO: _digest(document.get("logo_uri")),
        REDIRECTS: _digest(sorted(document.get("redirect_uris") or ())),
        POLICY: _digest(document.get("policy_uri")),
        TERMS: _digest(document.get("tos_uri")),
        REVIEWED: trust != "unverified",
        SCOPES: _digest([sorted(document.get(name) or ()) for name in ("scopes", "optional_scopes")]),
    }


def changes_since(shown: Mapping[str, Any] | None, now: Mapping[str, Any]) -> tuple[str, ...]:
    """The parts that differ from what was shown; nothing for a consent that kept no account of it.

    A mark of review counts when it was taken away: that it was given is no reason to doubt.
    """
    if shown is None:
        return ()
    return tuple(
        part
        for part in (NAME, LOGO, REDIRECTS, POLICY, TERMS, REVIEWED)
        if shown.get(part) != now[part] and not (part == REVIEWED and now[part])
    )


def page_digest(client_id: str, version: int, session_id: str, asked: Iterable[str]) -> bytes:
    """The digest of all that a consent page says; the client's version covers its name, logo and redirects."""
    return hashlib.sha256("|".join((client_id, str(version), session_id, *asked)).encode()).digest()


def _digest(value: Any) -> str | None:
    if not value:
        return None
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:_KEPT]
