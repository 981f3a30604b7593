"""What of a request's parameters may be kept: named here is what is no secret; of all else only that it was there."""

from __future__ import annotations

from collections.abc import Mapping

from app.rules.redaction import redact
from app.rules.tokens.tokens import parse_token

# Their values say what a client wants, and open nothing. A challenge is a hash of its verifier.
_HARMLESS = frozenset(
    [
        "acr_values",
        "audience",
        "claims_locales",
        "client_assertion_type",
        "client_id",
        "code_challenge",
        "code_challenge_method",
        "display",
        "dpop_jkt",
        "grant_type",
        "max_age",
        "post_logout_redirect_uri",
        "prompt",
        "redirect_uri",
        "requested_token_type",
        "resource",
        "response_mode",
        "response_type",
        "scope",
        "subject_token_type",
        "actor_token_type",
        "token_type_hint",
        "ui_locales",
    ]
)
_KINDS = {
    "cs": "a client secret",
    "at": "an access token",
    "rt": "a refresh token",
    "ac": "an authorization code",
    "dc": "a device code",
}
MOST = 40
LONGEST_NAME = 64
LONGEST_VALUE = 500


def shown_parameters(sent: Mapping[str, str]) -> dict[str, str]:
    """The parameters as the log of failed requests keeps them; never a secret, code, token, state or nonce."""
    shown = {}
    for name, value in list(sent.items())[:MOST]:
        kept = _shortened(redact(value)) if name in _HARMLESS else _mark(value)
        shown[redact(name[:LONGEST_NAME])] = kept
    return shown


def shortened_text(text: str, longest: int) -> str:
    """The text without secrets, at most so long."""
    text = redact(text)
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def _shortened(value: str) -> str:
    return value if len(value) <= LONGEST_VALUE else f"{value[:LONGEST_VALUE]}…"


def _mark(value: str) -> str:
    """What stood there: the kind of one of our own secrets, or a length."""
    parsed = parse_token(value)
    if parsed is not None and parsed.kind in _KINDS:
        return f"[{_KINDS[parsed.kind]}, removed]"
    if value.startswith("eyJ"):
        return "[a JWT, removed]"
    return f"[{len(value)} characters, removed]"
