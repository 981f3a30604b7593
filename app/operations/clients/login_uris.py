"""Login initiation URLs of clients (OpenID Connect Core section 4)."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import select

from app.extensions import db
from app.models.client import ACTIVE, Client
from app.operations.directory.lookups import get_organization_by_id
from app.operations.store.transactions import read
from app.rules.actor import Actor
from app.rules.clients.redirect_uris import add_query_parameters
from app.rules.identifiers import format_client_id, parse_client_id


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
