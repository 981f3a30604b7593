"""The OpenAPI document, in modules by noun, and the address that it stands at.

Its modules are read when somebody asks for it: most workers are never asked.
"""

from __future__ import annotations

import functools

from flask import Response, current_app, json

from app.api.blueprint import api
from app.config import Config


@api.get("/openapi.json")
def get_openapi() -> Response:
    """OpenAPI 3.1 of everything that programs may call; public, and the same for everybody."""
    config: Config = current_app.config["GATEHOUSE"]
    response = Response(_document(config.base_url), mimetype="application/json")
    response.headers["Cache-Control"] = "public, max-age=300"
    response.headers["Access-Control-Allow-Origin"] = "*"
    return response


@functools.cache
def _document(base_url: str) -> str:
    from app.api.openapi.document import document

    return json.dumps(document(base_url))
