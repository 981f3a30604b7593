"""Concurrent sign-outs: each client is notified once, a client that received an ID token is notified, and no access
without a refresh token outlives the sign-out.
"""

from __future__ import annotations

import threading
from typing import Any

import pytest
from flask import Flask

from app.operations.authorization import authorization_requests, codes
from app.operations.authorization.codes import PresentedCode, generate_code, redeem_code
from app.operations.directory.lookups import AuthenticatedClient, find_client
from app.operations.sign_in.sessions import end_sessions_of_user, find_session
from app.operations.tokens import issuance, tokens
from app.rules.authorization.authorization_request import AuthorizationParameters, challenge_of
from app.rules.errors import InvalidGrant
from tests.factories import Factory, MadeUser
from tests.oauth.conftest import FAST_KEYS, REDIRECT_URI, VERIFIER
from tests.races.conftest import Race
from tests.support.back_channel import listen
from tests.support.concurrent_requests import send
from tests.support.databases import Database
from tests.support.form_browser import FormBrowser
from tests.support.process import wait_until
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


LOCK_WAIT = "SELECT 1 FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'"


class SignOut(threading.Thread):
    """Signs the user out in another process, as it were."""

    def __init__(self, app: Flask, user: MadeUser) -> None:
        super().__init__()
        self.app, self.user = app, user

    def run(self) -> None:
        with self.app.app_context():
            end_sessions_of_user(self.user.organization.id, self.user.id)

    def wait_until_it_waits(self, database: Database) -> None:
        """Return once it waits for a lock, or has ended without."""
        wait_until(
            lambda: not self.is_alive() or database.query(LOCK_WAIT),
            "the sign-out waits for the redemption",
            # InnoDB makes this table afresh only for who left it alone for a tenth of a second.
            pause=0.15,
        )


@pytest.mark.parametrize("moment", ["after the code was read", "before the grant was committed"])
def test_access_without_refresh_token_does_not_outlive_an_overlapping_sign_out(
    app: Flask, make: Factory, database: Database, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    organization = make.organization(settings=FAST_KEYS)
    made, user = make.client(organization, redirect_uris=[REDIRECT_URI]), make.user(organization)
    sign_out = SignOut(app, user)

    def then_sign_out(function: Any) -> Any:
        def run(*arguments: Any) -> Any:
            result = function(*arguments)
            if sign_out.ident is None:
                sign_out.start()
                sign_out.wait_until_it_waits(database)
            return result

        return run

    interrupted = {
        "after the code was read": (codes, "find_code"),
        "before the grant was committed": (issuance, "store_grant_tokens"),
    }
    monkeypatch.setattr(*interrupted[moment], then_sign_out(getattr(*interrupted[moment])))
    with app.app_context():
        client, session = find_client(made.client_id, fresh=True), find_session(make.sign_in(user).token)
        assert client is not None and session is not None
        code = generate_code(client.organization)
        asked = AuthorizationParameters(REDIRECT_URI, ("profile",), challenge_of(VERIFIER))
        authorization_requests.issue_code(
            session.actor(),
            client,
            asked,
            session,
            code=code,
            scopes=asked.scopes,
            request=None,
            remember=True,
        )
        presented = PresentedCode(code, REDIRECT_URI, VERIFIER)
        caller = AuthenticatedClient(client, client.secrets[0].id)
        try:
            answer = redeem_code(caller, presented, ip_address=None, request_id=None)
        except InvalidGrant:
            return
        finally:
            sign_out.join()
        assert not isinstance(answer, codes.ReplayedCode)
        assert tokens.find_token(answer.access_token) is None
