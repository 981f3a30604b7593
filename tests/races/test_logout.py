"""Concurrent sign-outs: each client is notified once, and a client that received an ID token is notified."""

from __future__ import annotations

import threading

import pytest

from app.operations.sign_in.sessions import end_sessions_of_user
from tests.races.conftest import Race
from tests.support.back_channel import listen
from tests.support.concurrent_requests import send
from tests.support.form_browser import FormBrowser
from tests.support.threads import at_once

ROUNDS = 15


@pytest.fixture
def listening(race: Race) -> Race:
    """A race whose client has a back-channel logout URI that does not respond."""
    listen(race.server.app, race.client, "https://orchard.example/out")
    return race


def messages(race: Race) -> int:
    [(count,)] = race.server.database.query(
        "SELECT COUNT(*) FROM outbox WHERE organization_id = %s", race.client.organization.id.encode()
    )
    return int(count)


def test_concurrent_sign_outs_notify_clients_once(listening: Race) -> None:
    visitor = FormBrowser(listening.server.url)
    assert send(listening.server.url, listening.redemption(listening.code(visitor))).status == 200
    organization, user = listening.client.organization.id, listening.user.id
    ended = at_once(listening.server.app, [lambda: end_sessions_of_user(organization, user)] * 12)
    assert ended == ["int"] * 12
    assert messages(listening) == 1


def test_redemption_during_sign_out_is_rejected_or_notified(listening: Race) -> None:
    """CD-8: either the client has no ID token of the session, or it is notified of the logout."""
    organization, user = listening.client.organization.id, listening.user.id
    told = heard = 0
    for _ in range(ROUNDS):
        redemption = listening.redemption(listening.code(FormBrowser(listening.server.url)))
        gate = threading.Barrier(2)
        answers: list[int] = []

        def redeem(post=redemption, gate=gate, answers=answers) -> None:
            gate.wait()
            answers.append(send(listening.server.url, post).status)

        def sign_out(gate=gate) -> None:
            with listening.server.app.app_context():
                gate.wait()
                end_sessions_of_user(organization, user)

        threads = [threading.Thread(target=redeem), threading.Thread(target=sign_out)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert answers[0] in {200, 400}
        told += answers[0] == 200
        heard = messages(listening)
        assert heard == told
    assert listening.server.database.query(
        "SELECT COUNT(*) FROM session_clients WHERE organization_id = %s",
        listening.client.organization.id.encode(),
    ) == [(0,)]
