"""Move an organization to another cell, with other keys and another database engine."""

from __future__ import annotations

import io
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from flask import Flask

from app.models.base import Base
from app.operations.audit.chain import seal_all_events, seal_pending_events
from app.operations.audit.chain_verification import verify_audit_log
from app.operations.directory import lookups
from app.operations.maintenance import janitor, move
from app.operations.maintenance.move import list_served, move_organization
from app.operations.maintenance.move_peer import MAX_ROUNDS, MoveFailed, Peer, list_digests
from app.operations.organizations import organizations
from app.operations.organizations.administrators import add_administrator
from app.operations.store import outbox
from app.operations.store.transactions import transaction
from app.operations.tokens.bulk_revocation import bulk_revoke
from app.rules.actor import Actor
from app.rules.errors import Conflict, OrganizationMoved
from tests.factories import Factory, MadeClient
from tests.operations.maintenance.transfer.conftest import (
    CutPeer,
    Interrupted,
    Moved,
    introspected,
    operator,
    token_of,
)
from tests.support.caches import clear_directory_cache
from tests.support.cases import each
from tests.support.databases import Database


def test_tokens_secrets_and_log_are_valid_after_a_move(
    moved: Moved,
    robot: MadeClient,
    app: Flask,
    elsewhere: tuple[Flask, Database],
    connect: Callable[[Flask], Peer],
) -> None:
    there, database = elsewhere
    kept, revoked = (token_of(app, robot).get_json()["access_token"] for _ in range(2))
    app.test_client().post("/oauth/revoke", data={"token": revoked}, headers=robot.basic)
    # A caller may send the earliest time that there is.
    order = {"client_id": robot.client_id, "issued_before": "0001-01-01T00:00:00Z"}
    with app.app_context():
        bulk_revoke(Actor.system(moved.organization.id, "tests"), "acme", order)
        result = move_organization(operator(), "acme", "b", connect(there))
        assert result.late_rows == {} and 0 < result.paused_seconds < 60
        assert "acme" not in dict(list_served())
        with pytest.raises(OrganizationMoved):
            lookups.get_organization_by_slug("acme")
        with pytest.raises(Conflict, match="has moved to b"):
            organizations.restore_organization(operator(), "acme")
    refused = token_of(app, robot)
    assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
    assert app.test_client().get("/organizations/acme/login").status_code == 503
    assert introspected(there, robot, kept) is True
    assert introspected(there, robot, revoked) is False
    refresh = {"grant_type": "refresh_token", "refresh_token": moved.refresh_token}
    refreshed = there.test_client().post("/oauth/token", data=refresh, headers=moved.client.basic)
    assert refreshed.status_code == 200, refreshed.text
    assert token_of(there, robot).status_code == 200
    with there.app_context():
        assert dict(list_served())["acme"] == moved.organization.id
        assert not verify_audit_log(Actor.system(moved.organization.id, "tests")).problems
    assert database.query("SELECT COUNT(*) FROM organizations WHERE moved_to IS NOT NULL") == [(0,)]


def test_events_of_a_returning_organization_are_sealed_only_where_it_is_served(
    moved: Moved,
    robot: MadeClient,
    app: Flask,
    elsewhere: tuple[Flask, Database],
    connect: Callable[[Flask], Peer],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The sealer of the cell to which it returns still has its key, and works while rows are being copied."""
    there, _ = elsewhere
    with app.app_context():
        seal_pending_events(Actor.system("", "sealer"), holder="a")
        move_organization(operator(), "acme", "b", connect(there))
    with there.app_context():
        seal_all_events(Actor.system(moved.organization.id, "tests"), moved.organization.id)
    peer = connect(app)
    call, grown = peer.call, {}

    def call_and_seal(command: str, **arguments: Any) -> Any:
        answer = call(command, **arguments)
        if command == "put" and arguments["table"] == "audit_events":
            with app.app_context():
                grown.update(seal_pending_events(Actor.system("", "sealer"), holder="a") or {})
        return answer

    monkeypatch.setattr(peer, "call", call_and_seal)
    with there.app_context():
        move_organization(operator(), "acme", "a", peer)
    assert moved.organization.id not in grown
    with app.app_context():
        assert not verify_audit_log(Actor.system(moved.organization.id, "tests")).problems


def test_organization_can_come_back(
    moved: Moved,
    robot: MadeClient,
    app: Flask,
    elsewhere: tuple[Flask, Database],
    connect: Callable[[Flask], Peer],
) -> None:
    there, _ = elsewhere
    with app.app_context():
        move_organization(operator(), "acme", "b", connect(there))
    token = token_of(there, robot).get_json()["access_token"]
    with there.app_context():
        move_organization(operator(), "acme", "a", connect(app))
    assert introspected(app, robot, token) is True
    assert token_of(there, robot).status_code == 503
    with app.app_context():
        janitor.purge_expired(operator(), pause=0)
        assert "acme" in dict(list_served())


@pytest.mark.parametrize(
    ("command", "number", "where"),
    [
        ("put", 2, "after"),
        ("digests", 120, "before"),
        ("prepare", 1, "after"),
        ("activate", 1, "before"),
        ("activate", 1, "after"),
    ],
)
def test_interrupted_move_leaves_one_cell_authoritative_and_can_be_repeated(
    moved: Moved,
    robot: MadeClient,
    app: Flask,
    elsewhere: tuple[Flask, Database],
    connect: Callable[[Flask], Peer],
    command: str,
    number: int,
    where: str,
) -> None:
    """The 120th comparison is in the pause, which ends by itself."""
    there, _database = elsewhere
    token = token_of(app, robot).get_json()["access_token"]
    cut = CutPeer(connect(there), lambda name, count: where if (name, count) == (command, number) else "")
    with app.app_context(), pytest.raises(Interrupted):
        move_organization(operator(), "acme", "b", cut)
    serving = [app] if command != "activate" else [there] if where == "after" else []
    assert [cell for cell in (app, there) if token_of(cell, robot).status_code == 200] == serving
    with app.app_context():
        move_organization(operator(), "acme", "b", connect(there))
    assert introspected(there, robot, token) is True
    assert token_of(app, robot).status_code == 503


@each(
    "changed, rounds",
    [
        ([90_000, 400], 2),
        ([90_000, 9_000, 900, 90], 4),
        # As many rows change in a round as in the one before.
        ([5_000, 1_800, 1_900], 3),
        ([5_000, 6_000], 2),
        ([2 ** (20 - number) for number in range(MAX_ROUNDS)], MAX_ROUNDS),
    ],
)
def test_rows_are_copied_in_rounds_while_each_leaves_fewer(
    changed: list[int], rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = iter([*changed, 0])
    monkeypatch.setattr(move, "synchronize", lambda *_: ({"access_tokens": next(counts)}, {}))
    said: list[str] = []
    move._copy_while_served(Peer(io.StringIO(), io.StringIO()), "acme", said.append)
    assert said == [f"{count} rows copied while it is served." for count in changed[:rounds]]


@pytest.mark.either
def test_source_goes_on_after_a_pause_that_nobody_ended(moved: Moved, robot: MadeClient, app: Flask) -> None:
    with app.app_context():
        move._pause(moved.organization.id, 3600)
        refused = token_of(app, robot)
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "2")
        until = move._pause(moved.organization.id, 1)
        with pytest.raises(MoveFailed, match="The pause ended"):
            move._decide(moved.organization.id, "b", until)
        move._pause(moved.organization.id, -1)
    assert token_of(app, robot).status_code == 200


@pytest.mark.either
@pytest.mark.parametrize("change", ["base_url", "tables", "clock"])
def test_cells_that_do_not_fit_are_refused(
    moved: Moved,
    robot: MadeClient,
    app: Flask,
    elsewhere: tuple[Flask, Database],
    connect: Callable[[Flask], Peer],
    change: str,
) -> None:
    there, database = elsewhere
    wrong = {
        "base_url": "https://other.example",
        "tables": {"users": ["id"]},
    }
    organizations_there = database.count("organizations")
    peer = connect(there)
    call = peer.call

    class OtherPeer(Peer):
        def __init__(self) -> None:
            pass

        def call(self, command: str, **arguments: Any) -> Any:
            if command == change:
                return "2020-01-01T00:00:00+00:00"
            changes = {change: wrong[change]} if command == "begin" and change in wrong else {}
            return call(command, **(arguments | changes))

    with app.app_context(), pytest.raises((MoveFailed, Conflict), match=r"base URL|schemas|clocks"):
        move_organization(operator(), "acme", "b", OtherPeer())
    assert token_of(app, robot).status_code == 200
    assert database.count("organizations") == organizations_there


GLOBEX = "00000000"
# A cell that was broken into sends them: by table, the values of its rows, and the refusal.
CRAFTED: list[tuple[str, dict[str, Any], str]] = [
    ("users", {"organization_id": GLOBEX}, "another organization"),
    ("role_assignments", {"user_organization_id": GLOBEX}, "another organization"),
    ("users", {"password_hash": f"$2b$31${'a' * 53}", "password_scheme": "bcrypt 31"}, "password hash"),
    ("users", {"created_at": "9999-12-31T00:00:00+00:00"}, "users.created_at"),
    ("signing_keys", {"activated_at": None}, "signing_keys.activated_at"),
    ("audit_chains", {"length": (1 << 63) - 1}, "chain of the audit log"),
    ("outbox", {"organization_id": GLOBEX}, "another organization"),
]


@pytest.mark.parametrize(("table", "values", "refusal"), CRAFTED)
def test_receiver_accepts_only_rows_that_the_organization_may_have(
    moved: Moved,
    app: Flask,
    elsewhere: tuple[Flask, Database],
    connect: Callable[[Flask], Peer],
    monkeypatch: pytest.MonkeyPatch,
    table: str,
    values: dict[str, Any],
    refusal: str,
) -> None:
    """TN-4: neither rows of another organization, nor those that would end a job for all."""
    there, _ = elsewhere
    names = Base.metadata.tables[table].columns.keys()

    def craft(records: list[list[Any]]) -> list[list[Any]]:
        return [
            [values.get(name, value) for name, value in zip(names, record, strict=True)] for record in records
        ]

    peer = connect(there)
    call = peer.call

    def call_crafted(command: str, **arguments: Any) -> Any:
        if command == "put" and arguments["table"] == table:
            arguments["records"] = craft(arguments["records"])
        if command == "activate" and table == "outbox":
            arguments["messages"] = craft(arguments["messages"])
        answer = call(command, **arguments)
        # The sender says what it likes of the rows that it compares.
        is_sent = command == "digests" and arguments["table"] == table and answer
        return list_digests(moved.organization.id, Base.metadata.tables[table]) if is_sent else answer

    monkeypatch.setattr(peer, "call", call_crafted)
    with app.app_context():
        transaction(outbox.enqueue)(moved.organization.id, "email", {}, receiver="usr_x")
        seal_all_events(operator(), moved.organization.id)
        with pytest.raises(MoveFailed, match=refusal):
            move_organization(operator(), "acme", "b", peer)
    with there.app_context():
        assert "acme" not in dict(list_served())


def test_failed_move_leaves_nothing_in_the_target(
    moved: Moved,
    robot: MadeClient,
    app: Flask,
    elsewhere: tuple[Flask, Database],
    connect: Callable[[Flask], Peer],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    there, database = elsewhere
    monkeypatch.setattr(move, "_MARGIN", timedelta(hours=1))
    users = database.count("users")
    with app.app_context(), pytest.raises(MoveFailed, match="too short"):
        move_organization(operator(), "acme", "b", connect(there))
    assert token_of(app, robot).status_code == 200
    assert database.count("users") == users


def test_undelivered_message_moves_and_is_due_in_one_cell(
    moved: Moved, app: Flask, elsewhere: tuple[Flask, Database], connect: Callable[[Flask], Peer]
) -> None:
    there, _database = elsewhere

    @transaction
    def enqueue() -> None:
        outbox.enqueue(moved.organization.id, "email", {}, receiver="usr_x")

    def due(cell: Flask) -> int:
        with cell.app_context():
            found = outbox._find_due(["email"], [], [])
            return sum(message.receiver == "usr_x" for message in found)

    with app.app_context():
        enqueue()
        assert (due(app), due(there)) == (1, 0)
        move_organization(operator(), "acme", "b", connect(there))
    assert (due(app), due(there)) == (0, 1)


def test_interrupted_way_back_can_be_repeated(
    moved: Moved,
    robot: MadeClient,
    app: Flask,
    elsewhere: tuple[Flask, Database],
    connect: Callable[[Flask], Peer],
) -> None:
    there, _ = elsewhere
    with app.app_context():
        move_organization(operator(), "acme", "b", connect(there))
    cut = CutPeer(connect(app), lambda name, count: "before" if name == "activate" else "")
    with there.app_context():
        with pytest.raises(Interrupted):
            move_organization(operator(), "acme", "a", cut)
        move_organization(operator(), "acme", "a", connect(app))
        move_organization(operator(), "acme", "a", connect(app))
    assert [token_of(cell, robot).status_code for cell in (app, there)] == [200, 503]


def test_roles_of_users_of_root_end_with_a_move(
    moved: Moved,
    make: Factory,
    app: Flask,
    elsewhere: tuple[Flask, Database],
    connect: Callable[[Flask], Peer],
) -> None:
    """The other cell cannot withdraw them while the organization is there."""
    helper = make.user(make.root())
    with app.app_context():
        add_administrator(make.actor(make.root()), "acme", user_id=helper.public_id)
        move_organization(operator(), "acme", "b", connect(elsewhere[0]))
        assert not lookups.get_user_roles_everywhere(make.root().id, helper.id)
        assert lookups.get_user_roles_everywhere(moved.organization.id, moved.user.id)


@pytest.mark.either
@pytest.mark.parametrize("is_decided", [False, True])
def test_leak_report_about_a_moving_organization_is_refused_after_the_others_are_processed(
    moved: Moved, robot: MadeClient, make: Factory, app: Flask, is_decided: bool
) -> None:
    other = make.machine(make.organization("other"))
    assert token_of(app, other).status_code == 200
    with app.app_context():
        until = move._pause(moved.organization.id, 3600)
        if is_decided:
            move._decide(moved.organization.id, "b", until)
    clear_directory_cache()
    body = [{"token": robot.secret}, {"token": other.secret}]
    refused = app.test_client().post("/leak-reports", json=body)
    assert (refused.status_code, refused.headers["Retry-After"]) == (503, "2")
    assert token_of(app, other).status_code == 401
    if not is_decided:
        with app.app_context():
            move._resume(moved.organization.id, until)
        assert token_of(app, robot).status_code == 200
        assert app.test_client().post("/leak-reports", json=body).status_code == 202
        assert token_of(app, robot).status_code == 401
