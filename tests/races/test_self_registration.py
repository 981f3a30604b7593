"""Concurrent registrations: an initial access token respects its limit, and a metadata URL creates one client."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from flask import Flask
from sqlalchemy import select

from app.extensions import db
from app.models.client import ClientRegistration, RegistrationToken
from app.operations.clients import metadata_documents
from app.operations.clients.initial_access_tokens import create_registration_token
from app.operations.clients.metadata_documents import DocumentRefused
from app.operations.directory.lookups import OrganizationSnapshot
from app.rules.actor import Actor
from app.rules.errors import Unauthenticated
from tests.factories import Factory
from tests.support.https_server import https_server, reaching
from tests.support.publisher import ON, Publisher
from tests.support.registration import register
from tests.support.threads import at_once

pytestmark = pytest.mark.mariadb
CROWD, USES = 40, 7
METADATA = {"client_name": "Weather Bot", "redirect_uris": ["https://weather.example/callback"]}


def test_initial_access_token_respects_its_limit(app: Flask, make: Factory) -> None:
    """DC-1: the use is counted in the transaction that creates the client."""
    by_token = {"dynamic_registration": {"mode": "initial_access_token"}}
    organization = make.organization(settings={"oauth": by_token})
    with app.app_context():
        made = create_registration_token(make.actor(organization), {"name": "CI", "max_uses": USES})

    def ask() -> object:
        try:
            return register(Actor.anonymous(organization.id), METADATA, made.token)
        except Unauthenticated as refusal:
            return refusal

    results = Counter(at_once(app, [ask] * CROWD))
    assert results == {"Registration": USES, "Unauthenticated": CROWD - USES}
    with app.app_context():
        assert db.session.scalars(select(RegistrationToken.uses)).one() == USES
        assert len(db.session.scalars(select(ClientRegistration.id)).all()) == USES


@pytest.fixture
def publisher(app: Flask, monkeypatch: pytest.MonkeyPatch) -> Iterator[Publisher]:
    made = Publisher()
    with https_server(made.answer) as server:
        made.server = server
        monkeypatch.setitem(app.config, "GATEHOUSE", reaching(app.config["GATEHOUSE"], server))
        yield made


def test_metadata_document_creates_one_client(app: Flask, make: Factory, publisher: Publisher) -> None:
    """DC-3: few requests to one host run at a time; the others are rejected, and no second client is created."""
    organization: OrganizationSnapshot = make.organization(settings=ON)
    met = []

    def meet() -> object:
        try:
            met.append(
                metadata_documents.find_document_client(organization, publisher.client_id, "192.0.2.7")
            )
        except DocumentRefused as refusal:
            return refusal
        return met[-1]

    at_once(app, [meet] * 8)
    assert len(set(met)) == 1
    with app.app_context():
        assert len(db.session.scalars(select(ClientRegistration.id)).all()) == 1
