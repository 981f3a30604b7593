"""Pushed authorization requests (RFC 9126): kept a minute for the browser that brings them, answered once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from sqlalchemy import ColumnElement, bindparam, func, insert, select, update

from app.extensions import db
from app.models.pushed_request import PushedRequest
from app.operations import clock
from app.operations.client_proof.authenticated_client import AuthenticatedClient
from app.operations.directory import ClientView
from app.operations.statements import Statement
from app.operations.transaction import count_changed, current_unit, transaction
from app.rules.actor import Actor
from app.rules.authorization.authorization_request import understood
from app.rules.client_proof.dpop import InvalidProof
from app.rules.errors import TooManyRequests
from app.rules.identifiers import new_id
from app.rules.oauth_errors import PageRefusal
from app.rules.people.networks import network_of
from app.rules.tokens.tokens import PUSHED_REQUEST, digest, new_token, parse_token

PREFIX = "urn:ietf:params:oauth:request_uri:"
LIFE = timedelta(seconds=60)
# Requests of one client that wait at a time, from everywhere and, for one that anybody can call itself, from one place.
MOST_OPEN = 10_000
MOST_OPEN_PER_NETWORK = 300
_FIND = Statement(
    select(
        PushedRequest.id,
        PushedRequest.client_id,
        PushedRequest.parameters,
        PushedRequest.expires_at,
        PushedRequest.used_at,
    ).where(
        PushedRequest.organization_id == bindparam("organization_id"),
        PushedRequest.digest == bindparam("digest"),
    )
)


@dataclass(frozen=True, slots=True)
class Pushed:
    """What the client is told (RFC 9126 section 2.2); ``expires_in`` is in seconds."""

    request_uri: str
    expires_in: int


@dataclass(frozen=True, slots=True)
class PushedRequestView:
    """A request that waits. ``sent`` are its parameters, each once."""

    id: UUID
    sent: Mapping[str, str]


def push_request(actor: Actor, authenticated: AuthenticatedClient, sent: Mapping[str, str]) -> Pushed:
    """The checked request waits for a browser; ``actor`` is the client, ``sent`` what was found good.

    A proof of possession that came with it binds the code (RFC 9449 section 10.1). Raises InvalidProof when the
    request names another key, TooManyRequests.
    """
    parameters, jkt = understood(sent), authenticated.dpop_jkt
    if jkt is not None and parameters.setdefault("dpop_jkt", jkt) != jkt:
        raise InvalidProof("The dpop_jkt is not the thumbprint of the proof's key.").because("dpop_wrong_key")
    return Pushed(PREFIX + _push(actor, authenticated.client, parameters), int(LIFE.total_seconds()))


@transaction
def _push(actor: Actor, client: ClientView, parameters: Mapping[str, str]) -> str:
    _require_room(actor, client)
    token = current_unit().once("pushed", lambda: new_token(PUSHED_REQUEST, actor.organization_id))
    now = clock.now()
    db.session.execute(
        insert(PushedRequest).values(
            organization_id=actor.organization_id,
            id=new_id(),
            digest=digest(token),
            client_id=client.id,
            network=network_of(actor.address),
            parameters=parameters,
            created_at=now,
            expires_at=now + LIFE,
        )
    )
    return token


def find_pushed_request(client: ClientView, request_uri: str) -> PushedRequestView:
    """The client's own request behind the ``request_uri``, still waiting. Raises PageRefusal otherwise (OI-4).

    It goes on waiting: whoever loads the sign-in page twice finds it twice. What spends it is ``spend``.
    """
    token = request_uri.removeprefix(PREFIX)
    parsed = parse_token(token)
    own = client.organization.id
    if parsed is None or parsed.kind != PUSHED_REQUEST or parsed.organization_id != own:
        raise _unknown()
    row = _FIND.first(organization_id=own, digest=digest(token))
    if row is None:
        raise _unknown()
    row_id, client_id, parameters, expires_at, used_at = row
    if client_id != client.id or used_at is not None or expires_at <= clock.now():
        raise _unknown()
    return PushedRequestView(row_id, parameters)


@transaction
def spend(actor: Actor, pushed_id: UUID) -> bool:
    """The pushed request is answered; whether this is what answered it.

    Part of the unit in which the answer is written: of two sign-ins that one request began, the first one counts.
    """
    changed = count_changed(
        update(PushedRequest)
        .where(
            PushedRequest.organization_id == actor.organization_id,
            PushedRequest.id == pushed_id,
            PushedRequest.used_at.is_(None),
        )
        .values(used_at=clock.now())
    )
    return changed == 1


def _unknown() -> PageRefusal:
    return PageRefusal(
        "The app's request has ended, was answered already, or is not the app's own.",
        code="invalid_request_uri",
    ).because("par_unknown")


def _require_room(actor: Actor, client: ClientView) -> None:
    living: tuple[ColumnElement[bool], ...] = (
        PushedRequest.organization_id == actor.organization_id,
        PushedRequest.client_id == client.id,
        PushedRequest.expires_at > clock.now(),
    )
    bounds = [(MOST_OPEN, living)]
    if client.is_public:
        bounds.insert(
            0, (MOST_OPEN_PER_NETWORK, (*living, PushedRequest.network == network_of(actor.address)))
        )
    for bound, conditions in bounds:
        # Counted up to the bound alone, and within the index.
        some = select(PushedRequest.id).where(*conditions).limit(bound).subquery()
        if db.session.scalar(select(func.count()).select_from(some)) == bound:
            raise TooManyRequests(
                "Too many pushed requests of this client are open. Try again in a minute.",
                retry_after=int(LIFE.total_seconds()),
            ).because("par_too_many", expected=f"at most {bound} in a minute")
