"""Column types of the migrations, defined here so that a change of a model never changes an old migration."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql
from sqlalchemy.types import TypeEngine

TABLE_OPTIONS = {"mysql_engine": "InnoDB", "mysql_charset": "utf8mb4", "mysql_collate": "utf8mb4_bin"}

UUID = sa.LargeBinary(16).with_variant(mysql.BINARY(16), "mysql", "mariadb")
DIGEST = sa.LargeBinary(32).with_variant(mysql.BINARY(32), "mysql", "mariadb")
SEALED = sa.LargeBinary().with_variant(mysql.MEDIUMBLOB(), "mysql", "mariadb")
UTC_DATETIME = sa.DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb")
JSON_TEXT = sa.Text().with_variant(
    mysql.MEDIUMTEXT(charset="utf8mb4", collation="utf8mb4_bin"), "mysql", "mariadb"
)


def identifier(length: int) -> TypeEngine[Any]:
    """A short string compared byte for byte."""
    return sa.LargeBinary(length).with_variant(mysql.VARBINARY(length), "mysql", "mariadb")
