"""Pushed authorization requests (RFC 9126): kept a minute for the browser that brings them, answered once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from sqlalchemy import ColumnElement, bindparam, func, insert, select, update

from app.extensions import db
from app.fast_path.compiled_query import CompiledQuery
from app.models.token import PushedRequest
from app.operations.clients import client_keys
from app.operations.clients.client_keys import KeysUnavailable
from app.operations.directory.lookups import AuthenticatedClient, ClientSnapshot
from app.operations.store import clock
from app.operations.store.transactions import count_changed, current_unit_of_work, transaction
from app.rules.actor import Actor
from app.rules.authorization.authorization_request import understood
from app.rules.authorization.request_object import (
    InvalidRequestObject,
    read_request_object,
    validate_request_object,
)
from app.rules.clients.client_requirements import get_client_requirements
from app.rules.clients.dpop import InvalidProof
from app.rules.errors import TooManyRequests
from app.rules.identifiers import new_id
from app.rules.oauth_errors import AuthorizationError, UnredirectableError
from app.rules.sign_in.lockout import network_of
from app.rules.token_values import PUSHED_REQUEST, digest, new_token, parse_token


def parameters_of(client: ClientSnapshot, request_object: str) -> dict[str, str]:
    """The parameters in the object, and nothing from beside it (RFC 9101 section 6.3).

    Raises InvalidRequestObject, and AuthorizationError for an encrypted one, an unsigned one, and while the
    client's keys cannot be read. Called outside of a unit: it may fetch them.
    """
    demands = get_client_requirements(client.document, client.organization.settings)
    chosen = client.document.get("request_object_signing_alg")
    jwt = read_request_object(
        request_object, must_be_signed=demands.request_objects or demands.fapi2 or chosen is not None
    )
    try:
        is_signed = client_keys.is_signed_by_client(client, jwt)
    except KeysUnavailable as unavailable:
        raise AuthorizationError("temporarily_unavailable", unavailable.description).with_cause(
            "client_keys_unavailable"
        ) from None
    if not is_signed:
        raise InvalidRequestObject("No key of the client verifies the request object.")
    return validate_request_object(
        jwt,
        client_id=client.client_id,
        issuer=client.organization.issuer,
        algorithms=tuple(name for name in demands.algorithms if chosen in {None, name}),
        is_bounded=demands.fapi2,
        now=clock.now(),
    )


PREFIX = "urn:ietf:params:oauth:request_uri:"
LIFE = timedelta(seconds=60)
# Requests of one client that wait at a time, from everywhere and, for one that anybody can call itself, from one place.
MOST_OPEN = 10_000
MOST_OPEN_PER_NETWORK = 300
_FIND = CompiledQuery(
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
        raise InvalidProof("The dpop_jkt is not the thumbprint of the proof's key.").with_cause(
            "dpop_wrong_key"
        )
    return Pushed(PREFIX + _push(actor, authenticated.client, parameters), int(LIFE.total_seconds()))


@transaction
def _push(actor: Actor, client: ClientSnapshot, parameters: Mapping[str, str]) -> str:
    _require_room(actor, client)
    token = current_unit_of_work().stable_value(
        "pushed", lambda: new_token(PUSHED_REQUEST, actor.organization_id)
    )
    now = clock.now()
    db.session.execute(
        insert(PushedRequest).values(
            organization_id=actor.organization_id,
            id=new_id(),
            digest=digest(token),
            client_id=client.id,
            network=network_of(actor.ip_address),
            parameters=parameters,
            created_at=now,
            expires_at=now + LIFE,
        )
    )
    return token


def find_pushed_request(client: ClientSnapshot, request_uri: str) -> PushedRequestView:
    """The client's own request behind the ``request_uri``, still waiting. Raises UnredirectableError otherwise (OI-4).

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


def _unknown() -> UnredirectableError:
    return UnredirectableError(
        "The app's request has ended, was answered already, or is not the app's own.",
        code="invalid_request_uri",
    ).with_cause("par_unknown")


def _require_room(actor: Actor, client: ClientSnapshot) -> None:
    living: tuple[ColumnElement[bool], ...] = (
        PushedRequest.organization_id == actor.organization_id,
        PushedRequest.client_id == client.id,
        PushedRequest.expires_at > clock.now(),
    )
    bounds = [(MOST_OPEN, living)]
    if client.is_public:
        bounds.insert(
            0, (MOST_OPEN_PER_NETWORK, (*living, PushedRequest.network == network_of(actor.ip_address)))
        )
    for bound, conditions in bounds:
        # Counted up to the bound alone, and within the index.
        some = select(PushedRequest.id).where(*conditions).limit(bound).subquery()
        if db.session.scalar(select(func.count()).select_from(some)) == bound:
            raise TooManyRequests(
                "Too many pushed requests of this client are open. Try again in a minute.",
                retry_after=int(LIFE.total_seconds()),
            ).with_cause("par_too_many", expected=f"at most {bound} in a minute")
