"""Query parameters, pagination and ETags of the API.

Lists have a bounded limit and a signed cursor (JS-8): the sort key of the last item, signed together with the
organization and the list, including filters and order, so that it cannot be forged or used for another list.
"""

from __future__ import annotations

import hmac
import json
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Collection, Mapping
from hashlib import sha256
from typing import Any

from flask import Response, request

from app.operations.store.keyring import derive_instance_key
from app.operations.store.rows import DEFAULT_LIMIT, CursorKey, Page
from app.operations.store.rows import MAX_LIMIT as MAX_LIMIT
from app.rules.errors import InvalidInput, PreconditionFailed
from app.rules.fields import ValidationErrors, find_unknown

MAX_LENGTH = 1000
_NUMBER = re.compile(r"[0-9]{1,12}")
_LIMIT = re.compile(r"[1-9][0-9]{0,2}")
_MAC_LENGTH = 16
_TAG = r'"[\x21\x23-\x7e]{1,64}"'
_LIST = re.compile(rf"(?:W/)?{_TAG}(?:\s*,\s*(?:W/)?{_TAG})*")
_VERSION = re.compile(r'(?<!W/)"v([1-9][0-9]{0,9})(?:-[0-9a-f]{16})?"')


def query_parameters(known: Collection[str]) -> dict[str, str]:
    """Return the parameters of the request.

    Raises InvalidInput with every parameter that is unknown, empty, too long or sent more than once.
    """
    errors = ValidationErrors()
    find_unknown(errors, request.args, known, noun="parameter")
    for name, values in request.args.lists():
        if len(values) > 1:
            errors.add(name[:100], "repeated", "Send this parameter only once.")
        elif not values[0]:
            errors.add(name[:100], "empty", "Enter a value, or omit the parameter.")
        elif len(values[0]) > MAX_LENGTH or any(char < " " for char in values[0]):
            errors.add(name[:100], "malformed", "This value is too long or contains control characters.")
    errors.raise_if_any()
    return {name: values[0] for name, values in request.args.lists()}


def boolean_parameter(parameters: dict[str, str], name: str) -> bool:
    """Return a parameter that is ``true`` or ``false``. The default is false."""
    value = parameters.get(name, "false")
    if value not in ("true", "false"):
        raise InvalidInput("Enter true or false.", field=name, code="not_allowed")
    return value == "true"


def integer_parameter(parameters: dict[str, str], name: str) -> int:
    """Return a parameter that is a number of at most twelve digits. The default is 0."""
    value = parameters.get(name, "0")
    if _NUMBER.fullmatch(value) is None:
        raise InvalidInput("Enter a whole number.", field=name, code="out_of_range")
    return int(value)


def is_descending(parameters: dict[str, str], column: str) -> bool:
    """Return whether ``sort`` reverses the only order of a list: ``id`` or ``-id``."""
    sort = parameters.get("sort", column)
    if sort.removeprefix("-") != column:
        raise InvalidInput(f"Enter {column} or -{column}.", field="sort", code="not_allowed")
    return sort.startswith("-")


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


def etag_of(version: int) -> str:
    """Return the ETag of a version. A response to GET adds a digest of its content (``add_content_to_etag``)."""
    return f'"v{version}"'


def add_content_to_etag(response: Response) -> None:
    """Add a digest of the content to the ETag of a response, or give it one.

    A representation also shows what is not part of the version, such as when a secret was last used, and a 304 must
    not hide that (RFC 9110 section 8.8.3). If-Match looks only at the version.
    """
    content = sha256(response.get_data()).hexdigest()[:16]
    version, _ = response.get_etag()
    response.set_etag(content if version is None else f"{version}-{content}")


def expected_version() -> frozenset[int] | None:
    """Return the versions in If-Match, or None if there is no such header or it is ``*``.

    Raises InvalidInput for a malformed header, PreconditionFailed for ETags that this service does not use.
    """
    header = request.headers.get("If-Match")
    if header is None or header.strip() == "*":
        return None
    if _LIST.fullmatch(header.strip()) is None:
        raise InvalidInput('If-Match must be an ETag from a response, such as "v3".', field="If-Match")
    versions = frozenset(int(version) for version in _VERSION.findall(header))
    if not versions:
        raise PreconditionFailed("This is not the current version. Read it again.")
    return versions
