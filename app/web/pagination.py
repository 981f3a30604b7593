"""Pagination of the API's lists: a bounded limit and a signed cursor (JS-8).

A cursor is the sort key of the last item. It is signed together with the organization and the list, including filters
and order, so that it can't be forged or used for another list.
"""

from __future__ import annotations

import hmac
import json
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from typing import Any

from app.operations.store.keyring import derive_instance_key
from app.operations.store.pagination import DEFAULT_LIMIT, CursorKey, Page
from app.operations.store.pagination import MAX_LIMIT as MAX_LIMIT
from app.rules.errors import InvalidInput

_LIMIT = re.compile(r"[1-9][0-9]{0,2}")
_MAC_LENGTH = 16


def page_limit(parameters: Mapping[str, str]) -> int:
    """Return the requested ``limit``, 1 to 100. The default is 25."""
    text = parameters.get("limit")
    if text is None:
        return DEFAULT_LIMIT
    if _LIMIT.fullmatch(text) is None or int(text) > MAX_LIMIT:
        raise InvalidInput(f"Enter a number from 1 to {MAX_LIMIT}.", field="limit", code="out_of_range")
    return int(text)


def page_position(parameters: Mapping[str, str], organization_id: str, listing: str) -> CursorKey | None:
    """Return the sort key after which the page begins, None for the first page. Raises InvalidInput."""
    cursor = parameters.get("cursor")
    if cursor is None:
        return None
    signed_context = _signed_context(listing, parameters)
    try:
        raw = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
    except ValueError:
        raw = b""
    mac, payload = raw[:_MAC_LENGTH], raw[_MAC_LENGTH:]
    if not hmac.compare_digest(mac, _mac(organization_id, signed_context, payload)):
        raise InvalidInput(
            "This cursor belongs to another list or order. Start again without a cursor.",
            field="cursor",
            code="invalid_cursor",
        )
    return tuple(json.loads(payload))


def page_meta(
    page: Page[Any], parameters: Mapping[str, str], organization_id: str, listing: str
) -> dict[str, str | None]:
    """Return ``next_cursor`` for the response's meta; null on the last page."""
    if page.next_cursor_key is None:
        return {"next_cursor": None}
    payload = json.dumps(page.next_cursor_key).encode()
    mac = _mac(organization_id, _signed_context(listing, parameters), payload)
    return {"next_cursor": urlsafe_b64encode(mac + payload).rstrip(b"=").decode()}


def _signed_context(listing: str, parameters: Mapping[str, str]) -> str:
    options = {name: value for name, value in parameters.items() if name not in ("limit", "cursor")}
    return json.dumps([listing, sorted(options.items())])


def _mac(organization_id: str, signed_context: str, payload: bytes) -> bytes:
    message = json.dumps([organization_id, signed_context]).encode() + b"\0" + payload
    return hmac.digest(derive_instance_key("cursors"), message, "sha256")[:_MAC_LENGTH]
