"""Values as literals of MariaDB and MySQL, chosen once for each parameter by its column's type.

The driver asks every value of every request what it is; a compiled statement knows. Everything that comes from
outside is written in hexadecimal, so there is nothing to escape and nothing to get wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy.types import Integer, LargeBinary, String, TypeEngine

from app.models.base import Digest, Identifier, UtcDateTime, Uuid

Literal = Callable[[Any], str]


def literal_of(kind: TypeEngine[Any]) -> Literal:
    """The function that writes values of the column type. Raises TypeError for a type that no statement uses."""
    for known, write in _WRITERS:
        if isinstance(kind, known):
            return write
    raise TypeError(f"no literal is known for {kind!r}")


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
    return f"'{value.astimezone(UTC).isoformat(' ', 'microseconds')[:26]}'"


def _integer(value: int | None) -> str:
    return "NULL" if value is None else str(int(value))


_WRITERS: tuple[tuple[type[TypeEngine[Any]], Literal], ...] = (
    (Uuid, _uuid),
    (Digest, _bytes),
    (Identifier, _identifier),
    (UtcDateTime, _moment),
    (LargeBinary, _bytes),
    (Integer, _integer),
    (String, _text),
)
