"""Every setting: its environment variable, type, unit, default and why. Unsafe values stop the start.

A setting ``database_url`` is read from ``DATABASE_URL``; the others carry the prefix ``GATEHOUSE_``. On the
loopback interface plain http is allowed and missing keys are made once; elsewhere neither is (BS-2, BS-4).
"""

from __future__ import annotations

import ipaddress
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlsplit

from flask import current_app

ROOT = Path(__file__).resolve().parent.parent
_GOOD_BASE_URL = "it must look like https://id.example.com, without user, path or query."
EXIT_CONFIGURATION = 78  # EX_CONFIG of sysexits.h


class UnsafeConfiguration(SystemExit):
    """The service must not start like this; the message says what to type. Exits with status 78."""

    def __init__(self, message: str) -> None:
        super().__init__(EXIT_CONFIGURATION)
        self.message = message

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True, slots=True)
class Setting:
    """One documented setting."""

    variable: str
    default: str
    meaning: str


SETTINGS = (
    Setting(
        "DATABASE_URL",
        "sqlite in the instance folder",
        "`mysql://user:password@host/database` (MySQL, MariaDB) or `sqlite:////path/file`.",
    ),
    Setting(
        "GATEHOUSE_BASE_URL",
        "http://127.0.0.1:8000",
        "The root issuer, the address people and programs use; https, except on the loopback interface.",
    ),
    Setting(
        "GATEHOUSE_INSTANCE", "instance", "The folder of the keys and of the embedded database; mode 0700."
    ),
    Setting(
        "GATEHOUSE_SECRET_KEY",
        "instance/secret.key",
        "Signs browser cookies, cursors and tags: 64 hexadecimal digits. `GATEHOUSE_SECRET_KEY_FILE` "
        "names a file instead.",
    ),
    Setting(
        "GATEHOUSE_MASTER_KEY",
        "instance/master.key",
        "Wraps the organizations' data keys: 64 hexadecimal digits; losing it loses sealed secrets "
        "and signing keys. `GATEHOUSE_MASTER_KEY_FILE` names a file instead.",
    ),
    Setting(
        "GATEHOUSE_PROXY_HOPS",
        "0",
        "How many reverse proxies in front set X-Forwarded-For and -Proto; headers beyond are ignored.",
    ),
    Setting(
        "GATEHOUSE_TRUSTED_HOSTS",
        "the host of the base URL",
        "Comma-separated further Host values that are answered; any other is refused with 400.",
    ),
    Setting("GATEHOUSE_LOG_LEVEL", "info", "debug, info, warning or error."),
    Setting("GATEHOUSE_REQUEST_LOG", "on", "One JSON line a request on standard error: on or off."),
    Setting(
        "GATEHOUSE_DATABASE_POOL",
        "5",
        "Connections a worker keeps for transactions; each thread has one more of its own.",
    ),
    Setting(
        "GATEHOUSE_DATABASE_TIMEOUT",
        "3",
        "Seconds a statement may take before the request is answered 503; 15 on a cluster, above its "
        "failover gap.",
    ),
    Setting(
        "GATEHOUSE_JANITOR",
        "on",
        "Whether one elected worker removes expired rows and renews signing keys: on or off.",
    ),
)


@dataclass(frozen=True, slots=True)
class Config:
    """The settings, read and checked."""

    database_url: str
    base_url: str
    instance: Path
    secret_key: bytes = field(repr=False)
    master_key: bytes = field(repr=False)
    proxy_hops: int
    trusted_hosts: tuple[str, ...]
    log_level: str
    request_log: bool
    database_pool: int
    database_timeout: int
    janitor: bool

    @property
    def is_loopback(self) -> bool:
        """Whether this is development on one machine."""
        return is_loopback_url(self.base_url)

    @property
    def is_https(self) -> bool:
        """Whether people reach the service by https, so that cookies are Secure."""
        return self.base_url.startswith("https://")

    @property
    def is_sqlite(self) -> bool:
        """Whether the embedded database is used."""
        return self.database_url.startswith("sqlite")

    def __repr__(self) -> str:
        return f"Config(base_url={self.base_url!r}, database={self.database_url.split(':', 1)[0]!r})"


def load(environ: Mapping[str, str] | None = None) -> Config:
    """The configuration of the process. Raises UnsafeConfiguration with what to type when it must not start."""
    env = os.environ if environ is None else environ
    base_url = env.get("GATEHOUSE_BASE_URL", "http://127.0.0.1:8000").rstrip("/")
    _check_base_url(base_url)
    _check_surroundings(env, base_url)
    instance = Path(env.get("GATEHOUSE_INSTANCE") or ROOT / "instance").resolve()
    host = urlsplit(base_url).hostname or ""
    further = tuple(
        part.strip() for part in env.get("GATEHOUSE_TRUSTED_HOSTS", "").split(",") if part.strip()
    )
    return Config(
        database_url=_database_url(env.get("DATABASE_URL", ""), instance),
        base_url=base_url,
        instance=instance,
        secret_key=_key(
            env, "GATEHOUSE_SECRET_KEY", instance / "secret.key", may_make=is_loopback_url(base_url)
        ),
        master_key=_key(
            env, "GATEHOUSE_MASTER_KEY", instance / "master.key", may_make=is_loopback_url(base_url)
        ),
        proxy_hops=_integer(env, "GATEHOUSE_PROXY_HOPS", 0, 0, 5),
        trusted_hosts=(
            host,
            *(("127.0.0.1", "localhost", "[::1]") if is_loopback_url(base_url) else ()),
            *further,
        ),
        log_level=_choice(env, "GATEHOUSE_LOG_LEVEL", "info", ("debug", "info", "warning", "error")),
        request_log=_choice(env, "GATEHOUSE_REQUEST_LOG", "on", ("on", "off")) == "on",
        database_pool=_integer(env, "GATEHOUSE_DATABASE_POOL", 5, 1, 50),
        database_timeout=_integer(env, "GATEHOUSE_DATABASE_TIMEOUT", 3, 1, 60),
        janitor=_choice(env, "GATEHOUSE_JANITOR", "on", ("on", "off")) == "on",
    )


def current() -> Config:
    """The configuration of the application that is at work; operations ask here and know no Flask."""
    return current_app.config["GATEHOUSE"]


def is_loopback_url(url: str) -> bool:
    """Whether the URL's host is this machine itself."""
    host = urlsplit(url).hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def make_key(path: Path) -> bytes:
    """A fresh 256-bit key in the file, mode 0600; the standing one when another process was first."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(secrets.token_hex(32) + "\n")
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(temporary, path)
    except FileExistsError:
        pass  # a link appears whole or not at all, and only for the first of several workers
    finally:
        os.unlink(temporary)
    return _read_key(path)


def _key(env: Mapping[str, str], variable: str, path: Path, *, may_make: bool) -> bytes:
    if variable in env:
        return _parse_key(env[variable], variable)
    named = env.get(f"{variable}_FILE")
    if named is not None:
        path = Path(named)
    if path.exists():
        return _read_key(path)
    if named is None and may_make:
        return make_key(path)
    raise UnsafeConfiguration(
        f"{variable} is missing: there is no file {path}. Create it once and keep a copy: "
        f"(umask 077; mkdir -p '{path.parent}'; openssl rand -hex 32 > '{path}')"
    )


def _read_key(path: Path) -> bytes:
    try:
        return _parse_key(path.read_text(), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise UnsafeConfiguration(
            f"The key file {path} cannot be read: {type(error).__name__}. Look at its owner and mode."
        ) from error


def _parse_key(text: str, source: str) -> bytes:
    try:
        key = bytes.fromhex(text.strip())
    except ValueError:
        key = b""
    # Repeated bytes and counted ones (000102…) are samples of documents; no random key looks so.
    steps = {(after - before) % 256 for before, after in pairwise(key)}
    if len(key) != 32 or len(set(key)) < 12 or len(steps) < 12:
        raise UnsafeConfiguration(f"{source} is no 256-bit random key. Make one: openssl rand -hex 32")
    return key


def _check_base_url(base_url: str) -> None:
    try:
        parts = urlsplit(base_url)
        is_plain = parts.geturl() == f"{parts.scheme}://{parts.netloc}" and parts.port != 0
    except ValueError:
        raise UnsafeConfiguration(f"GATEHOUSE_BASE_URL is {base_url!r}; {_GOOD_BASE_URL}") from None
    if parts.scheme not in {"http", "https"} or not parts.hostname or not is_plain or "@" in parts.netloc:
        raise UnsafeConfiguration(f"GATEHOUSE_BASE_URL is {base_url!r}; {_GOOD_BASE_URL}")
    if parts.scheme == "http" and not is_loopback_url(base_url):
        raise UnsafeConfiguration(
            f"GATEHOUSE_BASE_URL is {base_url!r}: plain http beyond this machine shows every secret. "
            f"Put TLS in front and set GATEHOUSE_BASE_URL=https://{parts.netloc}"
        )


def _check_surroundings(env: Mapping[str, str], base_url: str) -> None:
    if is_loopback_url(base_url):
        return
    # Authlib takes any text for yes, "0" too.
    for variable, harmless in (
        ("AUTHLIB_INSECURE_TRANSPORT", {""}),
        ("FLASK_DEBUG", {"", "0", "false", "no"}),
    ):
        if env.get(variable, "").lower() not in harmless:
            raise UnsafeConfiguration(
                f"{variable} is set; it is for development alone. Type: unset {variable}"
            )


def _database_url(given: str, instance: Path) -> str:
    if not given:
        instance.mkdir(mode=0o700, parents=True, exist_ok=True)
        return f"sqlite:///{instance / 'gatehouse.sqlite3'}"
    scheme, _, rest = given.partition("://")
    if scheme in {"mysql", "mariadb", "mysql+mysqldb", "mariadb+mysqldb"} and rest:
        return f"mysql+mysqldb://{rest}"
    if scheme == "sqlite" and rest:
        return given
    raise UnsafeConfiguration(
        f"DATABASE_URL names {scheme or 'nothing'!r}; it must begin with mysql://, mariadb:// or sqlite:///."
    )


def _integer(env: Mapping[str, str], variable: str, default: int, least: int, most: int) -> int:
    text = env.get(variable, str(default))
    if not text.isascii() or not text.isdigit() or not least <= int(text) <= most:
        raise UnsafeConfiguration(
            f"{variable} is {text!r}; it must be a whole number from {least} to {most}."
        )
    return int(text)


def _choice(env: Mapping[str, str], variable: str, default: str, allowed: tuple[str, ...]) -> str:
    text = env.get(variable, default).lower()
    if text not in allowed:
        raise UnsafeConfiguration(f"{variable} is {text!r}; it must be one of {', '.join(allowed)}.")
    return text
