"""Signing keys of an organization: list, show, rotate."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from flask import request

from app.api.endpoints import Body, Endpoints, show_page_of
from app.api.representations import Representation, Source
from app.operations.tokens import signing_key_lists
from app.rules.clients.client_types import SIGNING_ALGORITHMS
from app.rules.shapes import OneOf, SchemaOnly, described
from app.web.bearer import ApiContext
from app.web.json_api import created

endpoints = Endpoints("Signing keys", "settings")


class SigningKey(Representation):
    """A published signing key."""

    kid: Annotated[
        str, SchemaOnly(pattern="^[A-Za-z0-9_-]{43}$"), described("The key's RFC 7638 thumbprint.")
    ]
    algorithm: Annotated[
        str, OneOf(SIGNING_ALGORITHMS), described("The algorithm that it signs with (RFC 7518).")
    ]
    state: Annotated[
        str,
        OneOf(("next", "active", "retired")),
        described("`next` is published and will sign, `active` signs, `retired` only verifies."),
    ]
    created_at: Annotated[datetime, described("When it was published.")]
    activated_at: Annotated[datetime | None, described("When it began to sign.")]
    retired_at: Annotated[datetime | None, described("When it stopped signing.")]
    next_change_at: Annotated[
        datetime,
        Source("changes_at"),
        described("The earliest time of the next change: it begins to sign, is replaced, or is removed."),
    ]
    public_jwk: Annotated[dict[str, Any], described("The public key (RFC 7517), as in the key set.")]


@endpoints.page("/organizations/<slug>/signing-keys", returns=SigningKey)
def list_signing_keys(context: ApiContext, slug: str) -> object:
    """List the signing keys.

    The published keys, the newest first. They are rotated automatically.
    """
    keys = signing_key_lists.list_signing_keys(context.actor, slug)
    return show_page_of(context, f"signing-keys {slug}", keys, "kid")


@endpoints.get("/organizations/<slug>/signing-keys/<kid>", returns=SigningKey)
def get_signing_key(context: ApiContext, slug: str, kid: str) -> object:
    """Get a signing key."""
    return signing_key_lists.get_signing_key(context.actor, slug, kid)


@endpoints.post(
    "/organizations/<slug>/signing-keys/rotations",
    body=signing_key_lists.KeyRotation,
    is_body_optional=True,
    returns=SigningKey,
)
def rotate_signing_key(context: ApiContext, body: Body, slug: str) -> object:
    """Rotate a signing key ahead of schedule.

    The next key is published, and signs automatically after one day. Sending the request again after that day makes it
    sign immediately. A user needs a recent sign-in for an emergency.
    """
    record = signing_key_lists.rotate_signing_key(context.actor, slug, body)
    collection = request.path.removesuffix("/rotations")
    return created(SigningKey.to_json(record), record.kid, version=record.version, collection=collection)
