"""A client's tokens: who allowed it what, which access tokens live, and the buttons that end a grant or a token."""

from __future__ import annotations

from app.operations.clients.clients import get_client
from app.operations.grants.grant_lists import list_grants, revoke_grant
from app.operations.tokens.token_lists import end_token, list_tokens
from app.portal.blueprint import portal
from app.portal.client_pages import client_page
from app.portal.paging import pages_of, position
from app.portal.visit import Answer, Visit, visiting

_LISTING = "portal grants"
_LIVING = "portal access tokens"


@portal.get("/portal/<organization>/clients/<client_id>/tokens")
@visiting
def client_tokens(visit: Visit, client_id: str) -> Answer:
    """The living grants of one client, as a tab of its page."""
    client = get_client(visit.actor, client_id)
    visit.actor.require("tokens:read", owner_id=client.created_by_user_id)
    listing = f"{_LISTING} {client.client_id}"
    page = list_grants(
        visit.actor,
        after=position(visit.organization.id, listing),
        filters={"client_id": client.client_id},
    )
    return client_page(
        visit,
        client,
        "tokens",
        page=page,
        may_revoke=visit.actor.has_permission("tokens:revoke", owner_id=client.created_by_user_id),
        pager=pages_of(page, visit.organization.id, listing),
    )


@portal.post("/portal/<organization>/clients/<client_id>/tokens/<grant_id>/revoke")
@visiting
def revoke_client_grant(visit: Visit, client_id: str, grant_id: str) -> Answer:
    """The grant is over; whoever was signed in to the client by it signs in again."""
    client = get_client(visit.actor, client_id)
    revoke_grant(visit.actor, grant_id, client_id=client.client_id)
    return visit.done(f"/clients/{client.client_id}/tokens", "grant-revoked")


@portal.get("/portal/<organization>/clients/<client_id>/tokens/access")
@visiting
def client_access_tokens(visit: Visit, client_id: str) -> Answer:
    """The living access tokens of one client, those without a person behind them included."""
    client = get_client(visit.actor, client_id)
    visit.actor.require("tokens:read", owner_id=client.created_by_user_id)
    listing = f"{_LIVING} {client.client_id}"
    page = list_tokens(
        visit.actor,
        after=position(visit.organization.id, listing),
        filters={"client_id": client.client_id},
    )
    return client_page(
        visit,
        client,
        "tokens",
        template="access_tokens",
        page=page,
        may_revoke=visit.actor.has_permission("tokens:revoke", owner_id=client.created_by_user_id),
        pager=pages_of(page, visit.organization.id, listing),
    )


@portal.post("/portal/<organization>/clients/<client_id>/tokens/access/<access_token_id>/end")
@visiting
def end_client_token(visit: Visit, client_id: str, access_token_id: str) -> Answer:
    """The access token is accepted no more; whoever holds it asks for another."""
    client = get_client(visit.actor, client_id)
    end_token(visit.actor, access_token_id, client_id=client.client_id)
    return visit.done(f"/clients/{client.client_id}/tokens/access", "token-ended")
