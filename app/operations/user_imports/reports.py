"""The report of an import: the rows that it refused as a CSV, with the reasons, to be mended and sent again."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence

from app.operations.pages import MOST, CursorKey
from app.operations.user_imports.records import RefusedRow, list_refused_rows
from app.rules.actor import Actor
from app.rules.fields import MOST_UNKNOWN
from app.rules.people.import_files import as_cell, as_cells
from app.rules.people.user_import import CSV_FIELDS, REPORT_FIELDS


def refusal_report(actor: Actor, import_id: str) -> Iterator[str]:
    """Pieces of the report: its columns are those that some refused row fills, ``row`` and ``errors`` first.

    Of those that no import knows, the first ones that it meets. Raises Forbidden, NotFound, before the first piece.
    """
    filled: set[str] = set()
    unknown: dict[str, None] = {}
    for row in _all(actor, import_id):
        for name in as_cells(row.fields):
            if name in CSV_FIELDS:
                filled.add(name)
            elif name not in REPORT_FIELDS and len(unknown) < MOST_UNKNOWN:
                unknown[name] = None
    known = [name for name in CSV_FIELDS if name in filled or name == "email"]
    return _pieces(actor, import_id, [*REPORT_FIELDS, *known, *unknown])


def _pieces(actor: Actor, import_id: str, columns: Sequence[str]) -> Iterator[str]:
    text = io.StringIO()
    # A name in a JSON file is its author's, and stands in a cell like every value.
    writer = csv.DictWriter(text, columns, restval="", extrasaction="ignore")
    writer.writerow({name: as_cell(name) for name in columns})
    for row in _all(actor, import_id):
        writer.writerow(as_cells(row.fields) | as_cells({"row": str(row.number), "errors": _words(row)}))
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
