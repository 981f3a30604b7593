"""Pages of a list: where the visitor is, and the addresses of the first and the next page."""

from __future__ import annotations

from urllib.parse import urlencode

from flask import request

from app.operations.store.pagination import CursorKey, Page
from app.rules.errors import InvalidInput
from app.web.pagination import page_meta, page_position

_NOT_OF_THE_LIST = frozenset({"done"})


def position(organization_id: str, listing: str) -> CursorKey | None:
    """Where the page begins; from the start when the cursor is not one that we made for this list."""
    try:
        return page_position(_parameters(), organization_id, listing)
    except InvalidInput:
        return None


def pages_of(page: Page, organization_id: str, listing: str) -> dict[str, str | None]:
    """The addresses for the pager; the search and filters in this one stay."""
    kept = {name: value for name, value in _parameters().items() if name != "cursor"}
    cursor = page_meta(page, _parameters(), organization_id, listing)["next_cursor"]
    return {
        "first_url": _address(kept) if request.args.get("cursor") else None,
        "next_url": _address({**kept, "cursor": cursor}) if cursor else None,
    }


def _parameters() -> dict[str, str]:
    return {name: value for name, value in request.args.items() if value and name not in _NOT_OF_THE_LIST}


def _address(parameters: dict[str, str]) -> str:
    return f"{request.path}?{urlencode(parameters)}" if parameters else request.path
