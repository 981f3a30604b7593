"""Viewing client secrets (SE-3 to SE-7): permissions, audit, limits, and sealed copies."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import pytest
from flask import Flask
from msgspec.structs import replace

from app.operations.clients import credential_rows, credentials
from app.operations.clients.credentials import MAX_REVEALS_PER_HOUR, NotRevealable
from app.operations.organizations import settings
from app.operations.sign_in.reauthentication import FreshSignInRequired
from app.rules.actor import Actor
from app.rules.errors import Forbidden, NotFound, TooManyRequests
from app.rules.identifiers import new_id, public_id
from tests.factories import Factory, MadeClient
from tests.support.databases import Database


@pytest.fixture
def client(context: Flask, make: Factory) -> MadeClient:
    return make.client(make.organization())


@pytest.fixture
def admin(client: MadeClient, make: Factory) -> Actor:
    return make.actor(client.organization, user=make.user(client.organization))


def entries(actor: Actor, client: MadeClient) -> dict[str, credential_rows.CredentialRecord]:
    return {entry.public_id: entry for entry in credentials.list_credentials(actor, client.client_id).items}


def first_of(client: MadeClient) -> str:
    assert client.registered.credential is not None
    return client.registered.credential.public_id


def actions(database: Database) -> list[str]:
    return [bytes(row[0]).decode() for row in database.query("SELECT action FROM audit_events ORDER BY id")]


def test_secret_is_revealed_after_the_audit_event(
    admin: Actor, client: MadeClient, database: Database
) -> None:
    """SE-4."""
    assert credentials.reveal_credential(admin, client.client_id, first_of(client)) == client.secret
    assert actions(database)[-1] == "credential.revealed"


def test_secret_is_not_opened_if_the_audit_event_fails(
    admin: Actor, client: MadeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Any] = []
    monkeypatch.setattr(credentials, "unseal_secret", lambda *row: opened.append(row))

    def fail(*_arguments: Any, **_facts: Any) -> None:
        raise RuntimeError("the audit log is full")

    monkeypatch.setattr(credentials.audit, "record", fail)
    with pytest.raises(RuntimeError):
        credentials.reveal_credential(admin, client.client_id, first_of(client))
    assert opened == []


@pytest.mark.mariadb
def test_concurrent_reveals_cannot_exceed_the_limit(app: Flask, make: Factory, database: Database) -> None:
    """SE-5: each reveal is stored before the reveals are counted."""
    client = make.client(make.organization())
    actor = make.actor(client.organization, user=make.user(client.organization))
    gate = threading.Barrier(3 * MAX_REVEALS_PER_HOUR)
    shown: list[str] = []

    def view() -> None:
        with app.app_context():
            gate.wait(30)
            with contextlib.suppress(TooManyRequests):
                shown.append(credentials.reveal_credential(actor, client.client_id, first_of(client)))

    threads = [threading.Thread(target=view) for _ in range(3 * MAX_REVEALS_PER_HOUR)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(shown) <= MAX_REVEALS_PER_HOUR
    assert actions(database).count("credential.revealed") == len(shown)


def test_rejected_reveal_does_not_count_towards_the_limit(
    context: Flask, client: MadeClient, make: Factory, admin: Actor
) -> None:
    stranger = make.actor(client.organization, "clients:read", user=make.user(client.organization))
    for _ in range(MAX_REVEALS_PER_HOUR + 1):
        with pytest.raises(Forbidden):
            credentials.reveal_credential(stranger, client.client_id, first_of(client))
        with pytest.raises(NotFound):
            credentials.reveal_credential(admin, client.client_id, public_id("sec", new_id()))
    assert credentials.reveal_credential(admin, client.client_id, first_of(client)) == client.secret


def test_reveals_are_limited_per_hour(admin: Actor, client: MadeClient, make: Factory) -> None:
    for _ in range(MAX_REVEALS_PER_HOUR):
        credentials.reveal_credential(admin, client.client_id, first_of(client))
    with pytest.raises(TooManyRequests) as refusal:
        credentials.reveal_credential(admin, client.client_id, first_of(client))
    assert refusal.value.retry_after > 0
    other = make.actor(client.organization, user=make.user(client.organization))
    assert credentials.reveal_credential(other, client.client_id, first_of(client))


def test_reveal_requires_a_recent_sign_in(client: MadeClient, make: Factory, database: Database) -> None:
    stale = replace(make.actor(client.organization, authenticated_ago_seconds=3600), session_id=new_id())
    with pytest.raises(FreshSignInRequired):
        credentials.reveal_credential(stale, client.client_id, first_of(client))
    assert "credential.revealed" not in actions(database)


def test_write_permission_does_not_allow_reveal(client: MadeClient, make: Factory) -> None:
    weak = make.actor(client.organization, "credentials:write", "clients:read")
    for act in (
        lambda: credentials.reveal_credential(weak, client.client_id, first_of(client)),
        lambda: credentials.list_credentials(weak, client.client_id),
    ):
        with pytest.raises(Forbidden):
            act()


def test_no_copy_is_stored_if_secrets_are_shown_once(
    context: Flask, make: Factory, database: Database
) -> None:
    """SE-5."""
    client = make.client(make.organization(settings={"oauth": {"clients": {"secret_display": "once"}}}))
    admin = make.actor(client.organization)
    assert database.query("SELECT sealed FROM client_credentials") == [(None,)]
    assert not entries(admin, client)[first_of(client)].revealable
    with pytest.raises(NotRevealable):
        credentials.reveal_credential(admin, client.client_id, first_of(client))


def test_switching_to_once_deletes_the_copies(admin: Actor, client: MadeClient, database: Database) -> None:
    """SE-7."""
    partial = {"oauth": {"clients": {"secret_display": "once"}}}
    settings.update_settings(admin, client.organization.slug, partial)
    assert database.query("SELECT sealed FROM client_credentials") == [(None,)]
    settings.update_settings(
        admin, client.organization.slug, {"oauth": {"clients": {"secret_display": "reveal"}}}
    )
    with pytest.raises(NotRevealable):
        credentials.reveal_credential(admin, client.client_id, first_of(client))


@pytest.mark.parametrize("to_another", ["secret", "client", "organization"])
def test_sealed_copy_cannot_be_opened_in_another_row(
    admin: Actor, client: MadeClient, make: Factory, database: Database, to_another: str
) -> None:
    """SE-6."""
    organization = make.organization() if to_another == "organization" else client.organization
    target = client if to_another == "secret" else make.client(organization)
    actor = make.actor(organization)
    made = credentials.create_credential(actor, target.client_id)
    mark = "?" if database.engine == "sqlite" else "%s"
    [(sealed,)] = database.query(
        f"SELECT sealed FROM client_credentials WHERE id = {mark}",
        client.registered.credential.id.bytes,  # type: ignore[union-attr]
    )
    database.query(
        f"UPDATE client_credentials SET sealed = {mark} WHERE id = {mark}", sealed, made.credential.id.bytes
    )
    with pytest.raises(NotRevealable):
        credentials.reveal_credential(actor, target.client_id, made.credential.public_id)
