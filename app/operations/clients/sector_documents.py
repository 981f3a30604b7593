"""Documents behind ``sector_identifier_uri``: they vouch for the redirect URIs of a sector (OpenID Connect Core 8.1).

Nothing leaves the process inside a unit of work, and a registration is one: so whoever begins it reads the document
ahead, and the unit asks for what was read.
"""

from __future__ import annotations

import time
from typing import Any

from app.operations.bounded import Kept
from app.operations.store import outgoing_http
from app.operations.store.transactions import is_in_transaction
from app.rules.actor import Actor
from app.rules.clients.client_metadata import ClientMetadata
from app.rules.clients.redirect_uris import listing_problem, web_address_problem
from app.rules.errors import DomainError, InvalidInput
from app.rules.strict_json import load_object

FIELD = "sector_identifier_uri"
_KEPT_SECONDS = 60.0
_MOST_KEPT = 100
_read: Kept[tuple[float, Any]] = Kept(_MOST_KEPT)


def read_ahead(actor: Actor, address: Any) -> None:
    """The document at the address is read, so that a registration in the next minute can ask for it.

    Nothing happens without an address, and inside a unit of work, whose beginner had to call this before. Raises
    Forbidden for who may not change clients, InvalidInput naming the field when there is no such document.
    """
    if not isinstance(address, str) or web_address_problem(address) is not None or is_in_transaction():
        return  # What is wrong with the value itself, the registration tells with all that is wrong.
    actor.require_for_own("clients:write")
    listed = fetch(actor.organization_id, address)
    _read.put(actor.organization_id, address, value=(time.monotonic(), listed))


def fetch(organization_id: str, address: str) -> Any:
    """What the document holds, an array of redirect URIs if it is one. Raises InvalidInput naming the field."""
    try:
        reply = outgoing_http.get(address, organization_id=organization_id)
        if reply.status != 200:
            raise InvalidInput("There is no document at this address.", field=FIELD, code="no_document")
        # Its top level is an array, which bodies of requests never are.
        return load_object(b'{"listed": %s}' % reply.body)["listed"]
    except InvalidInput as error:
        if error.field == FIELD:
            raise
        raise InvalidInput("The document is not JSON.", field=FIELD, code="bad_document") from error
    except DomainError as error:
        raise InvalidInput(error.description, field=FIELD, code=error.code) from error


def require_vouched(organization_id: str, before: ClientMetadata | None, after: ClientMetadata) -> None:
    """The document vouches for each redirect URI, if the client names one. Raises InvalidInput naming the field."""
    address = after.sector_identifier_uri
    if address is None:
        return
    if before is not None and (before.sector_identifier_uri, before.redirect_uris) == (
        address,
        after.redirect_uris,
    ):
        return
    at, listed = _read.get(organization_id, address) or (0.0, None)
    if time.monotonic() - at > _KEPT_SECONDS:
        raise InvalidInput("The document was not read. Try again.", field=FIELD, code="no_document")
    problem = listing_problem(listed, {"redirect_uris": after.redirect_uris})
    if problem is not None:
        raise InvalidInput(problem.message, field=FIELD, code=problem.code)
