"""A move that was decided and not finished: it goes on, is taken back, or its target is lost."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import text

from app.extensions import db
from app.operations.audit.chain_verification import verify_audit_log
from app.operations.maintenance import decided_moves, janitor, lost_cell, move, move_peer, transfer
from app.operations.maintenance.decided_moves import compare_move, finish_move, take_back
from app.operations.maintenance.lost_cell import recover_organization
from app.operations.maintenance.move import list_served, move_organization
from app.operations.maintenance.move_peer import MoveFailed, Peer
from app.operations.maintenance.restore import confirm_secrets
from app.operations.organizations import organizations
from app.operations.store.transactions import transaction
from app.rules.actor import Actor
from app.rules.errors import Conflict
from tests.factories import Factory, MadeClient
from tests.operations.maintenance.transfer.conftest import (
    CutPeer,
    Interrupted,
    Moved,
    change_row,
    introspected,
    operator,
    token_of,
)
from tests.support.databases import Database


def decide(moved: Moved, cell: str) -> None:
    """Give the organization to the cell as ``move_organization`` does, without telling the cell."""
    move._decide(moved.organization.id, cell, move._pause(moved.organization.id, 3600))


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
    ended = exported_event("client.deleted", second.client_id)
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


def exported_event(action: str, target: str, number: int = 0, **more: Any) -> dict[str, Any]:
    """Return an event of an audit export."""
    return {
        "id": f"evt_01JDZ8W000000000000000000{number}",
        "organization_id": "acme",
        "occurred_at": f"2026-01-01T00:00:0{number}Z",
        "action": action,
        "target": {"type": "client", "id": target},
        "actor": {"type": "user", "id": None},
        "before": None,
        "after": None,
    } | more


@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize("was_suspended", [False, True])
def test_organization_of_a_lost_cell_is_served_once_all_events_were_applied(
    moved: Moved,
    robot: MadeClient,
    make: Factory,
    app: Flask,
    monkeypatch: pytest.MonkeyPatch,
    is_killed: bool,
    was_suspended: bool,
) -> None:
    """An event that cannot be read is reported, and an interrupted recovery is repeated with the same command."""
    gone = make.machine(moved.organization)
    events = [
        # Without what changed, and with fields that no release writes.
        exported_event("credential.revoked", "sec_01JDZ8W0000000000000000000"),
        exported_event("passkey.removed", moved.user.public_id, 1, before={"passkey": ["x"]}),
        exported_event("credential.retired", "sec_x", 2, after={"expires_at": "soon"}),
        # The log of the cell's root has it, too.
        exported_event("organization.suspended", "acme", 3, organization_id="root"),
        *([] if was_suspended else [exported_event("organization.resumed", "acme", 4)]),
        exported_event("client.deleted", gone.client_id, 5),
    ]
    export = [json.dumps(event) for event in events]
    options = {"block_secrets": False, "reset_passwords": False}
    apply = lost_cell.end_again

    def check_and_apply(own: Any, result: Any) -> Any:
        assert token_of(app, robot).status_code == 401, "served before all was applied"
        if is_killed:
            raise Interrupted
        return apply(own, result)

    monkeypatch.setattr(lost_cell, "end_again", check_and_apply)
    with app.app_context():
        decide(moved, "b")
        if is_killed:
            with pytest.raises(Interrupted):
                recover_organization(operator(), "acme", "b", [export], **options)
            with pytest.raises(Conflict, match="not decided"):
                recover_organization(operator(), "acme", "c", [export], **options)
            is_killed = False
        report = recover_organization(operator(), "acme", "b", [export], **options)
        assert len(report.failed) == 3, report.failed
        assert any("client.deleted" in words for words in report.ended_again)
        with pytest.raises(Conflict, match="not decided"):
            recover_organization(operator(), "acme", "b", [export], **options)
        assert not verify_audit_log(Actor.system(moved.organization.id, "tests")).problems
    assert token_of(app, robot).status_code == (401 if was_suspended else 200)
    if was_suspended:
        with app.app_context():
            organizations.restore_organization(operator(), "acme")
        assert token_of(app, robot).status_code == 200
    assert token_of(app, gone).status_code == 401


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
