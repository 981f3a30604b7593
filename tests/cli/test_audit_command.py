"""``audit verify``: output and exit status, with checkpoints from the log."""

from __future__ import annotations

import json
from pathlib import Path

from flask import Flask
from sqlalchemy import update

from app.extensions import db
from app.models.audit import AuditEvent
from app.operations.audit.chain import seal_pending_events
from app.operations.store.transactions import transaction
from app.rules.actor import Actor
from app.rules.audit.events import format_checkpoint
from tests.factories import Factory


@transaction
def _change(organization_id: str) -> None:
    db.session.execute(
        update(AuditEvent).where(AuditEvent.organization_id == organization_id).values(actor_label="nobody")
    )


def test_verify_accepts_an_intact_log_and_locates_a_changed_event(app: Flask, make: Factory) -> None:
    """AU-4: exit status 0 and 1, and where the damage is."""
    make.root()
    acme = make.organization("acme")
    with app.app_context():
        seal_pending_events(Actor.system("", "tests"), holder="tests")
    runner = app.test_cli_runner()
    good = runner.invoke(args=["audit", "verify"])
    assert good.exit_code == 0, good.output
    assert "ok      acme: 1 events" in good.output and "ok      root:" in good.output
    with app.app_context():
        _change(acme.id)
    bad = runner.invoke(args=["audit", "verify"])
    assert bad.exit_code == 1
    assert "BROKEN  acme: The event was changed after it was sealed. At position 1. evt_" in bad.output
    assert "ok      root:" in bad.output
    assert runner.invoke(args=["audit", "verify", "--organization", "root"]).exit_code == 0


def test_checkpoints_from_a_log_are_compared_with_the_chains(
    app: Flask, make: Factory, tmp_path: Path
) -> None:
    make.root()
    acme = make.organization("acme")
    with app.app_context():
        grown = seal_pending_events(Actor.system("", "tests"), holder="tests")
    assert grown is not None
    head = grown[acme.id]
    runner, log = app.test_cli_runner(), tmp_path / "server.log"
    log.write_text(f'{{"message":"{format_checkpoint(acme.id, head.length, head.mac)}"}}\nnoise\n')
    good = runner.invoke(args=["audit", "verify", "--checkpoints", str(log)])
    assert good.exit_code == 0 and "1 checkpoints, 0 do not match" in good.output
    wrong = format_checkpoint(acme.id, head.length + 1, head.mac)
    line = json.dumps({"logger": "gatehouse.request", "path": f"/{wrong}", "message": None})
    proxy = json.dumps({"remote": "192.0.2.1", "agent": wrong})
    log.write_text(f"web-1 | {line}\n{json.dumps({'log': line})}\n{proxy}\n")
    forged = runner.invoke(args=["audit", "verify", "--checkpoints", str(log)])
    assert forged.exit_code == 0 and "0 checkpoints, 0 do not match" in forged.output
    line = json.dumps({"logger": "gatehouse.audit", "message": wrong})
    lines = f"{wrong}\nweb-1 | {line}\n{json.dumps({'log': line})}\n"
    nested = '{"a":' * 100_000
    log.write_bytes(b"\xff another program's line\n" + f"{nested}\n{lines}".encode())
    bad = runner.invoke(args=["audit", "verify", "--checkpoints", str(log)])
    assert bad.exit_code == 1 and "differs from the checkpoint" in bad.output
    assert "3 checkpoints, 3 do not match" in bad.output
