"""Several processes run one import: no user is imported twice or left out."""

from __future__ import annotations

import functools
import io

from flask import Flask

from app.operations.users import import_runner, import_uploads
from app.operations.users.import_records import get_import
from app.operations.users.import_uploads import PART_ROWS
from tests.factories import Factory
from tests.oauth.conftest import audited
from tests.support.databases import Database
from tests.support.threads import at_once

CROWD = 6
PARTS = 6


def test_import_part_is_imported_once(app: Flask, make: Factory, database: Database) -> None:
    """The position advances by a conditional UPDATE in the transaction that imports the part."""
    acme = make.organization()
    system = make.system(acme)
    user_rows = "email\n" + "".join(f"p{number}@users.example\n" for number in range(PARTS * PART_ROWS))
    with app.app_context():
        upload = import_uploads.receive_upload(system, io.BytesIO(user_rows.encode()).read, file_format="csv")
        begun = import_uploads.confirm_upload(system, upload, is_dry_run=False)
    finished: list[str] = []
    while len(finished) < CROWD:
        finished = at_once(
            app, [functools.partial(import_runner.run_import, system, begun.public_id)] * CROWD
        )
        finished = [name for name in finished if name == "ImportRecord"]
    with app.app_context():
        ended = get_import(system, begun.public_id)
    assert (ended.status, ended.created, ended.refused) == ("done", PARTS * PART_ROWS, 0)
    assert database.count("users") == PARTS * PART_ROWS == audited(database, "user.imported")
    assert audited(database, "user_import.ended") == 1
