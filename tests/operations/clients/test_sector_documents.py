"""Sector documents: fetched from a real server, and checked at every registration that uses one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from flask import Flask

from app import config
from app.operations.clients import sector_documents
from app.operations.clients.clients import get_client, register_client, update_client
from app.operations.store.transactions import transaction
from app.rules.errors import Forbidden, InvalidInput
from tests.factories import Factory
from tests.support.databases import Database
from tests.support.https_server import HttpsServer, Request, Response, https_server, reaching

pytestmark = pytest.mark.usefixtures("context")
SECTOR = "https://sector.example/redirects.json"
A, B = "https://a.example/cb", "https://b.example/cb"
PAIRWISE = {"name": "Orchard", "type": "web", "subject_type": "pairwise", "sector_identifier_uri": SECTOR}


def _answer(request: Request) -> Response:
    bodies = {
        "/list": json.dumps([A, B]).encode(),
        "/page": b"<html>",
        "/object": b'{"a": 1}',
        "/two": b"[], 1",
    }
    body = bodies.get(request.path)
    return Response(404) if body is None else Response(200, body)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[HttpsServer]:
    with https_server(_answer) as running:
        settings = reaching(config.current(), running)
        monkeypatch.setattr("app.operations.store.outgoing_http.current", lambda: settings)
        yield running


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Serve an array of redirect URIs in place of a document, because a loopback host cannot be registered."""
    documents: dict[str, Any] = {SECTOR: [A, B]}
    monkeypatch.setattr(sector_documents, "fetch_sector_document", lambda _, address: documents[address])
    sector_documents._cache.clear()
    return documents


def test_document_is_fetched_by_https(server: HttpsServer) -> None:
    assert sector_documents.fetch_sector_document("ours", f"{server.base_url}/list") == [A, B]


@pytest.mark.parametrize("path", ["/page", "/two", "/nothing"])
def test_invalid_document_is_reported_at_the_field(server: HttpsServer, path: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        sector_documents.fetch_sector_document("ours", server.base_url + path)
    assert refused.value.field == "sector_identifier_uri"


def test_internal_ip_address_is_never_requested() -> None:
    """SF-2."""
    with pytest.raises(InvalidInput) as refused:
        sector_documents.fetch_sector_document("ours", "https://127.0.0.1/list")
    assert [error.code for error in refused.value.errors] == ["address_not_allowed"]


def test_document_must_list_every_redirect_uri(make: Any, listed: dict[str, Any], database: Database) -> None:
    """OIDC Core 8.1; OIDC Registration section 5."""
    acme = make.organization()
    actor = make.actor(acme)
    client = register_client(actor, {**PAIRWISE, "redirect_uris": [A, B]}).client
    listed[SECTOR] = [A]
    with pytest.raises(InvalidInput) as refused:
        register_client(actor, {**PAIRWISE, "redirect_uris": [A, B]})
    assert [(error.field, error.code) for error in refused.value.errors] == [
        ("sector_identifier_uri", "not_listed")
    ]
    assert database.count("clients") == 1
    # Changing the redirect URIs checks the document again. Other changes do not.
    assert update_client(actor, client.client_id, {"name": "Other"}).changed == ["name"]
    with pytest.raises(InvalidInput):
        update_client(actor, client.client_id, {"redirect_uris": [B]})
    listed[SECTOR] = [B]
    update_client(actor, client.client_id, {"redirect_uris": [B]})
    assert get_client(actor, client.client_id).redirect_uris == (B,)


def test_redirect_uris_must_share_a_host_without_a_document(make: Any) -> None:
    actor = make.actor(make.organization())
    plain = {"name": "Orchard", "type": "web", "subject_type": "pairwise"}
    register_client(actor, {**plain, "redirect_uris": [A]})
    with pytest.raises(InvalidInput) as refused:
        register_client(actor, {**plain, "redirect_uris": [A, B]})
    assert [error.field for error in refused.value.errors] == ["subject_type"]


def test_document_is_not_fetched_without_permission(make: Any, listed: dict[str, Any]) -> None:
    """SF-1: anonymous callers cannot make this server send requests."""
    listed.clear()
    with pytest.raises(Forbidden):
        register_client(make.actor(make.organization(), "clients:read"), {**PAIRWISE, "redirect_uris": [A]})


def test_document_is_not_fetched_inside_a_transaction(make: Any, listed: dict[str, Any]) -> None:
    """SF-4: the caller fetches the document before the transaction."""
    actor = make.actor(make.organization())
    inside = transaction(lambda: register_client(actor, {**PAIRWISE, "redirect_uris": [A]}))
    with pytest.raises(InvalidInput):
        inside()
    sector_documents.prefetch_sector_document(actor, SECTOR)
    assert inside().client.sector_identifier_uri == SECTOR


def test_document_cache_is_per_organization(context: Flask, make: Factory, listed: dict[str, Any]) -> None:
    """TN-9."""
    ours, theirs = make.organization(), make.organization()
    sector_documents.prefetch_sector_document(make.system(ours), SECTOR)
    assert sector_documents._cache.get(ours.id, SECTOR) is not None
    assert sector_documents._cache.get(theirs.id, SECTOR) is None
