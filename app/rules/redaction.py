"""What no log may hold: secrets of ours, signed tokens, passwords, Authorization headers."""

from __future__ import annotations

import re

# Each pattern keeps what tells a reader which kind of secret stood there, and nothing of the secret.
_PATTERNS = (
    # Our own: any kind, whole or cut off in the middle.
    (re.compile(r"\bgth_([a-z]{2})_[A-Za-z0-9_-]+"), r"gth_\1_[redacted]"),
    # Signing secrets of webhooks.
    (re.compile(r"\bwhsec_[A-Za-z0-9+/=_-]+"), "whsec_[redacted]"),
    # JWTs: ID tokens, RFC 9068 access tokens, client assertions.
    (re.compile(r"\beyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*){1,4}"), "[redacted JWT]"),
    (re.compile(r"(?i)\b(basic|bearer|dpop)(\s+)[A-Za-z0-9+/=._~-]{6,}"), r"\1\2[redacted]"),
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
# What every secret above has near it: most lines have none of these and are left alone by one search.
_SUSPECT = re.compile(
    r"(?i)gth_|whsec_|eyJ|basic\s|bearer\s|dpop\s|pass(?:word|wd|phrase)|secret|assertion|verifier|_key|token|cookie|authoriz"
)


def redact(text: str) -> str:
    """The text with every secret in it replaced by a mark that says what stood there."""
    if _SUSPECT.search(text) is None:
        return text
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    return text
