"""Hints of an authorization request: wishes that never make it fail (OpenID Connect Core 3.1.2.1)."""

from __future__ import annotations

import re
from collections.abc import Mapping

LONGEST_LOGIN_HINT = 320
LONGEST_ID_TOKEN_HINT = 4 * 1024
LONGEST_LOCALES = 200
_MOST_LOCALES = 10
# The form of BCP 47 tags; whether a language is spoken here is asked later.
_LOCALE = re.compile(r"[A-Za-z]{2,8}(?:-[A-Za-z0-9]{1,8}){0,6}")


def login_hint(sent: Mapping[str, str]) -> str | None:
    """Who will probably sign in, when it can be an e-mail address or name at all."""
    hint = sent.get("login_hint", "")
    return hint if 1 <= len(hint) <= LONGEST_LOGIN_HINT and hint.isprintable() else None


def id_token_hint(sent: Mapping[str, str]) -> str | None:
    """The ID token that names whom the request is about; nobody has verified it yet. None when none was sent."""
    hint = sent.get("id_token_hint")
    # Cut short it verifies no more, and so names nobody, as it should.
    return hint if hint is None else hint[:LONGEST_ID_TOKEN_HINT]


def ui_locales(sent: Mapping[str, str]) -> tuple[str, ...]:
    """The languages wished for, most wanted first; what is no language tag is left out."""
    tags = [tag for tag in sent.get("ui_locales", "")[:LONGEST_LOCALES].split() if _LOCALE.fullmatch(tag)]
    return tuple(dict.fromkeys(tags))[:_MOST_LOCALES]
