"""Access that is withdrawn while tokens are issued, and decisions that meet."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

import pytest
from flask import Flask

from app.operations.clients import access_decisions, access_requests, clients, resources
from app.operations.directory import lookups
from app.operations.directory.snapshots import AuthenticatedClient
from app.operations.tokens import tokens
from app.rules.directory.permissions import BUILT_IN_ROLES
from app.rules.errors import Conflict, InvalidInput, NotFound, OAuthError
from tests.factories import Factory
from tests.support.databases import Database
from tests.support.threads import at_once

ROUNDS, CALLS = 6, 8
MACHINE: dict[str, Any] = {"type": "machine", "redirect_uris": [], "grant_types": ["client_credentials"]}


@pytest.fixture
def payroll(app: Flask, make: Factory) -> tuple[Any, str, Any]:
    """An administrator, the id of their API, and a client without access to it."""
    organization = make.organization()
    boss = make.actor(organization)
    with app.app_context():
        fields = {"identifier": "urn:payroll", "name": "Payroll", "scopes": [{"name": "payroll:read"}]}
        api = resources.define_resource(boss, fields).public_id
    held = BUILT_IN_ROLES["developer"].permissions
    ada = make.actor(organization, *held, user=make.user(organization, role="developer"))
    return boss, api, (ada, make.client(organization, by=ada, **MACHINE, scopes=["payroll:read"]))


def test_no_token_survives_a_concurrent_withdrawal(app: Flask, payroll: tuple[Any, str, Any]) -> None:
    """Tokens are issued from a snapshot that still has the access, also after the withdrawal was committed."""
    boss, api, (_, client) = payroll
    for _ in range(ROUNDS):
        given: list[str] = []
        with app.app_context():
            access = access_decisions.give_access(boss, api, client.client_id, {"scopes": ["payroll:read"]})
            view = lookups.find_client(client.client_id, fresh=True)
            assert view is not None
        stale = AuthenticatedClient(view, view.secrets[0].id)

        def issue(stale: AuthenticatedClient = stale, given: list[str] = given) -> None:
            given.extend(tokens.issue_to_client(stale, ("payroll:read",)).access_token for _ in range(3))

        def withdraw(access_id: str = access.public_id) -> object:
            return access_decisions.withdraw_access(boss, access_id)

        at_once(app, [*[issue] * (CALLS // 2), withdraw, *[issue] * (CALLS // 2)])
        with app.app_context():
            assert [token for token in given if tokens.find_token(token) is not None] == []
            fresh = lookups.find_client(client.client_id)
            assert fresh is not None
            with pytest.raises(OAuthError):
                tokens.issue_to_client(AuthenticatedClient(fresh, fresh.secrets[0].id), ("payroll:read",))


def test_concurrent_decisions_have_one_winner(
    app: Flask, payroll: tuple[Any, str, Any], database: Database
) -> None:
    boss, api, (ada, client) = payroll
    asked = {"scopes": ["payroll:read"], "reason": "For the pay slips."}
    with app.app_context():
        request = access_requests.request_access(ada, client.client_id, api, asked)
    decide = [access_decisions.approve_access, access_decisions.decline_access]
    results = at_once(app, [lambda act=decide[n % 2]: act(boss, request.public_id) for n in range(2 * CALLS)])
    assert sorted(results) == ["AccessRecord", *["AlreadyDecided"] * (2 * CALLS - 1)]
    assert database.count("client_access") == 1


def test_request_is_either_cancelled_or_approved(
    app: Flask, payroll: tuple[Any, str, Any], database: Database
) -> None:
    boss, api, (ada, client) = payroll
    asked = {"scopes": ["payroll:read"], "reason": "For the pay slips."}
    with app.app_context():
        request = access_requests.request_access(ada, client.client_id, api, asked)
    acts = [
        lambda: access_requests.cancel_request(ada, client.client_id, api),
        lambda: access_decisions.approve_access(boss, request.public_id),
    ]
    results = at_once(app, [acts[n % 2] for n in range(2 * CALLS)])
    assert results.count("AccessRecord") == 1 and set(results) <= {
        "AccessRecord",
        "AlreadyDecided",
        "NotFound",
    }
    events = database.query("SELECT CAST(action AS CHAR) FROM audit_events ORDER BY id")
    [outcome] = {action for (action,) in events} & {"client_access.cancelled", "client_access.granted"}
    assert database.count("client_access") == (outcome == "client_access.granted")


def test_concurrent_requests_leave_one(app: Flask, payroll: tuple[Any, str, Any], database: Database) -> None:
    _, api, (ada, client) = payroll
    asked = {"scopes": ["payroll:read"], "reason": "For the pay slips."}
    results = at_once(
        app,
        [lambda: access_requests.request_access(ada, client.client_id, api, asked) for _ in range(CALLS)],
    )
    assert len(results) == CALLS and set(results) <= {"AccessRecord", "Conflict"}, results
    assert database.count("client_access") == 1


@pytest.mark.mariadb
@pytest.mark.parametrize("is_deleted", [False, True], ids=["scope removed", "API deleted"])
@pytest.mark.parametrize("way", ["give", "request", "approve", "register"])
def test_access_names_no_scope_that_ends_meanwhile(
    app: Flask,
    payroll: tuple[Any, str, Any],
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
    way: str,
    is_deleted: bool,
) -> None:
    """A scope of the same name that is added later would be included. Without the API, there is no row."""
    boss, api, (ada, client) = payroll
    asked: dict[str, Any] = {"scopes": ["payroll:read"], "reason": "For the pay slips."}
    with app.app_context():
        clients.update_client(boss, client.client_id, {"scopes": []})
        pending = access_requests.request_access(ada, client.client_id, api, asked)
    if way != "approve":
        database.query("DELETE FROM client_access")

    def end() -> object:
        if is_deleted:
            return resources.delete_resource(boss, api, confirmed=True)
        return resources.update_resource(boss, api, {"scopes": []}, confirmed=True)

    ended: list[threading.Thread] = []

    def end_before(original: Callable[..., Any]) -> Callable[..., Any]:
        """Let another thread end the scope before the first call, or during it if it has to wait."""

        def call(*arguments: Any, **named: Any) -> Any:
            if not ended:
                ended.append(threading.Thread(target=in_context, args=(app, end)))
                ended[0].start()
                ended[0].join(0.5)
            return original(*arguments, **named)

        return call

    acts: dict[str, Callable[[], object]] = {
        "give": lambda: access_decisions.give_access(
            boss, api, client.client_id, {"scopes": asked["scopes"]}
        ),
        "request": lambda: access_requests.request_access(ada, client.client_id, api, asked),
        "approve": lambda: access_decisions.approve_access(boss, pending.public_id),
        "register": lambda: clients.update_client(boss, client.client_id, {"scopes": asked["scopes"]}),
    }
    module, name = {
        "give": (access_decisions, "grant_access"),
        "request": (access_requests, "raise_client_version"),
        "approve": (access_decisions, "grant_access"),
        "register": (clients, "grant_access"),
    }[way]
    monkeypatch.setattr(module, name, end_before(getattr(module, name)))
    with app.app_context(), contextlib.suppress(NotFound, InvalidInput, Conflict):
        acts[way]()
    ended[0].join()
    named = "".join(str(row) for row in database.query("SELECT scopes FROM client_access"))
    assert "payroll:read" not in named
    assert not is_deleted or database.count("client_access") == 0


def test_new_scope_of_concurrent_clients_is_added_once(app: Flask, make: Factory, database: Database) -> None:
    boss = make.actor(make.organization())
    wanted: dict[str, Any] = {**MACHINE, "name": "Robot", "scopes": ["robots:run", "robots:stop"]}
    for number in range(ROUNDS):
        new = {**wanted, "scopes": [f"robots:{number}", "robots:stop"]}
        results = at_once(app, [lambda new=new: clients.register_client(boss, new) for _ in range(CALLS)])
        assert results == ["RegisteredClient"] * CALLS
    names = {name for (name,) in database.query("SELECT name FROM scopes WHERE is_identity = 0")}
    assert len(names) == ROUNDS + 1


def in_context(app: Flask, act: Callable[[], object]) -> None:
    with app.app_context():
        act()
