"""``users import``: output, report file and exit status."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from flask import Flask
from sqlalchemy import update

from app.cli.operator import operator
from app.extensions import db
from app.models.user import UserImportPart
from app.operations.directory.users import find_user_by_email
from app.operations.store import clock
from app.operations.users import import_uploads
from tests.cli.test_commands import run
from tests.factories import Factory
from tests.support.databases import Database


@pytest.fixture
def folder(tmp_path: Path, make: Factory) -> Path:
    make.organization("acme")
    return tmp_path


def bring_in(app: Flask, file: Path, *options: str) -> tuple[int, str, str]:
    result = run(app, "users", "import", str(file), "--organization", "acme", *options)
    return result.exit_code, result.stdout, result.stderr


def test_file_is_imported_and_progress_goes_to_standard_error(app: Flask, folder: Path) -> None:
    file = folder / "users.csv"
    file.write_text("email,name\n" + "".join(f"p{number}@users.example,P\n" for number in range(600)))
    code, said, told = bring_in(app, file)
    assert (code, said) == (0, "created 600, updated 0, skipped 0, rejected 0 of 600 rows\n")
    assert "100 %  600 of 600 rows" in told and "rows/s" in told
    assert "\r" not in told, "a bar is for terminals"
    assert bring_in(app, file)[1] == "created 0, updated 0, skipped 600, rejected 0 of 600 rows\n"
    assert not (folder / "users.csv.refused.csv").exists()


@pytest.mark.parametrize("ending", ["json", "ndjson", "jsonl"])
def test_file_name_decides_the_format(app: Flask, folder: Path, ending: str, make: Factory) -> None:
    user_rows = [{"email": "ada@users.example", "name": "Ada"}, {"email": "bob@users.example"}]
    file = folder / f"users.{ending}"
    file.write_text(json.dumps(user_rows) if ending == "json" else "\n".join(map(json.dumps, user_rows)))
    assert bring_in(app, file)[0] == 0
    with app.app_context():
        from app.operations.directory.lookups import get_organization_by_slug

        found = find_user_by_email(get_organization_by_slug("acme").id, "ada@users.example")
    assert found is not None and found.name == "Ada"


def test_dry_run_changes_nothing(app: Flask, folder: Path, database: Database) -> None:
    file = folder / "users"
    file.write_text("email\nada@users.example\nnobody\n")
    code, said, _ = bring_in(app, file, "--dry-run", "--report", str(folder / "report.csv"))
    assert code == 1
    assert "Nothing was changed" in said and "created 1, updated 0, skipped 0, rejected 1 of 2 rows" in said
    assert database.count("users") == 0
    assert (folder / "report.csv").read_text() == (
        "row,errors,email\n3,email: Enter a valid email address.,nobody\n"
    )


def begin(file: Path, app: Flask, *, is_dry_run: bool) -> None:
    """Upload the file as the command does, and import nothing."""
    with app.app_context(), file.open("rb") as stream:
        actor = operator("acme")
        upload = import_uploads.receive_upload(
            actor, stream.read, file_format="csv", is_foreground=True, on_existing="update"
        )
        import_uploads.confirm_upload(actor, upload, is_dry_run=is_dry_run)


def test_interrupted_import_and_dry_run_do_not_go_on_as_each_other(
    app: Flask, folder: Path, database: Database
) -> None:
    for begins_dry, name in ((False, "import.csv"), (True, "check.csv")):
        file = folder / name
        file.write_text(f"email\n{name}@users.example\n")
        begin(file, app, is_dry_run=begins_dry)
    interrupted, checked = folder / "import.csv", folder / "check.csv"
    for file, wrong, kind in ((interrupted, ("--dry-run",), "dry run"), (checked, (), "import")):
        code, _, told = bring_in(app, file, *wrong, "--resume")
        assert code == 1 and f"was interrupted, and no {kind}" in told
    code, said, _ = bring_in(app, checked, "--dry-run", "--resume")
    assert code == 0 and "Nothing was changed" in said
    assert database.count("users") == 0
    code, _, told = bring_in(app, interrupted, "--resume", "--on-existing", "skip")
    assert code == 1 and "began with --on-existing update" in told
    assert bring_in(app, interrupted, "--resume")[:2] == (
        0,
        "created 1, updated 0, skipped 0, rejected 0 of 1 rows\n",
    )


def test_interrupted_import_whose_rows_have_expired_begins_anew(app: Flask, folder: Path) -> None:
    file = folder / "users.csv"
    file.write_text("email\nada@users.example\n")
    begin(file, app, is_dry_run=False)
    with app.app_context():
        db.session.execute(update(UserImportPart).values(expires_at=clock.now()))
        db.session.commit()
    assert bring_in(app, file)[:2] == (0, "created 1, updated 0, skipped 0, rejected 0 of 1 rows\n")


def test_rejected_rows_can_be_fixed_in_the_report_and_imported(app: Flask, folder: Path) -> None:
    file = folder / "users.csv"
    file.write_text('email,name\nada@users.example,Ada\nbob at users.example,"=Bob"\n')
    report = folder / "users.csv.refused.csv"
    report.write_text("of an earlier import")
    report.chmod(0o644)
    code, said, _ = bring_in(app, file)
    assert stat.S_IMODE(report.stat().st_mode) == 0o600
    assert code == 1 and str(report) in said
    assert "'=Bob" in report.read_text()
    report.write_text(report.read_text().replace("bob at", "bob@"))
    assert bring_in(app, report)[0] == 1
    report.write_text(report.read_text().replace("bob@ users", "bob@users"))
    assert bring_in(app, report)[:2] == (0, "created 1, updated 0, skipped 0, rejected 0 of 1 rows\n")


def test_report_that_cannot_be_written_is_told(app: Flask, folder: Path) -> None:
    file = folder / "users.csv"
    file.write_text("email\nnobody\n")
    code, said, told = bring_in(app, file, "--report", str(folder))
    assert code == 2 and "is a directory" in told
    code, said, told = bring_in(app, file, "--report", str(folder / "no" / "report.csv"))
    assert code == 1 and "rejected 1 of 1" in said and "cannot be written: No such file" in told
    code, said, told = bring_in(app, file, "--report", str(folder / "." / "users.csv"))
    assert code == 2 and "would replace" in told and file.read_text() == "email\nnobody\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "The file is empty"),
        ("emial\n", 'Did you mean "email"?'),
        ("email\n", "The file contains no users"),
    ],
)
def test_unreadable_file_is_reported(
    app: Flask, folder: Path, database: Database, text: str, words: str
) -> None:
    file = folder / "users.csv"
    file.write_text(text)
    code, _, told = bring_in(app, file)
    assert code == 1 and words in told
    assert database.count("user_imports") == 0
