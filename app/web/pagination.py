"""Pages of lists: the requested one, and the signed cursor of the next (JS-8).

A cursor is the sort key of the last item, signed together with the organization and the list, including filters and
order, so that it cannot be forged or used for another list. A list of a page is named by its path.
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from flask import json, request

from app.operations.store.keyring import derive_instance_key
from app.operations.store.rows import DEFAULT_LIMIT, MAX_LIMIT, CursorKey, Page, PageRequest
from app.rules.errors import InvalidInput
from app.web.json_api import integer_parameter

_MAC_LENGTH = 16


def requested_page(parameters: Mapping[str, str], organization_id: str, listing: str) -> PageRequest:
    """Return the page of an API's list that ``limit``, 1 to 100, and ``cursor`` ask for. Raises InvalidInput."""
    limit = integer_parameter(parameters, "limit", minimum=1, maximum=MAX_LIMIT, default=DEFAULT_LIMIT)
    return PageRequest(limit, _position(parameters, organization_id, listing))


def page_in_url(organization_id: str) -> PageRequest:
    """Return the page of the list at the current path. An invalid cursor asks for the first one."""
    try:
        return PageRequest(after=_position(_sent(), organization_id, request.path))
    except InvalidInput:
        return PageRequest()


def pager(page: Page[Any], organization_id: str, path: str) -> dict[str, str | None]:
    """Return the URLs of the first and the next page of the list at the path, with the filters of this request."""
    filters = {name: value for name, value in _sent().items() if name != "cursor"}
    cursor = page_meta(page, filters, organization_id, path)["next_cursor"]
    return {
        "first_url": _url(path, filters) if request.args.get("cursor") else None,
        "next_url": _url(path, {**filters, "cursor": cursor}) if cursor else None,
    }


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


def _position(parameters: Mapping[str, str], organization_id: str, listing: str) -> CursorKey | None:
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


def _sent() -> dict[str, str]:
    return {name: value for name, value in request.args.items() if value}


def _url(path: str, parameters: dict[str, str]) -> str:
    return f"{path}?{urlencode(parameters)}" if parameters else path
