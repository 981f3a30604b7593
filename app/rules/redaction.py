"""Redaction of secrets from logs: credentials of this service, signed tokens, passwords, Authorization headers."""

from __future__ import annotations

import re
from collections.abc import Callable

# JWTs: ID tokens, RFC 9068 access tokens, client assertions. The second half takes the rest of a run of letters that is
# none, as otherwise each "-eyJ" in it would be another beginning from which all of it is read again.
_JWT = re.compile(r"\beyJ[A-Za-z0-9_-]{8,}+(?:\.[A-Za-z0-9_-]*){1,4}|\beyJ[A-Za-z0-9_-]*+")
# Each pattern keeps the kind of the secret for the reader, and no part of the secret.
_PATTERNS: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    # Secrets of this service, complete or truncated.
    (re.compile(r"\bgth_([a-z]{2})_[A-Za-z0-9_-]+"), r"gth_\1_[redacted]"),
    # Webhook signing secrets.
    (re.compile(r"\bwhsec_[A-Za-z0-9+/=_-]+"), "whsec_[redacted]"),
    (_JWT, lambda found: "[redacted JWT]" if "." in found[0] else found[0]),
    # Schemes with their credentials. "DPoP proof." is a sentence of an error, and none of these words is a secret.
    (
        re.compile(
            r"""(?ix) \b(basic|bearer|dpop)(\s+)
            (?! (?:proofs?|headers?|tokens?) [.]? (?![A-Za-z0-9+/=._~-]) )
            [A-Za-z0-9+/=._~-]{6,}"""
        ),
        r"\1\2[redacted]",
    ),
    # name=value, "name": "value", 'name': b'value', as forms, JSON and Python print them.
    (
        re.compile(
            r"""(?ix) (?<![a-z0-9])((?:new_|current_|old_)?(?:password|passwd|passphrase) | client_secret
            | client_assertion
            | code_verifier | secret_key | master_key | refresh_token | access_token | id_token | set-cookie | cookie
            | authorization)
            (["']?\s*[=:]\s*\(?b?) (?: "[^"]*" | '[^']*' | [^\s&,;"'})\]]+ )"""
        ),
        r"\1\2[redacted]",
    ),
)
# A cheap first check: a line without any of these contains no secret, and most lines contain none.
_HINTS = re.compile(
    r"(?i)gth_|whsec_|eyJ|basic\s|bearer\s|dpop\s|pass(?:word|wd|phrase)|secret|assertion|verifier|_key|token|cookie|authoriz"
)


def redact(text: str) -> str:
    """Replace every secret in the text by a marker that names its kind."""
    if _HINTS.search(text) is None:
        return text
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    return text
