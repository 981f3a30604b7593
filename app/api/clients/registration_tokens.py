"""Initial access tokens, with which clients register themselves (RFC 7591 section 3): list, create, show, revoke."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from app.api.endpoints import Body, Endpoints, Shown, show_page
from app.api.representations import Count, CreatedAt, CreatedBy, Representation, Source, optional
from app.operations.clients import initial_access_tokens
from app.rules.clients.credentials import MAX_USES, NewRegistrationToken
from app.rules.shapes import Between, OneOf, PublicId, Text, described
from app.web.bearer import ApiContext
from app.web.json_api import expected_version

endpoints = Endpoints("Registration tokens", "clients")


class RegistrationToken(Representation):
    """An initial access token, without its value."""

    id: Annotated[str, PublicId("ria", "registration token"), Source("public_id")]
    name: Annotated[str, Text(100), described("Who the token is for.")]
    hint: Annotated[str, described("The last four characters.")]
    status: Annotated[
        str,
        OneOf(("active", "expired", "revoked", "used_up")),
        Source(lambda record: record.status.replace("live", "active")),
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


@endpoints.page("/registration-tokens", returns=RegistrationToken)
def list_registration_tokens(context: ApiContext) -> object:
    """List initial access tokens.

    The newest first, without revoked ones.
    """
    return show_page(context, "registration tokens", initial_access_tokens.list_registration_tokens)


@endpoints.post("/registration-tokens", body=NewRegistrationToken, returns=CreatedRegistrationToken)
def create_registration_token(context: ApiContext, body: Body) -> object:
    """Create an initial access token.

    Clients can register themselves with it (RFC 7591 section 3).
    """
    new = initial_access_tokens.create_registration_token(context.actor, body)
    return Shown(new.record, {"initial_access_token": new.token})


@endpoints.get("/registration-tokens/<registration_token_id>", returns=RegistrationToken)
def get_registration_token(context: ApiContext, registration_token_id: str) -> object:
    """Get an initial access token."""
    return initial_access_tokens.get_registration_token(context.actor, registration_token_id)


@endpoints.delete(
    "/registration-tokens/<registration_token_id>", returns=RegistrationToken, if_match=True, errors=()
)
def revoke_registration_token(context: ApiContext, registration_token_id: str) -> object:
    """Revoke an initial access token.

    Clients that were registered with it remain registered.
    """
    return initial_access_tokens.revoke_registration_token(
        context.actor, registration_token_id, expected_version=expected_version()
    )
