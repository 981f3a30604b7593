"""Concurrent decisions about a client: one approval is accepted, and nothing stays active after a block."""

from __future__ import annotations

from collections.abc import Callable

from flask import Flask

from app.operations.authorization import authorization_requests
from app.operations.authorization.approval_requests import (
    approve_client_request,
    create_client_request,
    decline_client_request,
    list_client_requests,
)
from app.operations.authorization.codes import generate_code
from app.operations.clients.clients import update_client
from app.operations.directory.lookups import find_client
from app.operations.directory.snapshots import AuthenticatedClient
from app.operations.sign_in.sessions import find_session
from app.rules.authorization.authorization_request import AuthorizationParameters, challenge_of
from app.rules.errors import DomainError
from tests.factories import Factory
from tests.oauth.conftest import FAST_KEYS, REDIRECT_URI, SCOPES, VERIFIER
from tests.support.caches import clear_directory_cache
from tests.support.codes import redeem_code
from tests.support.databases import Database
from tests.support.threads import at_once

ROUNDS, TABS = 6, 12


def outcome(call: Callable[[], object]) -> Callable[[], object]:
    """Call the function and return its error as a result."""

    def run() -> object:
        try:
            return call()
        except DomainError as refusal:
            return refusal

    return run


def test_concurrent_decisions_have_one_winner(app: Flask, make: Factory, database: Database) -> None:
    organization = make.organization()
    client, member = make.client(organization), make.user(organization)
    with app.app_context():
        boss = make.actor(organization)
        update_client(boss, client.client_id, {"approval": "review"})
        view = find_client(client.client_id, fresh=True)
        assert view is not None
        asking = make.actor(organization, "users:read", user=member)
    results = at_once(
        app, [lambda: create_client_request(asking, view, ("openid",), "For work") for _ in range(TABS)]
    )
    assert set(results) == {"NoneType"} and database.count("client_requests") == 1
    with app.app_context():
        [request] = list_client_requests(boss).items
    decisions = [approve_client_request, decline_client_request]
    results = at_once(
        app,
        [outcome(lambda decide=decisions[n % 2]: decide(boss, request.public_id, {})) for n in range(TABS)],
    )
    assert results.count("ClientRequestRecord") == 1, results
    assert set(results) <= {"ClientRequestRecord", "AlreadyDecided", "PreconditionFailed", "Conflict"}


def test_blocking_a_client_revokes_concurrent_consents(app: Flask, make: Factory) -> None:
    """Users consent and apps redeem codes while an administrator blocks the client. Nothing stays active
    afterwards.
    """
    organization = make.organization(settings=FAST_KEYS)
    for _ in range(ROUNDS):
        client = make.client(organization, scopes=SCOPES, redirect_uris=[REDIRECT_URI])
        with app.app_context():
            boss = make.actor(organization)
            view = find_client(client.client_id, fresh=True)
            assert view is not None
        found = [find_living(app, make, organization) for _ in range(TABS)]
        given: list[str] = []

        def go(session, view=view, client=client, given=given) -> None:
            parameters = AuthorizationParameters(
                redirect_uri=REDIRECT_URI,
                scopes=("openid", "offline_access"),
                code_challenge=challenge_of(VERIFIER),
            )
            code = generate_code(view.organization)
            authorization_requests.issue_code(
                session.actor(),
                view,
                parameters,
                session,
                code=code,
                scopes=parameters.scopes,
                request=None,
                remember=True,
            )
            proven = AuthenticatedClient(view, view.secrets[0].id)
            answer = redeem_code(proven, code, redirect_uri=REDIRECT_URI, verifier=VERIFIER)
            given.append(answer.access_token)

        def block(boss=boss, client=client) -> None:
            update_client(boss, client.client_id, {"approval": "blocked"})

        jobs = [outcome(lambda session=session: go(session)) for session in found]
        at_once(app, [*jobs[: TABS // 2], block, *jobs[TABS // 2 :]])
        with app.app_context():
            update_client(boss, client.client_id, {"approval": None})
            clear_directory_cache()
            from app.operations.tokens.tokens import find_token

            assert [token for token in given if find_token(token) is not None] == []


def find_living(app: Flask, make: Factory, organization):
    """Start a session of a new user."""
    with app.app_context():
        session = find_session(make.sign_in(make.user(organization)).token)
        assert session is not None
        return session
