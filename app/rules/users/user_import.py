"""Files of people: CSV (RFC 4180), a JSON array, or lines of JSON, read a piece at a time into numbered rows.

What is wrong with the file as a whole is refused here; what is wrong with one person is for ``user_import``. Numbers
are those that a spreadsheet shows: the header of a CSV is row 1. A cell is data, whatever it begins with.
"""

from __future__ import annotations

import codecs
import csv
import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from app.rules.errors import InvalidInput
from app.rules.fields import MOST_UNKNOWN, Findings, find_unknown, suggestion, text_problem, type_name
from app.rules.mail.email_addresses import canonical_email
from app.rules.sign_in import passwords
from app.rules.sign_in.imported_hashes import UnsupportedHash, parse_hash
from app.rules.strict_json import load_object
from app.rules.users.profile import ADDRESS_PARTS, CHECKS, LONGEST_NAME, STATUSES, checked_profile

ON_EXISTING = ("skip", "update")
MOST_ROLES = 20
_OWN_FIELDS = ("email", "name", "email_verified", "password_hash", "roles", "status")
_ADDRESS_FIELDS = tuple(f"address.{part}" for part in ADDRESS_PARTS)
CSV_FIELDS = (*_OWN_FIELDS, *CHECKS, *_ADDRESS_FIELDS)
JSON_FIELDS = (*CSV_FIELDS, "address")
REPORT_FIELDS = ("row", "errors")
"""What a report of refused rows adds; of no account when it is sent again."""
SYNONYMS = {
    "mail": "email",
    "e-mail": "email",
    "email address": "email",
    "password": "password_hash",
    "hash": "password_hash",
    "role": "roles",
    "first_name": "given_name",
    "firstname": "given_name",
    "last_name": "family_name",
    "lastname": "family_name",
    "surname": "family_name",
    "display_name": "name",
    "phone": "phone_number",
    "verified": "email_verified",
    "enabled": "status",
}
_BOOLEANS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_BETWEEN_ROLES = re.compile(r"[\s,;]+")


@dataclass(frozen=True, slots=True)
class ImportedPerson:
    """A row that is right in itself. ``given`` names what it says; the rest are defaults.

    ``password_scheme`` is None for a hash with our own parameters, and without one.
    """

    email: str
    canonical: str
    name: str = ""
    email_verified: bool = False
    status: str = "active"
    roles: tuple[str, ...] = ()
    profile: Mapping[str, Any] = field(default_factory=dict)
    password_hash: str | None = None
    password_scheme: str | None = None
    given: frozenset[str] = frozenset()


def checked_person(fields: Mapping[str, Any]) -> ImportedPerson:
    """The person of a row. Raises InvalidInput naming every wrong field."""
    found = Findings()
    find_unknown(found, fields, JSON_FIELDS, synonyms=SYNONYMS)
    given = {name: value for name, value in fields.items() if value is not None and name in JSON_FIELDS}
    email = given.get("email")
    canonical = canonical_email(email) if isinstance(email, str) else None
    if email is None:
        found.add("email", "required", "A user needs an e-mail address.")
    elif canonical is None:
        found.add("email", "invalid_email", "This is not an e-mail address.")
    name = given.get("name", "")
    found.add_problem("name", text_problem(name, longest=LONGEST_NAME, shortest=0))
    status = given.get("status", "active")
    if status not in STATUSES:
        found.add("status", "not_allowed", f"This must be one of: {', '.join(STATUSES)}.")
    is_verified = _boolean(given.get("email_verified", False), found)
    roles = _roles(given.get("roles", ()), found)
    profile = _profile(given, found)
    stored, scheme = _hash(given.get("password_hash"), found)
    found.raise_if_any()
    return ImportedPerson(
        email=str(email).strip(),
        canonical=str(canonical),
        name=name,
        email_verified=is_verified,
        status=status,
        roles=roles,
        profile=profile,
        password_hash=stored,
        password_scheme=scheme,
        given=frozenset(given),
    )


def _boolean(sent: Any, found: Findings) -> bool:
    if isinstance(sent, bool):
        return sent
    known = _BOOLEANS.get(sent.strip().lower()) if isinstance(sent, str) else None
    if known is None:
        found.add("email_verified", "wrong_type", "Write true or false.")
    return bool(known)


def _roles(sent: Any, found: Findings) -> tuple[str, ...]:
    names = [name for name in _BETWEEN_ROLES.split(sent) if name] if isinstance(sent, str) else sent
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        found.add("roles", "wrong_type", "Write the keys of roles, parted by spaces, or a list of them.")
        return ()
    if len(names) > MOST_ROLES:
        found.add("roles", "too_many", f"At most {MOST_ROLES} roles.")
        return ()
    return tuple(dict.fromkeys(names))


def _profile(given: Mapping[str, Any], found: Findings) -> dict[str, Any]:
    claims = {name: given[name] for name in CHECKS if name in given}
    parts = {name.partition(".")[2]: given[name] for name in _ADDRESS_FIELDS if name in given}
    address = given.get("address", {})
    if not isinstance(address, Mapping):
        found.add("address", "wrong_type", f"This must be an object, not {type_name(address)}.")
        address = {}
    try:
        return checked_profile(claims | {"address": {**address, **parts}})
    except InvalidInput as wrong:
        for error in wrong.errors:
            found.add(error.field, error.code, error.message)
        return {}


def _hash(sent: Any, found: Findings) -> tuple[str | None, str | None]:
    if sent is None:
        return None, None
    try:
        # In a cell Keycloak's object stands as text.
        foreign = parse_hash(json.loads(sent) if isinstance(sent, str) and sent.startswith("{") else sent)
    except (ValueError, RecursionError):
        found.add("password_hash", "malformed_hash", "This is not valid JSON.")
        return None, None
    except UnsupportedHash as refusal:
        found.add_problem("password_hash", refusal.problem)
        return None, None
    return foreign.stored, foreign.scheme if passwords.needs_rehash(foreign.stored) else None


LONGEST_FILE = 32 * 1024 * 1024
LONGEST_ROW = 64 * 1024
MOST_ROWS = 250_000
_SPACE = re.compile(r"[ \t\r\n]*")
# What a spreadsheet would take for a formula; our own reports write an apostrophe before it.
_FORMULA = re.compile(r"'[=+\-@\t\r]")


class UnreadableFile(InvalidInput):
    """The file as a whole cannot be read; the words name the line."""

    code = "unreadable_file"


@dataclass(frozen=True, slots=True)
class Row:
    """A person as they stand in the file; ``problem`` is what is wrong with the row itself."""

    number: int
    fields: Mapping[str, Any]
    problem: str | None = None


def read_rows(chunks: Iterable[bytes], file_format: str) -> Iterator[Row]:
    """The rows of the file, whose bytes come in ``chunks``. Raises UnreadableFile."""
    for count, row in enumerate(_FORMATS[file_format](_texts(chunks)), 1):
        if count > MOST_ROWS:
            raise _unreadable(f"The file has more than {MOST_ROWS} rows. Send it in parts.")
        yield row


def format_of_name(name: str) -> str:
    """The format that a file's name tells; CSV when it tells none."""
    ending = name.rpartition(".")[2].lower()
    return {"jsonl": "ndjson"}.get(ending, ending if ending in FORMATS else "csv")


def as_cells(fields: Mapping[str, Any]) -> dict[str, str]:
    """A row as cells of a report, which no spreadsheet takes for formulas and ``read_rows`` reads back."""
    flat = dict(fields)
    address = flat.pop("address", None)
    if isinstance(address, Mapping):
        flat |= {f"address.{part}": value for part, value in address.items()}
    return {name: as_cell(value) for name, value in flat.items() if value is not None}


def as_cell(value: Any) -> str:
    """A value as one cell of a report."""
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        value = " ".join(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"'{text}" if _FORMULA.match(f"'{text}") else text


def _texts(chunks: Iterable[bytes]) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8-sig")("strict")
    size, lines, first = 0, 1, True
    for chunk in chunks:
        size += len(chunk)
        if size > LONGEST_FILE:
            raise _unreadable(
                f"The file is larger than {LONGEST_FILE // 1024 // 1024} MiB. Send it in parts."
            )
        if first and chunk[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            raise _unreadable("The file is UTF-16. Save it as UTF-8.")
        try:
            text = decoder.decode(chunk)
        except UnicodeDecodeError as error:
            line = lines + chunk[: error.start].count(b"\n")
            raise _unreadable(f"Line {line} is not UTF-8. Save the file as UTF-8.") from error
        lines += chunk.count(b"\n")
        yield text
        first = False
    try:
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        raise _unreadable("The file ends in the middle of a character.") from error


def _lines(texts: Iterable[str]) -> Iterator[str]:
    """The lines with their ends; none is longer than a row may be."""
    pending, count = "", 0
    for text in texts:
        *whole, pending = (pending + text).split("\n")
        for line in whole:
            count += 1
            yield _bounded(line, count) + "\n"
        _bounded(pending, count + 1)
    if pending:
        yield pending


def _bounded(line: str, number: int) -> str:
    if len(line) > LONGEST_ROW:
        raise _unreadable(f"Line {number} has more than {LONGEST_ROW} characters.")
    return line


def _csv_rows(texts: Iterable[str]) -> Iterator[Row]:
    header: list[str] | None = None
    number = size = 0

    def lines() -> Iterator[str]:
        # A row goes over many lines where a cell does: it is counted while it is read, not when it is in memory.
        nonlocal size
        for line in _lines(texts):
            size += len(line)
            if size > LONGEST_ROW + 1:
                raise _unreadable(f"Row {number + 1} has more than {LONGEST_ROW} characters.")
            yield line

    reader = csv.reader(lines(), strict=True)
    try:
        for cells in reader:
            number, size = number + 1, 0
            if header is None:
                header = _checked_header(cells)
            elif cells:
                yield _csv_row(number, header, cells)
    except csv.Error as error:
        message = f"Line {reader.line_num} is not CSV as RFC 4180 has it: mind quotation marks and line ends."
        raise _unreadable(message) from error
    if header is None:
        raise _unreadable("The file is empty.")


def _checked_header(cells: list[str]) -> list[str]:
    names = [cell.strip().lower() for cell in cells]
    if len(names) == 1 and any(mark in names[0] for mark in ";\t"):
        raise _unreadable("The columns are parted by semicolons or tabs. Part them by commas.")
    wrong = [
        f"There is no column {name[:100]!r}.{suggestion(name, CSV_FIELDS, SYNONYMS)}"
        for name in names
        if name not in (*CSV_FIELDS, *REPORT_FIELDS)
    ]
    wrong += [f"The column {name!r} stands twice." for name in dict.fromkeys(names) if names.count(name) > 1]
    if not wrong and "email" not in names:
        wrong = ["There is no column 'email'. The first row of the file names its columns."]
    if wrong:
        raise _unreadable(" ".join(wrong[:MOST_UNKNOWN]))
    return names


def _csv_row(number: int, header: list[str], cells: list[str]) -> Row:
    fields = {name: _plain(cell) for name, cell in zip(header, cells, strict=False)}
    filled = {name: cell for name, cell in fields.items() if cell and name not in REPORT_FIELDS}
    if len(cells) == len(header):
        return Row(number, filled)
    return Row(number, filled, f"This row has {len(cells)} cells; the header has {len(header)}.")


def _plain(cell: str) -> str:
    text = unicodedata.normalize("NFC", cell.strip())
    return text[1:] if _FORMULA.match(text) else text


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
        raise _unreadable(f"{where} is no JSON object as it must be. {error.description}") from error


def _items(texts: Iterable[str]) -> Iterator[str]:
    """The text of each object in the one array, without the array ever being there whole."""
    reading = _ArrayReading()
    for text in texts:
        yield from reading.items(text)
    yield from reading.items("", is_last=True)


class _ArrayReading:
    """How far an array has been read: what is pending, and what must come next."""

    def __init__(self) -> None:
        self._pending = ""
        self._expected = "["
        self._count = 0
        self._decoder = json.JSONDecoder()

    def items(self, text: str, *, is_last: bool = False) -> Iterator[str]:
        """The items that the text completes."""
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
                self._mark(self._pending[position])
                position += 1
        self._pending = self._pending[position:]
        if is_last and self._expected != "":
            raise _unreadable("The file must be one array of objects, [{…}, {…}], and ends before it does.")

    def _end_of_item(self, position: int, is_last: bool) -> int | None:
        """Where the item ends, or None when more of it must come."""
        try:
            return self._decoder.raw_decode(self._pending, position)[1]
        except (ValueError, RecursionError) as error:
            if is_last or len(self._pending) - position > LONGEST_ROW:
                raise _unreadable(
                    f"Item {self._count + 1} is not valid JSON, or has more than {LONGEST_ROW} characters."
                ) from error
            return None

    def _mark(self, char: str) -> None:
        if char == self._expected and char in "[,":
            self._expected = "{"
        elif char == "]" and (self._expected == "," or (self._expected == "{" and not self._count)):
            self._expected = ""
        else:
            raise _unreadable(f"The file must be one array of objects; item {self._count + 1} is none.")


def _unreadable(message: str) -> UnreadableFile:
    return UnreadableFile(message, field="file", code=UnreadableFile.code)


_FORMATS: Mapping[str, Callable[[Iterable[str]], Iterator[Row]]] = {
    "csv": _csv_rows,
    "json": _json_rows,
    "ndjson": _ndjson_rows,
}
FORMATS = tuple(_FORMATS)
