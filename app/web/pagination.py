"""Pages of a list on the wire: a bounded limit, and a cursor that only we can make (JS-8).

The cursor is the sort key of the last item, signed with a key of its own over the organization and the list, filters
and order included: it cannot be forged, and it opens no other list.
"""

from __future__ import annotations

import hmac
import json
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from typing import Any

from app.operations.store.keyring import derive_instance_key
from app.operations.store.pagination import DEFAULT_LIMIT, MAX_LIMIT, CursorKey, Page
from app.rules.errors import InvalidInput

PARAMETERS = ("limit", "cursor")
_LIMIT = re.compile(r"[1-9][0-9]{0,2}")
_MAC_LENGTH = 16


def page_limit(parameters: Mapping[str, str]) -> int:
    """The ``limit`` asked for, 1 to 100, 25 when none is."""
    text = parameters.get("limit")
    if text is None:
        return DEFAULT_LIMIT
    if _LIMIT.fullmatch(text) is None or int(text) > MAX_LIMIT:
        raise InvalidInput(
            f"This must be a number from 1 to {MAX_LIMIT}.", field="limit", code="out_of_range"
        )
    return int(text)


def page_position(parameters: Mapping[str, str], organization_id: str, listing: str) -> CursorKey | None:
    """Where the page begins, from the ``cursor``; None for the first. Raises InvalidInput for a cursor not ours."""
    cursor = parameters.get("cursor")
    if cursor is None:
        return None
    bound = _bound(listing, parameters)
    try:
        raw = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
    except ValueError:
        raw = b""
    mac, payload = raw[:_MAC_LENGTH], raw[_MAC_LENGTH:]
    if not hmac.compare_digest(mac, _mac(organization_id, bound, payload)):
        raise InvalidInput(
            "This cursor belongs to another list or order.", field="cursor", code="invalid_cursor"
        )
    return tuple(json.loads(payload))


def page_meta(
    page: Page[Any], parameters: Mapping[str, str], organization_id: str, listing: str
) -> dict[str, str | None]:
    """``next_cursor`` for the answer's meta; null on the last page."""
    if page.next_cursor_key is None:
        return {"next_cursor": None}
    payload = json.dumps(page.next_cursor_key).encode()
    mac = _mac(organization_id, _bound(listing, parameters), payload)
    return {"next_cursor": urlsafe_b64encode(mac + payload).rstrip(b"=").decode()}


def _bound(listing: str, parameters: Mapping[str, str]) -> str:
    chosen = {name: value for name, value in parameters.items() if name not in PARAMETERS}
    return json.dumps([listing, sorted(chosen.items())])


def _mac(organization_id: str, bound: str, payload: bytes) -> bytes:
    message = json.dumps([organization_id, bound]).encode() + b"\0" + payload
    return hmac.digest(derive_instance_key("cursors"), message, "sha256")[:_MAC_LENGTH]
