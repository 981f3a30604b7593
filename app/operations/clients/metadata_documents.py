"""Clients whose ``client_id`` is the URL of their metadata (draft-ietf-oauth-client-id-metadata-document).

The document is fetched when the client is first used and again when the copy expires, never inside a
transaction. The client is stored like any other.
"""

from __future__ import annotations

import hashlib
import time
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import bindparam, delete, select, update
from sqlalchemy.exc import IntegrityError

from app.database_errors import is_duplicate_key
from app.extensions import db
from app.fast_path.cache import BoundedCache
from app.fast_path.compiled_query import CompiledQuery
from app.models.base import has_key
from app.models.client import ClientRegistration
from app.models.grant import Consent
from app.operations.clients import scopes, sector_documents
from app.operations.clients.clients import (
    FIRST_IDLE_CHECK,
    TooManyClients,
    get_client,
    register_client,
    update_client,
)
from app.operations.clients.dynamic_registration import registrar_actor
from app.operations.directory.snapshots import OrganizationSnapshot
from app.operations.store import clock, outgoing_http, rate_limits
from app.operations.store.rate_limits import network_limits
from app.operations.store.transactions import count_changed, transaction
from app.rules.actor import Actor
from app.rules.clients.client_types import BLOCKED, METADATA_DOCUMENT, REVIEW, UNVERIFIED
from app.rules.clients.dynamic_metadata import Offer, as_fields, refusal_words, replacing
from app.rules.clients.metadata_documents import (
    MAX_DOCUMENT_BYTES,
    document_metadata,
    get_cache_time,
    get_document_host,
    is_document_url,
)
from app.rules.errors import DomainError, Forbidden, InvalidInput, UnredirectableError
from app.rules.identifiers import format_client_id
from app.rules.sign_in.passwords import Lockout
from app.rules.store.outgoing_http import OutgoingRequestBlocked
from app.rules.strict_json import load_object

# How long a copy that could not be refreshed is used.
MAX_STALENESS = timedelta(hours=24)
# Limits requests per network, so that this server cannot be used to scan other servers.
NETWORK_LIMIT = Lockout(60, timedelta(minutes=10), timedelta(seconds=30), timedelta(minutes=10))
# How long a process queries neither the URL nor the database again.
_CACHE_SECONDS = 30.0
_MAX_CACHED = 5_000
_CONSENT_BATCH_SIZE = 500
_SELECT_COPY = CompiledQuery(
    select(ClientRegistration.id, ClientRegistration.fetched_at, ClientRegistration.fresh_until).where(
        ClientRegistration.organization_id == bindparam("organization_id"),
        ClientRegistration.address_digest == bindparam("address_digest"),
    )
)
_cache: BoundedCache[tuple[float, UUID]] = BoundedCache(_MAX_CACHED)


class DocumentRefused(UnredirectableError):
    """The metadata document could not be fetched or does not describe a valid client."""


class _Copy(Struct, frozen=True):
    """The client created from a document, and when the document was fetched and expires."""

    row_id: UUID
    read_at: datetime
    fresh_until: datetime


class _Document(Struct, frozen=True):
    """The fields of a client from a fetched document, and when it expires."""

    fields: dict[str, Any]
    read_at: datetime
    fresh_until: datetime


def find_document_client(
    organization: OrganizationSnapshot, client_id: str, ip_address: str | None
) -> UUID | None:
    """Return the row id of the client whose metadata is at the URL ``client_id``, refreshed if it expired.

    Returns None if the organization does not accept such ids, is not active, or the id is not a valid URL.
    ``ip_address`` is the caller's. Raises DocumentRefused, TooManyRequests. Call it outside transactions.
    Audit: ``client.registered`` and ``client.updated``.
    """
    rules = organization.settings["oauth"]["dynamic_registration"]
    # A suspended organization accepts no clients and sends no requests for them.
    if not rules["client_id_metadata_documents"] or not organization.is_active:
        return None
    known = _cache.get(organization.id, client_id)
    if known is not None and time.monotonic() < known[0]:
        return known[1]
    if not is_document_url(client_id):
        return None
    row_id = _refresh_row(organization, client_id, ip_address)
    _cache.put(organization.id, client_id, value=(time.monotonic() + _CACHE_SECONDS, row_id))
    return row_id


def clear_document_cache() -> None:
    """Drop what this process has cached, so that the next request queries the database."""
    _cache.clear()


def _refresh_row(organization: OrganizationSnapshot, client_id: str, ip_address: str | None) -> UUID:
    address_digest = hashlib.sha256(client_id.encode()).digest()
    known = _find_copy(organization.id, address_digest)
    now = clock.now()
    if known is not None and known.fresh_until > now:
        return known.row_id
    actor = registrar_actor(Actor.anonymous(organization.id, ip_address), get_document_host(client_id))
    _enforce_rate_limit(actor)
    try:
        document = _read(organization, client_id)
    except outgoing_http.OutgoingRequestFailed as error:
        if known is not None and now - known.read_at < MAX_STALENESS:
            return known.row_id
        raise DocumentRefused("The app's metadata could not be read from its URL.") from error
    try:
        sector_documents.prefetch_sector_document(actor, document.fields.get(sector_documents.FIELD))
        if known is None:
            return _register_or_find(actor, client_id, address_digest, document)
        _renew(actor, known.row_id, document)
    except (InvalidInput, TooManyClients) as error:
        raise _document_error(error) from error
    return known.row_id


def _find_copy(organization_id: str, address_digest: bytes) -> _Copy | None:
    row = _SELECT_COPY.first(organization_id=organization_id, address_digest=address_digest)
    return None if row is None else _Copy(*row)


def _enforce_rate_limit(actor: Actor) -> None:
    limits = network_limits(NETWORK_LIMIT, actor.ip_address, "metadata documents")
    rate_limits.require_attempt_allowed(
        actor.organization_id,
        "Too many apps were looked up from your network. Wait a few minutes, then try again.",
        *limits,
    )


def _read(organization: OrganizationSnapshot, client_id: str) -> _Document:
    """Fetch the document.

    Raises OutgoingRequestFailed if the URL does not respond, DocumentRefused if the response describes no client.
    """
    try:
        reply = outgoing_http.get(
            client_id,
            organization_id=organization.id,
            accept="application/json",
            max_bytes=MAX_DOCUMENT_BYTES,
        )
    except OutgoingRequestBlocked as error:
        raise DocumentRefused("The URL of the app's metadata is not allowed.") from error
    if reply.status >= 500 or reply.status == 429:
        raise outgoing_http.OutgoingRequestFailed("The server of the app's metadata reported an error.")
    kind = reply.headers.get("content-type", "").partition(";")[0].strip().lower()
    if reply.status != 200 or not (kind == "application/json" or kind.endswith("+json")):
        raise DocumentRefused("There is no app metadata at this URL.")
    try:
        metadata = document_metadata(client_id, load_object(reply.body))
        names = scopes.list_public_scopes(organization.id)
        fields = as_fields(metadata, Offer.of(organization.settings, names, apis_by_default=True))
    except DomainError as error:
        raise _document_error(error) from error
    now = clock.now()
    return _Document(fields, now, now + get_cache_time(reply.headers))


def _document_error(error: DomainError) -> DocumentRefused:
    words = refusal_words(error) if isinstance(error, InvalidInput) else error.description
    return DocumentRefused(f"The app's metadata cannot be used. {words}")


def _register_or_find(actor: Actor, client_id: str, address_digest: bytes, document: _Document) -> UUID:
    try:
        return _register(actor, client_id, address_digest, document)
    except IntegrityError as error:
        if not is_duplicate_key(error):
            raise
    # Another request registered the client first.
    known = _find_copy(actor.organization_id, address_digest)
    if known is None:
        raise DocumentRefused("This app was just deleted. Try again.")
    return known.row_id


@transaction
def _register(actor: Actor, client_id: str, address_digest: bytes, document: _Document) -> UUID:
    client = register_client(
        actor, document.fields, source=METADATA_DOCUMENT, metadata_document_uri=client_id
    ).client
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
    """Update the client from the document. Users who consented to other redirect URIs are asked again (DC-3)."""
    before = get_client(actor, format_client_id(actor.organization_id, row_id))
    has_other_redirect_uris = not _are_same(before.redirect_uris, document.fields.get("redirect_uris"))
    # All batches but the last have transactions of their own, because a popular client may have a million consents.
    while has_other_redirect_uris and _delete_consent_batch(actor, row_id) == _CONSENT_BATCH_SIZE:
        continue
    _replace(actor, row_id, document, has_other_redirect_uris=has_other_redirect_uris)


def _are_same(registered: tuple[str, ...], sent: Any) -> bool:
    """Return whether these are the registered URIs in any order. What was sent may be of any type."""
    return (
        isinstance(sent, list)
        and all(uri in sent for uri in registered)
        and all(uri in registered for uri in sent)
    )


@transaction
def _replace(actor: Actor, row_id: UUID, document: _Document, *, has_other_redirect_uris: bool) -> None:
    client_id = format_client_id(actor.organization_id, row_id)
    fields = replacing(document.fields)
    try:
        update_client(actor, client_id, fields)
    except Forbidden:
        # Trust was given to the previous metadata and does not cover the new one. A block remains.
        is_restricted = get_client(actor, client_id).approval in (REVIEW, BLOCKED)
        trusted_actor = replace(actor, permissions=actor.permissions | {"clients:trust"})
        untrusted = {"trust": UNVERIFIED} | (
            {} if is_restricted else {"approval": None, "approved_scopes": None}
        )
        update_client(trusted_actor, client_id, {**fields, **untrusted})
    if has_other_redirect_uris:
        _delete_consent_batch(actor, row_id)
    count_changed(
        update(ClientRegistration)
        .where(has_key(ClientRegistration, actor.organization_id, row_id))
        .values(fetched_at=document.read_at, fresh_until=document.fresh_until)
    )


@transaction
def _delete_consent_batch(actor: Actor, row_id: UUID) -> int:
    of_client = (Consent.organization_id == actor.organization_id, Consent.client_id == row_id)
    found = db.session.scalars(select(Consent.id).where(*of_client).limit(_CONSENT_BATCH_SIZE)).all()
    if found:
        count_changed(delete(Consent).where(*of_client, Consent.id.in_(found)))
    return len(found)
