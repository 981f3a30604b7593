"""Doctor: find problems of this installation and say how to fix them (BS-5). It never changes anything."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

from msgspec import Struct
from sqlalchemy import exc

from app.config import (
    EXIT_UNAVAILABLE,
    KEY_FILES,
    ROOT,
    Config,
    UnsafeConfiguration,
    command_line,
    find_fault,
    find_wrapped,
)
from app.database import engines
from app.operations.directory import lookups
from app.operations.maintenance.database_checks import (
    MEGABYTE,
    TLS_PARAMETER,
    Finding,
    check_database,
    list_missing_columns,
    ok,
    problem,
    warning,
)
from app.operations.maintenance.decided_moves import list_unconfirmed
from app.operations.store import checkpoints, clock, keyring
from app.operations.store.outgoing_http import count_certificate_authorities
from app.rules.errors import DomainError
from app.rules.languages.translation import lazy_gettext as _
from app.rules.sealing import UnsealError

# Several machines may write to these file systems without seeing each other's locks.
_SHARED_FILE_SYSTEMS = ("nfs", "cifs", "smb", "ceph", "gluster", "fuse.sshfs", "9p", "lustre")
_PROBE = "doctor"


class Diagnosis(Struct, frozen=True):
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


class DatabaseUnavailable(UnsafeConfiguration):
    """The database cannot be reached; exit status 75, so that a supervisor starts the process again."""

    exit_status: ClassVar[int] = EXIT_UNAVAILABLE


def require_database() -> None:
    """Raise DatabaseUnavailable, with what to check, if no connection can be opened."""
    finding = _check_connection()
    if finding.level != "ok":
        raise DatabaseUnavailable(f"{finding.message}. {finding.fix}")


def has_schema() -> bool:
    """Return whether the database has been migrated before, to any release."""
    from alembic.runtime.migration import MigrationContext

    with engines()[0].connect() as connection:
        return bool(MigrationContext.configure(connection).get_current_heads())


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
    free = shutil.disk_usage(config.instance).free // MEGABYTE
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
    # The driver raises a TypeError for a parameter of the URL that it does not know.
    except (exc.DBAPIError, exc.TimeoutError, TypeError) as error:
        cause = getattr(error, "orig", None) or error
        return problem(
            "database",
            f"The database cannot be reached: {cause}",
            "Start it, and check DATABASE_URL: host, account, password. An account that requires TLS (REQUIRE SSL) "
            f"needs {TLS_PARAMETER} at its end.",
        )


def _check_migrations(_config: Config) -> Iterator[Finding]:
    if has_pending_migrations():
        yield problem("migrations", "The schema is not up to date.", command_line("db upgrade"))
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
        yield warning("set-up", "This instance is not set up yet.", command_line("setup"))
    except (exc.DBAPIError, engines()[1].dialect.loaded_dbapi.Error):
        # Compiled queries call the driver directly, so they raise its own errors.
        yield warning("keys", "Not checked: the tables are missing.", command_line("db upgrade"))
    else:
        yield ok("keys", "The master key matches this database.")
        if keyring.has_previous_master_key():
            yield warning(
                "keys",
                "A previous master key is configured. Some data keys may still be wrapped with it.",
                f"{command_line('keys rewrap')}, then unset GATEHOUSE_PREVIOUS_MASTER_KEY on every host.",
            )


def _check_secret_key(config: Config) -> Iterator[Finding]:
    try:
        other = checkpoints.find_other_secret_key()
    except (exc.DBAPIError, engines()[1].dialect.loaded_dbapi.Error):
        return
    if other is not None:
        yield problem(
            "keys",
            f"Another server of this database uses the secret key {other}. Forms and sign-ins fail whenever "
            "their requests reach the other host.",
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
            f"{command_line(f'organizations move {slug} --to {cell}')} (docs/operations/cells.md).",
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
    """Return the type of the file system that contains the path, if it is known."""
    mounts = Path("/proc/self/mounts")
    if not mounts.exists():
        return None
    best = ("", "")
    for line in mounts.read_text().splitlines():
        _, point, kind, *_ = line.split(" ")
        if path.resolve().is_relative_to(point) and len(point) >= len(best[0]):
            best = (point, kind)
    return best[1]
