"""How many authorization requests may be open at a time: each is a row that a stranger can make (scale.md rule 13)."""

from __future__ import annotations

from sqlalchemy import func, select, update

from app.extensions import db
from app.models.grant import AuthorizationRequest
from app.operations import clock
from app.operations.directory import ClientView
from app.operations.transaction import count_changed
from app.rules.actor import Actor
from app.rules.errors import TooManyRequests

MOST_OPEN = 50
# Of one client, from one place: a browser that keeps no cookie is a new one each time. An office signs in at nine.
MOST_OPEN_PER_NETWORK = 3_000

_PAUSE_SECONDS = 60


def require_room(actor: Actor, client: ClientView, network: str) -> None:
    """Raise TooManyRequests when as many requests of the client are open as may be from one network."""
    # Counted up to the bound alone, and within the index.
    some = (
        select(AuthorizationRequest.id)
        .where(
            AuthorizationRequest.organization_id == actor.organization_id,
            AuthorizationRequest.client_id == client.id,
            AuthorizationRequest.network == network,
            AuthorizationRequest.completed_at.is_(None),
            AuthorizationRequest.expires_at > clock.now(),
        )
        .limit(MOST_OPEN_PER_NETWORK)
        .subquery()
    )
    if db.session.scalar(select(func.count()).select_from(some)) == MOST_OPEN_PER_NETWORK:
        raise TooManyRequests(
            "Too many sign-ins to this app were begun from your network and not finished. Wait, then try again.",
            retry_after=_PAUSE_SECONDS,
        ).because("authorize_too_many", expected=f"at most {MOST_OPEN_PER_NETWORK} in half an hour")


def end_oldest(actor: Actor, browser: bytes) -> None:
    """Of the browser's open requests the newest ``MOST_OPEN`` stay; ``browser`` is the digest of its id."""
    own = (
        AuthorizationRequest.organization_id == actor.organization_id,
        AuthorizationRequest.browser_digest == browser,
        AuthorizationRequest.completed_at.is_(None),
    )
    # Ids are ordered by time.
    surplus = db.session.scalars(
        select(AuthorizationRequest.id)
        .where(*own)
        .order_by(AuthorizationRequest.id.desc())
        .offset(MOST_OPEN)
        .limit(MOST_OPEN)
    ).all()
    if surplus:
        count_changed(
            update(AuthorizationRequest)
            .where(*own, AuthorizationRequest.id.in_(surplus))
            .values(completed_at=clock.now())
        )
