"""Local paths: the only targets of a redirect after a form. Anything else would be an open redirect (OR-3)."""

from __future__ import annotations

import re

MAX_LENGTH = 1000

# One slash, then no second one; characters of RFC 3986 paths and queries. No backslash, tab, space or escape of
# them: browsers turn ``/\\e``, ``/<tab>/e`` and the like into another host's address.
_PATH = re.compile(
    r"/(?:[A-Za-z0-9._~!$&'()*+,=:@-][A-Za-z0-9._~!$&'()*+,;=:@/-]*)?(?:\?[A-Za-z0-9._~!$&'()*+,;=:@/?%-]*)?"
)
_HIDDEN = re.compile(r"%(?:[01][0-9a-f]|7f|5c|2f(?:%2f|/))", re.IGNORECASE)


def own_path(text: str | None, default: str = "/") -> str:
    """Return the text if it is a path of this service, else ``default``.

    A path begins with exactly one slash and has no ``//``, dot segment or fragment. A percent sign is allowed only in
    the query.
    """
    if text is None or len(text) > MAX_LENGTH or _PATH.fullmatch(text) is None or _HIDDEN.search(text):
        return default
    path = text.partition("?")[0]
    if "//" in path or any(segment in {".", ".."} for segment in path.split("/")):
        return default
    return text
