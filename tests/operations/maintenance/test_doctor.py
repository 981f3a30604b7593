"""The doctor: a valid installation is healthy, and each problem says how to fix it (BS-5)."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import MySQLdb
import pytest
from flask import Flask
from sqlalchemy.exc import OperationalError

from app import config, create_app
from app.cli.maintenance import before_serving
from app.config import Config, UnsafeConfiguration
from app.database import node_connector, replica_engine
from app.operations.maintenance import decided_moves, doctor, move
from app.operations.maintenance.database_checks import Finding, _connections, _session, check_grants
from app.operations.maintenance.doctor import Diagnosis, run_checks
from app.operations.store import checkpoints, clock, keyring
from tests.factories import Factory
from tests.support.cases import each
from tests.support.databases import Database, MariaDBDatabase
from tests.support.https_server import Response, https_server
from tests.support.mariadb import MariaDB


def write(database: Database, statement: str) -> None:
    with closing(database.connect()) as connection:
        connection.cursor().execute(statement)


def wrong(diagnosis: Diagnosis) -> list[Finding]:
    return [finding for finding in diagnosis.findings if finding.level != "ok"]


@pytest.fixture
def own(context: Flask, tmp_path: Path) -> Callable[..., Config]:
    """Return the configuration under test with a separate instance folder and changes."""
    made: Config = context.config["GATEHOUSE"]
    for name, key in (("secret.key", made.secret_key), ("master.key", made.master_key)):
        (tmp_path / name).write_text(key.hex())
        (tmp_path / name).chmod(0o600)

    def change(**changes: Any) -> Config:
        return dataclasses.replace(made, **({"instance": tmp_path} | changes))

    return change


def test_valid_installation_is_healthy(context: Flask, make: Factory, own: Callable[..., Config]) -> None:
    make.root()
    diagnosis = run_checks(own())
    assert diagnosis.is_healthy, wrong(diagnosis)
    # The test's database account is the server's own administrator, which the doctor says.
    assert {finding.topic for finding in wrong(diagnosis)} <= {"rights"}


def test_each_problem_says_how_to_fix_it(context: Flask, own: Callable[..., Config]) -> None:
    config = own(base_url="https://id.example.com", proxy_hops=0)
    for finding in wrong(run_checks(config)):
        assert finding.fix, finding


def found(diagnosis: Diagnosis, words: str) -> Finding:
    (finding,) = [finding for finding in wrong(diagnosis) if words in finding.message]
    return finding


def test_readable_key_file_is_a_problem(context: Flask, own: Callable[..., Config]) -> None:
    config = own()
    (config.instance / "master.key").chmod(0o644)
    finding = found(run_checks(config), "Other users can read")
    assert (finding.level, finding.fix) == ("problem", f"chmod 600 '{config.instance / 'master.key'}'")


def test_same_key_for_two_purposes_is_a_problem(context: Flask, own: Callable[..., Config]) -> None:
    config = own()
    assert (
        found(run_checks(dataclasses.replace(config, secret_key=config.master_key)), "the same").level
        == "problem"
    )


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "cannot be read"), ("", "contains no"), ("no certificate", "contains no PEM certificates")],
)
def test_invalid_ca_bundle_is_a_problem(
    context: Flask, own: Callable[..., Config], tmp_path: Path, content: str | None, words: str
) -> None:
    """The file may have been deleted or overwritten since the start."""
    path = tmp_path / "authorities.pem"
    if content is not None:
        path.write_text(content)
    finding = found(run_checks(own(outgoing_ca_bundle=path)), words)
    assert finding.level == "problem" and "GATEHOUSE_OUTGOING_CA_BUNDLE" in finding.fix


def test_valid_ca_bundle_is_ok(context: Flask, own: Callable[..., Config]) -> None:
    with https_server(lambda request: Response(200)) as server:
        findings = run_checks(own(outgoing_ca_bundle=server.ca_path)).findings
    assert [f.level for f in findings if f.topic == "outgoing"] == ["ok"]
    assert not [f for f in run_checks(own(outgoing_ca_bundle=None)).findings if f.topic == "outgoing"]


def test_missing_setup_is_a_warning(context: Flask, own: Callable[..., Config]) -> None:
    assert found(run_checks(own()), "not set up").level == "warning"


def test_wrong_master_key_is_a_problem(context: Flask, make: Factory, own: Callable[..., Config]) -> None:
    make.root()
    changed = own(master_key=os.urandom(32))
    before = context.config["GATEHOUSE"]
    context.config["GATEHOUSE"] = changed
    try:
        finding = found(run_checks(changed), "does not match")
    finally:
        context.config["GATEHOUSE"] = before
    assert finding.level == "problem"


def test_wrong_proxy_hops_are_a_warning(context: Flask, own: Callable[..., Config]) -> None:
    behind = run_checks(own(base_url="https://id.example.com", proxy_hops=0))
    assert found(behind, "GATEHOUSE_PROXY_HOPS is 0").level == "warning"
    assert found(run_checks(own(proxy_hops=2)), "loopback").level == "warning"


def test_wrong_clock_is_a_warning(
    context: Flask, own: Callable[..., Config], monkeypatch: pytest.MonkeyPatch
) -> None:
    from datetime import timedelta

    monkeypatch.setattr(clock, "offset", lambda: timedelta(seconds=-7))
    assert "7.0 seconds" in found(run_checks(own()), "differ by").message


def test_full_disk_is_a_problem(
    context: Flask, own: Callable[..., Config], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 50 << 20}))
    assert found(run_checks(own()), "50 MB").level == "problem"


def test_sqlite_on_shared_file_system_is_a_problem(
    context: Flask, own: Callable[..., Config], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = own(
        database_url="sqlite:////data/gatehouse.sqlite3", base_url="https://id.example.com", proxy_hops=1
    )
    assert found(run_checks(config), "only one host").level == "warning"
    monkeypatch.setattr(doctor, "_file_system", lambda path: "nfs4")
    assert found(run_checks(config), "nfs4").level == "problem"


def test_excessive_database_privileges_are_a_warning(
    app: Flask, make: Factory, own: Callable[..., Config], database: Database
) -> None:
    messages = {finding.message for finding in run_checks(own()).findings if finding.topic == "rights"}
    if isinstance(database, MariaDBDatabase):
        # MariaDB names all of them in two words, MySQL one by one.
        assert any("ALL PRIVILEGES" in message or "SUPER" in message for message in messages)
    else:
        assert messages == set()


ROWS = "GRANT SELECT, INSERT, UPDATE, DELETE ON `gatehouse`.* TO `gatehouse`@`%`"
USAGE = "GRANT USAGE ON *.* TO `gatehouse`@`%` IDENTIFIED BY PASSWORD '*D8' REQUIRE SSL"


@each(
    ("lines", "words"),
    [
        ([USAGE, ROWS], "may only read and write rows"),
        # The first two are those of every new MariaDB 10.11.
        ([USAGE, ROWS, "GRANT ALL PRIVILEGES ON `test`.* TO PUBLIC"], "may only read and write rows"),
        ([USAGE, ROWS, "GRANT CREATE, DROP ON `test\\_%`.* TO PUBLIC"], "may only read and write rows"),
        ([USAGE, ROWS, "GRANT CREATE ON `other`.* TO `gatehouse`@`%`"], "may only read and write rows"),
        ([USAGE, ROWS.replace("DELETE", "DELETE, INDEX")], "service may also change the schema"),
        (
            [USAGE, "GRANT ALL PRIVILEGES ON `gate%`.* TO `gatehouse`@`%`"],
            "service may also change the schema",
        ),
        ([USAGE, ROWS, "GRANT ALTER ON `gatehouse`.* TO PUBLIC"], "(PUBLIC) may also change the schema"),
        ([USAGE, ROWS, "GRANT PROCESS ON *.* TO PUBLIC"], "(PUBLIC) has these privileges on every database"),
        (["GRANT SELECT, SUPER ON *.* TO `gatehouse`@`%`"], "every database: SUPER."),
        (["GRANT SELECT ON *.* TO `gatehouse`@`%`"], "every database: SELECT."),
        (["GRANT SELECT ON *.* TO `gatehouse`@`%` WITH GRANT OPTION"], "every database: GRANT OPTION."),
    ],
)
def test_grants_are_judged_by_what_they_allow_here(lines: list[str], words: str) -> None:
    (finding,) = check_grants(lines, "gatehouse")
    assert words in finding.message
    assert (finding.level == "ok") == ("only" in words)
    assert ("FROM PUBLIC" in finding.fix) == ("PUBLIC" in words)


GOOD_SESSION = {
    "tx_isolation": "READ-COMMITTED",
    "time_zone": "+00:00",
    "sql_mode": "STRICT_TRANS_TABLES",
    "innodb_flush_log_at_trx_commit": "1",
}


@each(
    ("name", "value", "words"),
    [
        ("tx_isolation", "REPEATABLE-READ", "Isolation is REPEATABLE-READ"),
        ("time_zone", "SYSTEM", "time zone is SYSTEM"),
        ("sql_mode", "", "not strict"),
        ("innodb_flush_log_at_trx_commit", "2", "power loss"),
        ("wsrep_on", "ON", "reads do not wait"),
    ],
)
def test_wrong_session_variable_is_reported(name: str, value: str, words: str) -> None:
    assert all(finding.level == "ok" for finding in _session(GOOD_SESSION))
    (finding,) = [finding for finding in _session(GOOD_SESSION | {name: value}) if finding.level != "ok"]
    assert words in finding.message


def test_too_few_connections_are_a_warning(own: Callable[..., Config]) -> None:
    assert _connections(own(database_pool=50), 151).level == "warning"
    assert _connections(own(database_pool=5), 151).level == "ok"


def test_other_secret_key_of_another_server_is_a_problem(
    context: Flask, make: Factory, own: Callable[..., Config], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only while that server serves, so that the key can be replaced."""
    make.root()
    checkpoints.advance()
    serving, other = context.config["GATEHOUSE"], own(secret_key=os.urandom(32))
    with monkeypatch.context() as due:
        due.setattr(checkpoints, "INTERVAL", timedelta(0))
        checkpoints.advance()
    assert run_checks(own()).is_healthy
    monkeypatch.setitem(context.config, "GATEHOUSE", other)
    other_key = keyring.fingerprint(serving.secret_key)
    assert found(run_checks(other), f"uses the secret key {other_key}").level == "problem"
    monkeypatch.setattr(checkpoints, "INTERVAL", timedelta(0))
    assert checkpoints.find_other_secret_key() is None


def test_unconfirmed_move_is_a_problem(context: Flask, make: Factory, own: Callable[..., Config]) -> None:
    make.root()
    acme = make.organization("acme")
    move._decide(acme.id, "cell-b", move._pause(acme.id, 3600))
    [found] = [finding for finding in wrong(run_checks(own())) if finding.topic == "cells"]
    assert "move acme --to cell-b" in found.fix
    decided_moves.confirm(acme.id)
    assert not [finding for finding in run_checks(own()).findings if finding.topic == "cells"]


def test_unreachable_database_is_one_finding(tmp_path: Path) -> None:
    settings = config.load({"GATEHOUSE_INSTANCE": str(tmp_path), "DATABASE_URL": "mysql://x:y@127.0.0.1:1/z"})
    with create_app(settings).app_context():
        diagnosis = run_checks(settings)
    assert found(diagnosis, "cannot be reached").level == "problem"
    assert "?ssl_ca=" in found(diagnosis, "cannot be reached").fix
    assert not diagnosis.is_healthy


@pytest.mark.parametrize("parameters", ["", "?sslca=/etc/gatehouse/database-ca.pem"])
def test_start_and_migration_without_a_database_say_what_to_check(tmp_path: Path, parameters: str) -> None:
    url = f"mysql://x:y@127.0.0.1:1/z{parameters}"
    app = create_app(config.load({"GATEHOUSE_INSTANCE": str(tmp_path), "DATABASE_URL": url}))
    with app.app_context(), pytest.raises(UnsafeConfiguration, match="host, account, password") as ended:
        before_serving()
    assert ended.value.code == 75, "a supervisor tries again"
    migrated = app.test_cli_runner().invoke(args=["db", "upgrade"])
    assert migrated.exit_code == 1 and "host, account, password" in str(migrated.exception)


@pytest.mark.slow
def test_account_that_may_not_change_the_schema_is_told_the_command(tmp_path: Path, mariadb: MariaDB) -> None:
    mariadb.create_database("unmigrated")
    mariadb.execute("DROP USER IF EXISTS served@localhost")
    mariadb.execute("CREATE USER served@localhost IDENTIFIED BY 'secret'")
    mariadb.execute("GRANT SELECT, INSERT, UPDATE, DELETE ON unmigrated.* TO served@localhost")
    url = mariadb.url("unmigrated").replace(f"gatehouse:{mariadb.password}", "served:secret")
    app = create_app(config.load({"GATEHOUSE_INSTANCE": str(tmp_path), "DATABASE_URL": url}))
    with (
        app.app_context(),
        pytest.raises(SystemExit, match=r"may not change it.*flask --app wsgi db upgrade"),
    ):
        before_serving()
    listed = app.test_cli_runner().invoke(args=["users", "list", "--organization", "acme"])
    assert listed.exit_code == 1 and "Type: flask --app wsgi db upgrade" in listed.stderr


@pytest.mark.skipif(bool(MariaDB.mysql), reason="MySQL offers TLS with a certificate that it creates itself")
@pytest.mark.parametrize("parameters", ["ssl_ca=/etc/ssl/certs/ca-certificates.crt", "ssl_mode=REQUIRED"])
def test_database_without_tls_is_not_used_if_the_url_demands_it(
    tmp_path: Path, mariadb: MariaDB, parameters: str
) -> None:
    """Otherwise anyone in between could read everything by not offering it."""
    mariadb.create_database("without_tls")
    urls = dict.fromkeys(
        ("DATABASE_URL", "DATABASE_REPLICA_URL"), f"{mariadb.tcp_url('without_tls')}?{parameters}"
    )
    settings = config.load({"GATEHOUSE_INSTANCE": str(tmp_path)} | urls)
    with create_app(settings).app_context():
        assert "does not offer TLS" in found(run_checks(settings), "cannot be reached").message
        replica = replica_engine()
        assert replica is not None
        with pytest.raises(OperationalError, match="does not offer TLS"):
            replica.connect()
        with pytest.raises(MySQLdb.OperationalError, match="does not offer TLS"):
            node_connector()("127.0.0.1", mariadb.port)


def test_newer_schema_is_ok(context: Flask, database: Database) -> None:
    """After a downgrade, the older code works with the newer schema and must not migrate it."""
    ours = database.query("SELECT version_num FROM alembic_version")[0][0]
    move = "UPDATE alembic_version SET version_num = "
    write(database, f"{move}'9999'")
    try:
        assert not doctor.has_pending_migrations()
        write(database, f"{move}'0001'")
        assert doctor.has_pending_migrations()
    finally:
        write(database, f"{move}'{ours}'")


@pytest.mark.slow
def test_old_schema_is_a_problem(tmp_path: Path) -> None:
    settings = config.load({"GATEHOUSE_INSTANCE": str(tmp_path)})
    with create_app(settings).app_context():
        assert doctor.has_pending_migrations()
        assert found(run_checks(settings), "schema").fix == "flask --app wsgi db upgrade"


@pytest.mark.parametrize("key", ["", "00" * 32, "ab" * 32, "0123456789abcdef" * 2, "changeme", "x" * 64])
def test_weak_key_stops_the_start(key: str, tmp_path: Path) -> None:
    with pytest.raises(UnsafeConfiguration) as refusal:
        config.load({"GATEHOUSE_INSTANCE": str(tmp_path), "GATEHOUSE_MASTER_KEY": key})
    assert "openssl rand -hex 32" in str(refusal.value)
    assert refusal.value.code == 78
