"""Doctor: find problems of this installation and say how to fix them (BS-5). It never changes anything."""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from sqlalchemy import Connection, exc

from app.config import KEY_FILES, ROOT, Config, find_fault, find_wrapped, is_loopback_url
from app.database import engines
from app.operations.directory import lookups
from app.operations.maintenance.move import list_unconfirmed
from app.operations.maintenance.schema import list_missing_columns
from app.operations.store import checkpoints, clock, keyring
from app.operations.store.outgoing_http import count_certificate_authorities
from app.rules.errors import DomainError
from app.rules.languages.translation import lazy_gettext as _
from app.rules.sealing import UnsealError

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

_MEGABYTE = 1 << 20
_TLS_PARAMETER = "?ssl_ca=/etc/gatehouse/database-ca.pem"
# Several machines may write to these file systems without seeing each other's locks.
_SHARED_FILE_SYSTEMS = ("nfs", "cifs", "smb", "ceph", "gluster", "fuse.sshfs", "9p", "lustre")
_PROBE = "doctor"


@dataclass(frozen=True, slots=True)
class Finding:
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
    """Check everything status a database that can be reached."""
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
            "Revoke what nobody else needs: "
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
            f"Add {_TLS_PARAMETER} to DATABASE_URL, and require TLS for the account: ALTER USER … REQUIRE SSL.",
        )


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All findings of a run."""

    findings: tuple[Finding, ...]

    @property
    def is_healthy(self) -> bool:
        """Return whether there are no problems. Warnings are allowed."""
        return all(finding.level != "problem" for finding in self.findings)


def run_checks(config: Config) -> Diagnosis:
    """Run all checks of this installation, in the order in which problems should be fixed."""
    findings = [
        *_check_urls(config),
        *_check_key_files(config),
        *_check_certificate_authorities(config),
        *check_disk(config),
    ]
    reachable = _check_connection()
    findings.append(reachable)
    if reachable.level == "ok":
        checks: tuple[Callable[[Config], Iterator[Finding]], ...] = (
            check_database, _check_migrations, check_clock, _check_master_key, _check_secret_key, _check_moves,
            _check_sqlite,
        )  # fmt: skip
        for check in checks:
            findings.extend(check(config))
    return Diagnosis(tuple(findings))


def has_pending_migrations() -> bool:
    """Return whether the schema is older than this release's. A newer schema is compatible."""
    # Workers import this module too but do not need Alembic, which takes eleven megabytes.
    from alembic.config import Config as AlembicConfig
    from alembic.runtime.migration import MigrationContext
    from alembic.script import ScriptDirectory

    # Set the folder instead of reading alembic.ini, whose log settings would replace those of the service.
    settings = AlembicConfig()
    settings.set_main_option("script_location", str(ROOT / "migrations"))
    with engines()[0].connect() as connection:
        current = set(MigrationContext.configure(connection).get_current_heads())
    scripts = ScriptDirectory.from_config(settings)
    known = {script.revision for script in scripts.walk_revisions()}
    return current <= known and current != set(scripts.get_heads())


def _check_urls(config: Config) -> Iterator[Finding]:
    if config.is_loopback:
        yield ok("address", f"{config.base_url} is the loopback interface, for development.")
        if config.proxy_hops:
            yield warning(
                "address",
                f"GATEHOUSE_PROXY_HOPS is {config.proxy_hops}, but the base URL is the loopback interface.",
                "Set GATEHOUSE_BASE_URL to the public URL, or unset GATEHOUSE_PROXY_HOPS.",
            )
        return
    yield ok("address", f"The public URL is {config.base_url}.")
    if not config.proxy_hops:
        yield warning(
            "proxy",
            "https is used and GATEHOUSE_PROXY_HOPS is 0. If a proxy terminates TLS, all requests appear to come from "
            "the proxy, and rate limits by network affect everyone at once.",
            "Set GATEHOUSE_PROXY_HOPS to the number of proxies in front (docs/deployment.md).",
        )
    for variable in ("AUTHLIB_INSECURE_TRANSPORT", "FLASK_DEBUG"):
        if os.environ.get(variable, "0") not in {"", "0", "false"}:
            yield problem("address", f"{variable} is set.", f"unset {variable}")


def _check_key_files(config: Config) -> Iterator[Finding]:
    for variable, default in KEY_FILES.items():
        if default is None:
            continue
        if (wrapped := find_wrapped(os.environ, variable, config.instance)) is not None:
            yield ok("keys", f"{variable} is wrapped by {wrapped[0]}, which unwrapped it just now.")
        elif variable in os.environ:
            yield ok("keys", f"{variable} is set in the environment, 256 bits.")
        else:
            yield from _check_private_file(
                Path(os.environ.get(f"{variable}_FILE") or config.instance / default)
            )
    prints = [keyring.fingerprint(key) for key in (config.secret_key, config.master_key)]
    yield ok(
        "keys",
        f"Fingerprints: secret key {prints[0]}, master key {prints[1]}. They are the same on every host.",
    )
    if config.secret_key == config.master_key:
        yield problem(
            "keys",
            "The secret key and the master key are the same.",
            "Give GATEHOUSE_SECRET_KEY a key of its own: openssl rand -hex 32",
        )


def _check_private_file(path: Path) -> Iterator[Finding]:
    if not path.exists():
        yield warning(
            "keys",
            f"{path} does not exist any more. The key was read before it was deleted.",
            "Restore it from the backup.",
        )
        return
    status = path.stat()
    if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        yield problem(
            "keys",
            f"Other users can read {path} (mode {stat.S_IMODE(status.st_mode):04o}).",
            f"chmod 600 '{path}'",
        )
    elif status.st_uid != os.geteuid():
        yield warning(
            "keys", f"{path} belongs to another user than this process.", f"chown {os.geteuid()} '{path}'"
        )
    else:
        yield ok("keys", f"{path} is readable only by its owner, 256 bits.")


def _check_certificate_authorities(config: Config) -> Iterator[Finding]:
    path = config.outgoing_ca_bundle
    if path is None:
        return
    fix = f"Put readable PEM certificates into {path}, or unset GATEHOUSE_OUTGOING_CA_BUNDLE."
    try:
        count = count_certificate_authorities(path)
    except OSError:
        yield problem("outgoing", f"{path} cannot be read, so no server of a client is trusted.", fix)
    except ValueError:
        yield problem(
            "outgoing", f"{path} contains no PEM certificates, so no server of a client is trusted.", fix
        )
    else:
        if count:
            yield ok("outgoing", f"{path} has {count} certificate authorities for servers of clients.")
        else:
            yield problem(
                "outgoing",
                f"{path} contains no certificate authority, so no server of a client is trusted.",
                fix,
            )


def check_disk(config: Config) -> Iterator[Finding]:
    """Check that the instance folder can be written and has space."""
    if (fault := find_fault(config.instance)) is not None:
        yield problem("disk", fault.problem, fault.fix)
        return
    free = shutil.disk_usage(config.instance).free // _MEGABYTE
    fix = _("Free up space on the file system of %(folder)s.", folder=config.instance)
    if free < 100:
        yield problem("disk", _("%(size)s MB are free.", size=free), fix)
    elif free < 1024:
        yield warning("disk", _("%(size)s MB are free.", size=free), fix)
    else:
        yield ok("disk", _("%(size)s GB are free.", size=free // 1024))


def _check_connection() -> Finding:
    try:
        with engines()[0].connect():
            return ok("database", "The database can be reached.")
    except (exc.DBAPIError, exc.TimeoutError) as error:
        cause = getattr(error, "orig", None) or error
        return problem(
            "database",
            f"The database cannot be reached: {cause}",
            "Start it, and check DATABASE_URL: host, account, password. An account that requires TLS (REQUIRE SSL) "
            f"needs {_TLS_PARAMETER} at its end.",
        )


def _check_migrations(_config: Config) -> Iterator[Finding]:
    if has_pending_migrations():
        yield problem("migrations", "The schema is not up to date.", "flask --app wsgi db upgrade")
    elif missing := list_missing_columns():
        yield problem(
            "migrations",
            f"The database has the newest migration but lacks {', '.join(missing[:10])}.",
            "It was made by another version of a migration. Compare it with a new database, and add what is missing.",
        )
    else:
        yield ok("migrations", "The schema is up to date.")


def check_clock(_config: Config) -> Iterator[Finding]:
    """Compare this machine's clock with the database's, which decides what has expired."""
    offset = abs(clock.offset().total_seconds())
    if offset > 2:
        yield warning(
            "clock",
            _(
                "This machine and the database differ by %(seconds)s seconds. Stored times and tokens use the clock of"
                " the database, log lines that of this machine.",
                seconds=f"{offset:.1f}",
            ),
            _("Run a time service on both: apt-get install systemd-timesyncd"),
        )
    else:
        yield ok(
            "clock",
            _(
                "This machine and the database agree within %(seconds)s seconds.",
                seconds=f"{max(offset, 0.01):.2f}",
            ),
        )


def _check_master_key(config: Config) -> Iterator[Finding]:
    try:
        root = lookups.get_root_organization()
        keyring.unseal(root.id, keyring.seal(root.id, b"probe", _PROBE), _PROBE)
    except UnsealError:
        yield problem(
            "keys",
            "The master key does not match this database.",
            f"Restore the matching master key from the backup ({config.instance / 'master.key'}).",
        )
    except DomainError:
        yield warning("set-up", "This instance is not set up yet.", "flask --app wsgi setup")
    except (exc.DBAPIError, engines()[1].dialect.loaded_dbapi.Error):
        # Compiled queries call the driver directly, so they raise its own errors.
        yield warning("keys", "Not checked: the tables are missing.", "flask --app wsgi db upgrade")
    else:
        yield ok("keys", "The master key matches this database.")
        if keyring.has_previous_master_key():
            yield warning(
                "keys",
                "A previous master key is configured. Some data keys may still be wrapped with it.",
                "flask --app wsgi keys rewrap, then unset GATEHOUSE_PREVIOUS_MASTER_KEY on every host.",
            )


def _check_secret_key(config: Config) -> Iterator[Finding]:
    try:
        other = checkpoints.find_other_secret_key()
    except (exc.DBAPIError, engines()[1].dialect.loaded_dbapi.Error):
        return
    if other is not None:
        yield problem(
            "keys",
            f"Another server of this database uses the secret key {other}. Users are signed out whenever their "
            "requests reach the other host.",
            "Give all hosts the same secret key (docs/operations/keys.md).",
        )


def _check_moves(_config: Config) -> Iterator[Finding]:
    try:
        waiting = list_unconfirmed()
    except exc.DBAPIError:
        return
    for slug, cell in waiting:
        yield problem(
            "cells",
            f"{slug} was given to {cell}, which has not confirmed that it serves it.",
            f"gatehouse organizations move {slug} --to {cell} (docs/operations/cells.md).",
        )


def _check_sqlite(config: Config) -> Iterator[Finding]:
    if not config.is_sqlite:
        return
    if not config.is_loopback:
        yield warning(
            "database",
            "SQLite supports only one host, and writes wait for each other.",
            "For several hosts or more than 100 sign-ins per second, set DATABASE_URL to MySQL or MariaDB.",
        )
    path = Path(config.database_url.removeprefix("sqlite:///"))
    system = _file_system(path)
    if system is not None and system.startswith(_SHARED_FILE_SYSTEMS):
        yield problem(
            "database",
            f"{path} is on {system}, a shared file system on which SQLite loses data.",
            "Move it to a local disk, or set DATABASE_URL to MySQL or MariaDB.",
        )


def _file_system(path: Path) -> str | None:
    """Return the type of the file system that contains the path, if the system tells."""
    mounts = Path("/proc/self/mounts")
    if not mounts.exists():
        return None
    best = ("", "")
    for line in mounts.read_text().splitlines():
        _, point, kind, *_ = line.split(" ")
        if path.resolve().is_relative_to(point) and len(point) >= len(best[0]):
            best = (point, kind)
    return best[1]
