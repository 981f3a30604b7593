"""Status lists of tokens (draft-ietf-oauth-status-list-17)."""

from __future__ import annotations

import zlib
from base64 import urlsafe_b64encode
from collections.abc import Iterable
from typing import Any

from app.rules.errors import HasDefaultText

MEDIA_TYPE = "application/statuslist+jwt"
TYPE = "statuslist+jwt"
SIZE = 1 << 15
# How long the service repeats a list, how long HTTP caches may, and how long its reader may use it. A revocation is in
# every reader's list after the sum of the three.
BUILT_SECONDS, CACHED_SECONDS, TTL_SECONDS = 5, 5, 10
BOUND_SECONDS = BUILT_SECONDS + CACHED_SECONDS + TTL_SECONDS
# A reader that cannot get a newer list rejects all tokens after this time.
VALID_SECONDS = 300


class HistoryUnavailable(HasDefaultText):
    """Which tokens were revoked at an earlier time is not known (section 8.4)."""

    status = 501
    code = "not_implemented"
    default_description = "Lists say which tokens are revoked now. Leave out the parameter time."


def reference(uri: str, index: int) -> dict[str, Any]:
    """Return the claim ``status`` of a token (section 6.2)."""
    return {"status_list": {"idx": index, "uri": uri}}


def list_claim(revoked: Iterable[range]) -> dict[str, Any]:
    """Return the claim ``status_list`` with one bit per token, which is set for revoked ones (section 4.2)."""
    bits = bytearray(SIZE // 8)
    for indexes in revoked:
        for index in indexes:
            bits[index // 8] |= 1 << index % 8
    packed = urlsafe_b64encode(zlib.compress(bits, 9)).rstrip(b"=").decode()
    return {"bits": 1, "lst": packed}
