"""What frequent requests cost: statements and commits, which do not grow with the number of users."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import Index, PrimaryKeyConstraint, Table, UniqueConstraint, event

from app.database import engines
from app.fast_path import cache_invalidation, compiled_query
from app.fast_path.transaction_connection import TransactionConnection
from app.models.base import Base
from app.operations.clients.resources import define_resource
from tests.account.conftest import Visitor
from tests.oauth.conftest import REDIRECT_URI, SCOPES, Flow, query_of
from tests.support.databases import Database
from tests.support.pages import Matrix, path_of

Count = Callable[[Callable[[], Any]], int]
CountCost = Callable[[Callable[[], Any]], tuple[int, int]]


@pytest.fixture
def count(count_cost: CountCost) -> Count:
    """Count the statements of the second call, without savepoints."""
    return lambda act: count_cost(act)[0]


@pytest.fixture
def count_cost(app: Flask, monkeypatch: pytest.MonkeyPatch) -> Iterator[CountCost]:
    """Count statements, without savepoints, and commits of transactions of the second call."""
    asked: list[str] = []
    committed: list[Any] = []
    compiled_run = compiled_query._run
    commit = TransactionConnection.commit

    def note(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        asked.append(statement)

    def run(driver: Any, compiled: Any, *values: Any, **options: Any) -> Any:
        asked.append(compiled.sql)
        return compiled_run(driver, compiled, *values, **options)

    def note_commit(connection: TransactionConnection) -> None:
        committed.append(connection)
        commit(connection)

    def counted(act: Callable[[], Any]) -> tuple[int, int]:
        # Poll as a serving process does, so that entries cached from now on are valid.
        with app.app_context():
            cache_invalidation.poll()
        act()
        asked.clear()
        committed.clear()
        act()
        statements = [text for text in asked if "SAVEPOINT" not in text and not text.startswith("BEGIN")]
        return len(statements), len(committed)

    monkeypatch.setattr(compiled_query, "_run", run)
    monkeypatch.setattr(TransactionConnection, "commit", note_commit)
    # A request on a busy machine takes longer, and then reads again what was cached.
    monkeypatch.setattr(cache_invalidation, "TRUSTED_SECONDS", 60)
    with app.app_context():
        both = engines()
    for engine in both:
        event.listen(engine, "before_cursor_execute", note)
    yield counted
    for engine in both:
        event.remove(engine, "before_cursor_execute", note)


@pytest.mark.slow
def test_sign_in_query_count_does_not_grow_with_users(
    make: Any, app: Flask, acme: Any, ada: Any, count: Count
) -> None:
    Visitor(app).sign_in(ada)
    alone = count(lambda: Visitor(app).sign_in(ada))
    for _ in range(8):
        Visitor(app).sign_in(make.user(acme))
        make.user(make.organization())
    assert count(lambda: Visitor(app).sign_in(ada)) == alone
    assert alone <= 12


# Statements, and transactions that are committed. Without a transaction, a statement is its own. Raise a number only
# with a reason: each is a round trip of every request.
BUDGET = {
    "client_credentials": (1, 0),
    "introspection": (1, 0),
    "userinfo": (1, 0),
    "revocation": (4, 1),
    "authorization with session and consent": (4, 1),
    "code": (5, 1),
    "refresh": (3, 1),
    "POST /clients": (8, 1),
    "GET /clients": (2, 0),
    "sign-in": (12, 1),
    "sign-in in a known browser": (12, 1),
    "sign-in for an app": (13, 1),
    "sign-in with a wrong password": (6, 1),
    "sign-in page": (0, 0),
    "consent page": (8, 1),
    "portal overview": (15, 0),
}


@pytest.mark.slow
def test_flows_cost_no_more_than_their_budget(
    make: Any, app: Flask, acme: Any, ada: Any, count_cost: CountCost
) -> None:
    machine = make.machine(acme, "clients:read", "clients:write", "clients:create")
    client = make.client(acme, scopes=SCOPES, redirect_uris=[REDIRECT_URI])
    flow = Flow(app, app.test_client(), make, client, ada)
    flow.sign_in()
    scope = " ".join(SCOPES)
    tokens = flow.tokens(scope=scope)
    bearer = {"Authorization": f"Bearer {tokens['access_token']}"}
    new = {"name": "Orchard", "type": "web", "redirect_uris": [REDIRECT_URI]}
    own = flow.token(machine.basic, grant_type="client_credentials").get_json()["access_token"]
    manager = {"Authorization": f"Bearer {own}"}
    own_tokens, codes, new_browsers, known_browsers, sent_by_app = [], [], [], [], []
    sign_in_path = f"/organizations/{acme.slug}/login"
    for _ in range(2):
        new_browsers.append(Visitor(app))
        known_browsers.append(Visitor(app))
        known_browsers[-1].sign_in(ada)
        known_browsers[-1].http.delete_cookie(make.cookie_name(acme))
        visitor = Visitor(app)
        sent = visitor.get("/oauth/authorize", query_string=flow.parameters()).headers["Location"]
        visitor.get(sent)
        sent_by_app.append((visitor, sent))
        own_tokens.append(
            flow.token(machine.basic, grant_type="client_credentials").get_json()["access_token"]
        )
        codes.append(flow.code(scope=scope))

    def succeeds(answer: Any, status: int = 200) -> Any:
        assert answer.status_code == status, answer.text
        return answer

    consent_url = flow.authorize(scope=scope, prompt="consent").headers["Location"]
    administrator = app.test_client()
    make.sign_in(make.user(acme, role="admin"), administrator)

    def sign_in(
        visitor: Visitor, path: str = sign_in_path, *, status: int = 303, password: str = ada.password
    ) -> None:
        succeeds(visitor.post(path, email=ada.email, password=password), status)

    for visitor in (*new_browsers, *known_browsers):
        visitor.get(sign_in_path)

    def refresh() -> None:
        tokens["refresh_token"] = succeeds(flow.refresh(tokens["refresh_token"])).get_json()["refresh_token"]

    def revoke() -> None:
        sent = {"token": own_tokens.pop()}
        succeeds(flow.http.post("/oauth/revoke", data=sent, headers=machine.basic))

    acts: dict[str, Callable[[], Any]] = {
        "client_credentials": lambda: succeeds(flow.token(machine.basic, grant_type="client_credentials")),
        "introspection": lambda: flow.introspect(tokens["access_token"]),
        "userinfo": lambda: succeeds(flow.http.get("/oauth/userinfo", headers=bearer)),
        "revocation": revoke,
        "authorization with session and consent": lambda: query_of(flow.authorize(scope=scope))["code"],
        "code": lambda: succeeds(flow.redeem(codes.pop())),
        "refresh": refresh,
        "POST /clients": lambda: succeeds(flow.http.post("/clients", json=new, headers=manager), 201),
        "GET /clients": lambda: succeeds(flow.http.get("/clients", headers=manager)),
        "sign-in with a wrong password": lambda: sign_in(new_browsers[0], status=400, password="wrong"),
        "sign-in": lambda: sign_in(new_browsers.pop()),
        "sign-in for an app": lambda: sign_in(*sent_by_app.pop()),
        "sign-in in a known browser": lambda: sign_in(known_browsers.pop()),
        "sign-in page": lambda: succeeds(Visitor(app).get(sign_in_path)),
        "consent page": lambda: succeeds(flow.http.get(consent_url)),
        "portal overview": lambda: succeeds(administrator.get(f"/portal/{acme.slug}")),
    }
    assert {name: count_cost(act) for name, act in acts.items()} == BUDGET


# Statements of pages that need more than MAX_STATEMENTS, which all others do with.
MAX_STATEMENTS = 8
PAGE_BUDGET = {
    "/portal/<organization>/users/<user_id>": 23,
    "/portal/<organization>": 15,
    "/organizations/<organization>/account/security": 13,
    "/organizations/<organization>/account/security/app": 12,
    "/portal/<organization>/access-requests/<access_id>/withdraw": 12,
    # The names of its targets: one for each kind.
    "/portal/<organization>/audit": 12,
    "/portal/<organization>/clients/<client_id>": 13,
    "/portal/<organization>/users/<user_id>/disable": 13,
    "/organizations/<organization>/account/security/app/remove": 11,
    "/organizations/<organization>/account/security/recovery-codes": 11,
    "/portal/<organization>/users/<user_id>/second-factors/reset": 12,
    "/organizations/<organization>/account/security/passkeys/add": 10,
    "/portal/<organization>/clients/<client_id>/credentials/<credential_id>/reveal": 10,
    "/portal/<organization>/clients/<client_id>/credentials/new": 10,
    "/portal/<organization>/clients/<client_id>/delete": 10,
    "/portal/<organization>/clients/<client_id>/roles": 10,
    "/portal/<organization>/groups/<group_id>": 10,
    "/portal/<organization>/logs/<failed_request_id>": 11,
    "/portal/<organization>/settings/permissions/<role>": 10,
    "/portal/<organization>/users": 10,
    "/portal/<organization>/administrators": 9,
    "/portal/<organization>/apis/<api_id>": 9,
    "/portal/<organization>/clients/<client_id>/apis": 9,
    "/portal/<organization>/identity-providers/<provider_id>/delete": 9,
    "/portal/<organization>/identity-providers/<provider_id>/provisioning-tokens/<provisioning_token_id>/delete": 9,
    "/portal/<organization>/settings/<topic>": 9,
    "/portal/<organization>/settings/keys/<algorithm>/replace": 9,
    "/portal/<organization>/settings/permissions/new": 9,
    "/portal/<organization>/users/<user_id>/delete": 11,
    "/portal/<organization>/users/<user_id>/sign-out": 10,
    "/portal/<organization>/users/<user_id>/linked-identities/<identity_id>/unlink": 9,
}
COPIES = 3


@pytest.mark.slow
def test_pages_cost_no_more_than_their_budget_whatever_they_list(
    app: Flask, make: Any, database: Database, count_cost: CountCost
) -> None:
    """Each page of the portal and of accounts: with one row of everything, and with several."""
    make.root()
    matrix = Matrix(app, make)
    http = app.test_client()
    make.sign_in(make.user(matrix.acme.organization, role="admin"), http)
    pages = {
        pattern: path_of(pattern, matrix.acme)
        for endpoint, method, pattern in matrix.pages()
        if method == "GET" and endpoint.partition(".")[0] in {"portal", "account"}
    }
    shown = {
        pattern: path
        for pattern, path in pages.items()
        if (answer := http.get(path)).status_code == 200 and answer.mimetype == "text/html"
    }

    def cost(pattern: str) -> int:
        return count_cost(lambda: http.get(shown[pattern]))[0]

    before = {pattern: cost(pattern) for pattern in shown}
    assert len(before) > 90
    copied = copy_rows(database, matrix.acme.organization.id)
    assert copied >= COPIED_TABLES
    # What happens now and then, such as asking for the time, may fall into one request, not into two.
    grown = {page for page in shown if cost(page) > before[page] and cost(page) > before[page]}
    assert grown == set()
    dear = {page for page, count in before.items() if count > PAGE_BUDGET.get(page, MAX_STATEMENTS)}
    assert {
        page: count for page in dear if (count := cost(page)) > PAGE_BUDGET.get(page, MAX_STATEMENTS)
    } == {}


# What pages list. Other rows are copied too if their keys allow it.
COPIED_TABLES = {
    "access_tokens", "app_role_assignments", "audit_events", "client_access", "client_credentials",
    "client_requests", "clients", "consents", "failed_requests", "grants", "group_members", "invitations",
    "registration_tokens", "registrations", "resources", "revocation_receipts", "role_assignments", "scopes",
    "user_groups", "users", "webhook_deliveries", "webhooks",
}  # fmt: skip


def copy_rows(database: Database, organization_id: str) -> set[str]:
    """Copy each row of the organization COPIES times, and return the tables that have copies."""
    copied: set[str] = set()
    with closing(database.connect()) as connection, closing(connection.cursor()) as cursor:
        cursor.execute(database.no_foreign_keys)
        for table in Base.metadata.sorted_tables:
            if "organization_id" not in table.columns:
                continue
            cursor.execute(
                f"SELECT * FROM {table.name} WHERE organization_id = {database.mark}",
                [organization_id.encode()],
            )
            names = [column[0] for column in cursor.description]
            marks = ", ".join([database.mark] * len(names))
            for row in cursor.fetchall():
                for number in range(COPIES):
                    values = dict(zip(names, row, strict=True))
                    for name in varied_columns(table):
                        values[name] = vary(values[name], number)
                    cursor.execute(f"INSERT INTO {table.name} VALUES ({marks})", list(values.values()))
                    copied.add(table.name)
    return copied


def varied_columns(table: Table) -> set[str]:
    """Return a column of each unique key, so that a copy has another value there."""
    keys = [
        [column.name for column in key.columns]
        for key in (*table.constraints, *table.indexes)
        if isinstance(key, (PrimaryKeyConstraint, UniqueConstraint))
        or (isinstance(key, Index) and key.unique)
    ]
    return {next((name for name in ("id", "user_id") if name in key), key[-1]) for key in keys}


def vary(value: Any, number: int) -> Any:
    """Return another value, the same for the same two: what referred to a row then refers to its copy."""
    if isinstance(value, bytes) and not value.isascii():
        return hashlib.sha256(value + bytes([number])).digest()[: len(value)]
    if isinstance(value, bytes):
        return vary(value.decode(), number).encode()
    if isinstance(value, str):
        # As long as before: some columns have no room for more.
        return value[:-1] + [letter for letter in "wxyz" if letter != value[-1:]][number]
    return None if value is None else value + 1_000 + number


# Of JWTs, by how the API keeps them; the second token of a client in a minute.
STORAGE_BUDGET = {
    "stored": {"client_credentials": (1, 0), "introspection": (1, 0), "code": (5, 1), "refresh": (3, 1)},
    "status_list": {"client_credentials": (0, 0), "introspection": (1, 0), "code": (5, 1), "refresh": (3, 1)},
    "none": {"client_credentials": (0, 0), "introspection": (1, 0), "code": (4, 1), "refresh": (2, 1)},
}


@pytest.mark.slow
@pytest.mark.parametrize("storage", STORAGE_BUDGET)
def test_jwts_cost_no_more_than_their_storage(
    make: Any, app: Flask, count_cost: CountCost, storage: str
) -> None:
    organization = make.organization(
        settings={"oauth": {"signing": {"algorithm": "ES256"}, "access_token": {"allow_unstored": True}}}
    )
    api = {
        "identifier": "https://api.example",
        "name": "API",
        "scopes": [{"name": "read"}],
        "access_token_format": "jwt",
        "access_token_storage": storage,
    }
    with app.app_context():
        define_resource(make.actor(organization), api)
    client = make.client(organization, scopes=["read", "offline_access"], redirect_uris=[REDIRECT_URI])
    flow = Flow(app, app.test_client(), make, client, make.user(organization))
    flow.sign_in()
    machine = make.machine(organization, "read")
    tokens = flow.tokens(scope="read offline_access")
    codes = [flow.code(scope="read offline_access") for _ in range(2)]

    def mint() -> None:
        assert flow.token(machine.basic, grant_type="client_credentials").status_code == 200

    def refresh() -> None:
        tokens["refresh_token"] = flow.refresh(tokens["refresh_token"]).get_json()["refresh_token"]

    acts: dict[str, Callable[[], Any]] = {
        "client_credentials": mint,
        "introspection": lambda: flow.introspect(tokens["access_token"]),
        "code": lambda: flow.redeem(codes.pop()),
        "refresh": refresh,
    }
    assert {name: count_cost(act) for name, act in acts.items()} == STORAGE_BUDGET[storage]


def test_claims_cost_queries_only_where_they_are_released(
    make: Any, app: Flask, acme: Any, ada: Any, count: Count
) -> None:
    """Introspection of a user's token: groups and roles are one query each, an attribute one for the user."""
    client = make.client(
        acme,
        scopes=["openid", "profile", "groups", "roles"],
        trust="first_party",
        redirect_uris=[REDIRECT_URI],
        app_roles=[{"key": "editor"}],
        claim_mappings=[{"claim": "zone", "source": "zoneinfo", "targets": ["introspection"]}],
    )
    flow = Flow(app, app.test_client(), make, client, ada)
    flow.sign_in()
    cost = {}
    for scope in ("openid", "openid groups", "openid groups roles", "openid profile"):
        token = flow.tokens(scope=scope)["access_token"]
        cost[scope] = count(lambda token=token: flow.introspect(token))
    assert list(cost.values()) == [1, 2, 3, 2]
