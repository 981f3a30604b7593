"""Checks of the doctor that concern the database: its version, settings, privileges, connections and encryption."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Literal
from urllib.parse import urlsplit

from msgspec import Struct
from sqlalchemy import Connection, text

from app.config import Config, is_loopback_url
from app.database import engines
from app.extensions import db
from app.models.base import Base
from app.operations.store.transactions import read
from app.rules.languages.translation import lazy_gettext as _

_MIN_VERSIONS = {"MariaDB": (10, 6), "MySQL": (8, 0), "SQLite": (3, 35)}
# Privileges that let a stolen account reach beyond its own tables.
_EXCESSIVE_PRIVILEGES = frozenset(
    (
        "SUPER",
        "READ ONLY ADMIN",
        "FILE",
        "PROCESS",
        "SHUTDOWN",
        "CREATE USER",
        "GRANT OPTION",
        "ALL PRIVILEGES",
    )
)
_CHANGES_SCHEMA = frozenset(("CREATE", "ALTER", "DROP", "INDEX", "REFERENCES", "ALL PRIVILEGES"))
_GRANT = re.compile(r"GRANT (?P<rights>.+?) ON (?P<object>.+?) TO (?P<account>\S+)(?P<options> .*)?$")
_VARIABLES = (
    "tx_isolation", "transaction_isolation", "time_zone", "sql_mode", "innodb_flush_log_at_trx_commit",
    "max_connections", "wsrep_on", "wsrep_sync_wait",
)  # fmt: skip


MEGABYTE = 1 << 20
TLS_PARAMETER = "?ssl_ca=/etc/gatehouse/database-ca.pem"


class Finding(Struct, frozen=True):
    """The result of one check; ``fix`` says what to do unless it is ok."""

    level: Literal["ok", "warning", "problem"]
    topic: str
    message: str
    fix: str = ""


def ok(topic: str, message: str) -> Finding:
    """Return a finding that needs no action."""
    return Finding("ok", topic, message)


def warning(topic: str, message: str, fix: str) -> Finding:
    """Return a finding that does not prevent operation but needs attention."""
    return Finding("warning", topic, message, fix)


def problem(topic: str, message: str, fix: str) -> Finding:
    """Return a finding that must be fixed before the service can be trusted."""
    return Finding("problem", topic, message, fix)


def check_database(config: Config) -> Iterator[Finding]:
    """Check a database that can be reached."""
    with engines()[0].connect() as connection:
        yield check_version(connection)
        if connection.dialect.name == "sqlite":
            yield from _sqlite_durability(connection)
            return
        values = {
            name: str(value)
            for name, value in connection.exec_driver_sql("SHOW SESSION VARIABLES")
            if name in _VARIABLES
        }
        yield from _session(values)
        yield _connections(config, int(values["max_connections"]))
        lines = [str(line) for line in connection.exec_driver_sql("SHOW GRANTS").scalars()]
        yield from check_grants(lines, str(connection.exec_driver_sql("SELECT DATABASE()").scalar_one()))
        yield from _check_encryption(config, connection)


def _product(connection: Connection) -> tuple[str, tuple[int, ...]]:
    if connection.dialect.name == "sqlite":
        return "SQLite", _numbers(str(connection.exec_driver_sql("SELECT sqlite_version()").scalar_one()))
    text = str(connection.exec_driver_sql("SELECT VERSION()").scalar_one())
    return ("MariaDB" if "mariadb" in text.lower() else "MySQL"), _numbers(text)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)[:3])


def check_version(connection: Connection) -> Finding:
    """Name the database and its version, and check that it is not too old."""
    product, version = _product(connection)
    shown = f"{product} {'.'.join(map(str, version))}"
    oldest = _MIN_VERSIONS[product]
    if version[:2] < oldest:
        return problem(
            "database",
            _("%(database)s is too old.", database=shown),
            _("Use %(database)s or newer.", database=f"{product} {oldest[0]}.{oldest[1]}"),
        )
    return ok("database", f"{shown}.")


def _sqlite_durability(connection: Connection) -> Iterator[Finding]:
    for pragma, expected, meaning in (
        ("journal_mode", "wal", "readers and the writer do not block each other"),
        ("synchronous", "2", "a power loss does not lose committed data"),
        ("foreign_keys", "1", "foreign keys are enforced"),
    ):
        value = str(connection.exec_driver_sql(f"PRAGMA {pragma}").scalar_one()).lower()
        if value == expected:
            yield ok("database", f"{pragma} = {value}: {meaning}.")
        else:
            yield problem(
                "database",
                f"{pragma} is {value}, not {expected}.",
                "Use a local disk that supports SQLite's WAL mode.",
            )


def _session(values: dict[str, str]) -> Iterator[Finding]:
    isolation = values.get("transaction_isolation") or values.get("tx_isolation", "")
    if isolation == "READ-COMMITTED":
        yield ok("database", "Isolation is READ COMMITTED.")
    else:
        yield problem(
            "database",
            f"Isolation is {isolation}.",
            "Allow the database account to set the isolation level of its session.",
        )
    if values["time_zone"] == "+00:00":
        yield ok("database", "Times are in UTC.")
    else:
        yield problem(
            "database",
            f"The session's time zone is {values['time_zone']}.",
            "Remove init_connect, or its time_zone.",
        )
    if "STRICT_TRANS_TABLES" not in values["sql_mode"]:
        yield problem(
            "database",
            "sql_mode is not strict, so values may be truncated.",
            "Remove init_connect, or its sql_mode.",
        )
    if values["innodb_flush_log_at_trx_commit"] == "1":
        yield ok("database", "Commits are durable.")
    else:
        yield warning(
            "database",
            "innodb_flush_log_at_trx_commit is not 1, so a power loss may forget that a code was used.",
            "SET GLOBAL innodb_flush_log_at_trx_commit = 1, and set it in the server's configuration.",
        )
    if values.get("wsrep_on", "OFF") != "ON":
        return
    if values.get("wsrep_sync_wait", "0") != "0":
        yield ok("cluster", "This is a Galera node, and reads wait for what other nodes committed.")
    else:
        yield warning(
            "cluster",
            "This is a Galera node, and reads do not wait: a revoked token may be accepted at another node.",
            "Unset GATEHOUSE_DATABASE_ENGINE, or set it to galera.",
        )


# The default of script/server --threads.
_THREADS = 8


def _connections(config: Config, allowed: int) -> Finding:
    # Each thread has a connection of its own. Of the two pools, one may temporarily double while the other is idle.
    wanted = 2 * (_THREADS + config.LATE_THREADS + 3 * config.database_pool)
    if allowed < wanted:
        return warning(
            "database",
            f"max_connections is {allowed}. Two workers may open {wanted}.",
            f"Raise max_connections above {wanted}, or lower GATEHOUSE_DATABASE_POOL.",
        )
    return ok("database", f"max_connections is {allowed}. Two workers may open {wanted}.")


def check_grants(lines: Iterable[str], database: str) -> Iterator[Finding]:
    """Judge what the lines of SHOW GRANTS allow in the database and everywhere.

    MariaDB lists the privileges of PUBLIC too. They are every account's, so they count like the account's own, but
    those on other databases, such as ``test``, do not concern this service.
    """
    found = [match for line in lines if (match := _GRANT.match(line)) and _covers(match["object"], database)]
    is_limited = True
    for is_public in (False, True):
        grants = [grant for grant in found if (grant["account"] == "PUBLIC") == is_public]
        account = (
            "Every account of the server (PUBLIC)" if is_public else "The database account of the service"
        )
        everywhere = {right for grant in grants if grant["object"] == "*.*" for right in _rights(grant)} - {
            "USAGE"
        }
        rights = {right for grant in grants for right in _rights(grant)}
        fix = (
            "Revoke privileges that are not needed: "
            + "; ".join(f"REVOKE {grant['rights']} ON {grant['object']} FROM PUBLIC" for grant in grants)
            if is_public
            else "Run migrations with another account, and grant this one only SELECT, INSERT, UPDATE, DELETE on its "
            "own database (docs/deployment.md)."
        )
        if everywhere:
            shown = sorted(everywhere & _EXCESSIVE_PRIVILEGES) or sorted(everywhere)
            message = f"{account} has these privileges on every database: {', '.join(shown)}."
            yield warning("rights", message, fix)
        elif rights & _CHANGES_SCHEMA:
            yield warning("rights", f"{account} may also change the schema.", fix)
        else:
            continue
        is_limited = False
    if is_limited:
        yield ok("rights", "The database account may only read and write rows of its own database.")


def _covers(name: str, database: str) -> bool:
    """Return whether the privileges on the object, whose database may be a LIKE pattern, concern the database."""
    if name == "*.*":
        return True
    quoted = re.match(r"(?:\w+ )*[`\"](.+?)[`\"]\.", name)
    if quoted is None:
        return False
    parts = re.findall(r"\\.|.", quoted[1])
    pattern = "".join({"%": ".*", "_": "."}.get(part) or re.escape(part[-1]) for part in parts)
    return re.fullmatch(pattern, database, re.IGNORECASE) is not None


def _rights(grant: re.Match[str]) -> list[str]:
    # Privileges on columns name them in parentheses.
    rights = re.sub(r" ?\([^)]*\)", "", grant["rights"]).split(", ")
    return [*rights, *(["GRANT OPTION"] if "GRANT OPTION" in (grant["options"] or "") else [])]


def _check_encryption(config: Config, connection: Connection) -> Iterator[Finding]:
    host = urlsplit(config.database_url).hostname
    cipher = connection.exec_driver_sql("SHOW SESSION STATUS LIKE 'Ssl_cipher'").first()
    if host and not is_loopback_url(f"mysql://{host}") and not (cipher and cipher[1]):
        yield warning(
            "database",
            f"The connection to {host} is not encrypted.",
            f"Add {TLS_PARAMETER} to DATABASE_URL, and require TLS for the account: ALTER USER … REQUIRE SSL.",
        )


_COLUMNS = {
    "mysql": text(
        "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = DATABASE()"
    ),
    "sqlite": text(
        "SELECT tables.name, columns.name FROM sqlite_master AS tables, pragma_table_info(tables.name) AS columns "
        "WHERE tables.type = 'table'"
    ),
}


@read
def list_missing_columns() -> tuple[str, ...]:
    """List what the database lacks, ``table`` or ``table.column``. A newer schema with more columns lacks nothing."""
    connection = db.session.connection()
    kind = "sqlite" if connection.dialect.name == "sqlite" else "mysql"
    found = {(str(table), str(column)) for table, column in connection.execute(_COLUMNS[kind])}
    tables = {table for table, _ in found}
    missing = []
    for table in Base.metadata.sorted_tables:
        if table.name not in tables:
            missing.append(table.name)
        else:
            missing += [
                f"{table.name}.{column.name}" for column in table.c if (table.name, column.name) not in found
            ]
    return tuple(missing)
