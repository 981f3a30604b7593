"""Configuration: keys are generated where that is safe, and unsafe values stop the start with status 78."""

from __future__ import annotations

import os
import secrets
import sqlite3
import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from app import create_app
from app.config import EXIT_CONFIGURATION, UnsafeConfiguration, load, make_key, require_instance
from app.extensions import db
from tests.support.cases import each

GOOD_KEY = secrets.token_hex(32)


def production(folder: Path, **changes: str | None) -> dict[str, str]:
    """Return a valid production environment with the changes; None removes a variable."""
    good: dict[str, str | None] = {
        "GATEHOUSE_BASE_URL": "https://id.example.com",
        "GATEHOUSE_INSTANCE": str(folder),
        "GATEHOUSE_SECRET_KEY": GOOD_KEY,
        "GATEHOUSE_MASTER_KEY": secrets.token_hex(32),
        "DATABASE_URL": "mysql://gatehouse:x@db.example/gatehouse",
    }
    return {name: value for name, value in (good | changes).items() if value is not None}


def refusal(environ: dict[str, str]) -> str:
    with pytest.raises(UnsafeConfiguration) as refused:
        load(environ)
    assert refused.value.code == EXIT_CONFIGURATION == 78
    return str(refused.value)


def test_valid_configuration_is_accepted(tmp_path: Path) -> None:
    config = load(production(tmp_path))
    assert (config.base_url, config.is_https, config.is_loopback) == ("https://id.example.com", True, False)
    assert config.database_url == "mysql+mysqldb://gatehouse:x@db.example/gatehouse"
    assert config.trusted_hosts == ("id.example.com",)
    assert list(tmp_path.iterdir()) == [], "BS-2: no key is made outside of development"


def test_keys_are_generated_once_in_development(tmp_path: Path) -> None:
    """BS-2: on the loopback interface, with mode 0600, and the same at the next start."""
    environ = {"GATEHOUSE_INSTANCE": str(tmp_path / "instance")}
    first, second = load(environ), load(environ)
    assert (first.secret_key, first.master_key) == (second.secret_key, second.master_key)
    assert first.secret_key != first.master_key and len(first.secret_key) == 32
    for name in ("secret.key", "master.key"):
        assert stat.S_IMODE((tmp_path / "instance" / name).stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "instance").stat().st_mode) == 0o700
    assert sorted(path.name for path in (tmp_path / "instance").iterdir()) == ["master.key", "secret.key"]


@pytest.mark.parametrize("before", [None, 0o644])
def test_sqlite_files_are_private(tmp_path: Path, before: int | None) -> None:
    """KY-7: the database and the files beside it, whatever the umask, also those of an earlier release."""
    file = tmp_path / "gatehouse.sqlite3"
    if before is not None:
        sqlite3.connect(file).execute("PRAGMA journal_mode = WAL").connection.close()
        file.chmod(before)
    environ = {"GATEHOUSE_INSTANCE": str(tmp_path / "instance"), "DATABASE_URL": f"sqlite:///{file}"}
    application = create_app(load(environ), commands=False)
    umask = os.umask(0o022)
    try:
        with application.app_context(), db.engine.begin() as connection:
            connection.exec_driver_sql("CREATE TABLE t (a)")
            modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.glob("*sqlite3*")}
    finally:
        os.umask(umask)
    assert modes == dict.fromkeys([file.name, f"{file.name}-shm", f"{file.name}-wal"], 0o600)


def test_new_sqlite_database_is_opened_while_another_process_writes_to_it(tmp_path: Path) -> None:
    """SQLite refuses the change of the journal mode at once: its own timeout does not apply."""
    file = tmp_path / "gatehouse.sqlite3"
    environ = {"GATEHOUSE_INSTANCE": str(tmp_path / "instance"), "DATABASE_URL": f"sqlite:///{file}"}
    with (
        create_app(load(environ), commands=False).app_context(),
        closing(sqlite3.connect(file, isolation_level=None, check_same_thread=False)) as other,
    ):
        other.execute("BEGIN IMMEDIATE")
        threading.Timer(0.3, other.execute, ["ROLLBACK"]).start()
        with db.engine.connect() as connection:
            assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"


def test_sqlite_database_is_shared_with_other_processes(tmp_path: Path) -> None:
    """A new connection must not release the locks of the others: the next process would delete their log."""
    file = tmp_path / "gatehouse.sqlite3"
    environ = {"GATEHOUSE_INSTANCE": str(tmp_path / "instance"), "DATABASE_URL": f"sqlite:///{file}"}
    code = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('INSERT INTO t VALUES (1)'); c.commit()"
    with create_app(load(environ), commands=False).app_context():
        with db.engine.begin() as connection:
            connection.exec_driver_sql("CREATE TABLE t (a)")
        first = db.engine.raw_connection()
        for rows in (1, 2):
            db.engine.raw_connection().close()
            db.engine.dispose()
            db.engine.raw_connection().close()
            subprocess.run([sys.executable, "-c", code, str(file)], check=True)
            count = first.cursor().execute("SELECT count(*) FROM t").fetchone()
            assert count == (rows,)
        first.close()


def test_workers_starting_together_share_one_key(tmp_path: Path) -> None:
    """BS-2."""
    with ThreadPoolExecutor(20) as pool:
        keys = set(pool.map(lambda _: make_key(tmp_path / "instance" / "secret.key"), range(60)))
    assert len(keys) == 1
    assert [path.name for path in (tmp_path / "instance").iterdir()] == ["secret.key"], "nothing is left over"


@pytest.mark.parametrize("name", ["GATEHOUSE_SECRET_KEY", "GATEHOUSE_MASTER_KEY"])
def test_missing_key_is_rejected_with_the_command_to_type(tmp_path: Path, name: str) -> None:
    """BS-2, BS-4."""
    message = refusal(production(tmp_path, **{name: None}))
    assert name in message
    command = message[message.index("(umask") :]
    subprocess.run(["bash", "-c", command], check=True)
    assert load(production(tmp_path, **{name: None})).is_https


def test_key_can_be_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(GOOD_KEY + "\n")
    changes = {"GATEHOUSE_SECRET_KEY": None, "GATEHOUSE_SECRET_KEY_FILE": str(file)}
    assert load(production(tmp_path, **changes)).secret_key == bytes.fromhex(GOOD_KEY)
    file.unlink()
    assert str(file) in refusal(production(tmp_path, **changes))
    loopback = {"GATEHOUSE_BASE_URL": "http://localhost", "GATEHOUSE_MASTER_KEY": GOOD_KEY} | changes
    assert str(file) in refusal(production(tmp_path, **loopback)), "a file that was named is never made"


def test_unreadable_file_stops_the_start(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_bytes(b"\xff\xfe\x00")
    for path in (tmp_path, broken):
        changes = {"GATEHOUSE_SECRET_KEY": None, "GATEHOUSE_SECRET_KEY_FILE": str(path)}
        assert str(path) in refusal(production(tmp_path, **changes))


WEAK = {
    "empty": "",
    "a word": "secret",
    "Flask's example": "dev",
    "128 bits": "0123456789abcdef" * 2,
    "512 bits": secrets.token_hex(64),
    "all zero": "00" * 32,
    "one byte": "ab" * 32,
    "two bytes": "abcd" * 16,
    "a pattern of eight": "0123456789abcdef" * 4,
    "counted up": bytes(range(32)).hex(),
    "counted up from elsewhere": bytes(range(100, 132)).hex(),
    "counted down": bytes(range(31, -1, -1)).hex(),
    "counted in fives": bytes((5 * number) % 256 for number in range(32)).hex(),
    "not hexadecimal": "z" * 64,
    "base64": "3q2+7w" * 8,
}


@each("name", ["GATEHOUSE_SECRET_KEY", "GATEHOUSE_MASTER_KEY"])
@each("key", WEAK.values(), ids=WEAK.keys())
def test_weak_key_is_rejected(tmp_path: Path, name: str, key: str) -> None:
    """BS-3: in development too, and the message does not show the key."""
    for base_url in ("https://id.example.com", "http://127.0.0.1:8000"):
        message = refusal(production(tmp_path, GATEHOUSE_BASE_URL=base_url, **{name: key}))
        assert name in message and (not key or key not in message)


def test_random_keys_are_accepted(tmp_path: Path) -> None:
    for _ in range(500):
        load(production(tmp_path, GATEHOUSE_SECRET_KEY=secrets.token_hex(32)))


@each(
    "url",
    [
        "http://id.example.com",
        "http://10.0.0.1",
        "http://127.0.0.1.example.com",
        "http://localhost.example.com",
        "http://0.0.0.0:8000",
        "https://id.example.com/auth",
        "https://id.example.com?x=1",
        "https://id.example.com#x",
        "https://user:password@id.example.com",
        "https://@id.example.com",
        "ftp://id.example.com",
        "id.example.com",
        "https://",
        "https://[::1",
        "https://id.example.com:port",
        "https://id.example.com:99999",
        "https://id.example.com\\x",
        "https://[::1%lo]",
        "https://\u2047.example",
        "https://id.example.08",
        "https://256.1.1.1",
        "https://1.2.3.4.5",
        "https://1..2",
        "https://1_0.1",
        "https://-1.1",
        "https://[::1%25eth0]",
        "",
    ],
)
def test_base_url_that_is_no_valid_issuer_is_rejected(tmp_path: Path, url: str) -> None:
    """BS-4, TR-1."""
    assert "GATEHOUSE_BASE_URL" in refusal(production(tmp_path, GATEHOUSE_BASE_URL=url))


@each(
    "url, spelled",
    [
        ("HTTPS://ID.Example.com", "https://id.example.com"),
        ("https://id.example.com:443/", "https://id.example.com"),
        ("https://id.example.com:", "https://id.example.com"),
        ("https://id.example.com:08443", "https://id.example.com:8443"),
        ("http://localhost:80", "http://localhost"),
        ("http://[0:0::1]:8000", "http://[::1]:8000"),
        ("https://Bücher.example", "https://xn--bcher-kva.example"),
        ("https://127.1", "https://127.0.0.1"),
        ("https://0x7F.1:8443", "https://127.0.0.1:8443"),
        ("http://２130706433.", "http://127.0.0.1"),
        ("https://10.010.0x.1", "https://10.8.0.1"),
    ],
)
def test_base_url_is_written_as_browsers_do(tmp_path: Path, url: str, spelled: str) -> None:
    """MX-2."""
    assert refusal(production(tmp_path, GATEHOUSE_BASE_URL=url)).endswith(f"Set GATEHOUSE_BASE_URL={spelled}")


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost:8000",
        "http://127.0.0.1",
        "http://127.8.9.1:1",
        "http://[::1]:8000",
        "https://localhost",
    ],
)
def test_loopback_base_url_means_development(tmp_path: Path, url: str) -> None:
    config = load(production(tmp_path, GATEHOUSE_BASE_URL=url, GATEHOUSE_SECRET_KEY=None))
    assert config.is_loopback and config.base_url == url


def test_trailing_slash_is_removed_from_the_issuer(tmp_path: Path) -> None:
    """MX-2."""
    assert (
        load(production(tmp_path, GATEHOUSE_BASE_URL="https://id.example.com/")).base_url
        == "https://id.example.com"
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [("AUTHLIB_INSECURE_TRANSPORT", text) for text in ("1", "true", "0", "false")]
    + [("FLASK_DEBUG", text) for text in ("1", "true", "True", "yes", "on")],
)
def test_development_settings_are_rejected_in_production(tmp_path: Path, name: str, value: str) -> None:
    """BS-4: Authlib accepts any text as true."""
    assert name in refusal(production(tmp_path, **{name: value}))
    load(production(tmp_path, GATEHOUSE_BASE_URL="http://localhost", **{name: value}))


@each(
    ("name", "value"),
    [
        ("GATEHOUSE_PROXY_HOPS", "-1"),
        ("GATEHOUSE_PROXY_HOPS", "6"),
        ("GATEHOUSE_PROXY_HOPS", "one"),
        ("GATEHOUSE_PROXY_HOPS", ""),
        ("GATEHOUSE_PROXY_HOPS", "٣"),
        ("GATEHOUSE_DATABASE_POOL", "0"),
        ("GATEHOUSE_DATABASE_TIMEOUT", "61"),
        ("GATEHOUSE_LOG_LEVEL", "loud"),
        ("GATEHOUSE_REQUEST_LOG", "perhaps"),
        ("GATEHOUSE_JANITOR", "1"),
        ("GATEHOUSE_OUTGOING_CA_BUNDLE", "/nowhere/ca.pem"),
        ("GATEHOUSE_OUTGOING_CA_BUNDLE", "/"),
        ("GATEHOUSE_OUTGOING_ALLOWED_HOSTS", "https://app.internal"),
        ("GATEHOUSE_OUTGOING_ALLOWED_HOSTS", "app.internal,*.internal"),
        ("GATEHOUSE_OUTGOING_ALLOWED_HOSTS", "10.0.0.0/8"),
        ("GATEHOUSE_TRUSTED_HOSTS", "https://balancer.internal"),
        ("GATEHOUSE_TRUSTED_HOSTS", "*"),
        ("DATABASE_URL", "postgresql://x/y"),
        ("DATABASE_URL", "gatehouse.sqlite3"),
        ("DATABASE_URL", "mysql://"),
        ("DATABASE_URL_FILE", "/nowhere/database.url"),
        ("GATEHOUSE_SECURITY_CONTACT", "security@example.com"),
        ("GATEHOUSE_SECURITY_CONTACT", "mailto:security@example.com,http://example.com"),
        ("DATABASE_REPLICA_URL", "sqlite:////replica"),
        ("DATABASE_REPLICA_URL", "mysql://"),
    ],
)
def test_value_out_of_bounds_is_rejected_by_name(tmp_path: Path, name: str, value: str) -> None:
    assert name in refusal(production(tmp_path, **{name: value}))


def test_replica_needs_a_database_server(tmp_path: Path) -> None:
    servers = {
        "DATABASE_URL": "mysql://u@db/gatehouse",
        "DATABASE_REPLICA_URL": "mariadb://u@replica/gatehouse",
    }
    assert load(production(tmp_path, **servers)).database_replica_url == "mysql+mysqldb://u@replica/gatehouse"
    assert load(production(tmp_path)).database_replica_url is None
    without = servers | {"DATABASE_URL": "sqlite:////gatehouse"}
    assert "unset DATABASE_REPLICA_URL" in refusal(production(tmp_path, **without))


def test_private_hosts_and_authorities_can_be_allowed(tmp_path: Path) -> None:
    bundle = tmp_path / "ca.pem"
    bundle.write_text("-----BEGIN CERTIFICATE-----")
    config = load(
        production(
            tmp_path,
            GATEHOUSE_OUTGOING_CA_BUNDLE=str(bundle),
            GATEHOUSE_OUTGOING_ALLOWED_HOSTS=" App.internal, keys.internal:8443,[fd00::5]:443 ",
        )
    )
    assert config.outgoing_ca_bundle == bundle
    assert config.outgoing_allowed_hosts == {"app.internal", "keys.internal:8443", "[fd00::5]:443"}
    trusted = load(
        production(tmp_path, GATEHOUSE_TRUSTED_HOSTS="Balancer.internal, 10.0.0.7:8000")
    ).trusted_hosts
    assert trusted == ("id.example.com", "10.0.0.7:8000", "balancer.internal")
    assert load(production(tmp_path)).outgoing_allowed_hosts == frozenset()


@each(
    ("url", "shown"),
    [
        ("gatehouse:hunter2@db.example/gatehouse", "has no scheme"),
        ("mysql:gatehouse:hunter2@db.example", "has no scheme"),
        ("hunter2", "has no scheme"),
        ("gatehouse:hunter2@db.example://x", "has no scheme"),
        ("postgresql+psycopg://gatehouse:hunter2@db/x", "begins with postgresql+psycopg://."),
    ],
)
def test_malformed_database_url_reveals_no_password(tmp_path: Path, url: str, shown: str) -> None:
    """LG-1."""
    told = refusal(production(tmp_path, DATABASE_URL=url))
    assert shown in told and "hunter2" not in told


@each(
    ("url", "shown"),
    [
        ("mysql://gatehouse:hunter2@db.example", "mysql://user:password@host:3306/database"),
        ("mysql://gatehouse:hunter2@db.example:33x/gatehouse", "mysql://user:password@host:3306/database"),
        ("mysql://gatehouse:hunter2@x@db.example/gatehouse", "@ as %40"),
        ("sqlite:///:memory:", "name a database"),
    ],
)
def test_database_url_that_cannot_be_used_is_rejected_with_a_good_one(
    tmp_path: Path, url: str, shown: str
) -> None:
    told = refusal(production(tmp_path, DATABASE_URL=url))
    assert shown in told and "hunter2" not in told


def test_relative_sqlite_file_is_in_the_instance_folder(tmp_path: Path) -> None:
    """The folder of a release, in which Flask would create it, is replaced by that of the next one."""
    loaded = load(production(tmp_path, DATABASE_URL="sqlite:///data.sqlite3"))
    assert loaded.database_url == f"sqlite:///{loaded.instance / 'data.sqlite3'}"


def test_database_url_may_be_in_a_file(tmp_path: Path) -> None:
    named = tmp_path / "database.url"
    named.write_text("mysql://gatehouse:x@db.example/gatehouse\n")
    changes = {"DATABASE_URL": None, "DATABASE_URL_FILE": str(named)}
    assert load(production(tmp_path, **changes)).database_url == load(production(tmp_path)).database_url
    require_instance({"DATABASE_URL_FILE": str(named)})
    # Otherwise the service would create an embedded database instead.
    for content, fault in ((b"\n", "is empty"), (b"mysql://gatehouse:\xfc@db", "is not text in UTF-8")):
        named.write_bytes(content)
        assert fault in refusal(production(tmp_path, **changes))


@pytest.mark.parametrize(
    "variable", ["DATABASE_URL", "GATEHOUSE_SECRET_KEY", "GATEHOUSE_MASTER_KEY", "GATEHOUSE_SMTP_URL"]
)
def test_value_from_two_sources_is_rejected(tmp_path: Path, variable: str) -> None:
    both = {variable: "value", f"{variable}_FILE": str(tmp_path / "file")}
    assert f"Both {variable} and {variable}_FILE are set" in refusal(production(tmp_path, **both))


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("smtp://mail.example.com", ("mail.example.com", 587, "starttls", None, None)),
        ("smtp://ada:a%40b@mail.example.com:25", ("mail.example.com", 25, "starttls", "ada", "a@b")),
        ("smtps://mail.example.com", ("mail.example.com", 465, "tls", None, None)),
        ("smtp://127.0.0.1:25", ("127.0.0.1", 25, "none", None, None)),
    ],
)
def test_mail_server_needs_tls_except_on_loopback(tmp_path: Path, url: str, told: tuple[object, ...]) -> None:
    sender = {"GATEHOUSE_MAIL_FROM": "Gatehouse@Example.com"}
    server = load(production(tmp_path, GATEHOUSE_SMTP_URL=url, **sender)).mail_server
    assert server is not None
    assert (server.host, server.port, server.security, server.user, server.password) == told
    assert server.sender == "gatehouse@example.com"
    assert "a@b" not in repr(server)
    named = tmp_path / "smtp.url"
    named.write_text(f"{url}\n")
    assert load(production(tmp_path, GATEHOUSE_SMTP_URL_FILE=str(named), **sender)).mail_server == server


def test_domain_of_the_sender_may_end_with_a_label_that_begins_with_a_digit(tmp_path: Path) -> None:
    sender = {"GATEHOUSE_SMTP_URL": "smtp://127.0.0.1", "GATEHOUSE_MAIL_FROM": "a@office.2nd"}
    server = load(production(tmp_path, **sender)).mail_server
    assert server is not None and server.sender == "a@office.2nd"


@pytest.mark.parametrize(
    "changes",
    [
        {"GATEHOUSE_SMTP_URL": "http://ada:s3cret@mail.example.com"},
        {"GATEHOUSE_SMTP_URL": "smtp://ada:s3cret@mail.example.com:x"},
        {"GATEHOUSE_SMTP_URL": "smtp://"},
        {"GATEHOUSE_SMTP_URL": "smtp://ada:s3cret@mail.example.com/path"},
        {"GATEHOUSE_MAIL_FROM": None},
        {"GATEHOUSE_MAIL_FROM": "nobody"},
        {"GATEHOUSE_MAIL_FROM": "müller@example.com"},
        {"GATEHOUSE_MAIL_FROM": "a@192.0.2.1"},
        {"GATEHOUSE_MAIL_FROM": f"{'a' * 65}@example.com"},
        {"GATEHOUSE_MAIL_FROM": "a@example.com\nBcc: b@example.com"},
    ],
)
def test_invalid_mail_server_stops_the_start(tmp_path: Path, changes: dict[str, str | None]) -> None:
    good = {
        "GATEHOUSE_SMTP_URL": "smtp://ada:s3cret@mail.example.com",
        "GATEHOUSE_MAIL_FROM": "a@example.com",
    }
    assert "s3cret" not in refusal(production(tmp_path, **(good | changes)))
