"""Active access tokens, without their values: list, show, revoke."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from app.api.endpoints import Endpoints, show_page
from app.api.representations import ClientId, ClientName, CredentialId, Representation, Slug, Source, UserId
from app.operations.tokens import token_lists
from app.operations.tokens.token_lists import FILTERS
from app.rules.shapes import OneOf, PublicId, described
from app.web.bearer import ApiContext

endpoints = Endpoints("Tokens", "tokens")
_TokenId = Annotated[str, PublicId("tok", "token")]


class Token(Representation):
    """An access token, without its value."""

    id: Annotated[_TokenId, Source("public_id")]
    organization_id: Slug
    kind: Annotated[
        str, OneOf(("user", "client")), described("Whether it acts for a user or for the client itself.")
    ]
    client_id: ClientId
    client_name: ClientName
    user_id: Annotated[UserId | None, described("The user. Null if the client acts for itself.")]
    user_email: Annotated[
        str | None, described("The email address of the user. Null if the client acts for itself.")
    ]
    grant_id: Annotated[
        Annotated[str, PublicId("grt", "grant")] | None,
        described("The grant that it was issued under. Null without one."),
    ]
    credential_id: Annotated[
        CredentialId | None, described("The client secret that it was issued with. Null without one.")
    ]
    scopes: Annotated[list[str], described("The scopes of the token.")]
    audience: Annotated[list[str], described("The resources that accept the token.")]
    dpop_bound: Annotated[
        bool, Source("is_bound"), described("Whether it is bound to a key (DPoP, RFC 9449).")
    ]
    subject_token_id: Annotated[
        _TokenId | None, Source("exchanged_for"), described("The token that it was exchanged for (RFC 8693).")
    ]
    issued_at: Annotated[datetime, described("When it was issued.")]
    expires_at: Annotated[datetime, described("When it stops being accepted.")]
    revoked_at: Annotated[datetime | None, described("Only set in the response that revokes it.")]


@endpoints.page("/tokens", returns=Token, filters=FILTERS)
def list_tokens(context: ApiContext) -> object:
    """List active access tokens.

    The newest first, without their values. For refresh tokens, see the grants.
    """
    return show_page(context, "tokens", token_lists.list_tokens, filters=FILTERS)


@endpoints.get("/tokens/<token_id>", returns=Token)
def get_token(context: ApiContext, token_id: str) -> object:
    """Get an active access token."""
    return token_lists.get_token(context.actor, token_id)


@endpoints.delete("/tokens/<token_id>", scope="tokens:revoke", returns=Token)
def revoke_access_token(context: ApiContext, token_id: str) -> object:
    """Revoke an access token.

    The token and all tokens that were exchanged for it are revoked immediately. Its grant remains valid.
    """
    return token_lists.revoke_listed_token(context.actor, token_id)
