"""Doctor: what is wrong with this installation, and how to mend it (BS-5). Reads and never changes anything."""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from sqlalchemy import Connection, exc

from app.config import ROOT, Config, is_loopback_url
from app.database import engines
from app.operations.directory import lookups
from app.operations.store import clock, keyring
from app.operations.store.outgoing_http import count_certificate_authorities
from app.rules.errors import DomainError
from app.rules.sealing import UnsealError

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


_MEGABYTE = 1 << 20
# A file on these may be written by several machines whose locks do not reach each other.
_SHARED_FILE_SYSTEMS = ("nfs", "cifs", "smb", "ceph", "gluster", "fuse.sshfs", "9p", "lustre")
_PROBE = "doctor"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All findings; healthy when none of them is wrong."""

    findings: tuple[Finding, ...]

    @property
    def is_healthy(self) -> bool:
        """Nothing is wrong; warnings may stand."""
        return all(finding.level != "wrong" for finding in self.findings)


def examine(config: Config) -> Diagnosis:
    """Every check of this installation, in the order in which they are mended."""
    findings = [*_addresses(config), *_key_files(config), *_authorities(config), *_disk(config)]
    reachable = _reachable()
    findings.append(reachable)
    if reachable.level == "fine":
        checks: tuple[Callable[[Config], Iterator[Finding]], ...] = (
            database_findings, _migrations, _clock, _master_key, _sqlite
        )  # fmt: skip
        for check in checks:
            findings.extend(check(config))
    return Diagnosis(tuple(findings))


def pending_migrations() -> bool:
    """Whether the database's schema is older than this release's. One of a later release is not: it fits this one."""
    # Workers import this module too, and have no other use for Alembic and its eleven megabytes.
    from alembic.config import Config as AlembicConfig
    from alembic.runtime.migration import MigrationContext
    from alembic.script import ScriptDirectory

    # The folder is named rather than alembic.ini, whose log settings would replace ours.
    settings = AlembicConfig()
    settings.set_main_option("script_location", str(ROOT / "migrations"))
    with engines()[0].connect() as connection:
        standing = set(MigrationContext.configure(connection).get_current_heads())
    scripts = ScriptDirectory.from_config(settings)
    known = {script.revision for script in scripts.walk_revisions()}
    return standing <= known and standing != set(scripts.get_heads())


def _addresses(config: Config) -> Iterator[Finding]:
    if config.is_loopback:
        yield fine("address", f"{config.base_url} is this machine itself: development.")
        if config.proxy_hops:
            yield warning(
                "address",
                f"GATEHOUSE_PROXY_HOPS is {config.proxy_hops}, but the base URL is the loopback interface.",
                "Set GATEHOUSE_BASE_URL to the address that people use, or unset GATEHOUSE_PROXY_HOPS.",
            )
        return
    yield fine("address", f"People reach {config.base_url} by https.")
    if not config.proxy_hops:
        yield warning(
            "proxy",
            "https is used and GATEHOUSE_PROXY_HOPS is 0: if a proxy ends TLS, every address seen is the proxy's, "
            "and limits by network hit everybody at once.",
            "Set GATEHOUSE_PROXY_HOPS to the number of proxies in front (docs/deployment.md).",
        )
    for variable in ("AUTHLIB_INSECURE_TRANSPORT", "FLASK_DEBUG"):
        if os.environ.get(variable, "0") not in {"", "0", "false"}:
            yield wrong("address", f"{variable} is set.", f"unset {variable}")


def _key_files(config: Config) -> Iterator[Finding]:
    for variable, default in (
        ("GATEHOUSE_SECRET_KEY", config.instance / "secret.key"),
        ("GATEHOUSE_MASTER_KEY", config.instance / "master.key"),
    ):
        if variable in os.environ:
            yield fine("keys", f"{variable} is given by the environment; 256 bits.")
            continue
        yield from _private_file(Path(os.environ.get(f"{variable}_FILE") or default))
    if config.secret_key == config.master_key:
        yield wrong(
            "keys",
            "Secret key and master key are the same.",
            "Give GATEHOUSE_SECRET_KEY a key of its own: openssl rand -hex 32",
        )


def _private_file(path: Path) -> Iterator[Finding]:
    if not path.exists():
        yield warning(
            "keys", f"{path} is not there; the key was read before it went.", "Restore it from the backup."
        )
        return
    about = path.stat()
    if about.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        yield wrong(
            "keys", f"Others can read {path} (mode {stat.S_IMODE(about.st_mode):04o}).", f"chmod 600 '{path}'"
        )
    elif about.st_uid != os.geteuid():
        yield warning(
            "keys", f"{path} belongs to another user than this process.", f"chown {os.geteuid()} '{path}'"
        )
    else:
        yield fine("keys", f"{path} is readable by its owner alone; 256 bits.")


def _authorities(config: Config) -> Iterator[Finding]:
    path = config.outgoing_ca_bundle
    if path is None:
        return
    mend = (
        f"Put PEM certificates there that this user may read, or unset GATEHOUSE_OUTGOING_CA_BUNDLE: {path}"
    )
    try:
        count = count_certificate_authorities(path)
    except OSError:
        yield wrong("outgoing", f"{path} cannot be read: no server of a client is believed.", mend)
    except ValueError:
        yield wrong(
            "outgoing", f"{path} holds no certificates in PEM: no server of a client is believed.", mend
        )
    else:
        if count:
            yield fine("outgoing", f"Servers of clients are believed by {count} authorities of {path}.")
        else:
            yield wrong("outgoing", f"{path} holds no authority: no server of a client is believed.", mend)


def _disk(config: Config) -> Iterator[Finding]:
    free = shutil.disk_usage(config.instance if config.instance.exists() else ROOT).free // _MEGABYTE
    mend = f"Make room on the file system of {config.instance}."
    if free < 100:
        yield wrong("disk", f"{free} MB are free.", mend)
    elif free < 1024:
        yield warning("disk", f"{free} MB are free.", mend)
    else:
        yield fine("disk", f"{free // 1024} GB are free.")


def _reachable() -> Finding:
    try:
        with engines()[0].connect():
            return fine("database", "It can be reached.")
    except (exc.DBAPIError, exc.TimeoutError) as error:
        cause = getattr(error, "orig", None) or error
        return wrong(
            "database",
            f"It cannot be reached: {cause}",
            "Start it, and check DATABASE_URL: host, account, password.",
        )


def _migrations(_config: Config) -> Iterator[Finding]:
    if pending_migrations():
        yield wrong("migrations", "The schema is not this release's.", "flask --app wsgi db upgrade")
    else:
        yield fine("migrations", "The schema is this release's.")


def _clock(_config: Config) -> Iterator[Finding]:
    offset = abs(clock.offset().total_seconds())
    if offset > 2:
        yield warning(
            "clock",
            f"This machine and the database differ by {offset:.1f} seconds. Stored times follow the database; "
            "JWTs follow this machine.",
            "Run a time service on both: apt-get install systemd-timesyncd",
        )
    else:
        yield fine("clock", f"This machine and the database agree within {max(offset, 0.01):.2f} seconds.")


def _master_key(config: Config) -> Iterator[Finding]:
    try:
        root = lookups.get_root_organization()
        keyring.unseal(root.id, keyring.seal(root.id, b"probe", _PROBE), _PROBE)
    except UnsealError:
        yield wrong(
            "keys",
            "The master key is not the one that this database's keys are wrapped with.",
            f"Restore the master key that belongs to this database ({config.instance / 'master.key'} of its backup).",
        )
    except DomainError:
        yield warning("set-up", "This installation was not set up yet.", "flask --app wsgi setup")
    except (exc.DBAPIError, engines()[1].dialect.loaded_dbapi.Error):
        # Single statements speak to the driver themselves, so its own error is what they raise.
        yield warning("keys", "Not checked: the tables are missing.", "flask --app wsgi db upgrade")
    else:
        yield fine("keys", "The master key opens what this database holds.")
        if keyring.has_previous_master_key():
            yield warning(
                "keys",
                "A previous master key is configured: some data keys may still be wrapped with it.",
                "flask --app wsgi keys rewrap, then unset GATEHOUSE_PREVIOUS_MASTER_KEY on every host.",
            )


def _sqlite(config: Config) -> Iterator[Finding]:
    if not config.is_sqlite:
        return
    if not config.is_loopback:
        yield warning(
            "database",
            "SQLite serves one host: a second one must not share its file, and every write waits for the one before.",
            "For more than one host or 100 sign-ins a second set DATABASE_URL to MySQL or MariaDB.",
        )
    path = Path(config.database_url.removeprefix("sqlite:///"))
    system = _file_system(path)
    if system is not None and system.startswith(_SHARED_FILE_SYSTEMS):
        yield wrong(
            "database",
            f"{path} lies on {system}, which several hosts may write: SQLite loses data there.",
            "Move it to a local disk, or set DATABASE_URL to MySQL or MariaDB.",
        )


def _file_system(path: Path) -> str | None:
    """The type of the file system that holds the path, where the system tells."""
    mounts = Path("/proc/self/mounts")
    if not mounts.exists():
        return None
    best = ("", "")
    for line in mounts.read_text().splitlines():
        _, point, kind, *_ = line.split(" ")
        if path.resolve().is_relative_to(point) and len(point) >= len(best[0]):
            best = (point, kind)
    return best[1]
