"""The specification's revocation request: whose organization it names, and who may ask."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.operations.directory import ClientView
from app.operations.tenancy.acting import acting_in
from app.operations.tokens.revocation import revoke_token
from app.rules.actor import Actor
from app.rules.errors import InvalidInput, NotFound
from app.rules.tokens.revocation_request import revocation_request


def revoke_by_request(actor: Actor, fields: Mapping[str, Any], *, client: ClientView | None) -> None:
    """The organization never accepts the token again, committed; a string that was none changes nothing.

    ``client`` is one that proved itself by its secret: it may name its own tokens. Anybody else needs
    ``tokens:revoke``: Forbidden. Everything wrong with the body is
    InvalidInput, and so is an organization that is not the caller's, in the same words as one that does not exist
    (RV-1). Audit: ``token.revoked``, once.
    """
    if client is None:
        actor.require_some("tokens:revoke")
    wanted = revocation_request(fields)
    try:
        inside, _ = acting_in(actor, wanted.organization_id)
    except NotFound as unknown:
        words = "There is no such organization." if actor.is_root else "This is not your organization."
        raise InvalidInput(words, field="organization_id", code="unknown_organization") from unknown
    revoke_token(inside, wanted.token)
