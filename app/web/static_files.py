"""Style sheet, scripts and icon: read once, the style sheet without comments and white space, named by their content.

They are kept in memory, so that a process sends what the hashes in its pages name, also while a new version is being
copied over the folder.
"""

from __future__ import annotations

import functools
import hashlib
import mimetypes
from typing import Any

import rcssmin
from flask import Flask, Response, abort, request
from msgspec import Struct
from werkzeug.wrappers import Response as BaseResponse

from app.config import ROOT

_FOLDER = ROOT / "static"
_TYPES = {".js": "text/javascript"}
"""The same on every machine: browsers execute no module of another type."""


class StaticFile(Struct, frozen=True):
    """The content as it is sent, and its hash."""

    content: bytes
    version: str
    mimetype: str


@functools.cache
def static_files() -> dict[str, StaticFile]:
    """Return the files by their path below ``static``."""
    files = {}
    for path in _FOLDER.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            if path.suffix == ".css":
                content = rcssmin.cssmin(content)
            mimetype = _TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0]
            version = hashlib.sha256(content).hexdigest()[:12]
            name = path.relative_to(_FOLDER).as_posix()
            files[name] = StaticFile(content, version, mimetype or "application/octet-stream")
    return files


def register(app: Flask) -> None:
    """Serve the files at Flask's route for them, and name their content in their URLs."""
    app.view_functions["static"] = _send
    app.url_defaults(_add_version)


def _send(filename: str) -> BaseResponse:
    """Send a file; the headers of ``web/headers`` say how long browsers may keep it."""
    file = static_files().get(filename)
    if file is None:
        abort(404)
    response = Response(file.content, mimetype=file.mimetype)
    response.set_etag(file.version)
    return response.make_conditional(request, accept_ranges=True, complete_length=len(file.content))


def _add_version(endpoint: str, values: dict[str, Any]) -> None:
    """Name the content of a static file in its URL, so that browsers may keep it for a year."""
    if endpoint == "static" and (file := static_files().get(values.get("filename", ""))):
        values["v"] = file.version
