"""Import files: rows are parsed unchanged, and errors name their position."""

from __future__ import annotations

import csv
import io
import json
import unicodedata
from collections.abc import Iterator
from typing import Any

import pytest

from app.rules.users import import_files
from app.rules.users.import_files import MAX_ROW_LENGTH, Row, UnreadableFile, as_cells, read_rows
from tests.support.cases import each


def rows(content: bytes | str, file_format: str = "csv", piece: int = 65536) -> list[Row]:
    data = content.encode() if isinstance(content, str) else content
    return list(read_rows((data[at : at + piece] for at in range(0, len(data), piece)), file_format))


def refusal(content: bytes | str, file_format: str = "csv") -> str:
    with pytest.raises(UnreadableFile) as raised:
        rows(content, file_format)
    assert raised.value.field == "file"
    assert raised.value.code == "unreadable_file"
    return raised.value.description


def test_csv_is_parsed_per_rfc_4180() -> None:
    text = 'email,name\r\nada@a.example,"Lovelace, ""Ada"""\r\n\r\nbob@a.example,"two\nlines"\n'
    assert rows(text) == [
        Row(2, {"email": "ada@a.example", "name": 'Lovelace, "Ada"'}),
        Row(4, {"email": "bob@a.example", "name": "two\nlines"}),
    ]


@each("piece", [1, 2, 3, 7, 65536])
@each("before", ["", "\ufeff"])
def test_piece_size_and_byte_order_mark_do_not_matter(piece: int, before: str) -> None:
    text = before + "email,name\r\nada@a.example,Zoë 🦒\r\n"
    assert rows(text, piece=piece) == [Row(2, {"email": "ada@a.example", "name": "Zoë 🦒"})]
    items = before + ' [ {"email": "ada@a.example", "name": "}{\\"]["} ,\n{"email": "b@a.example"}] \n'
    expected = [Row(1, {"email": "ada@a.example", "name": '}{"]['}), Row(2, {"email": "b@a.example"})]
    assert rows(items, "json", piece) == expected
    lines = before + '{"email": "ada@a.example"}\r\n\n{"email": "b@a.example"}'
    assert [row.number for row in rows(lines, "ndjson", piece)] == [1, 3]


def test_empty_cells_are_omitted_and_text_is_normalized() -> None:
    assert rows("Email , NAME,status\n ada@a.example,Zoe\u0308,\n") == [
        Row(2, {"email": "ada@a.example", "name": "Zo\u00eb"})
    ]


@each("cell", ["=cmd|'/c calc'!A0", "+41446681800", "-1", "@SUM(A1)"])
def test_formula_is_data_and_escaped_in_reports(cell: str) -> None:
    read = rows(f'email,name\nada@a.example,"{cell}"\n')[0]
    assert read.fields["name"] == cell
    written = as_cells(read.fields)
    assert written["name"] == f"'{cell}"
    text = io.StringIO()
    writer = csv.DictWriter(text, list(written))
    writer.writeheader()
    writer.writerow(written)
    assert rows(text.getvalue())[0].fields == read.fields


def test_report_can_be_imported_again() -> None:
    fields: dict[str, Any] = {
        "row": "7",
        "errors": "email: wrong",
        "email": "ada@a.example",
        "email_verified": True,
        "roles": ["member", "auditor"],
        "groups": ["Drivers; night", "Pickers"],
        "address": {"country": "Switzerland"},
        "password_hash": {"algorithm": "pbkdf2"},
        "name": None,
    }
    cells = as_cells(fields)
    assert (cells["roles"], cells["address.country"], cells["email_verified"]) == (
        "member auditor",
        "Switzerland",
        "true",
    )
    assert json.loads(cells["groups"]) == ["Drivers; night", "Pickers"]
    assert json.loads(cells["password_hash"]) == {"algorithm": "pbkdf2"}
    text = (
        ",".join(cells)
        + "\n"
        + ",".join(f'"{cell.replace(chr(34), chr(34) * 2)}"' for cell in cells.values())
    )
    assert "row" not in rows(text)[0].fields and "errors" not in rows(text)[0].fields


@pytest.mark.parametrize("marks", ["\u0301\u0323", "\u0323\u0301", "\u0344\u0316"])
def test_endless_combining_characters_are_not_sorted(marks: str) -> None:
    """Normalization takes quadratic time for them, and holds the interpreter's lock."""
    many = "a" + marks * 15_000
    found = rows(f"email,name\nada@a.example,a{marks}\n" + f"bob@a.example,{many}\n" * 20)
    assert found[0].fields["name"] == unicodedata.normalize("NFC", f"a{marks}")
    assert {len(row.fields["name"]) for row in found[1:]} == {30_001}


def test_row_with_wrong_cell_count_is_reported() -> None:
    found = rows("email,name\na@a.example\nb@a.example,B,more\nc@a.example,C\n")
    assert [row.problem for row in found] == [
        "This row has 1 cells but the header has 2.",
        "This row has 3 cells but the header has 2.",
        None,
    ]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "empty"),
        ("name\nAda\n", "The column 'email' is missing"),
        ("email,emial\n", "There is no column 'emial'. Did you mean \"email\"?"),
        ("e-mail,first_name\n", "Did you mean \"given_name\"?"),
        ("email,is_root,org_id,id\n", "There is no column 'is_root'"),
        ("email,name,Email\n", "The column 'email' is duplicated"),
        ("email;name\n", "separated by semicolons"),
        ("email," + "a," * 30_000 + "\n", "more than 200 column names"),
        (b"email\nada@a.example\nz\xfc@a.example\n", "Line 3 is not UTF-8"),
        ("email\nada@a.example\n".encode("utf-16"), "UTF-16"),
        ("email\nada@a.example\u00fc".encode()[:-1], "middle of a character"),
        ('email,name\nada@a.example,"never closed\n', "not valid CSV"),
        ('email,name\nada@a.example,"x"y\n', "Line 2 is not valid CSV"),
        ("email\nada@a.example\rbob@a.example\n", "not valid CSV"),
        ("email,name\nada@a.example," + "x" * 1_000_000 + "\n", f"Line 2 has more than {MAX_ROW_LENGTH}"),
        ('email,name\nada@a.example,"' + ("x" * 60_000 + "\n") * 2 + '"\n', "Row 2 has more than"),
        ('email,name\nada@a.example,"' + ("x" * 60_000 + "\n") * 200 + '"\n', "Row 2 has more than"),
    ],
)  # fmt: skip
def test_invalid_csv_is_rejected_with_position(content: bytes | str, words: str) -> None:
    assert words in refusal(content)


@each(
    ("content", "words"),
    [
        ("", "ends too early"),
        ("{}", "begins with an object"),
        ('{"email": "a@a.example"}\n{"email": "b@a.example"}\n', "application/x-ndjson"),
        ("[{}", "ends too early"),
        ("[{},]", "item 2 is not an object"),
        ("[,{}]", "item 1 is not an object"),
        ("[5]", "item 1 is not an object"),
        ("[{}] []", "one array"),
        ('[{"email": }]', "Item 1 is not valid JSON"),
        ('[{"a": 1, "a": 2}]', "Item 1"),
        ('[{"a": NaN}]', "Item 1"),
        ('[{"a": "\\u0000"}]', "NUL"),
        ('[{"a": "\\ud800"}]', "surrogate"),
        ('[{"a": ' + "[" * 40 + "]" * 40 + "}]", "deeper"),
        ('[{"a": ' + "[" * 60_000, "Item 1 is not valid JSON"),
        ('[{"a": ' + "9" * 5_000 + "}]", "Item 1"),
        ('[{"a": "' + "x" * 1_000_000 + '"}]', "more than"),
    ],
)
def test_invalid_json_array_is_rejected_with_position(content: str, words: str) -> None:
    assert words in refusal(content, "json")


@each("content", ["[]", "5", "{", '{"a": 1}{"b": 2}', "x" * 1_000_000])
def test_invalid_json_line_is_rejected_with_line_number(content: str) -> None:
    assert "Line 2" in refusal('{"email": "a@a.example"}\n' + content, "ndjson")


def test_file_size_and_row_count_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_files, "MAX_ROWS", 3)
    assert "more than 3 rows" in refusal("email\n" + "a@a.example\n" * 4)
    endless = (b"email\n" if not at else b"a@a.example\n" * 5000 for at in range(10**9))
    monkeypatch.setattr(import_files, "MAX_ROWS", 10**9)
    monkeypatch.setattr(import_files, "MAX_FILE_BYTES", 1024 * 1024)
    with pytest.raises(UnreadableFile, match="larger than 1 MiB"):
        for _ in read_rows(endless, "csv"):
            pass


def test_multiline_row_is_limited_while_read() -> None:
    """A file of 32 MiB that is one row must not become half a gigabyte of cells before it is rejected."""
    taken = 0

    def chunks() -> Iterator[bytes]:
        nonlocal taken
        yield b"email\n"
        for _ in range(100):
            taken += 1
            yield b'"\na",' * 10_000

    with pytest.raises(UnreadableFile, match="Row 2 has more than"):
        list(read_rows(chunks(), "csv"))
    assert taken < 5
