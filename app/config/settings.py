"""All settings with their environment variable, default and meaning. The README has the same table."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from .instance import fault_of

EXIT_CONFIGURATION = 78  # EX_CONFIG of sysexits.h
_HOST = re.compile(r"([a-z0-9.-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?")
_GOOD_BASE_URL = "it must look like https://id.example.com, without user, path or query."


class UnsafeConfiguration(SystemExit):
    """Ends the start with exit status 78; the message says what to type."""

    def __init__(self, message: str) -> None:
        super().__init__(EXIT_CONFIGURATION)
        self.message = message

    def __str__(self) -> str:
        return self.message


def database_url(given: str, instance: Path) -> str:
    """Return SQLAlchemy's database URL; by default the embedded database in the instance folder."""
    if not given:
        try:
            instance.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise UnsafeConfiguration(str(fault_of(instance, error))) from error
        return f"sqlite:///{instance / 'gatehouse.sqlite3'}"
    scheme, _, rest = given.partition("://")
    if scheme in {"mysql", "mariadb", "mysql+mysqldb", "mariadb+mysqldb"} and rest:
        return f"mysql+mysqldb://{rest}"
    if scheme == "sqlite" and rest:
        return given
    raise UnsafeConfiguration(
        f"DATABASE_URL begins with {scheme or 'nothing'!r}. It must begin with mysql://, mariadb:// or sqlite:///."
    )


def integer(env: Mapping[str, str], variable: str, default: int, least: int, most: int) -> int:
    """Return an integer from ``least`` to ``most``."""
    text = env.get(variable, str(default))
    if not text.isascii() or not text.isdigit() or not least <= int(text) <= most:
        raise UnsafeConfiguration(
            f"{variable} is {text!r}. It must be a whole number from {least} to {most}."
        )
    return int(text)


def choice(env: Mapping[str, str], variable: str, default: str, allowed: tuple[str, ...]) -> str:
    """Return one of the allowed words, ignoring case."""
    text = env.get(variable, default).lower()
    if text not in allowed:
        raise UnsafeConfiguration(f"{variable} is {text!r}. It must be one of {', '.join(allowed)}.")
    return text


def choices(env: Mapping[str, str], variable: str, allowed: tuple[str, ...]) -> frozenset[str]:
    """Return the set named by a comma-separated list of allowed words."""
    named = frozenset(word.lower() for word in words(env, variable))
    if unknown := sorted(named - set(allowed)):
        raise UnsafeConfiguration(
            f"{variable} contains {unknown[0]!r}. Use a comma-separated list of: {', '.join(allowed)}."
        )
    return named


def words(env: Mapping[str, str], variable: str) -> tuple[str, ...]:
    """Return the items of a comma-separated list."""
    return tuple(part.strip() for part in env.get(variable, "").split(",") if part.strip())


def hosts(env: Mapping[str, str], variable: str) -> frozenset[str]:
    """Return the items of a comma-separated list of ``host`` or ``host:port``, in lower case."""
    named = frozenset(word.lower() for word in words(env, variable))
    for host in named:
        if not _HOST.fullmatch(host):
            raise UnsafeConfiguration(
                f"{variable} contains {host!r}. Use host or host:port, for example jwks.internal:8443."
            )
    return named


def file(env: Mapping[str, str], variable: str) -> Path | None:
    """Return the path of a readable file, or None when the variable is not set."""
    if not env.get(variable):
        return None
    path = Path(env[variable]).resolve()
    if not os.access(path, os.R_OK) or not path.is_file():
        raise UnsafeConfiguration(f"{variable} is {str(path)!r}, which is not a readable file.")
    return path


def is_loopback_url(url: str) -> bool:
    """Return whether the URL's host is a loopback address."""
    host = urlsplit(url).hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_base_url(base_url: str) -> None:
    """Raise UnsafeConfiguration unless the URL is https, or http on the loopback interface."""
    try:
        parts = urlsplit(base_url)
        is_plain = parts.geturl() == f"{parts.scheme}://{parts.netloc}" and parts.port != 0
    except ValueError:
        raise UnsafeConfiguration(f"GATEHOUSE_BASE_URL is {base_url!r}; {_GOOD_BASE_URL}") from None
    if parts.scheme not in {"http", "https"} or not parts.hostname or not is_plain or "@" in parts.netloc:
        raise UnsafeConfiguration(f"GATEHOUSE_BASE_URL is {base_url!r}; {_GOOD_BASE_URL}")
    if parts.scheme == "http" and not is_loopback_url(base_url):
        raise UnsafeConfiguration(
            f"GATEHOUSE_BASE_URL is {base_url!r}. Plain http exposes every secret on the network. "
            f"Put a TLS proxy in front and set GATEHOUSE_BASE_URL=https://{parts.netloc}"
        )


def check_surroundings(env: Mapping[str, str], base_url: str) -> None:
    """Raise UnsafeConfiguration for development switches on a service that others can reach (BS-4)."""
    if is_loopback_url(base_url):
        return
    # Authlib treats any value as true, even "0".
    for variable, harmless in (
        ("AUTHLIB_INSECURE_TRANSPORT", {""}),
        ("FLASK_DEBUG", {"", "0", "false", "no"}),
    ):
        if env.get(variable, "").lower() not in harmless:
            raise UnsafeConfiguration(
                f"{variable} is set, which is for development only. Type: unset {variable}"
            )


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
        "The public URL and root issuer; https, except on the loopback interface. Passkeys need a host name in it and "
        "are bound to that name. To try them locally, use `http://localhost:8000`.",
    ),
    Setting(
        "GATEHOUSE_INSTANCE", "instance", "The folder of the keys and the embedded database, with mode 0700."
    ),
    Setting(
        "GATEHOUSE_SECRET_KEY",
        "instance/secret.key",
        "Signs cookies, cursors and ETags: 64 hexadecimal digits. `GATEHOUSE_SECRET_KEY_FILE` names a file instead.",
    ),
    Setting(
        "GATEHOUSE_MASTER_KEY",
        "instance/master.key",
        "Wraps the organizations' data keys: 64 hexadecimal digits. If it is lost, sealed secrets and signing keys are "
        "lost. `GATEHOUSE_MASTER_KEY_FILE` names a file instead.",
    ),
    Setting(
        "GATEHOUSE_PREVIOUS_MASTER_KEY",
        "none",
        "The previous master key, until `flask --app wsgi keys rewrap` has finished. "
        "`GATEHOUSE_PREVIOUS_MASTER_KEY_FILE` names a file instead.",
    ),
    Setting(
        "GATEHOUSE_PROXY_HOPS",
        "0",
        "How many reverse proxies in front set X-Forwarded-For and X-Forwarded-Proto. Further entries are ignored.",
    ),
    Setting(
        "GATEHOUSE_TRUSTED_HOSTS",
        "the host of the base URL",
        "Comma-separated further Host values to accept. Any other is rejected with 400.",
    ),
    Setting("GATEHOUSE_LOG_LEVEL", "info", "debug, info, warning or error."),
    Setting("GATEHOUSE_REQUEST_LOG", "on", "Log one JSON line per request to standard error: on or off."),
    Setting(
        "GATEHOUSE_DATABASE_ENGINE",
        "auto",
        "How the database is replicated: `single`, `galera`, `group-replication`, `aurora`, or `auto`, which asks each "
        "server. On clusters reads wait for what other nodes committed before.",
    ),
    Setting(
        "GATEHOUSE_DATABASE_POOL",
        "5",
        "Database connections of a worker for transactions. Each thread has one more.",
    ),
    Setting(
        "GATEHOUSE_DATABASE_TIMEOUT",
        "3",
        "Seconds a statement may take before the request fails with 503. Use 15 on a cluster, more than its failover "
        "takes.",
    ),
    Setting(
        "GATEHOUSE_JANITOR",
        "on",
        "Whether this host takes part in deleting expired rows and rotating signing keys, for which leases elect "
        "workers: on or off.",
    ),
    Setting(
        "GATEHOUSE_BODY_TIMEOUT",
        "10",
        "Seconds that a request body may take to arrive, plus one second for each 8 KiB; at most 300. A slower request "
        "is rejected with 408.",
    ),
    Setting(
        "GATEHOUSE_DRAIN_SECONDS",
        "5; 0 on loopback",
        "Seconds between SIGTERM, when /readyz begins to answer 503, and the close of the port; at most 60. Set it to "
        "the time your load balancer needs to notice.",
    ),
    Setting(
        "GATEHOUSE_DISABLE_FAST_PATH",
        "none",
        "Comma-separated speed techniques to switch off: `middleware`, `compiled-queries`, `caches`, "
        "`authenticated-clients`, `preload` (app/fast_path/README.md).",
    ),
    Setting(
        "GATEHOUSE_OUTGOING_CA_BUNDLE",
        "the system's CAs",
        "A PEM file with the only CAs to trust for https requests to clients, for closed networks.",
    ),
    Setting(
        "GATEHOUSE_OUTGOING_ALLOWED_HOSTS",
        "none",
        "Comma-separated `host` or `host:port` of clients to contact although their IP address is private, or their "
        "port not one of the web.",
    ),
    Setting(
        "GATEHOUSE_SMTP_URL",
        "none",
        "The mail server: `smtp://user:password@host:587`, where STARTTLS is required except on the loopback "
        "interface, or `smtps://…`. `GATEHOUSE_SMTP_URL_FILE` names a file instead. Without one, administrators "
        "see the links and pass them on.",
    ),
    Setting("GATEHOUSE_MAIL_FROM", "none", "The sender's email address. Required with a mail server."),
    Setting(
        "GATEHOUSE_SMTP_CA_BUNDLE",
        "the system's CAs",
        "A PEM file with the only CAs to trust for the mail server.",
    ),
)
