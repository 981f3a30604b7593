"""A refusal by what another machine may have changed a moment ago is decided again by what stands now."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from app.oauth.call import Call
from app.operations.directory import lookups
from app.rules.clients.dpop import InvalidProof
from app.rules.oauth_errors import (
    InvalidGrant,
    InvalidScope,
    InvalidTarget,
    UnauthorizedClient,
)

T = TypeVar("T")


def with_second_look(call: Call, decide: Callable[[], T]) -> T:
    """What ``decide`` says; asked once more when it refused by a view of the client that is no longer true."""
    try:
        return decide()
    except (InvalidGrant, InvalidProof, InvalidScope, InvalidTarget, UnauthorizedClient):
        if not _is_stale(call):
            raise
    return decide()


def _is_stale(call: Call) -> bool:
    """Whether the client that authenticated is another by now; what is read for it is what counts from here on."""
    if call.authenticated is None:
        return False
    client = call.authenticated.client
    fresh = lookups.reload_client(client)
    return (
        fresh is None
        or fresh.version != client.version
        or fresh.organization.version != client.organization.version
    )
