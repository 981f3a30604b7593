"""Living access tokens, without what they are made of; list, show, end."""

from __future__ import annotations

from typing import Any

from flask import Response

from app.api.blueprint import api
from app.api.lists import filters_of, listed
from app.api.representations import time
from app.operations.tokens import token_lists
from app.operations.tokens.token_lists import FILTERS, TokenRecord
from app.web.bearer import Call, management
from app.web.json_api import envelope
from app.web.pagination import PARAMETERS


@api.get("/tokens")
@management(*PARAMETERS, *FILTERS)
def list_tokens(call: Call) -> Response:
    """The living access tokens that the caller may see, the newest first."""
    return listed(
        call,
        "tokens",
        token_lists.list_tokens,
        show=lambda record: token(record, call),
        filters=filters_of(call, FILTERS),
    )


@api.get("/tokens/<token_id>")
@management()
def get_token(call: Call, token_id: str) -> Response:
    """One living access token."""
    return envelope(token(token_lists.get_token(call.actor, token_id), call))


@api.delete("/tokens/<token_id>")
@management()
def end_token(call: Call, token_id: str) -> Response:
    """The access token is accepted no more."""
    return envelope(token(token_lists.end_token(call.actor, token_id), call))


def token(record: TokenRecord, call: Call) -> dict[str, Any]:
    """An access token as the API shows it: whose it is and what for."""
    return {
        "id": record.public_id,
        "organization_id": call.organization.slug,
        "kind": record.kind,
        "client_id": record.client_id,
        "client_name": record.client_name,
        "user_id": record.user_id,
        "user_email": record.user_email,
        "grant_id": record.grant_id,
        "credential_id": record.credential_id,
        "scopes": list(record.scopes),
        "audience": list(record.audience),
        "dpop_bound": record.is_bound,
        "exchanged_for": record.exchanged_for,
        "issued_at": time(record.issued_at),
        "expires_at": time(record.expires_at),
        "revoked_at": time(record.revoked_at),
    }
