"""``organizations``: listed, suspended, deleted, and one of them written to a file and read again."""

from __future__ import annotations

import stat
from pathlib import Path

from flask import Flask

from tests.cli.test_commands import run
from tests.factories import Factory

PASSPHRASE = "a barge of walnuts at noon"


def test_the_life_of_an_organization(app: Flask, make: Factory) -> None:
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


def test_out_and_in_again_by_a_file_that_its_owner_alone_may_read(
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
    assert standing.exit_code == 1 and "stands here already" in standing.output


def test_what_cannot_be_written_leaves_the_old_file_alone(app: Flask, make: Factory, tmp_path: Path) -> None:
    make.root()
    file = tmp_path / "acme.gatehouse"
    file.write_bytes(b"the only copy")
    words = tmp_path / "passphrase"
    words.write_text(PASSPHRASE)
    for slug, target in (("never-was", file), ("root", file), ("root", tmp_path / "no" / "folder")):
        result = run(app, "organizations", "export", slug, str(target), "--passphrase-file", str(words))
        assert result.exit_code == 1 and not isinstance(result.exception, OSError), result.output
    assert file.read_bytes() == b"the only copy" and sorted(tmp_path.iterdir()) == [file, words]
