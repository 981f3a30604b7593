"""Initial access tokens, with which clients register themselves (RFC 7591 section 3): list, create, show, revoke."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from flask import Response

from app.api.endpoints import PAGE, Body, Endpoints, list_response
from app.api.representations import Count, CreatedAt, CreatedBy, Representation, Source, optional
from app.operations.clients import initial_access_tokens
from app.operations.clients.initial_access_tokens import RegistrationTokenRecord
from app.operations.store.idempotency import IdempotentResult
from app.rules.clients.credentials import MAX_USES, NewRegistrationToken
from app.rules.shapes import Between, OneOf, PublicId, Text, described
from app.web.bearer import ApiContext
from app.web.json_api import created, envelope, expected_version

endpoints = Endpoints("Registration tokens")


class RegistrationToken(Representation):
    """An initial access token, without its value."""

    id: Annotated[str, PublicId("ria", "registration token"), Source("public_id")]
    name: Annotated[str, Text(100), described("Who the token is for.")]
    hint: Annotated[str, described("The last four characters.")]
    status: Annotated[
        str,
        OneOf(("active", "expired", "revoked", "used_up")),
        described("`used_up` means that all its uses are spent."),
    ]
    max_uses: (
        Annotated[
            int, Between(1, MAX_USES), described("How many clients it may register. If null, any number.")
        ]
        | None
    )
    uses: Annotated[Count, described("How often a client was registered with it.")]
    created_at: CreatedAt
    created_by: CreatedBy
    expires_at: Annotated[datetime, described("When it stops being accepted.")]
    last_used_at: Annotated[datetime | None, described("When it was last used. Null if it never was.")]
    revoked_at: Annotated[datetime | None, described("When it was revoked. Null if it is not revoked.")]


class CreatedRegistrationToken(RegistrationToken):
    """A new initial access token."""

    initial_access_token: Annotated[str, described("The token. Only this response contains it.")] = optional()


@endpoints.get(
    "/registration-tokens", scope="clients:read", returns=RegistrationToken, is_page=True, query=PAGE
)
def list_registration_tokens(context: ApiContext) -> Response:
    """List initial access tokens.

    The newest first, without revoked ones.
    """
    read = initial_access_tokens.list_registration_tokens
    return list_response(context, "registration tokens", read, show=_to_json)


@endpoints.post(
    "/registration-tokens", scope="clients:write", body=NewRegistrationToken, returns=CreatedRegistrationToken
)
def create_registration_token(context: ApiContext, body: Body) -> IdempotentResult:
    """Create an initial access token.

    Clients can register themselves with it (RFC 7591 section 3).
    """
    new = initial_access_tokens.create_registration_token(context.actor, body)
    data = {**_to_json(new.record), "initial_access_token": new.token}
    return created(data, new.record.public_id, version=new.record.version)


@endpoints.get(
    "/registration-tokens/<registration_token_id>", scope="clients:read", returns=RegistrationToken
)
def get_registration_token(context: ApiContext, registration_token_id: str) -> Response:
    """Get an initial access token."""
    record = initial_access_tokens.get_registration_token(context.actor, registration_token_id)
    return envelope(_to_json(record), version=record.version)


@endpoints.delete(
    "/registration-tokens/<registration_token_id>",
    scope="clients:write",
    returns=RegistrationToken,
    if_match=True,
)
def revoke_registration_token(context: ApiContext, registration_token_id: str) -> Response:
    """Revoke an initial access token.

    Clients that were registered with it remain registered.
    """
    record = initial_access_tokens.revoke_registration_token(
        context.actor, registration_token_id, expected_version=expected_version()
    )
    return envelope(_to_json(record))


def _to_json(record: RegistrationTokenRecord) -> dict[str, Any]:
    return RegistrationToken.to_json(record, status=record.status.replace("live", "active"))
