"""Lost replies of the database: the work is done exactly once and is not mistaken for a replay."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import MySQLdb
import pytest
from flask import Flask

from app import config, create_app
from app.database import engines
from app.fast_path import compiled_query
from app.operations.clients.scopes import add_scopes, list_scopes
from app.operations.directory.lookups import get_organization_by_slug
from app.operations.store import transactions
from app.rules.errors import Conflict
from tests.factories import Factory
from tests.oauth.conftest import FAST_KEYS, REDIRECT_URI, SCOPES, Flow
from tests.oauth.test_refresh import configure
from tests.support.applications import BASE_URL, Client, environment
from tests.support.databases import MariaDBDatabase
from tests.support.proxy import LosingProxy

pytestmark = pytest.mark.mariadb  # SQLite has no connection that could be lost.


@pytest.fixture
def proxy(database: MariaDBDatabase) -> Iterator[LosingProxy]:
    """A proxy between the application and its database."""
    made = LosingProxy(database.server.port)
    yield made
    made.close()


@pytest.fixture
def losing(app: Flask, database: MariaDBDatabase, proxy: LosingProxy, instance) -> Flow:
    """A flow in an application that uses the database through the proxy."""
    settings = environment(database, instance, BASE_URL)
    settings["DATABASE_URL"] = database.server.tcp_url(database.name).replace(
        str(database.server.port), str(proxy.port)
    )
    made = create_app(config.load(settings))
    made.testing = True
    made.config["TEST_BASE_URL"] = BASE_URL
    made.test_client_class = Client
    make = Factory(made)
    organization = make.organization(settings=FAST_KEYS)
    client = make.client(organization, scopes=SCOPES, trust="first_party", redirect_uris=[REDIRECT_URI])
    flow = Flow(made, made.test_client(), make, client, make.user(organization))
    flow.sign_in()
    return flow


EITHER = pytest.mark.parametrize("after_it_took_effect", [True, False], ids=["committed", "not committed"])


@EITHER
def test_code_is_redeemed_once_after_lost_reply(
    losing: Flow, proxy: LosingProxy, database, after_it_took_effect: bool
) -> None:
    """CD-5: one grant with valid tokens, and no replay was detected."""
    code = losing.code(scope=" ".join(SCOPES))
    losing.tokens()  # the client's use has been recorded by now
    proxy.lose_next(b"COMMIT", after_it_took_effect=after_it_took_effect)
    answer = losing.redeem(code)
    assert proxy.lost == 1
    assert answer.status_code == 200, answer.text
    assert database.count("grants") == 2
    assert losing.is_alive(answer.get_json()["access_token"])
    assert losing.refresh(answer.get_json()["refresh_token"]).status_code == 200


@EITHER
def test_refresh_token_is_rotated_once_after_lost_reply(
    losing: Flow, proxy: LosingProxy, database, after_it_took_effect
) -> None:
    """RF-2: the token family is still valid."""
    tokens = losing.tokens()
    proxy.lose_next(b"COMMIT", after_it_took_effect=after_it_took_effect)
    answer = losing.refresh(tokens["refresh_token"])
    assert proxy.lost == 1
    assert answer.status_code == 200, answer.text
    [(generation,)] = database.query("SELECT generation FROM grants")
    assert generation == 1
    assert losing.refresh(answer.get_json()["refresh_token"]).status_code == 200


def test_refresh_without_rotation_happens_once_when_another_follows(
    losing: Flow, proxy: LosingProxy, database, monkeypatch
) -> None:
    """Refreshes without rotation share the grant's row, so it cannot verify which COMMIT took effect."""
    configure(losing, rotation="public_clients")
    token = losing.tokens()["refresh_token"]
    ask, others = transactions._was_committed, []

    def after_another(*args):
        monkeypatch.setattr(transactions, "_was_committed", ask)
        other = threading.Thread(target=lambda: others.append(losing.refresh(token).status_code))
        other.start()
        other.join()
        return ask(*args)

    monkeypatch.setattr(transactions, "_was_committed", after_another)
    proxy.lose_next(b"COMMIT", after_it_took_effect=True)
    answer = losing.refresh(token)
    assert (proxy.lost, others) == (1, [200])
    assert answer.status_code == 200, answer.text
    assert database.count("access_tokens") == 3
    assert losing.is_alive(answer.get_json()["access_token"])


@EITHER
def test_client_credentials_token_is_written_once(
    losing: Flow, proxy: LosingProxy, database, after_it_took_effect
) -> None:
    machine = losing.make.machine(losing.organization, "reports:read")
    grant = {"grant_type": "client_credentials"}
    assert losing.http.post("/oauth/token", data=grant, headers=machine.basic).status_code == 200
    proxy.lose_next(b"INSERT INTO access_tokens", after_it_took_effect=after_it_took_effect)
    answer = losing.http.post("/oauth/token", data=grant, headers=machine.basic)
    assert proxy.lost == 1
    assert answer.status_code == 200, answer.text
    assert database.count("access_tokens") == 2
    told = losing.http.post(
        "/oauth/introspect", data={"token": answer.get_json()["access_token"]}, headers=machine.basic
    )
    assert told.get_json()["active"] is True


def test_read_is_retried(losing: Flow, proxy: LosingProxy) -> None:
    token = losing.tokens()["access_token"]
    assert losing.is_alive(token)
    proxy.lose_next(b"FROM access_tokens LEFT OUTER JOIN", after_it_took_effect=False)
    assert losing.is_alive(token)
    assert proxy.lost == 1


def test_revocation_succeeds_only_if_committed(losing: Flow, proxy: LosingProxy) -> None:
    """RV-4."""
    for after in (True, False):
        token = losing.tokens()["access_token"]
        proxy.lose_next(b"COMMIT", after_it_took_effect=after)
        answer = losing.http.post("/oauth/revoke", data={"token": token}, headers=losing.client.basic)
        assert answer.status_code == 200
        assert not losing.is_alive(token)
    assert proxy.lost == 2


@EITHER
def test_other_change_is_made_once(losing: Flow, proxy: LosingProxy, database, after_it_took_effect) -> None:
    """Its audit event verifies the commit. Without it, a committed change would be made again."""
    actor = losing.make.system(losing.organization)
    before = database.count("scopes"), database.count("audit_events")
    with losing.app.app_context():
        proxy.lose_next(b"COMMIT", after_it_took_effect=after_it_took_effect)
        assert add_scopes(actor, ["orchard:prune"]) == ["orchard:prune"]
    assert proxy.lost == 1
    assert (database.count("scopes"), database.count("audit_events")) == (before[0] + 1, before[1] + 1)


def test_unavailable_database_is_a_503(losing: Flow, proxy: LosingProxy, monkeypatch) -> None:
    """P5."""
    tokens = losing.tokens()
    machine = losing.make.machine(losing.organization, "reports:read")
    grant = {"grant_type": "client_credentials"}
    assert losing.http.post("/oauth/token", data=grant, headers=machine.basic).status_code == 200
    monkeypatch.setattr(compiled_query, "DEADLINE_SECONDS", 0.2)
    monkeypatch.setattr(transactions, "DEADLINE_SECONDS", 0.2)
    proxy.close()
    with losing.app.app_context():
        from app.database import engines

        for engine in engines():
            engine.dispose()
    answers = [
        losing.http.post("/oauth/token", data=grant, headers=machine.basic),
        losing.refresh(tokens["refresh_token"]),
        losing.http.post("/oauth/introspect", data={"token": "x"}, headers=losing.client.basic),
    ]
    for answer in answers:
        assert (answer.status_code, answer.get_json()["error"]) == (503, "temporarily_unavailable")
        assert int(answer.headers["Retry-After"]) > 0


def test_connection_lost_during_the_rollback_keeps_the_answer(losing: Flow, proxy: LosingProxy) -> None:
    """F1: the server has rolled back what the lost connection had begun."""
    losing.tokens()
    proxy.lose_next(b"ROLLBACK", after_it_took_effect=False)

    @transactions.transaction
    def refuse() -> None:
        add_scopes(losing.make.system(losing.organization), ["never:stored"])
        raise Conflict("no")

    with losing.app.app_context():
        with pytest.raises(Conflict):
            refuse()
        assert proxy.lost == 1
        known = {scope.name for scope in list_scopes(losing.make.system(losing.organization))}
    assert "never:stored" not in known


def test_restarted_database_costs_a_transaction_no_attempt(
    losing: Flow, database: MariaDBDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F1: more connections are dead than a deadlock has attempts."""
    monkeypatch.setattr(transactions, "MAX_ATTEMPTS", 1)
    with losing.app.app_context():
        pair = engines()
        with contextlib.ExitStack() as opened:
            for engine in pair:
                for _ in range(6):
                    opened.enter_context(contextlib.closing(engine.raw_connection()))
        mine = "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()"
        for (number,) in database.query(mine):
            with contextlib.suppress(MySQLdb.Error):
                database.query(f"KILL {number}")
        assert add_scopes(losing.make.system(losing.organization), ["fresh:scope"]) == ["fresh:scope"]
        assert get_organization_by_slug(losing.organization.slug).is_active
