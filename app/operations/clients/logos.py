"""Logos of clients: fetched once after the change that named them, made anew, shown from our own address (PO-2).

The address is asked by the outbox and never while somebody waits or a transaction is open. Whoever opens a page here
tells the client's server nothing.
"""

from __future__ import annotations

import hashlib
from uuid import UUID

from sqlalchemy import bindparam, delete, select, update

from app.extensions import db
from app.models.client import Client, ClientLogo
from app.operations.directory import lookups
from app.operations.directory.lookups import ClientSnapshot
from app.operations.statements import Statement
from app.operations.store import clock, outbox, outgoing_http
from app.operations.store.outbox import DeliveryRejected, Message
from app.operations.store.outgoing_http import OutgoingRequestFailed
from app.operations.store.transactions import count_changed, transaction
from app.rules.clients.logos import MOST_BYTES, NoPicture, as_logo
from app.rules.errors import NotFound
from app.rules.identifiers import format_client_id, parse_client_id
from app.rules.store.outgoing_http import OutgoingRequestBlocked

KIND = "client_logo"
# A logo is worth some tries and not a day of them.
MOST_ATTEMPTS = 6
_ACCEPTED = "image/png, image/jpeg, image/webp, image/gif"
_OF_CLIENT = (
    ClientLogo.organization_id == bindparam("organization_id"),
    ClientLogo.id == bindparam("client_id"),
)
_DIGEST = Statement(
    select(ClientLogo.digest).where(*_OF_CLIENT, ClientLogo.source_digest == bindparam("source_digest"))
)
_PICTURE = Statement(select(ClientLogo.picture).where(*_OF_CLIENT, ClientLogo.digest == bindparam("digest")))


def register() -> None:
    """The outbox fetches logos."""
    outbox.register_delivery(KIND, deliver, to_external_server=True)


def follow(row: Client, before: str | None, after: str | None) -> None:
    """What the client's logo was is gone and what it is will be fetched; part of the unit that changes ``logo_uri``."""
    if before == after:
        return
    if before is not None:
        forget(row)
    if after is not None:
        client_id = format_client_id(row.organization_id, row.id)
        # Not the client itself: a picture that cannot be had must not hold up what its own server is told.
        outbox.enqueue(row.organization_id, KIND, {"client": client_id}, receiver=f"{client_id}/logo")


def forget(row: Client) -> None:
    """There is no picture of the client; part of the unit under way."""
    mine = (ClientLogo.organization_id == row.organization_id, ClientLogo.id == row.id)
    db.session.execute(delete(ClientLogo).where(*mine).execution_options(synchronize_session=False))


def deliver(message: Message) -> None:
    """The picture behind the client's ``logo_uri`` is kept.

    Raises Refused when there is none that could be shown, OutgoingFailed when it should be tried again.
    """
    named = parse_client_id(message.payload["client"])
    client = lookups.find_client_by_id(*named, fresh=True) if named is not None else None
    uri = client.document.get("logo_uri") if client is not None else None
    if client is None or not uri:
        raise DeliveryRejected("it has no logo any more")
    try:
        reply = outgoing_http.get(
            uri,
            organization_id=client.organization.id,
            accept=_ACCEPTED,
            max_bytes=MOST_BYTES,
            in_background=True,
        )
        if reply.status >= 500 or reply.status == 429:
            raise OutgoingRequestFailed(f"The server answered {reply.status} to a request for a logo.")
    except OutgoingRequestBlocked as error:
        raise DeliveryRejected("the address of its logo may not be asked") from error
    except OutgoingRequestFailed as error:
        if message.attempts >= MOST_ATTEMPTS:
            raise DeliveryRejected("its logo could not be had") from error
        raise
    if reply.status != 200:
        raise DeliveryRejected(f"its logo's address answered {reply.status}")
    try:
        picture = as_logo(reply.body)
    except NoPicture as error:
        raise DeliveryRejected(f"its logo cannot be shown: {error}") from error
    _keep(client.organization.id, client.id, uri, picture)


def digest_of_logo(client: ClientSnapshot) -> str | None:
    """The name of the client's picture, or None when there is none of its present ``logo_uri``."""
    uri = client.document.get("logo_uri")
    if not uri:
        return None
    row = _DIGEST.first(
        organization_id=client.organization.id, client_id=client.id, source_digest=_digest(uri.encode())
    )
    return None if row is None else bytes(row.digest).hex()


def get_picture(client_id: str, digest: str) -> bytes:
    """The PNG that is named so. Raises NotFound alike for whatever is not there."""
    named = parse_client_id(client_id)
    row = None
    if named is not None and len(digest) == 64 and set(digest) <= set("0123456789abcdef"):
        row = _PICTURE.first(organization_id=named[0], client_id=named[1], digest=bytes.fromhex(digest))
    if row is None:
        raise NotFound("There is no such picture.")
    return bytes(row.picture)


@transaction
def _keep(organization_id: str, client_id: UUID, uri: str, picture: bytes) -> None:
    # Locked: the client may be ending, or may have named another picture meanwhile.
    document = db.session.scalar(
        select(Client.document)
        .where(Client.organization_id == organization_id, Client.id == client_id, Client.deleted_at.is_(None))
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
    mine = (ClientLogo.organization_id == organization_id, ClientLogo.id == client_id)
    if not count_changed(update(ClientLogo).where(*mine).values(**values)):
        db.session.add(ClientLogo(organization_id=organization_id, id=client_id, **values))


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()
