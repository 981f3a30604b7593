"""Response modes: how the answer goes back (OAuth 2.0 Multiple Response Types, Form Post Response Mode)."""

from __future__ import annotations

from collections.abc import Mapping

from app.rules.authorization.redirects import origin_of
from app.rules.oauth_errors import AuthorizationRefusal

QUERY, FORM_POST = "query", "form_post"
RESPONSE_MODES = (QUERY, FORM_POST)
# A code in a fragment is left in the browser's history and read by every script of the page.


def mode_of(sent: Mapping[str, str]) -> str:
    """The mode in which any answer goes back, an error too: the one asked for, where it can be kept."""
    asked = sent.get("response_mode")
    return FORM_POST if asked == FORM_POST and _takes_forms(sent.get("redirect_uri", "")) else QUERY


def checked_mode(sent: Mapping[str, str]) -> str:
    """The mode of a good request. Raises AuthorizationRefusal for one that is not offered, or not to this address."""
    asked = sent.get("response_mode", QUERY)
    if asked not in RESPONSE_MODES:
        raise AuthorizationRefusal("invalid_request", "The response_mode must be query or form_post.")
    if asked != mode_of(sent):
        raise AuthorizationRefusal("invalid_request", "An app's own scheme takes no forms: use query.")
    return asked


def _takes_forms(redirect_uri: str) -> bool:
    # A form can be posted to a web origin alone.
    return origin_of(redirect_uri) is not None
