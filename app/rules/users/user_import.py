"""Import files: CSV (RFC 4180), a JSON array or JSON lines, read in pieces as numbered rows and validated.

``read_rows`` rejects files that are unreadable as a whole, ``validate_imported_user`` reports the errors of
one row. Row numbers are those that a spreadsheet shows: the header of a CSV file is row 1. Cells are data
even if they look like formulas.
"""

from __future__ import annotations

import codecs
import csv
import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from app.rules.directory.attributes import Attribute, validate_attributes
from app.rules.errors import InvalidInput
from app.rules.fields import MAX_UNKNOWN, ValidationErrors, find_unknown, suggestion, text_problem, type_name
from app.rules.languages.translation import lazy_gettext
from app.rules.mail.email_addresses import canonical_email
from app.rules.sign_in import passwords
from app.rules.sign_in.imported_hashes import UnsupportedHash, parse_hash
from app.rules.strict_json import InvalidJson, load_object
from app.rules.users.profile import ADDRESS_PARTS, CHECKS, MAX_NAME_LENGTH, STATUSES, validate_profile

ON_EXISTING = ("skip", "update")
MAX_IMPORTED_ROLES, MAX_IMPORTED_GROUPS = 20, 100
_OWN_FIELDS = ("email", "name", "email_verified", "password_hash", "roles", "groups", "status", "attributes")
_ADDRESS_FIELDS = tuple(f"address.{part}" for part in ADDRESS_PARTS)
CSV_FIELDS = (*_OWN_FIELDS, *CHECKS, *_ADDRESS_FIELDS)
JSON_FIELDS = (*CSV_FIELDS, "address")
REPORT_FIELDS = ("row", "errors")
"""Columns that a report of rejected rows adds, which are ignored when it is uploaded again."""
SYNONYMS = {
    "mail": "email",
    "e-mail": "email",
    "email address": "email",
    "password": "password_hash",
    "hash": "password_hash",
    "role": "roles",
    "group": "groups",
    "first_name": "given_name",
    "firstname": "given_name",
    "last_name": "family_name",
    "lastname": "family_name",
    "surname": "family_name",
    "display_name": "name",
    "displayname": "name",
    "user_metadata": "attributes",
    "app_metadata": "attributes",
    "mobile": "phone_number",
    "credentials": "password_hash",
    "phone": "phone_number",
    "verified": "email_verified",
    "enabled": "status",
}
_BOOLEANS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_ROLE_SEPARATORS = re.compile(r"[\s,;]+")
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


class ImportedUser(Struct, frozen=True):
    """A valid row. ``given`` names the fields that it contains. The others have defaults.

    ``password_scheme`` is None without a hash, and for one with the current parameters.
    """

    email: str
    canonical: str
    name: str = ""
    email_verified: bool = False
    status: str = "active"
    roles: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    profile: Mapping[str, Any] = field(default_factory=dict)
    attributes: Mapping[str, Any] = field(default_factory=dict)
    password_hash: str | None = None
    password_scheme: str | None = None
    given: frozenset[str] = frozenset()


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


def validate_imported_user(fields: Mapping[str, Any], attributes: Iterable[Attribute] = ()) -> ImportedUser:
    """Return the user of a row. Raises InvalidInput naming every wrong field.

    ``attributes`` are the definitions of the organization.
    """
    found = ValidationErrors()
    find_unknown(found, fields, JSON_FIELDS, synonyms=SYNONYMS)
    given = {name: value for name, value in fields.items() if value is not None and name in JSON_FIELDS}
    email = given.get("email")
    canonical = canonical_email(email) if isinstance(email, str) else None
    if email is None:
        found.add("email", "required", "Enter an email address.")
    elif canonical is None:
        found.add("email", "invalid_email", "Enter a valid email address.")
    name = given.get("name", "")
    found.add_problem("name", text_problem(name, max_length=MAX_NAME_LENGTH, min_length=0))
    status = given.get("status", "active")
    if status not in STATUSES:
        found.add(
            "status",
            "not_allowed",
            lazy_gettext("This must be one of: %(choices)s.", choices=", ".join(STATUSES)),
        )
    is_verified = _boolean(given.get("email_verified", False), found)
    roles = _roles(given.get("roles", ()), found)
    groups = _groups(given.get("groups", ()), found)
    profile = _profile(given, found)
    custom = _attributes(given, attributes, found)
    stored, scheme = _hash(given.get("password_hash"), found)
    found.raise_if_any()
    return ImportedUser(
        email=str(email).strip(),
        canonical=str(canonical),
        name=name,
        email_verified=is_verified,
        status=status,
        roles=roles,
        groups=groups,
        profile=profile,
        attributes=custom,
        password_hash=stored,
        password_scheme=scheme,
        given=frozenset(given),
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


def _boolean(sent: Any, found: ValidationErrors) -> bool:
    if isinstance(sent, bool):
        return sent
    known = _BOOLEANS.get(sent.strip().lower()) if isinstance(sent, str) else None
    if known is None:
        found.add("email_verified", "wrong_type", "Write true or false.")
    return bool(known)


def _roles(sent: Any, found: ValidationErrors) -> tuple[str, ...]:
    names = [name for name in _ROLE_SEPARATORS.split(sent) if name] if isinstance(sent, str) else sent
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        found.add("roles", "wrong_type", "Write the keys of roles separated by spaces, or a list of them.")
        return ()
    if len(names) > MAX_IMPORTED_ROLES:
        found.add("roles", "too_many", f"A user can have at most {MAX_IMPORTED_ROLES} roles.")
        return ()
    return tuple(dict.fromkeys(names))


def _groups(sent: Any, found: ValidationErrors) -> tuple[str, ...]:
    names = sent
    if isinstance(sent, str):
        try:
            names = json.loads(sent) if sent.startswith("[") else sent.split(";")
        except (ValueError, RecursionError):
            names = None
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        message = lazy_gettext("Write the names of groups separated by semicolons, or a JSON list of them.")
        found.add("groups", "wrong_type", message)
        return ()
    if len(names) > MAX_IMPORTED_GROUPS:
        message = lazy_gettext("A user can be in at most %(max)s groups.", max=MAX_IMPORTED_GROUPS)
        found.add("groups", "too_many", message)
        return ()
    return tuple(dict.fromkeys(name.strip() for name in names if name.strip()))


def _profile(given: Mapping[str, Any], found: ValidationErrors) -> dict[str, Any]:
    claims = {name: given[name] for name in CHECKS if name in given}
    if isinstance(claims.get("locale"), str):
        # Some products write en_US (OpenID Connect Core section 5.1).
        claims["locale"] = claims["locale"].replace("_", "-")
    parts = {name.partition(".")[2]: given[name] for name in _ADDRESS_FIELDS if name in given}
    address = given.get("address", {})
    if not isinstance(address, Mapping):
        found.add("address", "wrong_type", f"This must be an object, not {type_name(address)}.")
        address = {}
    try:
        return validate_profile(claims | {"address": {**address, **parts}})
    except InvalidInput as invalid:
        for error in invalid.errors:
            found.add(error.field, error.code, error.message)
        return {}


def _attributes(
    given: Mapping[str, Any], attributes: Iterable[Attribute], found: ValidationErrors
) -> dict[str, Any]:
    sent = given.get("attributes", {})
    if isinstance(sent, str):
        try:
            sent = load_object(sent.encode())
        except InvalidJson:
            found.add("attributes", "wrong_type", 'Write a JSON object, such as {"department": "Fruit"}.')
            return {}
    # A row sets some of the attributes. Whether all required ones are there is decided where they are merged.
    optional = [replace(attribute, required=False) for attribute in attributes]
    return validate_attributes(optional, sent, {}, found)


def _hash(sent: Any, found: ValidationErrors) -> tuple[str | None, str | None]:
    if sent is None:
        return None, None
    try:
        # In a CSV cell Keycloak's object is JSON text.
        imported = parse_hash(json.loads(sent) if isinstance(sent, str) and sent.startswith("{") else sent)
    except (ValueError, RecursionError):
        found.add("password_hash", "malformed_hash", "This is not valid JSON.")
        return None, None
    except UnsupportedHash as error:
        found.add_problem("password_hash", error.problem)
        return None, None
    return imported.stored, imported.scheme if passwords.needs_rehash(imported.stored) else None


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
