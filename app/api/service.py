"""The caller of the API, and the API's description."""

from __future__ import annotations

import functools
import gzip
from typing import Annotated, Any

from flask import Response, json, request

from app.api.endpoints import Endpoints, api
from app.api.representations import Representation, Slug
from app.config import current
from app.operations.store.audit import actor_public_id
from app.rules.shapes import OneOf, described
from app.web.bearer import ApiContext

endpoints = Endpoints("Service")


class Me(Representation):
    """The caller."""

    kind: Annotated[
        str, OneOf(("user", "client")), described("Whether the token acts for a user or for a client itself.")
    ]
    id: Annotated[str, described("`usr_…` or `cli_…`.")]
    name: Annotated[str, described("The email address of the user, or the name of the client.")]
    organization_id: Slug
    is_root: Annotated[bool, described("Whether it is the root organization, which manages the others.")]
    permissions: Annotated[list[str], described("The current permissions of this token.")]


@endpoints.get("/me", scope=None, returns=Me, names_organization=False)
def get_me(context: ApiContext) -> object:
    """Get the caller.

    Any access token for the management API is accepted.
    """
    actor = context.actor
    return {
        "kind": actor.kind,
        "id": actor_public_id(actor),
        "name": actor.label,
        "organization_id": context.organization.slug,
        "is_root": actor.is_root,
        "permissions": sorted(actor.permissions),
    }


@api.get("/openapi.json")
def get_openapi() -> Response:
    """Return the OpenAPI 3.1 document. It is public, and the same for every caller."""
    plain, compressed = _document(current().base_url)
    # Deflate is left out: browsers and servers disagree about its format (RFC 9110 section 8.4.1.2).
    is_compressed = request.accept_encodings["gzip"] > 0
    response = Response(compressed if is_compressed else plain, mimetype="application/json")
    if is_compressed:
        response.headers["Content-Encoding"] = "gzip"
    response.vary.add("Accept-Encoding")
    response.headers["Cache-Control"] = "public, max-age=300"
    return response


def describe(base_url: str) -> dict[str, Any]:
    """Return the OpenAPI document; ``base_url`` is the URL of this service."""
    from app.api.openapi.document import build_document

    return build_document(base_url)


@functools.cache
def _document(base_url: str) -> tuple[bytes, bytes]:
    """Return the document as it is, and compressed: a twentieth of the size."""
    document = json.dumps(describe(base_url)).encode()
    # Without the time, so that every worker sends the same bytes and ETag.
    return document, gzip.compress(document, mtime=0)
