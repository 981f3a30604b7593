"""What the doctor asks the database: version, isolation, time zone, durability, rights of our account."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from sqlalchemy import Connection

from app.config import Config, is_loopback_url
from app.database import engines

_OLDEST = {"MariaDB": (10, 6), "MySQL": (8, 0), "SQLite": (3, 35)}
# Rights by which a stolen account reaches beyond its own tables.
_TOO_WIDE = ("SUPER", "FILE", "PROCESS", "SHUTDOWN", "CREATE USER", "GRANT OPTION")
_CHANGES_SCHEMA = ("CREATE", "ALTER", "DROP", "INDEX", "REFERENCES")
_VARIABLES = (
    "tx_isolation", "transaction_isolation", "time_zone", "sql_mode", "innodb_flush_log_at_trx_commit",
    "max_connections", "wsrep_on",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at; ``mend`` says what to do when it is not fine."""

    level: Literal["fine", "warning", "wrong"]
    topic: str
    message: str
    mend: str = ""


def fine(topic: str, message: str) -> Finding:
    """Nothing to do."""
    return Finding("fine", topic, message)


def warning(topic: str, message: str, mend: str) -> Finding:
    """It works, and somebody should know."""
    return Finding("warning", topic, message, mend)


def wrong(topic: str, message: str, mend: str) -> Finding:
    """It must be mended before the service can be trusted."""
    return Finding("wrong", topic, message, mend)


def database_findings(config: Config) -> Iterator[Finding]:
    """Everything about a database that can be reached."""
    with engines()[0].connect() as connection:
        product, version = _product(connection)
        yield _version(product, version)
        if product == "SQLite":
            yield from _sqlite_durability(connection)
            return
        values = {
            name: str(value)
            for name, value in connection.exec_driver_sql("SHOW SESSION VARIABLES")
            if name in _VARIABLES
        }
        yield from _session(values)
        yield _connections(config, int(values["max_connections"]))
        yield from _grants(connection)
        yield from _link(config, connection)


def _product(connection: Connection) -> tuple[str, tuple[int, ...]]:
    if connection.dialect.name == "sqlite":
        return "SQLite", _numbers(str(connection.exec_driver_sql("SELECT sqlite_version()").scalar_one()))
    text = str(connection.exec_driver_sql("SELECT VERSION()").scalar_one())
    return ("MariaDB" if "mariadb" in text.lower() else "MySQL"), _numbers(text)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)[:3])


def _version(product: str, version: tuple[int, ...]) -> Finding:
    shown = f"{product} {'.'.join(map(str, version))}"
    oldest = _OLDEST[product]
    if version[:2] < oldest:
        return wrong("database", f"{shown} is too old.", f"Use {product} {oldest[0]}.{oldest[1]} or newer.")
    return fine("database", f"{shown}.")


def _sqlite_durability(connection: Connection) -> Iterator[Finding]:
    for pragma, expected, meaning in (
        ("journal_mode", "wal", "readers and the writer do not wait for each other"),
        ("synchronous", "2", "a power loss forgets nothing that was answered"),
        ("foreign_keys", "1", "no row without its parent"),
    ):
        value = str(connection.exec_driver_sql(f"PRAGMA {pragma}").scalar_one()).lower()
        if value == expected:
            yield fine("database", f"{pragma} = {value}: {meaning}.")
        else:
            yield wrong(
                "database",
                f"{pragma} is {value}, not {expected}.",
                "Use a local disk that lets SQLite have WAL.",
            )


def _session(values: dict[str, str]) -> Iterator[Finding]:
    isolation = values.get("transaction_isolation") or values.get("tx_isolation", "")
    if isolation == "READ-COMMITTED":
        yield fine("database", "Isolation is READ COMMITTED.")
    else:
        yield wrong("database", f"Isolation is {isolation}.", "Let our account set its session's isolation.")
    if values["time_zone"] == "+00:00":
        yield fine("database", "Times are in UTC.")
    else:
        yield wrong(
            "database",
            f"The session's time zone is {values['time_zone']}.",
            "Remove init_connect, or its time_zone.",
        )
    if "STRICT_TRANS_TABLES" not in values["sql_mode"]:
        yield wrong(
            "database", "sql_mode is not strict: values may be cut.", "Remove init_connect, or its sql_mode."
        )
    if values["innodb_flush_log_at_trx_commit"] == "1":
        yield fine("database", "Commits are durable.")
    else:
        yield warning(
            "database",
            "innodb_flush_log_at_trx_commit is not 1: a power loss may forget that a code was used.",
            "SET GLOBAL innodb_flush_log_at_trx_commit = 1, and in the server's configuration.",
        )
    if values.get("wsrep_on", "OFF") == "ON":
        yield warning(
            "cluster",
            "This is a Galera node: writes must all go to one node.",
            "Point DATABASE_URL at the writer, and set GATEHOUSE_DATABASE_TIMEOUT=15.",
        )


def _connections(config: Config, allowed: int) -> Finding:
    # Two engines, each with as many again in a rush, in two workers.
    wanted = config.database_pool * 2 * 2 * 2
    if allowed < wanted:
        return warning(
            "database",
            f"max_connections is {allowed}; two workers may open {wanted}.",
            f"Raise max_connections above {wanted}, or lower GATEHOUSE_DATABASE_POOL.",
        )
    return fine("database", f"max_connections is {allowed}; two workers may open {wanted}.")


def _grants(connection: Connection) -> Iterator[Finding]:
    lines = [str(line) for line in connection.exec_driver_sql("SHOW GRANTS").scalars()]
    everywhere = [line for line in lines if " ON *.* " in line]
    wide = sorted({right for line in everywhere for right in _TOO_WIDE if re.search(rf"\b{right}\b", line)})
    if any("ALL PRIVILEGES" in line for line in everywhere):
        wide = ["ALL PRIVILEGES on every database"]
    if wide:
        yield warning(
            "rights",
            f"The database account holds {', '.join(wide)}.",
            "Give it SELECT, INSERT, UPDATE, DELETE on its own database alone (docs/deployment.md).",
        )
        return
    own = [line for line in lines if " ON *.* " not in line]
    schema = any(
        "ALL PRIVILEGES" in line or any(f"{right}," in line for right in _CHANGES_SCHEMA) for line in own
    )
    if schema:
        yield warning(
            "rights",
            "The account that serves may also change the schema.",
            "Migrate with another account, and give this one SELECT, INSERT, UPDATE, DELETE (docs/deployment.md).",
        )
    else:
        yield fine("rights", "The account may read and write rows of its own database, and nothing else.")


def _link(config: Config, connection: Connection) -> Iterator[Finding]:
    host = urlsplit(config.database_url).hostname
    cipher = connection.exec_driver_sql("SHOW SESSION STATUS LIKE 'Ssl_cipher'").first()
    if host and not is_loopback_url(f"mysql://{host}") and not (cipher and cipher[1]):
        yield warning(
            "database",
            f"The link to {host} is not encrypted.",
            "Require TLS of the account: ALTER USER … REQUIRE SSL (docs/deployment.md).",
        )
