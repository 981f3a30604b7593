"""Clients whose ``client_id`` is the address of their metadata (draft-ietf-oauth-client-id-metadata-document).

The document is read when a client is first met and again when its time is over, never inside a unit of work. What is
kept of it is a client like any other: settings, consent, tokens and the ledger know no difference.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import bindparam, delete, select, update
from sqlalchemy.exc import IntegrityError

from app.extensions import db
from app.models.client import METADATA_DOCUMENT, ClientRegistration
from app.models.grant import Consent
from app.operations.bounded import Kept
from app.operations.clients import scopes, sector_documents
from app.operations.clients.clients import (
    FIRST_IDLE_CHECK,
    NoRoom,
    Origin,
    get_client,
    register_client,
    update_client,
)
from app.operations.clients.dynamic_registration import registrar_of
from app.operations.directory.lookups import OrganizationSnapshot
from app.operations.statements import Statement
from app.operations.store import clock, outgoing_http, rate_limits
from app.operations.store.rate_limits import network_limits
from app.operations.store.transactions import is_duplicate_key, transaction
from app.rules.actor import Actor
from app.rules.clients.client_types import BLOCKED, REVIEW
from app.rules.clients.dynamic_metadata import Offer, as_fields, refusal_words, replacing
from app.rules.clients.metadata_documents import (
    LARGEST_DOCUMENT,
    document_metadata,
    host_of_document,
    is_document_address,
    life_of,
)
from app.rules.errors import DomainError, Forbidden, InvalidInput
from app.rules.identifiers import format_client_id
from app.rules.oauth_errors import UnredirectableError
from app.rules.sign_in.lockout import Lockout
from app.rules.store.outgoing_http import OutgoingRequestBlocked
from app.rules.strict_json import load_object

# A copy that could not be renewed counts for this long after it was read.
KEPT_UNREAD = timedelta(hours=24)
# This service must be no help to whoever wants to knock on many doors.
MOST_PER_NETWORK = Lockout(60, timedelta(minutes=10), timedelta(seconds=30), timedelta(minutes=10))
# For so long a process asks neither the address nor the database again.
_REMEMBERED_SECONDS = 30.0
_MOST_REMEMBERED = 5_000
_CONSENTS_AT_ONCE = 500
_KNOWN = Statement(
    select(ClientRegistration.id, ClientRegistration.fetched_at, ClientRegistration.fresh_until).where(
        ClientRegistration.organization_id == bindparam("organization_id"),
        ClientRegistration.address_digest == bindparam("address_digest"),
    )
)
_remembered: Kept[tuple[float, UUID]] = Kept(_MOST_REMEMBERED)


class DocumentRefused(UnredirectableError):
    """There is no client at the address: nothing could be read there, or what stands there describes none."""


@dataclass(frozen=True, slots=True)
class _Copy:
    """The client that was made of the document, and how old what it knows is."""

    row_id: UUID
    read_at: datetime
    fresh_until: datetime


@dataclass(frozen=True, slots=True)
class _Document:
    """What stood at the address, as fields of a client, and until when it counts."""

    fields: dict[str, Any]
    read_at: datetime
    fresh_until: datetime


def client_at(organization: OrganizationSnapshot, client_id: str, address: str | None) -> UUID | None:
    """The row of the client whose metadata stands at the address ``client_id``; read again once its time is over.

    None when the organization takes no such ids, is not active, or this can be none. ``address`` is the caller's.
    Raises DocumentRefused, TooManyRequests. Called outside of a unit of work. Audit: ``client.registered`` and
    ``client.updated``.
    """
    rules = organization.settings["oauth"]["dynamic_registration"]
    # A suspended organization meets nobody, and asks no server of others for them.
    if not rules["client_id_metadata_documents"] or not organization.is_active:
        return None
    known = _remembered.get(organization.id, client_id)
    if known is not None and time.monotonic() < known[0]:
        return known[1]
    if not is_document_address(client_id):
        return None
    row_id = _current_row(organization, client_id, address)
    _remembered.put(organization.id, client_id, value=(time.monotonic() + _REMEMBERED_SECONDS, row_id))
    return row_id


def forget_documents() -> None:
    """Nothing is remembered in this process: the next request asks the database again."""
    _remembered.clear()


def _current_row(organization: OrganizationSnapshot, client_id: str, address: str | None) -> UUID:
    address_digest = hashlib.sha256(client_id.encode()).digest()
    known = _copy_of(organization.id, address_digest)
    now = clock.now()
    if known is not None and known.fresh_until > now:
        return known.row_id
    actor = registrar_of(Actor.anonymous(organization.id, address), host_of_document(client_id))
    _require_patience(actor)
    try:
        document = _read(organization, client_id)
    except outgoing_http.OutgoingRequestFailed as error:
        if known is not None and now - known.read_at < KEPT_UNREAD:
            return known.row_id
        raise DocumentRefused("This app's description could not be read from its address.") from error
    try:
        sector_documents.read_ahead(actor, document.fields.get(sector_documents.FIELD))
        if known is None:
            return _registered(actor, client_id, address_digest, document)
        _renew(actor, known.row_id, document)
    except (InvalidInput, NoRoom) as error:
        raise _refused(error) from error
    return known.row_id


def _copy_of(organization_id: str, address_digest: bytes) -> _Copy | None:
    row = _KNOWN.first(organization_id=organization_id, address_digest=address_digest)
    return None if row is None else _Copy(*row)


def _require_patience(actor: Actor) -> None:
    limits = network_limits(MOST_PER_NETWORK, actor.ip_address, "metadata documents")
    rate_limits.require_attempt_allowed(
        actor.organization_id,
        "Too many apps were looked up from your network. Wait, then try again.",
        *limits,
    )


def _read(organization: OrganizationSnapshot, client_id: str) -> _Document:
    """Raises OutgoingFailed when the address gives no answer, DocumentRefused when its answer describes no client."""
    try:
        reply = outgoing_http.get(
            client_id,
            organization_id=organization.id,
            accept="application/json",
            max_bytes=LARGEST_DOCUMENT,
        )
    except OutgoingRequestBlocked as error:
        raise DocumentRefused("This app's description stands at an address that may not be asked.") from error
    if reply.status >= 500 or reply.status == 429:
        raise outgoing_http.OutgoingRequestFailed("The server at the address is out of order.")
    kind = reply.headers.get("content-type", "").partition(";")[0].strip().lower()
    if reply.status != 200 or not (kind == "application/json" or kind.endswith("+json")):
        raise DocumentRefused("There is no app's description at its address.")
    try:
        metadata = document_metadata(client_id, load_object(reply.body))
        fields = as_fields(metadata, _offer(organization))
    except DomainError as error:
        raise _refused(error) from error
    now = clock.now()
    return _Document(fields, now, now + life_of(reply.headers))


def _refused(error: DomainError) -> DocumentRefused:
    words = refusal_words(error) if isinstance(error, InvalidInput) else error.description
    return DocumentRefused(f"This app's description cannot be used. {words}")


def _offer(organization: OrganizationSnapshot) -> Offer:
    known = scopes.list_scopes(Actor.system(organization.id))
    return Offer.of(organization.settings, tuple(scope.name for scope in known), apis_by_default=True)


def _registered(actor: Actor, client_id: str, address_digest: bytes, document: _Document) -> UUID:
    try:
        return _register(actor, client_id, address_digest, document)
    except IntegrityError as error:
        if not is_duplicate_key(error):
            raise
    # Another request met the client first; its row stands.
    known = _copy_of(actor.organization_id, address_digest)
    if known is None:
        raise DocumentRefused("This app was removed just now. Try again.")
    return known.row_id


@transaction
def _register(actor: Actor, client_id: str, address_digest: bytes, document: _Document) -> UUID:
    origin = Origin(METADATA_DOCUMENT, client_id)
    client = register_client(actor, document.fields, origin=origin).client
    db.session.add(
        ClientRegistration(
            organization_id=actor.organization_id,
            id=client.id,
            address_digest=address_digest,
            fetched_at=document.read_at,
            fresh_until=document.fresh_until,
            idle_check_at=clock.now() + FIRST_IDLE_CHECK,
        )
    )
    db.session.flush()
    return client.id


def _renew(actor: Actor, row_id: UUID, document: _Document) -> None:
    """The client is what the document says now. People who allowed it for other addresses are asked again (DC-3)."""
    before = get_client(actor, format_client_id(actor.organization_id, row_id))
    moved = set(before.redirect_uris) != set(document.fields.get("redirect_uris", ()))
    # All but the last of them in transactions of their own: a popular client may have a million.
    while moved and _forget_some_consents(actor, row_id) == _CONSENTS_AT_ONCE:
        continue
    _replace(actor, row_id, document, moved=moved)


@transaction
def _replace(actor: Actor, row_id: UUID, document: _Document, *, moved: bool) -> None:
    client_id = format_client_id(actor.organization_id, row_id)
    fields = replacing(document.fields)
    try:
        update_client(actor, client_id, fields)
    except Forbidden:
        # Trust was given to what the document said then, not to what it says now; a bar stays.
        is_barred = get_client(actor, client_id).approval in (REVIEW, BLOCKED)
        vouching = replace(actor, permissions=actor.permissions | {"clients:trust"})
        doubted = {"trust": "unverified"} | ({} if is_barred else {"approval": None, "approved_scopes": None})
        update_client(vouching, client_id, {**fields, **doubted})
    if moved:
        _forget_some_consents(actor, row_id)
    db.session.execute(
        update(ClientRegistration)
        .where(ClientRegistration.organization_id == actor.organization_id, ClientRegistration.id == row_id)
        .values(fetched_at=document.read_at, fresh_until=document.fresh_until)
        .execution_options(synchronize_session=False)
    )


@transaction
def _forget_some_consents(actor: Actor, row_id: UUID) -> int:
    mine = (Consent.organization_id == actor.organization_id, Consent.client_id == row_id)
    found = db.session.scalars(select(Consent.id).where(*mine).limit(_CONSENTS_AT_ONCE)).all()
    if found:
        db.session.execute(
            delete(Consent).where(*mine, Consent.id.in_(found)).execution_options(synchronize_session=False)
        )
    return len(found)
