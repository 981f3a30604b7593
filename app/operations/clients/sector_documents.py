"""URLs of clients: sector documents (OpenID Connect Core 8.1), and the URLs that start a sign-in.

No outgoing request may happen inside a transaction. The caller therefore fetches the document at the
``sector_identifier_uri`` before registering a client, and the registration reads it from a short-lived cache.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from sqlalchemy import select

from app.extensions import db, in_transaction
from app.fast_path.cache import BoundedCache
from app.models.client import ACTIVE, Client
from app.operations.directory.lookups import get_organization_by_id
from app.operations.store import outgoing_http
from app.operations.store.transactions import read
from app.rules.actor import Actor
from app.rules.clients.client_metadata import ClientMetadata
from app.rules.clients.redirect_uris import add_query_parameters, sector_document_problem, web_url_problem
from app.rules.errors import DomainError, InvalidInput
from app.rules.identifiers import format_client_id, parse_client_id
from app.rules.strict_json import load_object

FIELD = "sector_identifier_uri"
_CACHE_SECONDS = 60.0
_MAX_CACHED = 100
_cache: BoundedCache[tuple[float, Any]] = BoundedCache(_MAX_CACHED)


def prefetch_sector_document(actor: Actor, url: Any) -> None:
    """Fetch the document, so that a registration within the next minute can use it.

    Does nothing without a valid URL or inside a transaction. Raises Forbidden if the actor cannot change
    clients, and InvalidInput naming the field if there is no such document.
    """
    if not isinstance(url, str) or web_url_problem(url) is not None or in_transaction():
        return  # The registration reports an invalid value together with all other errors.
    actor.require_for_own("clients:write")
    listed = fetch_sector_document(actor.organization_id, url)
    _cache.put(actor.organization_id, url, value=(time.monotonic(), listed))


def fetch_sector_document(organization_id: str, url: str) -> Any:
    """Return the document's content, an array of redirect URIs if it is valid.

    Raises InvalidInput naming the field.
    """
    try:
        reply = outgoing_http.get(url, organization_id=organization_id)
        if reply.status != 200:
            raise InvalidInput("There is no document at this URL.", field=FIELD, code="no_document")
        # The parser accepts objects only, and this document is an array.
        return load_object(b'{"listed": %s}' % reply.body)["listed"]
    except InvalidInput as error:
        if error.field == FIELD:
            raise
        raise InvalidInput("The document is not JSON.", field=FIELD, code="bad_document") from error
    except DomainError as error:
        raise InvalidInput(error.description, field=FIELD, code=error.code) from error


def require_listed_redirect_uris(
    organization_id: str, before: ClientMetadata | None, after: ClientMetadata
) -> None:
    """Raise InvalidInput naming the field unless the document lists each of the client's redirect URIs."""
    url = after.sector_identifier_uri
    if url is None:
        return
    if before is not None and (before.sector_identifier_uri, before.redirect_uris) == (
        url,
        after.redirect_uris,
    ):
        return
    fetched_at, listed = _cache.get(organization_id, url) or (0.0, None)
    if time.monotonic() - fetched_at > _CACHE_SECONDS:
        raise InvalidInput("The document could not be read. Try again.", field=FIELD, code="no_document")
    problem = sector_document_problem(listed, {"redirect_uris": after.redirect_uris})
    if problem is not None:
        raise InvalidInput(problem.message, field=FIELD, code=problem.code)


@read
def find_login_urls(actor: Actor, client_ids: Iterable[str]) -> dict[str, str]:
    """Return, by ``client_id``, the URL that lets the client start a sign-in here.

    Includes the organization's active clients with an ``initiate_login_uri``. The ``iss`` parameter tells the
    client which issuer initiated the sign-in.
    """
    parsed = [parse_client_id(client_id) for client_id in client_ids]
    row_ids = [found[1] for found in parsed if found is not None and found[0] == actor.organization_id]
    rows = db.session.execute(
        select(Client.id, Client.document).where(
            Client.organization_id == actor.organization_id, Client.id.in_(row_ids), Client.status == ACTIVE
        )
    )
    issuer = get_organization_by_id(actor.organization_id).issuer
    return {
        format_client_id(actor.organization_id, row.id): add_query_parameters(url, {"iss": issuer})
        for row in rows
        if (url := row.document.get("initiate_login_uri"))
    }
