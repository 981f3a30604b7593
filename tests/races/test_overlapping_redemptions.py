"""A code is redeemed while what it depends on ends: either is first, and no access is left over (CD-8)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from flask import Flask

from app.operations.authorization import authorization_requests, codes, connected_apps
from app.operations.authorization.codes import generate_code
from app.operations.authorization.consents import store_consent
from app.operations.clients.clients import update_client
from app.operations.directory.lookups import find_client
from app.operations.directory.snapshots import AuthenticatedClient, ClientSnapshot
from app.operations.grants.grant_lists import list_grants
from app.operations.sign_in.sessions import SessionRecord, end_session, find_session
from app.operations.store.transactions import transaction
from app.operations.tokens import issuance, tokens
from app.operations.tokens.bulk_revocation import bulk_revoke
from app.operations.users.users import disable_user
from app.rules.actor import Actor
from app.rules.authorization.authorization_request import AuthorizationParameters, challenge_of
from app.rules.errors import InvalidGrant
from tests.factories import Factory
from tests.oauth.conftest import FAST_KEYS, REDIRECT_URI, VERIFIER
from tests.support.codes import redeem_code
from tests.support.databases import Database
from tests.support.process import wait_until

# SQLite has one writer at a time, so nothing overlaps.
pytestmark = pytest.mark.mariadb
LOCK_WAIT = "SHOW GLOBAL STATUS WHERE Variable_name = 'Innodb_row_lock_current_waits' AND Value <> '0'"
ONLINE, OFFLINE = ("email",), ("email", "offline_access")
MOMENTS = {
    "after the code was read": (codes, "find_code"),
    "before the grant is committed": (issuance, "store_grant_tokens"),
}


@dataclass(frozen=True)
class Parties:
    """Who takes part: an administrator, and the user of the code in a session."""

    boss: Actor
    client: ClientSnapshot
    session: SessionRecord


def sign_out(parties: Parties) -> object:
    return end_session(parties.session.actor())


def revoke_session(parties: Parties) -> object:
    body = {"session_id": parties.session.public_id}
    return bulk_revoke(parties.boss, parties.session.organization_slug, body)


def decline(parties: Parties) -> object:
    """Allow the app something else at its consent page, and not what the code is for."""
    actor, asked = parties.session.actor(), ("profile", *OFFLINE)
    allow = transaction(store_consent)
    return allow(actor, parties.client, parties.session.user_id, ("profile",), requested=asked)


def withdraw(parties: Parties) -> object:
    actor = parties.session.actor()
    [consent] = connected_apps.list_consents(actor)
    return connected_apps.withdraw_consent(actor, consent.id)


def disable(parties: Parties) -> object:
    return disable_user(parties.boss, parties.session.user_id)


def block(parties: Parties) -> object:
    return update_client(parties.boss, parties.client.client_id, {"approval": "blocked"})


ENDINGS: dict[str, tuple[tuple[str, ...], Callable[[Parties], object]]] = {
    "the user signs out": (ONLINE, sign_out),
    "the session is revoked": (OFFLINE, revoke_session),
    "the user declines the scope": (OFFLINE, decline),
    "the user withdraws the consent": (OFFLINE, withdraw),
    "the user is disabled": (OFFLINE, disable),
    "the client is blocked": (OFFLINE, block),
}


class Rival(threading.Thread):
    """Does something in another process, as it were."""

    def __init__(self, app: Flask, act: Callable[[], object]) -> None:
        super().__init__()
        self.app, self.act = app, act

    def run(self) -> None:
        with self.app.app_context():
            self.act()

    def start_and_wait(self, database: Database) -> None:
        """Return once it waits for a lock, or has ended without."""
        self.start()
        wait_until(
            lambda: not self.is_alive() or database.query(LOCK_WAIT),
            "the rival waits for the redemption",
            # InnoDB makes this table afresh only for who left it alone for a tenth of a second.
            pause=0.15,
        )


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("ending", ENDINGS)
def test_overlapping_redemption_leaves_no_access(
    app: Flask, make: Factory, database: Database, monkeypatch: pytest.MonkeyPatch, ending: str, moment: str
) -> None:
    organization = make.organization(settings=FAST_KEYS)
    made = make.client(organization, redirect_uris=[REDIRECT_URI], scopes=["openid", "profile", *OFFLINE])
    scopes, act = ENDINGS[ending]
    with app.app_context():
        client = find_client(made.client_id, fresh=True)
        session = find_session(make.sign_in(make.user(organization)).token)
        assert client is not None and session is not None
        rival = Rival(app, lambda: act(Parties(make.actor(organization), client, session)))

        def with_rival(function: Any) -> Any:
            def run(*arguments: Any) -> Any:
                result = function(*arguments)
                if rival.ident is None:
                    rival.start_and_wait(database)
                return result

            return run

        monkeypatch.setattr(*MOMENTS[moment], with_rival(getattr(*MOMENTS[moment])))
        try:
            answer = redeem(client, session, scopes)
        except InvalidGrant:
            return
        finally:
            rival.join()
        assert tokens.find_token(answer.access_token) is None
        assert list_grants(make.actor(organization)).items == ()


def redeem(client: ClientSnapshot, session: SessionRecord, scopes: tuple[str, ...]) -> Any:
    """Issue a code that the user allows, and redeem it."""
    code = generate_code(client.organization)
    asked = AuthorizationParameters(REDIRECT_URI, scopes, challenge_of(VERIFIER))
    authorization_requests.issue_code(
        session.actor(), client, asked, session, code=code, scopes=scopes, request=None, remember=True
    )
    caller = AuthenticatedClient(client, client.secrets[0].id)
    return redeem_code(caller, code, redirect_uri=REDIRECT_URI, verifier=VERIFIER)
