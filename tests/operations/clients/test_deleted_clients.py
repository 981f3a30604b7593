"""Counts of what was revoked with a deleted client."""

from __future__ import annotations

import pytest
from flask import Flask
from flask.testing import FlaskClient

from app.operations.clients import clients, credential_revocation, credentials
from tests.factories import Factory, MadeClient


def fetch(http: FlaskClient, client: MadeClient) -> None:
    answer = http.post("/oauth/token", data={"grant_type": "client_credentials"}, headers=client.basic)
    assert answer.status_code == 200


@pytest.mark.parametrize(("revokes_tokens", "counted"), [(False, 3), (True, 1)])
def test_tokens_revoked_with_their_secret_are_not_counted(
    app: Flask, http: FlaskClient, make: Factory, revokes_tokens: bool, counted: int
) -> None:
    machine = make.machine(make.organization(), "clients:read")
    admin = make.actor(machine.organization)
    first = machine.registered.credential
    assert first is not None
    for _ in range(2):
        fetch(http, machine)
    with app.app_context():
        made = credentials.create_credential(admin, machine.client_id)
        credential_revocation.revoke_credentials(
            admin, machine.client_id, credential_id=first.public_id, revoke_tokens=revokes_tokens
        )
        answer = http.post(
            "/oauth/token",
            data={"grant_type": "client_credentials"},
            auth=(machine.client_id, made.secret),
        )
        assert answer.status_code == 200
        assert clients.delete_client(admin, machine.client_id).access_tokens == counted
