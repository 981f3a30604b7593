"""Values as the text of a statement, and as the driver returns them, for each column type."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy.engine import Dialect
from sqlalchemy.types import Boolean, Integer, LargeBinary, String, TypeEngine

from app.models.base import Digest, Identifier, Json, Sealed, UtcDateTime, Uuid, dump_json

Literal = Callable[[Any], str]
Reader = Callable[[Any], Any]


def literal_of(kind: TypeEngine[Any]) -> Literal:
    """Return the function that writes values of the column type. Raises TypeError for a type that no statement uses."""
    for known, write in _WRITERS:
        if isinstance(kind, known):
            return write
    raise TypeError(f"no literal is known for {kind!r}")


def reader_of(kind: TypeEngine[Any], dialect: Dialect) -> Reader | None:
    """Return the function that converts the driver's value of the column type, or None if it needs no conversion."""
    for known, read in _READERS:
        if isinstance(kind, known):
            return read
    return kind.dialect_impl(dialect).result_processor(dialect, None)


def _read_uuid(value: bytes | None) -> UUID | None:
    return None if value is None else UUID(bytes=value)


def _read_identifier(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


def _read_moment(value: datetime | None) -> datetime | None:
    return None if value is None else value.replace(tzinfo=UTC)


def _uuid(value: UUID | None) -> str:
    return "NULL" if value is None else f"x'{value.hex}'"


def _bytes(value: bytes | None) -> str:
    return "NULL" if value is None else f"x'{value.hex()}'"


def _identifier(value: str | None) -> str:
    return "NULL" if value is None else f"x'{value.encode().hex()}'"


def _text(value: str | None) -> str:
    return "NULL" if value is None else f"_utf8mb4 x'{value.encode().hex()}'"


def _moment(value: datetime | None) -> str:
    if value is None:
        return "NULL"
    if value.tzinfo is None:
        raise TypeError("a stored time needs a time zone")
    if value.tzinfo is not UTC:
        value = value.astimezone(UTC)
    return f"'{value.isoformat(' ', 'microseconds')[:26]}'"


def _json(value: Any) -> str:
    # As the column's own type does: None is NULL, and everything else is stored as text.
    return "NULL" if value is None else _text(dump_json(value))


def _boolean(value: bool | None) -> str:
    return "NULL" if value is None else str(int(value))


def _integer(value: int | None) -> str:
    return "NULL" if value is None else str(int(value))


_WRITERS: tuple[tuple[type[TypeEngine[Any]], Literal], ...] = (
    (Uuid, _uuid),
    (Digest, _bytes),
    (Identifier, _identifier),
    (UtcDateTime, _moment),
    (Sealed, _bytes),
    (LargeBinary, _bytes),
    (Json, _json),
    (Boolean, _boolean),
    (Integer, _integer),
    (String, _text),
)

_READERS: tuple[tuple[type[TypeEngine[Any]], Reader | None], ...] = (
    (Uuid, _read_uuid),
    (Digest, None),
    (Sealed, None),
    (Identifier, _read_identifier),
    (UtcDateTime, _read_moment),
)
