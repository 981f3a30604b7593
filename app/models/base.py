"""What all tables share: naming convention, column types, the tenant key.

Identifiers, digests and canonical e-mails are binary columns: MariaDB's text collations fold case and accents and
even ``utf8mb4_bin`` ignores trailing spaces, so a text column would find another's row (TK-3, TK-4).
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ForeignKeyConstraint, LargeBinary, MetaData, Text
from sqlalchemy.dialects import mysql
from sqlalchemy.engine import Dialect
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.types import DateTime, TypeDecorator

from app.rules.identifiers import ROUTING_KEY_LENGTH

NAMING_CONVENTION = {
    "pk": "pk_%(table_name)s",
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "fk": "fk_%(table_name)s_%(referred_table_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
}


TABLE_OPTIONS = {"mysql_engine": "InnoDB", "mysql_charset": "utf8mb4", "mysql_collate": "utf8mb4_bin"}


class Base(DeclarativeBase):
    """Root of all models; utf8mb4 and InnoDB on MySQL and MariaDB."""

    metadata = MetaData(naming_convention=NAMING_CONVENTION)
    __table_args__: Any = TABLE_OPTIONS


class Uuid(TypeDecorator[UUID]):
    """A UUID in 16 bytes; time-ordered ids keep inserts at the end of the index."""

    impl = LargeBinary
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> Any:
        return dialect.type_descriptor(mysql.BINARY(16) if _is_mysql(dialect) else LargeBinary(16))

    def process_bind_param(self, value: UUID | None, dialect: Dialect) -> bytes | None:
        return None if value is None else value.bytes

    def process_result_value(self, value: bytes | None, dialect: Dialect) -> UUID | None:
        return None if value is None else UUID(bytes=bytes(value))


class Identifier(TypeDecorator[str]):
    """A short string compared byte for byte; refuses anything that is not ``str`` (TK-3)."""

    impl = LargeBinary
    cache_ok = True

    def __init__(self, length: int) -> None:
        super().__init__(length)
        self.length = length

    def load_dialect_impl(self, dialect: Dialect) -> Any:
        return dialect.type_descriptor(
            mysql.VARBINARY(self.length) if _is_mysql(dialect) else LargeBinary(self.length)
        )

    def process_bind_param(self, value: str | None, dialect: Dialect) -> bytes | None:
        if value is None:
            return None
        if not isinstance(value, str):
            raise TypeError("an identifier is a str")
        return value.encode()

    def process_result_value(self, value: bytes | None, dialect: Dialect) -> str | None:
        return None if value is None else bytes(value).decode()


class Digest(TypeDecorator[bytes]):
    """SHA-256 in 32 bytes."""

    impl = LargeBinary
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> Any:
        return dialect.type_descriptor(mysql.BINARY(32) if _is_mysql(dialect) else LargeBinary(32))

    def process_bind_param(self, value: bytes | None, dialect: Dialect) -> bytes | None:
        if value is not None and not isinstance(value, bytes):
            raise TypeError("a digest is bytes")
        return value

    def process_result_value(self, value: bytes | None, dialect: Dialect) -> bytes | None:
        return None if value is None else bytes(value)


class Sealed(TypeDecorator[bytes]):
    """Bytes sealed by ``rules/sealing``."""

    impl = LargeBinary
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> Any:
        return dialect.type_descriptor(mysql.MEDIUMBLOB() if _is_mysql(dialect) else LargeBinary())

    def process_result_value(self, value: bytes | None, dialect: Dialect) -> bytes | None:
        return None if value is None else bytes(value)


class UtcDateTime(TypeDecorator[datetime]):
    """DATETIME(6) in UTC. Naive values are refused: drivers silently drop an offset, so none may carry one."""

    impl = DateTime
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> Any:
        return dialect.type_descriptor(mysql.DATETIME(fsp=6) if _is_mysql(dialect) else DateTime())

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise TypeError("a stored time needs a time zone")
        return value.astimezone(UTC).replace(tzinfo=None)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return None if value is None else value.replace(tzinfo=UTC)


def dump_json(value: Any) -> str:
    """The text that a document is kept as."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


class Json(TypeDecorator[Any]):
    """A document kept as opaque text; it is never queried inside the database."""

    impl = Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> Any:
        return dialect.type_descriptor(
            mysql.MEDIUMTEXT(charset="utf8mb4", collation="utf8mb4_bin") if _is_mysql(dialect) else Text()
        )

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        return None if value is None else dump_json(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:
        return None if value is None else json.loads(value)


class Tenant:
    """A row of one organization: its key leads the primary key, so that rows of one organization lie together."""

    organization_id: Mapped[str] = mapped_column(
        Identifier(ROUTING_KEY_LENGTH), primary_key=True, comment="routing key of the organization"
    )
    id: Mapped[UUID] = mapped_column(Uuid, primary_key=True, comment="UUIDv7 made by the application")


def owned_by_organization(table: str) -> ForeignKeyConstraint:
    """The row's organization exists. Never cascades: the application deletes in batches."""
    return ForeignKeyConstraint(["organization_id"], ["organizations.id"], name=f"fk_{table}_organization")


def within_organization(table: str, column: str, target: str) -> ForeignKeyConstraint:
    """The row named by ``column`` belongs to the same organization (TN-4)."""
    return ForeignKeyConstraint(
        ["organization_id", column],
        [f"{target}.organization_id", f"{target}.id"],
        name=f"fk_{table}_{column}",
    )


def _is_mysql(dialect: Dialect) -> bool:
    return dialect.name in {"mysql", "mariadb"}
