"""Move an organization to another cell, with other keys and another database engine."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from datetime import timedelta
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import text

from app.extensions import db
from app.operations.audit.chain_verification import verify_audit_log
from app.operations.directory import lookups
from app.operations.maintenance import decided_moves, janitor, move, move_peer, transfer
from app.operations.maintenance.decided_moves import compare_move, finish_move, take_back
from app.operations.maintenance.lost_cell import recover_organization
from app.operations.maintenance.move import list_served, move_organization
from app.operations.maintenance.move_peer import MoveFailed, Peer
from app.operations.maintenance.receive import receive_organization
from app.operations.maintenance.restore import confirm_secrets
from app.operations.organizations import organizations
from app.operations.organizations.administrators import add_administrator
from app.operations.store import outbox
from app.operations.store.transactions import transaction
from app.rules.actor import Actor
from app.rules.errors import Conflict, OrganizationMoved
from tests.factories import Factory, MadeClient
from tests.operations.maintenance.transfer.conftest import Moved, operator
from tests.support.databases import Database


class Interrupted(BaseException):
    """The moving process is killed."""


class CutPeer(Peer):
    """A peer that is lost before or after a command."""

    def __init__(self, peer: Peer, at: Callable[[str, int], str]) -> None:
        self._peer, self._at, self.calls = peer, at, []

    def call(self, command: str, **arguments: Any) -> Any:
        self.calls.append(command)
        where = self._at(command, self.calls.count(command))
        if where == "before":
            raise Interrupted
        result = self._peer.call(command, **arguments)
        if where == "after":
            raise Interrupted
        return result


@pytest.fixture(autouse=True)
def _short_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """No other process uses these databases."""
    monkeypatch.setattr(move, "SETTLE_SECONDS", -2.5)


@pytest.fixture
def robot(moved: Moved, make: Factory) -> MadeClient:
    """Create a client of the moved organization that gets tokens for itself."""
    return make.machine(moved.organization)


@pytest.fixture
def connect() -> Iterator[Callable[[Flask], Peer]]:
    """``connect(app)`` starts a receiver in the other installation."""
    ends: list[Callable[[], None]] = []

    def start(there: Flask) -> Peer:
        # The one before loses its peer, as when a moving process dies.
        while ends:
            ends.pop()()
        (commands, command_end), (answer_end, answers) = os.pipe(), os.pipe()
        writer, reader = os.fdopen(command_end, "w"), os.fdopen(answer_end)

        def serve() -> None:
            with there.app_context(), os.fdopen(commands) as incoming, os.fdopen(answers, "w") as outgoing:
                receive_organization(operator(), incoming, outgoing)

        thread = threading.Thread(target=serve)
        thread.start()

        def end() -> None:
            writer.close()
            thread.join()
            reader.close()

        ends.append(end)
        return Peer(reader, writer)

    yield start
    while ends:
        ends.pop()()


def decide(moved: Moved, cell: str) -> None:
    """Give the organization to the cell as ``move_organization`` does, without telling the cell."""
    move._decide(moved.organization.id, cell, move._pause(moved.organization.id, 3600))


def token_of(app: Flask, robot: MadeClient) -> Any:
    data = {"grant_type": "client_credentials"}
    # One process serves two installations here.
    lookups.clear_directory_cache()
    return app.test_client().post("/oauth/token", data=data, headers=robot.basic)


def introspected(app: Flask, robot: MadeClient, token: str) -> Any:
    lookups.clear_directory_cache()
    reply = app.test_client().post("/oauth/introspect", data={"token": token}, headers=robot.basic)
    return reply.get_json()["active"]


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
    with app.app_context():
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


def test_decided_move_is_not_repeated_where_the_organization_has_moved_on(
    moved: Moved,
    robot: MadeClient,
    app: Flask,
    elsewhere: tuple[Flask, Database],
    connect: Callable[[Flask], Peer],
) -> None:
    there, database = elsewhere
    with app.app_context():
        move_organization(operator(), "acme", "b", connect(there))
    with there.app_context():
        decide(moved, "c")
    with app.app_context(), pytest.raises(MoveFailed, match="moved on to c"):
        move_organization(operator(), "acme", "b", connect(there))
    assert [token_of(cell, robot).status_code for cell in (app, there)] == [503, 503]
    assert database.query("SELECT COUNT(*) FROM organizations WHERE moved_to IS NOT NULL") == [(1,)]


def test_decided_move_is_not_repeated_where_the_organization_never_was(
    moved: Moved,
    robot: MadeClient,
    app: Flask,
    elsewhere: tuple[Flask, Database],
    connect: Callable[[Flask], Peer],
) -> None:
    there, database = elsewhere
    organizations_there = database.count("organizations")
    with app.app_context():
        decide(moved, "b")
        with pytest.raises(MoveFailed, match="not the target"):
            move_organization(operator(), "acme", "b", connect(there))
    assert token_of(there, robot).status_code == 401
    assert database.count("organizations") == organizations_there


@pytest.mark.parametrize(
    ("change", "is_served"),
    [
        ("UPDATE users SET name = 'Eve'", False),
        ("DELETE FROM audit_links", False),
        # The janitor deletes rows in both cells when they expire.
        ("DELETE FROM sessions", True),
    ],
)
def test_decided_move_is_repeated_only_with_the_rows_that_were_compared(
    moved: Moved,
    robot: MadeClient,
    app: Flask,
    elsewhere: tuple[Flask, Database],
    connect: Callable[[Flask], Peer],
    change: str,
    is_served: bool,
) -> None:
    there, _ = elsewhere
    cut = CutPeer(connect(there), lambda name, count: "before" if name == "activate" else "")
    with app.app_context(), pytest.raises(Interrupted):
        move_organization(operator(), "acme", "b", cut)

    with there.app_context():
        change_row(moved, change)
    with app.app_context():
        expected: Any = nullcontext() if is_served else pytest.raises(Conflict, match="Rows of")
        with expected:
            move_organization(operator(), "acme", "b", connect(there))
    assert (token_of(there, robot).status_code == 200) is is_served
    assert token_of(app, robot).status_code == 503


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


@pytest.fixture
def stuck(
    moved: Moved, app: Flask, elsewhere: tuple[Flask, Database], connect: Callable[[Flask], Peer]
) -> None:
    """Interrupt a move after the decision, and change a row at the source as a process does that was suspended."""
    cut = CutPeer(connect(elsewhere[0]), lambda name, count: "before" if name == "activate" else "")
    with app.app_context():
        with pytest.raises(Interrupted):
            move_organization(operator(), "acme", "b", cut)
        change_row(moved, "UPDATE users SET name = 'Late'")
        with pytest.raises(Conflict, match=r"Rows of users differ.*--check"):
            move_organization(operator(), "acme", "b", connect(elsewhere[0]))


@transaction
def change_row(moved: Moved, change: str) -> None:
    own = {"own": moved.organization.id.encode()}
    assert db.session.connection().execute(text(f"{change} WHERE organization_id = :own"), own).rowcount


@pytest.mark.parametrize("step", ["finish", "return"])
def test_decided_move_whose_source_changed_is_finished_or_taken_back(
    moved: Moved,
    robot: MadeClient,
    app: Flask,
    elsewhere: tuple[Flask, Database],
    connect: Callable[[Flask], Peer],
    stuck: None,
    step: str,
) -> None:
    there, database = elsewhere
    with app.app_context():
        janitor.purge_expired(operator(), pause=0)
        found = compare_move(operator(), "acme", "b", connect(there))
        assert not found.is_served_there
        assert {name: len(one.different) for name, one in found.tables.items()} == {"users": 1}
        for _ in range(2):
            if step == "finish":
                finish_move(operator(), "acme", "b", connect(there))
            else:
                take_back(operator(), "acme", "b", connect(there))
                break
    serving, other = (there, app) if step == "finish" else (app, there)
    assert token_of(serving, robot).status_code == 200
    assert token_of(other, robot).status_code != 200
    assert ("Late" in {row[0] for row in database.query("SELECT CAST(name AS CHAR(9)) FROM users")}) == (
        step == "finish"
    )
    with serving.app_context():
        assert not verify_audit_log(Actor.system(moved.organization.id, "tests")).problems
    with app.app_context():
        if step == "finish":
            with pytest.raises(Conflict, match="b serves the organization"):
                take_back(operator(), "acme", "b", connect(there))
            assert compare_move(operator(), "acme", "b", connect(there)).is_served_there
        else:
            with pytest.raises(Conflict, match="not decided"):
                take_back(operator(), "acme", "b", connect(there))
            move_organization(operator(), "acme", "b", connect(there))
    assert token_of(there, robot).status_code == 200


def test_interrupted_return_keeps_the_target_from_serving(
    moved: Moved,
    robot: MadeClient,
    app: Flask,
    elsewhere: tuple[Flask, Database],
    connect: Callable[[Flask], Peer],
    stuck: None,
) -> None:
    there, _ = elsewhere
    with app.app_context():
        cut = CutPeer(connect(there), lambda name, count: "after" if name == "withdraw" else "")
        with pytest.raises(Interrupted):
            take_back(operator(), "acme", "b", cut)
        organization = move_peer.find_organization("acme")
        for forward in (move_organization, finish_move):
            with pytest.raises(MoveFailed, match="--return"):
                forward(operator(), "acme", "b", connect(there))
        brought = transfer.read_organization({"organization": move_peer.describe(organization.id)})
    with there.app_context(), pytest.raises(Conflict, match="changed by another request"):
        # A command that was suspended before it told the target to serve.
        transfer.activate(operator(), brought, organization.moving_until)
    assert [token_of(cell, robot).status_code == 200 for cell in (app, there)] == [False, False]
    with app.app_context():
        take_back(operator(), "acme", "b", connect(there))
    assert [token_of(cell, robot).status_code == 200 for cell in (app, there)] == [True, False]


def test_decided_move_goes_on_only_in_its_own_tombstone(
    moved: Moved,
    robot: MadeClient,
    app: Flask,
    elsewhere: tuple[Flask, Database],
    connect: Callable[[Flask], Peer],
    stuck: None,
) -> None:
    """As when --via names a cell with what another move left."""
    there, _ = elsewhere
    with there.app_context():
        transaction(
            lambda: db.session.execute(
                text(
                    "UPDATE organizations SET moving_until = '2020-01-01 00:00:00.000000' WHERE slug = :acme"
                ),
                {"acme": b"acme"},
            )
        )()
    with app.app_context():
        for step in (move_organization, compare_move, finish_move, take_back):
            with pytest.raises(MoveFailed, match="not the target"):
                step(operator(), "acme", "b", connect(there))
    assert [token_of(cell, robot).status_code == 200 for cell in (app, there)] == [False, False]


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
    lookups.clear_directory_cache()
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


@pytest.mark.parametrize("has_served", [False, True])
@pytest.mark.parametrize("is_kept", [False, True])
def test_organization_of_a_lost_cell_is_served_again_without_what_was_issued_before(
    moved: Moved,
    robot: MadeClient,
    make: Factory,
    app: Flask,
    elsewhere: tuple[Flask, Database],
    connect: Callable[[Flask], Peer],
    has_served: bool,
    is_kept: bool,
) -> None:
    there, _ = elsewhere
    second = make.machine(moved.organization)
    issued = token_of(app, robot).get_json()["access_token"]
    lost_at = "" if has_served else "activate"
    with app.app_context(), nullcontext() if has_served else pytest.raises(Interrupted):
        cut = CutPeer(connect(there), lambda name, count: "before" if name == lost_at else "")
        move_organization(operator(), "acme", "b", cut)
    ended = {
        "id": "evt_01JDZ8W0000000000000000000",
        "organization_id": "acme",
        "occurred_at": "2026-01-01T00:00:00Z",
        "action": "client.deleted",
        "target": {"type": "client", "id": second.client_id},
        "actor": {"type": "user", "id": None},
        "before": None,
        "after": None,
    }
    export = [json.dumps(ended), json.dumps(ended | {"organization_id": "root"})]
    with app.app_context():
        with pytest.raises(Conflict, match="moved to b, not to c"):
            recover_organization(operator(), "acme", "c")
        report = recover_organization(
            operator(), "acme", "b", [export], block_secrets=not is_kept, reset_passwords=not is_kept
        )
        assert len(report.ended_again) == 1 and not report.failed
        assert "acme" in dict(list_served())
        with pytest.raises(Conflict, match="not decided"):
            recover_organization(operator(), "acme", "b")
        janitor.purge_expired(operator(), pause=0)
        assert not verify_audit_log(Actor.system(moved.organization.id, "tests")).problems
    assert token_of(app, robot).status_code == (200 if is_kept else 401)
    with app.app_context():
        confirm_secrets(Actor.system(moved.organization.id, "tests"))
    assert token_of(app, robot).status_code == 200
    assert token_of(app, second).status_code == 401
    assert introspected(app, robot, issued) is False
    refresh = {"grant_type": "refresh_token", "refresh_token": moved.refresh_token}
    refused = app.test_client().post("/oauth/token", data=refresh, headers=moved.client.basic)
    assert refused.get_json()["error"] == "invalid_grant"
    if has_served:
        # It was not lost after all: nothing is copied over what it has.
        with app.app_context(), pytest.raises(MoveFailed, match="already exists here"):
            move_organization(operator(), "acme", "b", connect(there))
        assert token_of(app, robot).status_code == 200


def test_organization_of_a_lost_cell_is_not_served_without_its_rows(moved: Moved, app: Flask) -> None:
    with app.app_context():
        decide(moved, "b")
        decided_moves.confirm(moved.organization.id)
        change_row(moved, "UPDATE users SET name = 'Kept'")
        transaction(
            lambda: db.session.execute(
                text("UPDATE organizations SET purge_at = deleted_at WHERE slug = :acme"), {"acme": b"acme"}
            )
        )()
        with pytest.raises(Conflict, match="are being purged"):
            recover_organization(operator(), "acme", "b")
        janitor.purge_expired(operator(), pause=0)
        with pytest.raises(Conflict, match="no rows here any more"):
            recover_organization(operator(), "acme", "b")
