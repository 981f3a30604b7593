"""Import files: CSV (RFC 4180), a JSON array or JSON lines, read in pieces as numbered rows.

``read_rows`` rejects files that are unreadable as a whole. Row numbers are those that a spreadsheet shows: the header
of a CSV file is row 1. Cells are data even if they look like formulas.
"""

from __future__ import annotations

import codecs
import csv
import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from app.rules.errors import InvalidInput
from app.rules.fields import MAX_UNKNOWN, suggestion
from app.rules.languages.translation import lazy_gettext
from app.rules.strict_json import load_object
from app.rules.users.user_import import CSV_FIELDS, SYNONYMS

REPORT_FIELDS = ("row", "errors")
"""Columns that a report of rejected rows adds, which are ignored when it is uploaded again."""
MAX_FILE_BYTES = 32 * 1024 * 1024
MAX_ROW_LENGTH = 64 * 1024
MAX_ROWS = 250_000
MAX_COLUMNS = 200
# UAX #15 section 13. Normalization sorts them, which takes quadratic time: a minute for one row, in which nothing else
# runs.
_MAX_COMBINING = 30
_SPACE = re.compile(r"[ \t\r\n]*")
# Values that a spreadsheet would treat as formulas. Reports prefix them with an apostrophe.
_FORMULA = re.compile(r"'[=+\-@\t\r]")


class UnreadableFile(InvalidInput):
    """The file cannot be read as a whole. The message names the line."""

    code = "unreadable_file"


class Row(Struct, frozen=True):
    """A row of the file. ``problem`` describes an error of the row itself."""

    number: int
    fields: Mapping[str, Any]
    problem: str | None = None


class _ArrayReader:
    """Reads an array in pieces: the pending text, and what must come next."""

    def __init__(self) -> None:
        self._pending = ""
        self._expected = "["
        self._count = 0
        self._decoder = json.JSONDecoder()

    def items(self, text: str, *, is_last: bool = False) -> Iterator[str]:
        """Return the items that the text completes."""
        self._pending += text
        position = 0
        while True:
            space = _SPACE.match(self._pending, position)
            position = space.end() if space else position
            if position == len(self._pending):
                break
            if self._expected == "{" and self._pending[position] == "{":
                end = self._end_of_item(position, is_last)
                if end is None:
                    break
                self._count += 1
                yield self._pending[position:end]
                position, self._expected = end, ","
            else:
                self._advance(self._pending[position])
                position += 1
        self._pending = self._pending[position:]
        if is_last and self._expected != "":
            raise _unreadable(
                lazy_gettext("The file must be one array of objects, [{…}, {…}], but ends too early.")
            )

    def _end_of_item(self, position: int, is_last: bool) -> int | None:
        """Return where the item ends, or None if more text is needed."""
        try:
            return self._decoder.raw_decode(self._pending, position)[1]
        except (ValueError, RecursionError) as error:
            if is_last or len(self._pending) - position > MAX_ROW_LENGTH:
                raise _unreadable(
                    lazy_gettext(
                        "Item %(count)s is not valid JSON, or has more than %(max)s characters.",
                        count=self._count + 1,
                        max=MAX_ROW_LENGTH,
                    )
                ) from error
            return None

    def _advance(self, char: str) -> None:
        if char == self._expected and char in "[,":
            self._expected = "{"
        elif char == "{" and self._expected == "[":
            raise _unreadable(
                lazy_gettext(
                    "The file begins with an object, but must be one array of users, [{…}, {…}]. If it has one object"
                    " per line, name it .ndjson, or send it as application/x-ndjson."
                )
            )
        elif char == "]" and (self._expected == "," or (self._expected == "{" and not self._count)):
            self._expected = ""
        else:
            raise _unreadable(
                lazy_gettext(
                    "The file must be one array of objects, but item %(count)s is not an object.",
                    count=self._count + 1,
                )
            )


def read_rows(chunks: Iterable[bytes], file_format: str) -> Iterator[Row]:
    """Return the rows of a file whose bytes come in ``chunks``. Raises UnreadableFile."""
    for count, row in enumerate(_FORMATS[file_format](_decode(chunks)), 1):
        if count > MAX_ROWS:
            raise _unreadable(
                lazy_gettext(
                    "The file has more than %(max)s rows. Split it into smaller files.", max=MAX_ROWS
                )
            )
        yield row


def format_of_name(name: str) -> str:
    """Return the format for a file name's extension, CSV if unknown."""
    ending = name.rpartition(".")[2].lower()
    return {"jsonl": "ndjson"}.get(ending, ending if ending in FORMATS else "csv")


def as_cells(fields: Mapping[str, Any]) -> dict[str, str]:
    """Return a row as report cells that no spreadsheet treats as formulas and ``read_rows`` reads back."""
    flat = dict(fields)
    address = flat.pop("address", None)
    if isinstance(address, Mapping):
        flat |= {f"address.{part}": value for part, value in address.items()}
    if isinstance(flat.get("groups"), list):
        # Names of groups contain any character.
        flat["groups"] = json.dumps(flat["groups"], ensure_ascii=False)
    return {name: as_cell(value) for name, value in flat.items() if value is not None}


def as_cell(value: Any) -> str:
    """Return a value as one cell of a report."""
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        value = " ".join(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"'{text}" if _FORMULA.match(f"'{text}") else text


def _decode(chunks: Iterable[bytes]) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8-sig")("strict")
    size, lines, first = 0, 1, True
    for chunk in chunks:
        size += len(chunk)
        if size > MAX_FILE_BYTES:
            raise _unreadable(
                lazy_gettext(
                    "The file is larger than %(max)s MiB. Split it into smaller files.",
                    max=MAX_FILE_BYTES // 1024 // 1024,
                )
            )
        if first and chunk[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            raise _unreadable(lazy_gettext("The file is encoded as UTF-16. Save it as UTF-8."))
        try:
            text = decoder.decode(chunk)
        except UnicodeDecodeError as error:
            line = lines + chunk[: error.start].count(b"\n")
            raise _unreadable(
                lazy_gettext("Line %(line)s is not UTF-8. Save the file as UTF-8.", line=line)
            ) from error
        lines += chunk.count(b"\n")
        yield text
        first = False
    try:
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        raise _unreadable(lazy_gettext("The file ends in the middle of a character.")) from error


def _lines(texts: Iterable[str]) -> Iterator[str]:
    """Return the lines with their line ends. None is longer than a row may be."""
    pending, count = "", 0
    for text in texts:
        *whole, pending = (pending + text).split("\n")
        for line in whole:
            count += 1
            yield _check_length(line, count) + "\n"
        _check_length(pending, count + 1)
    if pending:
        yield pending


def _check_length(line: str, number: int) -> str:
    if len(line) > MAX_ROW_LENGTH:
        raise _unreadable(
            lazy_gettext(
                "Line %(number)s has more than %(max)s characters.", number=number, max=MAX_ROW_LENGTH
            )
        )
    return line


def _csv_rows(texts: Iterable[str]) -> Iterator[Row]:
    header: list[str] | None = None
    number = size = 0

    def lines() -> Iterator[str]:
        # A row can span many lines, so its length is checked while it is read.
        nonlocal size
        for line in _lines(texts):
            size += len(line)
            if size > MAX_ROW_LENGTH + 1:
                raise _unreadable(
                    lazy_gettext(
                        "Row %(number)s has more than %(max)s characters.",
                        number=number + 1,
                        max=MAX_ROW_LENGTH,
                    )
                )
            yield line

    reader = csv.reader(lines(), strict=True)
    try:
        for cells in reader:
            number, size = number + 1, 0
            if header is None:
                header = _validate_header(cells)
            elif cells:
                yield _csv_row(number, header, cells)
    except csv.Error as error:
        message = lazy_gettext(
            "Line %(line_num)s is not valid CSV (RFC 4180). Check quotation marks and line ends.",
            line_num=reader.line_num,
        )
        raise _unreadable(message) from error
    if header is None:
        raise _unreadable(lazy_gettext("The file is empty."))


def _validate_header(cells: list[str]) -> list[str]:
    if len(cells) > MAX_COLUMNS:
        raise _unreadable(lazy_gettext("The first row has more than %(max)s column names.", max=MAX_COLUMNS))
    names = [cell.strip().lower() for cell in cells]
    if len(names) == 1 and any(mark in names[0] for mark in ";\t"):
        raise _unreadable(lazy_gettext("The columns are separated by semicolons or tabs. Use commas."))
    error = [
        f"There is no column {name[:100]!r}.{suggestion(name, CSV_FIELDS, SYNONYMS)}"
        for name in names
        if name not in (*CSV_FIELDS, *REPORT_FIELDS)
    ]
    error += [f"The column {name!r} is duplicated." for name in dict.fromkeys(names) if names.count(name) > 1]
    if not error and "email" not in names:
        error = ["The column 'email' is missing. The first row of the file must contain the column names."]
    if error:
        raise _unreadable(" ".join(error[:MAX_UNKNOWN]))
    return names


def _csv_row(number: int, header: list[str], cells: list[str]) -> Row:
    fields = {name: _plain(cell) for name, cell in zip(header, cells, strict=False)}
    filled = {name: cell for name, cell in fields.items() if cell and name not in REPORT_FIELDS}
    if len(cells) == len(header):
        return Row(number, filled)
    return Row(number, filled, f"This row has {len(cells)} cells but the header has {len(header)}.")


def _plain(cell: str) -> str:
    text = _composed(cell.strip())
    return text[1:] if _FORMULA.match(text) else text


def _composed(text: str) -> str:
    """Return the text in NFC, unless it has more combining characters in a row than any language: it stays invalid."""
    if text.isascii() or unicodedata.is_normalized("NFC", text):
        return text
    run = 0
    for char in text:
        run = run + 1 if unicodedata.combining(char) else 0
        if run > _MAX_COMBINING:
            return text
    return unicodedata.normalize("NFC", text)


def _ndjson_rows(texts: Iterable[str]) -> Iterator[Row]:
    for number, line in enumerate(_lines(texts), 1):
        if line.strip():
            yield _json_row(number, line, f"Line {number}")


def _json_rows(texts: Iterable[str]) -> Iterator[Row]:
    for number, item in enumerate(_items(texts), 1):
        yield _json_row(number, item, f"Item {number}")


def _json_row(number: int, text: str, where: str) -> Row:
    try:
        return Row(number, load_object(text.encode("utf-8", "surrogatepass")))
    except InvalidInput as error:
        raise _unreadable(f"{where} is not a valid JSON object. {error.description}") from error


def _items(texts: Iterable[str]) -> Iterator[str]:
    """Return the text of each object in the array, without holding the whole array in memory."""
    reading = _ArrayReader()
    for text in texts:
        yield from reading.items(text)
    yield from reading.items("", is_last=True)


def _unreadable(message: str) -> UnreadableFile:
    return UnreadableFile(message, field="file", code=UnreadableFile.code)


_FORMATS: Mapping[str, Callable[[Iterable[str]], Iterator[Row]]] = {
    "csv": _csv_rows,
    "json": _json_rows,
    "ndjson": _ndjson_rows,
}
FORMATS = tuple(_FORMATS)
