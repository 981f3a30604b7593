"""Logos of clients, re-encoded and served by this server (PO-2).

The outbox downloads a logo once after a change of ``logo_uri``, never while a user waits or inside a
transaction. Visitors of our pages send no request to the client's server.
"""

from __future__ import annotations

import hashlib
from uuid import UUID

from sqlalchemy import bindparam, delete, select, update

from app.extensions import db
from app.fast_path.compiled_query import CompiledQuery
from app.models.base import has_key
from app.models.client import Client, ClientLogo
from app.operations.directory import lookups
from app.operations.directory.snapshots import ClientSnapshot
from app.operations.store import clock, outbox, outgoing_http
from app.operations.store.outbox import DeliveryRejected, Message
from app.operations.store.outgoing_http import OutgoingRequestFailed
from app.operations.store.transactions import count_changed, transaction
from app.rules.clients.logos import MAX_BYTES, InvalidImage, render_logo
from app.rules.errors import NotFound
from app.rules.identifiers import format_client_id, parse_client_id
from app.rules.store.outgoing_http import OutgoingRequestBlocked

KIND = "client_logo"
# After this many attempts the download is given up.
MAX_ATTEMPTS = 6
_ACCEPTED = "image/png, image/jpeg, image/webp, image/gif"
_IS_CLIENT = has_key(ClientLogo, bindparam("organization_id"), bindparam("client_id"))
_DIGEST = CompiledQuery(
    select(ClientLogo.digest).where(_IS_CLIENT, ClientLogo.source_digest == bindparam("source_digest"))
)
_PICTURE = CompiledQuery(
    select(ClientLogo.picture).where(_IS_CLIENT, ClientLogo.digest == bindparam("digest"))
)


def register() -> None:
    """Register the outbox delivery that downloads logos."""
    outbox.register_delivery(KIND, fetch_logo, to_external_server=True)


def sync_logo(row: Client, before: str | None, after: str | None) -> None:
    """Delete the previous logo and queue the download of the new one.

    Runs in the transaction that changes ``logo_uri``.
    """
    if before == after:
        return
    if before is not None:
        delete_logo(row)
    if after is not None:
        client_id = format_client_id(row.organization_id, row.id)
        # A separate receiver, so that a logo that cannot be downloaded does not delay other deliveries to the client.
        outbox.enqueue(row.organization_id, KIND, {"client": client_id}, receiver=f"{client_id}/logo")


def delete_logo(row: Client) -> None:
    """Delete the client's logo in the current transaction."""
    same_client = has_key(ClientLogo, row.organization_id, row.id)
    count_changed(delete(ClientLogo).where(same_client))


def fetch_logo(message: Message) -> None:
    """Download and store the image at the client's ``logo_uri``.

    Raises an error that ends the delivery if there is no image that could be shown, OutgoingRequestFailed to try
    again later.
    """
    parsed = parse_client_id(message.payload["client"])
    client = lookups.find_client_by_id(*parsed, fresh=True) if parsed is not None else None
    uri = client.document.get("logo_uri") if client is not None else None
    if client is None or not uri:
        raise DeliveryRejected("it no longer has a logo")
    try:
        reply = outgoing_http.get(
            uri,
            organization_id=client.organization.id,
            accept=_ACCEPTED,
            max_bytes=MAX_BYTES,
            in_background=True,
        )
        if reply.status >= 500 or reply.status == 429:
            raise OutgoingRequestFailed(f"The server answered {reply.status} to a request for a logo.")
    except OutgoingRequestBlocked as error:
        raise DeliveryRejected("its logo_uri is not allowed") from error
    except OutgoingRequestFailed as error:
        if message.attempts >= MAX_ATTEMPTS:
            raise DeliveryRejected("its logo could not be downloaded") from error
        raise
    if reply.status != 200:
        raise DeliveryRejected(f"the server of its logo answered {reply.status}")
    try:
        picture = render_logo(reply.body)
    except InvalidImage as error:
        raise DeliveryRejected(f"its logo cannot be shown: {error}") from error
    _store(client.organization.id, client.id, uri, picture)


def find_logo_digest(client: ClientSnapshot) -> str | None:
    """Return the digest that names the client's current logo, or None if there is none."""
    uri = client.document.get("logo_uri")
    if not uri:
        return None
    row = _DIGEST.first(
        organization_id=client.organization.id, client_id=client.id, source_digest=_digest(uri.encode())
    )
    return None if row is None else bytes(row.digest).hex()


def get_logo(client_id: str, digest: str) -> bytes:
    """Return the PNG with this digest. Raises NotFound."""
    parsed = parse_client_id(client_id)
    row = None
    if parsed is not None and len(digest) == 64 and set(digest) <= set("0123456789abcdef"):
        lookups.get_organization_by_id(parsed[0], fresh=False)
        row = _PICTURE.first(organization_id=parsed[0], client_id=parsed[1], digest=bytes.fromhex(digest))
    if row is None:
        raise NotFound("There is no such logo.")
    return bytes(row.picture)


@transaction
def _store(organization_id: str, client_id: UUID, uri: str, picture: bytes) -> None:
    # The row is locked because the client may be deleted or its logo_uri changed at the same time.
    document = db.session.scalar(
        select(Client.document)
        .where(has_key(Client, organization_id, client_id), Client.deleted_at.is_(None))
        .with_for_update()
    )
    if document is None or document.get("logo_uri") != uri:
        return
    values = {
        "source_digest": _digest(uri.encode()),
        "digest": _digest(picture),
        "picture": picture,
        "fetched_at": clock.now(),
    }
    same_client = has_key(ClientLogo, organization_id, client_id)
    if not count_changed(update(ClientLogo).where(same_client).values(**values)):
        db.session.add(ClientLogo(organization_id=organization_id, id=client_id, **values))


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()
