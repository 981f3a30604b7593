"""Initial access tokens: list, make, show, revoke."""

from __future__ import annotations

from typing import Any

from flask import Response

from app.api.blueprint import api
from app.api.lists import listed
from app.api.representations import time
from app.operations.clients import initial_access_tokens
from app.operations.clients.initial_access_tokens import RegistrationTokenRecord
from app.operations.store.idempotency import IdempotentResult
from app.web.bearer import Call, management
from app.web.etag import etag_of, expected_version
from app.web.idempotency import created, once
from app.web.json_api import envelope, read_object
from app.web.pagination import PARAMETERS


@api.get("/registration-tokens")
@management(*PARAMETERS)
def list_registration_tokens(call: Call) -> Response:
    """The organization's initial access tokens, the newest first."""
    return listed(
        call, "registration tokens", initial_access_tokens.list_registration_tokens, show=registration_token
    )


@api.post("/registration-tokens")
@management()
def create_registration_token(call: Call) -> Response:
    """A new initial access token, in clear this once."""
    body = read_object()

    def work() -> IdempotentResult:
        made = initial_access_tokens.create_registration_token(call.actor, body)
        data = {**registration_token(made.record), "initial_access_token": made.token}
        return created(data, made.record.public_id, headers={"ETag": etag_of(made.record.version)})

    return once(call.actor, body, work)


@api.get("/registration-tokens/<token_id>")
@management()
def get_registration_token(call: Call, token_id: str) -> Response:
    """One initial access token, without its value."""
    record = initial_access_tokens.get_registration_token(call.actor, token_id)
    return envelope(registration_token(record), headers={"ETag": etag_of(record.version)})


@api.delete("/registration-tokens/<token_id>")
@management()
def revoke_registration_token(call: Call, token_id: str) -> Response:
    """Nobody registers by it any more."""
    record = initial_access_tokens.revoke_registration_token(
        call.actor, token_id, expected_version=expected_version()
    )
    return envelope(registration_token(record))


def registration_token(record: RegistrationTokenRecord) -> dict[str, Any]:
    """An initial access token as the API shows it."""
    return {
        "id": record.public_id,
        "name": record.name,
        "hint": record.hint,
        "status": record.status,
        "max_uses": record.max_uses,
        "uses": record.uses,
        "created_at": time(record.created_at),
        "created_by": record.created_by,
        "expires_at": time(record.expires_at),
        "last_used_at": time(record.last_used_at),
        "revoked_at": time(record.revoked_at),
    }
