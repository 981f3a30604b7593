"""Consents and grants of a user: remembered once, all of them seen, all of them taken back (CO-3)."""

from __future__ import annotations

import threading

import pytest
from flask import Flask

from app.operations.authorization.connected_apps import list_consents
from app.operations.authorization.consents import store_consent
from app.operations.directory.lookups import find_client
from app.operations.sign_in.sessions import find_session
from app.operations.store.transactions import transaction
from tests.factories import Factory
from tests.oauth.conftest import FAST_KEYS, REDIRECT_URI, SCOPES

TABS = 6


@pytest.mark.mariadb  # SQLite lets one writer in at a time.
def test_tabs_that_allow_at_the_same_moment_are_one_consent(app: Flask, make: Factory) -> None:
    organization = make.organization(settings=FAST_KEYS)
    client = make.client(organization, scopes=SCOPES, redirect_uris=[REDIRECT_URI])
    for _ in range(5):
        user = make.user(organization)
        session = find_session_of(app, make, user)
        gate = threading.Barrier(TABS)
        allowed: list[str] = []

        def allow(scope: str, gate=gate, user=user, session=session, allowed=allowed) -> None:
            with app.app_context():
                view = find_client(client.client_id)
                gate.wait()
                transaction(store_consent)(session, view, user.id, ("openid", scope))
                allowed.append(scope)

        tabs = [threading.Thread(target=allow, args=(SCOPES[n % len(SCOPES)],)) for n in range(TABS)]
        for tab in tabs:
            tab.start()
        for tab in tabs:
            tab.join()
        assert len(allowed) == TABS
        with app.app_context():
            [consent] = list_consents(session)
        assert set(consent.scopes) == set(SCOPES), "what one tab allowed is not lost to another"


def find_session_of(app: Flask, make: Factory, user):
    """The signed-in user as an actor."""
    with app.app_context():
        return find_session(make.sign_in(user).token).actor()
