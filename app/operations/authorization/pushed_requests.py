"""Pushed authorization requests (RFC 9126), valid for a minute and used once, and request objects (RFC 9101)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from uuid import UUID

from msgspec import Struct
from sqlalchemy import ColumnElement, bindparam, insert, select, update

from app.extensions import db
from app.fast_path.compiled_query import CompiledQuery
from app.models.base import has_key
from app.models.token import PushedRequest
from app.operations.clients import client_authentication
from app.operations.clients.client_authentication import KeysUnavailable
from app.operations.directory.snapshots import AuthenticatedClient, ClientSnapshot
from app.operations.store import clock
from app.operations.store.rows import count_rows
from app.operations.store.transactions import count_changed, current_unit_of_work, transaction
from app.rules.actor import Actor
from app.rules.authorization.authorization_request import known_parameters
from app.rules.authorization.request_object import (
    InvalidRequestObject,
    read_request_object,
    validate_request_object,
)
from app.rules.clients.client_coherence import accepted_algorithms, is_fapi2
from app.rules.clients.dpop import InvalidProof
from app.rules.errors import AuthorizationError, TooManyRequests, UnredirectableError
from app.rules.identifiers import PUSHED_REQUEST, digest, is_token_of, new_id, new_token
from app.rules.languages.translation import lazy_gettext
from app.rules.sign_in.passwords import network_of


def read_request_object_parameters(client: ClientSnapshot, request_object: str) -> dict[str, str]:
    """Return the parameters in a request object; parameters outside of it are ignored (RFC 9101 section 6.3).

    Raises InvalidRequestObject, and AuthorizationError for an encrypted or unsigned one and while the client's keys
    are unavailable. Call it outside of a transaction, because it may fetch keys.
    """
    document = client.document
    chosen = document.get("request_object_signing_alg")
    must_be_signed = bool(chosen or document.get("require_signed_request_object") or is_fapi2(document))
    jwt = read_request_object(request_object, must_be_signed=must_be_signed)
    try:
        is_signed = client_authentication.is_signed_by_client(client, jwt)
    except KeysUnavailable as unavailable:
        raise AuthorizationError("temporarily_unavailable", unavailable.description).with_cause(
            "client_keys_unavailable"
        ) from None
    if not is_signed:
        raise InvalidRequestObject(lazy_gettext("No key of the client verifies the request object."))
    return validate_request_object(
        jwt,
        client_id=client.client_id,
        issuer=client.organization.issuer,
        algorithms=accepted_algorithms(document, chosen),
        is_bounded=is_fapi2(document),
        now=clock.now(),
    )


PREFIX = "urn:ietf:params:oauth:request_uri:"
REQUEST_LIFETIME = timedelta(seconds=60)
# Pending requests of one client, in total and, for a public client, from one network.
MAX_PENDING = 10_000
MAX_PENDING_PER_NETWORK = 300
_FIND = CompiledQuery(
    select(
        PushedRequest.id,
        PushedRequest.client_id,
        PushedRequest.parameters,
        PushedRequest.expires_at,
        PushedRequest.used_at,
        PushedRequest.created_at,
    ).where(
        PushedRequest.organization_id == bindparam("organization_id"),
        PushedRequest.digest == bindparam("digest"),
    )
)


class PushedRequestRecord(Struct, frozen=True):
    """A pending request; ``sent`` are its parameters."""

    id: UUID
    sent: Mapping[str, str]


def push_request(actor: Actor, authenticated: AuthenticatedClient, sent: Mapping[str, str]) -> str:
    """Store a validated request for ``REQUEST_LIFETIME``, and return its ``request_uri``; ``actor`` is the client.

    A DPoP proof sent with it binds the code to its key (RFC 9449 section 10.1). Raises InvalidProof if the request
    names another key, and TooManyRequests.
    """
    parameters, jkt = known_parameters(sent), authenticated.dpop_jkt
    if jkt is not None and parameters.setdefault("dpop_jkt", jkt) != jkt:
        raise InvalidProof("The dpop_jkt is not the thumbprint of the proof's key.").with_cause(
            "dpop_wrong_key"
        )
    return PREFIX + _push(actor, authenticated.client, parameters)


@transaction
def _push(actor: Actor, client: ClientSnapshot, parameters: Mapping[str, str]) -> str:
    _enforce_pending_limit(actor, client)
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
            expires_at=now + REQUEST_LIFETIME,
        )
    )
    return token


def find_pushed_request(client: ClientSnapshot, request_uri: str) -> PushedRequestRecord:
    """Return the client's pending request for the ``request_uri``. Raises UnredirectableError otherwise (OI-4).

    It stays pending until ``mark_used``, so that the user can reload the sign-in page.
    """
    token = request_uri.removeprefix(PREFIX)
    organization = client.organization
    row = None
    if is_token_of(token, PUSHED_REQUEST, organization.id):
        row = _FIND.first(organization_id=organization.id, digest=digest(token))
    if (
        row is None
        or row.client_id != client.id
        or row.used_at is not None
        or row.expires_at <= clock.now()
        or organization.is_before_restore(row.created_at)
    ):
        raise UnredirectableError(
            "The app's request has ended, was answered already, or is not the app's own.",
            code="invalid_request_uri",
        ).with_cause("par_unknown")
    return PushedRequestRecord(row.id, row.parameters)


@transaction
def mark_used(actor: Actor, pushed_id: UUID) -> bool:
    """Mark the pushed request as used; return False if it already was.

    Part of the transaction that stores the result: of two sign-ins for one request, the first one succeeds.
    """
    changed = count_changed(
        update(PushedRequest)
        .where(has_key(PushedRequest, actor.organization_id, pushed_id), PushedRequest.used_at.is_(None))
        .values(used_at=clock.now())
    )
    return changed == 1


def _enforce_pending_limit(actor: Actor, client: ClientSnapshot) -> None:
    pending: tuple[ColumnElement[bool], ...] = (
        PushedRequest.organization_id == actor.organization_id,
        PushedRequest.client_id == client.id,
        PushedRequest.expires_at > clock.now(),
    )
    bounds = [(MAX_PENDING, pending)]
    if client.is_public:
        bounds.insert(
            0, (MAX_PENDING_PER_NETWORK, (*pending, PushedRequest.network == network_of(actor.ip_address)))
        )
    for bound, conditions in bounds:
        # Counts up to the bound, within the index.
        if count_rows(select(PushedRequest.id).where(*conditions), bound) == bound:
            raise TooManyRequests(
                "Too many pushed requests of this client are pending. Try again in a minute.",
                retry_after=int(REQUEST_LIFETIME.total_seconds()),
            ).with_cause("par_too_many", expected=f"at most {bound} in a minute")
