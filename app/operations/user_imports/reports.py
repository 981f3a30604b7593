"""The report of an import: the rows that it refused as a CSV, with the reasons, to be mended and sent again."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence

from app.operations.pages import MOST, CursorKey
from app.operations.user_imports.records import RefusedRow, list_refused_rows
from app.rules.actor import Actor
from app.rules.people.import_files import as_cells
from app.rules.people.user_import import CSV_FIELDS, REPORT_FIELDS


def refusal_report(actor: Actor, import_id: str) -> Iterator[str]:
    """Pieces of the report: its columns are those that some refused row fills, ``row`` and ``errors`` first.

    Raises Forbidden, NotFound, before the first piece.
    """
    filled = {name for row in _all(actor, import_id) for name in as_cells(row.fields)}
    known = [name for name in CSV_FIELDS if name in filled or name == "email"]
    columns = [*REPORT_FIELDS, *known, *sorted(filled.difference(known))]
    return _pieces(actor, import_id, columns)


def _pieces(actor: Actor, import_id: str, columns: Sequence[str]) -> Iterator[str]:
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="")
    writer.writeheader()
    for row in _all(actor, import_id):
        writer.writerow(as_cells({"row": str(row.number), "errors": _words(row)}) | as_cells(row.fields))
        if text.tell() > 1 << 16:
            yield text.getvalue()
            text.seek(0)
            text.truncate()
    yield text.getvalue()


def _words(row: RefusedRow) -> str:
    return " ".join(
        f"{error.field}: {error.message}" if error.field else error.message for error in row.errors
    )


def _all(actor: Actor, import_id: str) -> Iterator[RefusedRow]:
    after: CursorKey | None = None
    while True:
        page = list_refused_rows(actor, import_id, limit=MOST, after=after)
        yield from page.items
        after = page.next_cursor_key
        if after is None:
            return
