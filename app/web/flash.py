"""One-time values for the page that a form redirects to, such as a new secret or a notice.

The values travel in a cookie, sealed with a key of the instance for one path and one session (AES-256-GCM). So a reload
repeats nothing, no secret is in a URL, and the cookie is useless on another path, in another session or after five
minutes. A response that is lost can be repeated: the browser deletes the cookie when it gets the page.

A page may also store values for itself, which it has whenever it is loaded within five minutes.
"""

from __future__ import annotations

import hashlib
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

from flask import after_this_request, g, request
from msgspec import Struct, field
from werkzeug.wrappers import Response

from app.operations.store import clock
from app.operations.store.keyring import derive_instance_key
from app.rules.sealing import UnsealError, seal, unseal
from app.web.browser_session import browser_id, once_cookie, sign_in_token


class Notice(Struct, frozen=True):
    """A message about the last action, with the form that undoes it, for ``macros/status.html``."""

    text: str
    undo_url: str | None = None
    undo_fields: Mapping[str, str] = field(default_factory=dict)


LIFETIME = timedelta(minutes=5)
MAX_COOKIE_LENGTH = 2_800
"""Reverse proxies often buffer 4 KiB of headers."""
# What is left out of a cookie that would be too long, in this order.
_OPTIONAL = ("undo", "warnings", "retired")
SECRETS = frozenset({"secret", "codes", "link"})
"""The values that are shown once. A reload shows a note in their place."""


def flash(
    response: Response,
    values: Mapping[str, Any],
    *,
    organization_id: str | None,
    page: str | None = None,
    token: str | None = None,
) -> Response:
    """Let the page that the response redirects to show these values once, and return the response.

    ``organization_id`` is that of the session, or None before the sign-in: then only this browser can read them.
    ``page`` is another path that shows them, ``token`` the session's token if the response sets it. Values whose name
    ends in ``_at`` are times, all others are JSON.
    """
    path = page or urlsplit(response.headers["Location"]).path
    place = _place(path, token or _reader(organization_id))
    kept = {**values, "until": clock.now() + LIFETIME}
    cookie = _sealed(kept, place)
    for name in _OPTIONAL:
        if len(cookie) > MAX_COOKIE_LENGTH:
            kept.pop(name, None)
            cookie = _sealed(kept, place)
    name, attributes = _cookie(path)
    response.set_cookie(name, cookie, max_age=LIFETIME, **attributes)
    return response


def take_flash(organization_id: str | None) -> dict[str, Any]:
    """Return the values for this page, and delete them with the response; empty without any.

    In place of a secret, the next request gets ``was_shown``.
    """
    path = request.path
    name, attributes = _cookie(path)
    sent = request.cookies.get(name, "")
    taken: dict[str, dict[str, Any]] = g.setdefault("flashes", {})
    if not sent or request.method != "GET":
        return {}
    if name not in taken:
        taken[name] = values = _unsealed(sent, _place(path, _reader(organization_id)))

        @after_this_request
        def delete(response: Response) -> Response:
            if response.status_code >= 400:
                return response
            if SECRETS & values.keys():
                told = {key: value for key, value in values.items() if key == "kind"}
                return flash(response, told | {"was_shown": True}, organization_id=organization_id, page=path)
            response.delete_cookie(name, **attributes)
            return response

    return taken[name]


def store_page_values(
    response: Response, values: Mapping[str, Any], *, organization_id: str | None, path: str | None = None
) -> Response:
    """Let a page have the values whenever it is loaded within five minutes, and return the response.

    ``path`` is that of the page, by default the current one. ``load_page_values`` returns them, and
    ``clear_page_values`` deletes them once they are used.
    """
    return flash(response, values, organization_id=organization_id, page=_place_of_values(path))


def load_page_values(organization_id: str | None, path: str | None = None) -> dict[str, Any]:
    """Return the stored values of a page, by default the current one; empty without any."""
    place = _place_of_values(path)
    sent = request.cookies.get(_cookie(place)[0], "")
    return _unsealed(sent, _place(place, _reader(organization_id))) if sent else {}


def clear_page_values(response: Response, path: str | None = None) -> Response:
    """Delete the stored values of a page, by default the current one, and return the response."""
    name, attributes = _cookie(_place_of_values(path))
    response.delete_cookie(name, **attributes)
    return response


def _place_of_values(path: str | None) -> str:
    # Apart from the one-time values that another page has for this one.
    return f"{path or request.path}#values"


def _sealed(values: Mapping[str, Any], place: bytes) -> str:
    text = json.dumps(values, default=datetime.isoformat, ensure_ascii=False)
    return urlsafe_b64encode(seal(_key(), text.encode(), place)).decode()


def _unsealed(cookie: str, place: bytes) -> dict[str, Any]:
    try:
        values: dict[str, Any] = json.loads(unseal(_key(), urlsafe_b64decode(cookie), place))
    except (UnsealError, ValueError):
        return {}
    values = {
        name: datetime.fromisoformat(value) if value and (name.endswith("_at") or name == "until") else value
        for name, value in values.items()
    }
    return values if values.pop("until") > clock.now() else {}


def _key() -> bytes:
    return derive_instance_key("flash")


def _reader(organization_id: str | None) -> str:
    return (sign_in_token(organization_id) if organization_id is not None else None) or browser_id()


def _place(path: str, reader: str) -> bytes:
    return f"flash|{path}|{reader}".encode()


def _cookie(path: str) -> tuple[str, dict[str, Any]]:
    """Return the name and the attributes of the cookie: one for each page, so that tabs do not disturb each other."""
    return once_cookie(hashlib.sha256(path.encode()).hexdigest()[:12])
