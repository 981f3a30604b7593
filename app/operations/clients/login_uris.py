"""Where sign-ins at clients begin that we begin ourselves (OpenID Connect Core section 4)."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import select

from app.extensions import db
from app.models.client import ACTIVE, Client
from app.operations.directory.lookups import get_organization_by_id
from app.operations.store.transactions import read
from app.rules.actor import Actor
from app.rules.clients.redirect_uris import with_parameters
from app.rules.identifiers import format_client_id, parse_client_id


@read
def login_addresses(actor: Actor, client_ids: Iterable[str]) -> dict[str, str]:
    """By ``client_id``: the address that opens the client and has it send the person here to sign in.

    Of the organization's active clients that have an ``initiate_login_uri``; the ``iss`` tells them who asks.
    """
    parsed = [parse_client_id(client_id) for client_id in client_ids]
    own = [found[1] for found in parsed if found is not None and found[0] == actor.organization_id]
    rows = db.session.execute(
        select(Client.id, Client.document).where(
            Client.organization_id == actor.organization_id, Client.id.in_(own), Client.status == ACTIVE
        )
    )
    issuer = get_organization_by_id(actor.organization_id).issuer
    return {
        format_client_id(actor.organization_id, row.id): with_parameters(address, {"iss": issuer})
        for row in rows
        if (address := row.document.get("initiate_login_uri"))
    }
