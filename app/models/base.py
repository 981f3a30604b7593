"""Shared parts of all tables: naming convention, column types and the organization key.

Identifiers, digests and canonical email addresses are binary columns. MariaDB's text collations ignore case and
accents, and even ``utf8mb4_bin`` ignores trailing spaces, so a text column could find the row of another value (TK-3,
TK-4).
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any, cast
from uuid import UUID

from sqlalchemy import ColumnElement, ForeignKeyConstraint, LargeBinary, MetaData, Table, Text
from sqlalchemy.dialects import mysql
from sqlalchemy.engine import Dialect
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, registry
from sqlalchemy.schema import SchemaItem
from sqlalchemy.types import DateTime, TypeDecorator

from app.rules.identifiers import ROUTING_KEY_LENGTH

NAMING_CONVENTION = {
    "pk": "pk_%(table_name)s",
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "fk": "fk_%(table_name)s_%(referred_table_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
}


_MYSQL = ("mysql", "mariadb")  # The names of its dialects.
COLLATION = "utf8mb4_bin"
TABLE_OPTIONS = {"mysql_engine": "InnoDB", "mysql_charset": "utf8mb4", "mysql_collate": COLLATION}


class Uuid(TypeDecorator[UUID]):
    """A UUID in 16 bytes. Time-ordered ids are inserted at the end of the index."""

    impl = LargeBinary(16).with_variant(mysql.BINARY(16), *_MYSQL)
    cache_ok = True

    def process_bind_param(self, value: UUID | None, dialect: Dialect) -> bytes | None:
        return None if value is None else value.bytes

    def process_result_value(self, value: bytes | None, dialect: Dialect) -> UUID | None:
        return None if value is None else UUID(bytes=value)


class Identifier(TypeDecorator[str]):
    """A short string that is compared byte by byte. It accepts only ``str`` (TK-3)."""

    impl = LargeBinary
    cache_ok = True

    def __init__(self, length: int) -> None:
        super().__init__(length)
        self.length = length

    def load_dialect_impl(self, dialect: Dialect) -> Any:
        return dialect.type_descriptor(
            mysql.VARBINARY(self.length) if dialect.name in _MYSQL else LargeBinary(self.length)
        )

    def process_bind_param(self, value: str | None, dialect: Dialect) -> bytes | None:
        if value is None:
            return None
        if not isinstance(value, str):
            raise TypeError("an identifier must be a str")
        return value.encode()

    def process_result_value(self, value: bytes | None, dialect: Dialect) -> str | None:
        return None if value is None else value.decode()


class Digest(TypeDecorator[bytes]):
    """A SHA-256 digest of 32 bytes."""

    impl = LargeBinary(32).with_variant(mysql.BINARY(32), *_MYSQL)
    cache_ok = True

    def process_bind_param(self, value: bytes | None, dialect: Dialect) -> bytes | None:
        if value is not None and not isinstance(value, bytes):
            raise TypeError("a digest must be bytes")
        return value


class Sealed(TypeDecorator[bytes]):
    """Bytes sealed by ``rules/sealing``."""

    impl = LargeBinary().with_variant(mysql.MEDIUMBLOB(), *_MYSQL)
    cache_ok = True


class UtcDateTime(TypeDecorator[datetime]):
    """DATETIME(6) in UTC. Naive values are rejected, because drivers silently drop an offset."""

    impl = DateTime().with_variant(mysql.DATETIME(fsp=6), *_MYSQL)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise TypeError("a stored time must have a time zone")
        return value.astimezone(UTC).replace(tzinfo=None)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return None if value is None else value.replace(tzinfo=UTC)


def dump_json(value: Any) -> str:
    """Return the JSON text that is stored for a document."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


class Json(TypeDecorator[Any]):
    """A JSON document stored as text. It is never queried inside the database."""

    impl = Text().with_variant(mysql.MEDIUMTEXT(charset="utf8mb4", collation=COLLATION), *_MYSQL)
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        return None if value is None else dump_json(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:
        return None if value is None else json.loads(value)


# The column types of annotations. A column that needs another one names it.
_TYPES: dict[Any, Any] = {
    datetime: UtcDateTime,
    UUID: Uuid,
    dict[str, Any]: Json,
    dict[str, int]: Json,
    dict[str, str]: Json,
    list[str]: Json,
}


class Base(DeclarativeBase):
    """Base class of all models, with utf8mb4 and InnoDB on MySQL and MariaDB."""

    registry = registry(metadata=MetaData(naming_convention=NAMING_CONVENTION), type_annotation_map=_TYPES)

    @classmethod
    def __table_cls__(cls, name: str, metadata: MetaData, *parts: SchemaItem, **options: Any) -> Table:
        """Return the table of a model, a hook of SQLAlchemy."""
        return Table(name, metadata, *parts, **{**TABLE_OPTIONS, **options})


class Tenant:
    """A row of an organization. Its key leads the primary key, so that rows of one organization are stored together.

    No foreign key refers to the organization: each insert would lock its row. That row is never deleted.
    """

    organization_id: Mapped[str] = mapped_column(
        Identifier(ROUTING_KEY_LENGTH), primary_key=True, comment="routing key of the organization"
    )
    id: Mapped[UUID] = mapped_column(primary_key=True, comment="UUIDv7 made by the application")


def has_key(model: Any, organization_id: Any, row_id: Any) -> ColumnElement[bool]:
    """Return the condition that a row of the model has this key."""
    return cast("ColumnElement[bool]", (model.organization_id == organization_id) & (model.id == row_id))


def is_of_user(model: Any, organization_id: Any, user_id: Any) -> ColumnElement[bool]:
    """Return the condition that a row of the model belongs to this user."""
    return cast(
        "ColumnElement[bool]", (model.organization_id == organization_id) & (model.user_id == user_id)
    )


def is_same(left: Any, right: Any) -> ColumnElement[bool]:
    """Return the condition that two columns of models are equal, in rows of the same organization."""
    same_organization = left.parent.entity.organization_id == right.parent.entity.organization_id
    return cast("ColumnElement[bool]", same_organization & (left == right))


def within_organization(table: str, column: str, target: str) -> ForeignKeyConstraint:
    """Reference a row of the same organization by ``column`` (TN-4)."""
    return ForeignKeyConstraint(
        ["organization_id", column],
        [f"{target}.organization_id", f"{target}.id"],
        name=f"fk_{table}_{column}",
    )
