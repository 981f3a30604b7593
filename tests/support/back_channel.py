"""Clients whose URLs are on one of the test's own servers."""

from __future__ import annotations

from flask import Flask
from sqlalchemy import select, update

from app.extensions import db
from app.models.client import Client
from app.operations.store.transactions import transaction
from app.rules.identifiers import parse_client_id
from tests.factories import MadeClient
from tests.support.caches import clear_directory_cache


def listen(app: Flask, client: MadeClient, uri: str | None) -> None:
    """Register the URL for the client's logout notifications; see ``serve_at``."""
    serve_at(app, client, backchannel_logout_uri=uri)


def serve_at(app: Flask, client: MadeClient, **addresses: str | None) -> None:
    """Set the client's URLs directly in the database, because registration rejects loopback URLs.

    Call it before another process has loaded the client.
    """
    set_client_urls(app, client.client_id, **addresses)


def set_client_urls(app: Flask, client_id: str, **addresses: str | None) -> None:
    """Set the URLs of the client with this ID; see ``serve_at``."""
    named = parse_client_id(client_id)
    assert named is not None

    @transaction
    def act() -> None:
        mine = (Client.organization_id == named[0]) & (Client.id == named[1])
        document = db.session.scalar(select(Client.document).where(mine))
        db.session.execute(update(Client).where(mine).values(document={**document, **addresses}))

    with app.app_context():
        act()
        clear_directory_cache()
