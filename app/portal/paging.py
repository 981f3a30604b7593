"""Pages of a list: where the visitor is, and the addresses of the first and the next page."""

from __future__ import annotations

from urllib.parse import urlencode

from flask import current_app, request
from itsdangerous import BadData, URLSafeSerializer

from app.operations.pages import CursorKey, Page

_NAME = "cursor"


def position(listing: str) -> CursorKey | None:
    """Where the page begins; from the start when the cursor is not one that we made for this list."""
    cursor = request.args.get(_NAME)
    if cursor is None:
        return None
    try:
        return tuple(_serializer(listing).loads(cursor))
    except BadData:
        return None


def pages_of(page: Page, listing: str) -> dict[str, str | None]:
    """The addresses for the pager; the search and filters in this one stay."""
    kept = {name: value for name, value in request.args.items() if name not in {_NAME, "done"} and value}
    first = f"{request.path}?{urlencode(kept)}" if kept else request.path
    following = None
    if page.next_cursor_key is not None:
        cursor = _serializer(listing).dumps(page.next_cursor_key)
        following = f"{request.path}?{urlencode({**kept, _NAME: cursor})}"
    return {"first_url": first if request.args.get(_NAME) else None, "next_url": following}


def _serializer(listing: str) -> URLSafeSerializer:
    """Signed, so that a page begins only where one of ours ended."""
    return URLSafeSerializer(current_app.config["SECRET_KEY"], salt=f"portal {listing}")
