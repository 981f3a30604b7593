"""``organizations``: list, suspend, delete, export, import, move and recover."""

from __future__ import annotations

import errno
import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
from flask import Flask

from app.cli import organizations as commands
from app.cli.private_files import replaced_privately
from app.operations.maintenance import isolation, move
from tests.cli.test_commands import run
from tests.factories import Factory
from tests.support.cases import each

PASSPHRASE = "a barge of walnuts at noon"


def test_organization_is_listed_suspended_and_deleted(app: Flask, make: Factory) -> None:
    make.root()
    make.organization("acme")
    listed = run(app, "organizations", "list").stdout.splitlines()
    assert [line.split()[:2] for line in listed] == [
        ["acme", "active"],
        ["first-organization", "active"],
        ["root", "active"],
    ]
    for command, status in (
        ("suspend", "suspended"),
        ("resume", "active"),
        ("delete", "deleted"),
        ("resume", "active"),
    ):
        arguments = ("organizations", command, "acme", *(("--yes",) if command == "delete" else ()))
        assert run(app, *arguments).exit_code == 0
        shown = run(app, "organizations", "list", "--status", status).stdout
        assert any(line.startswith("acme ") for line in shown.splitlines()), (command, shown)
    refused = run(app, "organizations", "delete", "root", "--yes")
    assert refused.exit_code == 1 and "root organization cannot be deleted" in refused.output


@pytest.mark.slow
def test_organization_is_exported_to_a_private_file_and_imported(
    app: Flask, make: Factory, tmp_path: Path
) -> None:
    make.root()
    acme = make.organization("acme")
    make.user(acme)
    file = tmp_path / "acme.gatehouse"
    made = run(app, "organizations", "export", "acme", str(file), typed=f"{PASSPHRASE}\n{PASSPHRASE}\n")
    assert made.exit_code == 0 and made.stdout.startswith("acme as of "), made.output
    assert stat.S_IMODE(file.stat().st_mode) == 0o600 and PASSPHRASE not in made.output
    words = tmp_path / "passphrase"
    words.write_text(f"{PASSPHRASE}\n")
    standing = run(app, "organizations", "import", str(file), "--passphrase-file", str(words))
    assert standing.exit_code == 1 and "already exists here" in standing.output


def test_failed_export_keeps_the_old_file(app: Flask, make: Factory, tmp_path: Path) -> None:
    make.root()
    file = tmp_path / "acme.gatehouse"
    file.write_bytes(b"the only copy")
    words = tmp_path / "passphrase"
    words.write_text(PASSPHRASE)
    for slug, target in (("never-was", file), ("root", file), ("root", tmp_path / "no" / "folder")):
        result = run(app, "organizations", "export", slug, str(target), "--passphrase-file", str(words))
        assert result.exit_code == 1 and not isinstance(result.exception, OSError), result.output
    assert file.read_bytes() == b"the only copy" and sorted(tmp_path.iterdir()) == [file, words]


def test_unfinished_export_is_private_and_removed(
    app: Flask, make: Factory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KY-7. What is no file is not replaced."""
    make.root()
    words, file = tmp_path / "passphrase", tmp_path / "acme.gatehouse"
    words.write_text(PASSPHRASE)
    modes: list[int] = []

    def export(_actor: Any, _slug: str, stream: Any, _passphrase: str, **_options: Any) -> None:
        stream.write(b"x")
        modes.append(stat.S_IMODE(os.fstat(stream.fileno()).st_mode))
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(commands, "export_organization", export)
    result = run(app, "organizations", "export", "acme", str(file), "--passphrase-file", str(words))
    assert result.exit_code == 1 and "No space left" in result.output
    assert list(tmp_path.iterdir()) == [words] and modes == [0o600]
    os.mkfifo(file)
    result = run(app, "organizations", "export", "acme", str(file), "--passphrase-file", str(words))
    assert result.exit_code == 1 and "not a regular file" in result.output and file.is_fifo()
    words.write_bytes(b"\xff")
    result = run(app, "organizations", "export", "acme", str(file), "--passphrase-file", str(words))
    assert result.exit_code == 1 and f"{words} cannot be read: it is not UTF-8" in result.output


def test_two_exports_to_one_file_are_both_complete(tmp_path: Path) -> None:
    file = tmp_path / "acme.gatehouse"
    with replaced_privately(file) as first:
        first.write(b"fir")
        with replaced_privately(file) as second:
            second.write(b"second")
        assert file.read_bytes() == b"second"
        first.write(b"st")
    assert file.read_bytes() == b"first" and list(tmp_path.iterdir()) == [file]


def test_export_replaces_a_link_and_not_its_target(tmp_path: Path) -> None:
    """Somebody may have put it there."""
    target, file = tmp_path / "target", tmp_path / "acme.gatehouse"
    target.write_bytes(b"kept")
    file.symlink_to(target)
    with replaced_privately(file) as stream:
        stream.write(b"export")
    assert (target.read_bytes(), file.read_bytes(), file.is_symlink()) == (b"kept", b"export", False)


@pytest.mark.parametrize(
    ("via", "message"),
    [
        ("/nowhere/receive", "cannot be started"),
        ("ssh 'b", "is not a command"),
        ("", "is empty"),
        (" ", "is empty"),
        (f"{sys.executable} -c 1", "does not answer"),
        ("true", "does not answer"),
        ("cat", "not the answer of a receiver"),
    ],
)
def test_receiver_that_cannot_be_started_is_reported(
    app: Flask, make: Factory, via: str, message: str
) -> None:
    make.root()
    make.organization("acme")
    result = run(app, "organizations", "move", "acme", "--to", "b", "--via", via)
    assert result.exit_code == 1 and message in result.output and isinstance(result.exception, SystemExit)


@pytest.fixture
def root(make: Factory) -> Any:
    return make.root()


@each(
    ("typed", "answer"),
    [
        ("acme", "not a command of `organizations move`"),
        ("[]", "not a command of `organizations move`"),
        ('{"command": ["clock"]}', "not a command of `organizations move`"),
        ('{"command": "nothing"}', "does not know the command"),
        ('{"command": "begin", "organization": {}}', "with other arguments"),
        ("\udcff", "Standard input is not UTF-8"),
        ('{"command": "clock"}', "result"),
    ],
)
def test_receiver_answers_each_malformed_line(app: Flask, root: Any, typed: str, answer: str) -> None:
    made = run(app, "organizations", "receive", typed=f"{typed}\n".encode(errors="surrogateescape"))
    assert answer in made.output and isinstance(made.exception, SystemExit | None)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xff\xfe", "export is not UTF-8"),
        (b"[]", "Line 2 of the audit export is not an event"),
        (b'{"action": []}', "Line 2 of the audit export is not an event"),
        (b"[" * 9999, "Line 2 of the audit export is not an event"),
        (b'{"action": "user.disabled"}', "Line 2 of the audit export is not an event"),
    ],
)
def test_audit_export_that_cannot_be_read_changes_nothing(
    app: Flask, make: Factory, tmp_path: Path, content: bytes, message: str
) -> None:
    make.root()
    acme = make.organization("acme")
    with app.app_context():
        move._decide(acme.id, "b", move._pause(acme.id, 3600))
    export = tmp_path / "export"
    export.write_bytes(b"\n" + content)
    command = ("organizations", "recover", "acme", "--lost", "b", "--yes", "--audit-export", str(export))
    result = run(app, *command)
    assert result.exit_code == 1 and message in result.output, result.output
    assert "acme" not in run(app, "organizations", "map", "--cell", "a").stdout.split()


def test_failed_isolation_check_leaves_no_organization(
    app: Flask, make: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    make.root()

    def fail(*_arguments: Any, **_options: Any) -> None:
        raise OSError("no space")

    monkeypatch.setattr(isolation, "create_pending_items", fail)
    assert run(app, "isolation-check", "--url", "http://127.0.0.1:9").exit_code == 1
    assert "isolation-" not in run(app, "organizations", "list", "--status", "active").stdout
    assert "isolation-" in run(app, "organizations", "list", "--status", "deleted").stdout


RECEIVER = """
import datetime, json, sys
for line in sys.stdin:
    command = json.loads(line)["command"]
    now = datetime.datetime.now(datetime.UTC).isoformat()
    print(json.dumps({"result": {"clock": now, "begin": "active", "digests": {}}[command]}), flush=True)
"""


def test_decided_move_is_compared_and_not_taken_back_from_a_cell_that_serves(
    app: Flask, make: Factory, tmp_path: Path
) -> None:
    make.root()
    acme = make.organization("acme")
    user = make.user(acme)
    (tmp_path / "receive.py").write_text(RECEIVER)
    to_b = ("organizations", "move", "acme", "--to", "b", "--via", f"{sys.executable} {tmp_path}/receive.py")
    refused = run(app, *to_b, "--return")
    assert refused.exit_code == 1 and "The move was not decided" in refused.output
    with app.app_context():
        move._decide(acme.id, "b", move._pause(acme.id, 3600))
    shown = run(app, *to_b, "--check")
    assert shown.exit_code == 0 and shown.stdout.startswith("b serves it.\n")
    assert f'users only here: ["{acme.id}", "{user.id.hex}"]' in shown.stdout
    refused = run(app, *to_b, "--return")
    assert refused.exit_code == 1 and "b serves the organization" in refused.output
    finished = run(app, *to_b, "--finish")
    assert finished.exit_code == 0 and "acme is served by b." in finished.output


def test_organization_of_a_lost_cell_is_recovered_only_after_a_confirmation(
    app: Flask, make: Factory
) -> None:
    make.root()
    acme = make.organization("acme")
    with app.app_context():
        move._decide(acme.id, "b", move._pause(acme.id, 3600))
    command = ("organizations", "recover", "acme", "--lost", "b")
    asked = run(app, *command, typed="n\n")
    assert asked.exit_code == 1 and "Is its database lost for good?" in asked.output
    assert "acme" not in run(app, "organizations", "map", "--cell", "a").stdout.split()
    done = run(app, *command, "--yes")
    assert done.exit_code == 0 and done.stdout.startswith("acme is served here again."), done.output
    assert "acme" in run(app, "organizations", "map", "--cell", "a").stdout.split()


@pytest.mark.parametrize("name", ["-oProxyCommand=x", "b\nglobex c", "", "b" * 65])
def test_cell_name_that_would_be_more_than_a_name_is_rejected(app: Flask, name: str) -> None:
    for arguments in (
        ("move", "acme", "--to", name),
        ("map", "--cell", name),
        ("recover", "acme", "--lost", name, "--yes"),
    ):
        assert run(app, "organizations", *arguments).exit_code == 2
