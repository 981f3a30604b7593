"""All settings with their environment variable, default and meaning. The README has the same table."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar
from urllib.parse import SplitResult, urlsplit

import idna
from msgspec import Struct

from .instance import fault_of

EXIT_CONFIGURATION = 78  # EX_CONFIG of sysexits.h
EXIT_UNAVAILABLE = 75  # EX_TEMPFAIL
_HOST = re.compile(r"([a-z0-9._-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?")
# A host whose last label looks like a number is an IPv4 address to browsers (WHATWG URL, section 3.5).
_NUMERIC_HOST = re.compile(r"(?:^|\.)(?:[0-9]+|0x[0-9a-f]*)\.?$")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+]{0,30}")
_CONTACT = re.compile(r"(mailto:[!-~]+@[!-~]+|https://[!-~]+|tel:[+0-9.()-]+)")
_GOOD_BASE_URL = "it must look like https://id.example.com, without user, path or query."


class UnsafeConfiguration(SystemExit):
    """Ends the start with exit status 78; the message says what to type."""

    exit_status: ClassVar[int] = EXIT_CONFIGURATION

    def __init__(self, message: str) -> None:
        super().__init__(self.exit_status)
        self.message = message

    def __str__(self) -> str:
        return self.message


def database_url(given: str, instance: Path) -> str:
    """Return SQLAlchemy's database URL; by default the embedded database in the instance folder.

    A relative path of SQLite begins there too. Raises UnsafeConfiguration with a message that does not contain the
    value, because the password is in it.
    """
    scheme, _, rest = given.partition("://")
    is_relative = scheme == "sqlite" and rest[:1] == "/" and not rest.startswith(("//", "/:memory:"))
    relative_file = rest[1:] if is_relative else ""
    if not given or relative_file:
        try:
            instance.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise UnsafeConfiguration(str(fault_of(instance, error))) from error
        return f"sqlite:///{instance / (relative_file or 'gatehouse.sqlite3')}"
    if scheme in {"mysql", "mariadb", "mysql+mysqldb", "mariadb+mysqldb"} and rest:
        return _mysql_url("DATABASE_URL", rest)
    if scheme == "sqlite" and rest.startswith("//"):
        return given
    # Without a scheme in front, any part of the value may be the password.
    is_shown = "://" in given and _SCHEME.fullmatch(scheme) is not None
    begin = f"begins with {scheme}://" if is_shown else "has no scheme"
    raise UnsafeConfiguration(
        f"DATABASE_URL {begin}. It must begin with mysql://, mariadb:// or sqlite:///, and name a database."
    )


def replica_url(env: Mapping[str, str], variable: str) -> str | None:
    """Return SQLAlchemy's URL of the replica, or None without one."""
    given = text(env, variable)
    if not given:
        return None
    scheme, _, rest = given.partition("://")
    if scheme.partition("+")[0] not in {"mysql", "mariadb"} or not rest:
        raise UnsafeConfiguration(f"{variable} must begin with mysql:// or mariadb://.")
    if text(env, "DATABASE_URL").partition("://")[0].partition("+")[0] not in {"mysql", "mariadb"}:
        raise UnsafeConfiguration(
            f"{variable} is set, but DATABASE_URL names no MySQL or MariaDB. Type: unset {variable}"
        )
    return _mysql_url(variable, rest)


def _mysql_url(variable: str, rest: str) -> str:
    url = f"mysql+mysqldb://{rest}"
    # The main process of the server reads the settings before it loads libraries.
    from sqlalchemy.engine import make_url

    try:
        parts = make_url(url)
        is_valid = bool(parts.database) and "@" not in (parts.host or "")
    except ValueError:
        is_valid = False
    if not is_valid:
        raise UnsafeConfiguration(
            f"{variable} cannot be read. It must look like mysql://user:password@host:3306/database. Write special "
            "characters of the password as in URLs: @ as %40, / as %2F."
        )
    return url


def text(env: Mapping[str, str], variable: str) -> str:
    """Return the value of the variable, or the content of the file that ``<variable>_FILE`` names; empty if neither is
    set.
    """
    require_one_source(env, variable)
    named = file(env, f"{variable}_FILE")
    if named is None:
        return env.get(variable, "").strip()
    try:
        content = named.read_text().strip()
    except UnicodeDecodeError as error:
        raise UnsafeConfiguration(
            f"{variable}_FILE is {str(named)!r}, which is not text in UTF-8."
        ) from error
    if not content:
        raise UnsafeConfiguration(f"{variable}_FILE is {str(named)!r}, which is empty.")
    return content


def require_one_source(env: Mapping[str, str], variable: str) -> None:
    """Raise UnsafeConfiguration if both the variable and ``<variable>_FILE`` are set: only one would be used."""
    if env.get(variable) and env.get(f"{variable}_FILE"):
        raise UnsafeConfiguration(
            f"Both {variable} and {variable}_FILE are set. Type: unset {variable}, or unset {variable}_FILE"
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


def switch(env: Mapping[str, str], variable: str, default: str) -> bool:
    """Return whether the setting is on and not off."""
    return choice(env, variable, default, ("on", "off")) == "on"


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
                f"{variable} contains {host!r}. Use host or host:port, for example app.internal:8443."
            )
    return named


def contacts(env: Mapping[str, str], variable: str) -> tuple[str, ...]:
    """Return the URIs of a comma-separated list of contacts (RFC 9116 section 2.5.3)."""
    named = words(env, variable)
    for uri in named:
        if not _CONTACT.fullmatch(uri):
            raise UnsafeConfiguration(
                f"{variable} contains {uri!r}. Use a URI, for example mailto:security@example.com, "
                "https://example.com/security or tel:+1-201-555-0123."
            )
    return named


def address(env: Mapping[str, str], variable: str) -> tuple[str, int] | None:
    """Return the IP address and port to listen on, or None when the variable is not set."""
    text = env.get(variable, "")
    if not text:
        return None
    host, _, port = text.rpartition(":")
    try:
        listens_on = str(ipaddress.ip_address(host.removeprefix("[").removesuffix("]")))
        number = int(port) if port.isascii() and port.isdigit() else 0
    except ValueError:
        number = 0
    if not 0 < number < 65536:
        raise UnsafeConfiguration(
            f"{variable} is {text!r}. It must be an IP address and a port, for example 127.0.0.1:9464."
        )
    return listens_on, number


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
    """Raise UnsafeConfiguration unless the URL is https, or http on the loopback interface, as browsers write it.

    Issuers, the Origin header and passkeys are compared code point by code point, so another spelling matches in some
    places only.
    """
    try:
        parts = urlsplit(base_url)
        is_plain = parts.geturl() == f"{parts.scheme}://{parts.netloc}" and parts.port != 0
    except ValueError:
        raise UnsafeConfiguration(f"GATEHOUSE_BASE_URL is {base_url!r}; {_GOOD_BASE_URL}") from None
    if parts.scheme not in {"http", "https"} or not parts.hostname or not is_plain or "@" in parts.netloc:
        raise UnsafeConfiguration(f"GATEHOUSE_BASE_URL is {base_url!r}; {_GOOD_BASE_URL}")
    spelled = _as_browsers_write(parts)
    if parts.scheme == "http" and not is_loopback_url(spelled):
        raise UnsafeConfiguration(
            f"GATEHOUSE_BASE_URL is {base_url!r}. Plain http exposes every secret on the network. "
            f"Put a TLS proxy in front and set GATEHOUSE_BASE_URL=https{spelled.removeprefix('http')}"
        )
    if base_url != spelled:
        raise UnsafeConfiguration(
            f"GATEHOUSE_BASE_URL is {base_url!r}. Browsers and client libraries write this URL differently, so "
            f"parts of the service would not recognize it. Set GATEHOUSE_BASE_URL={spelled}"
        )


def _as_browsers_write(parts: SplitResult) -> str:
    host = parts.hostname or ""
    try:
        if ":" in host:
            host = f"[{ipaddress.IPv6Address(host)}]"
        elif not host.isascii():
            host = idna.encode(host, uts46=True).decode()
        if _NUMERIC_HOST.search(host):
            host = str(_parse_ipv4(host))
    except ValueError:
        host = ""
    if _HOST.fullmatch(host) is None:
        raise UnsafeConfiguration(f"GATEHOUSE_BASE_URL is {parts.geturl()!r}; {_GOOD_BASE_URL}")
    default = {"http": 80, "https": 443}[parts.scheme]
    port = "" if parts.port in {None, default} else f":{parts.port}"
    return f"{parts.scheme}://{host}{port}"


def _parse_ipv4(host: str) -> ipaddress.IPv4Address:
    """Return the address in any notation that browsers accept, such as 127.1, 0x7f.1 or 2130706433.

    Raises ValueError.
    """
    *first, last = (_parse_ipv4_number(each) for each in host.removesuffix(".").split("."))
    if len(first) > 3 or any(each > 255 for each in first) or last >= 256 ** (4 - len(first)):
        raise ValueError
    return ipaddress.IPv4Address(last + sum(each << 24 - 8 * place for place, each in enumerate(first)))


def _parse_ipv4_number(text: str) -> int:
    if _NUMERIC_HOST.fullmatch(text) is None:
        raise ValueError
    if text.startswith("0x"):
        return int(text.removeprefix("0x") or "0", 16)
    return int(text, 8 if text.startswith("0") else 10)


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


class Setting(Struct, frozen=True):
    """One documented setting."""

    variable: str
    default: str
    meaning: str


SETTINGS = (
    Setting(
        "DATABASE_URL",
        "sqlite in the instance folder",
        "`mysql://user:password@host/database` (MySQL, MariaDB), with `@` in the password as `%40`, or "
        "`sqlite:////path/file`. `DATABASE_URL_FILE` names a file instead.",
    ),
    Setting(
        "DATABASE_REPLICA_URL",
        "none",
        "A replica of that database, for figures and older pages of the audit log: `mysql://…`, or a file in "
        "`DATABASE_REPLICA_URL_FILE`. It is not read while it is away or more than 10 seconds behind "
        "(docs/operations/topologies.md).",
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
        "The previous master key, until `gatehouse keys rewrap` has finished. "
        "`GATEHOUSE_PREVIOUS_MASTER_KEY_FILE` names a file instead.",
    ),
    Setting(
        "GATEHOUSE_VAULT_URL",
        "none",
        "Comma-separated URLs of the Vaults that may unwrap a key, or their beginnings: `vault://host:8200`. Others "
        "get no credentials.",
    ),
    Setting(
        "GATEHOUSE_VAULT_AUTH",
        "none",
        "How to sign in to the Vault that wraps a key: `token:FILE`, `approle:ROLE_ID:FILE` with the secret id, or "
        "`kubernetes:ROLE`. `approle@MOUNT:…` names another mount (docs/operations/keys.md).",
    ),
    Setting(
        "GATEHOUSE_VAULT_CA_BUNDLE", "the system's CAs", "A PEM file with the only CAs to trust for Vault."
    ),
    Setting(
        "GATEHOUSE_HSM_MODULE",
        "none",
        "Comma-separated paths of the PKCS#11 modules that may unwrap a key. Others are not loaded.",
    ),
    Setting("GATEHOUSE_HSM_PIN_FILE", "none", "A file with the PIN of the PKCS#11 token that wraps a key."),
    Setting(
        "GATEHOUSE_FOLLOW_TRACEPARENT",
        "off",
        "Whether callers decide by the header `traceparent` that their requests are traced: on or off "
        "(docs/operations/monitoring.md).",
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
        "GATEHOUSE_METRICS_ADDRESS",
        "none",
        "Where Prometheus scrapes this machine, for example `127.0.0.1:9464`. It asks for no password: use a loopback "
        "address, or one that only Prometheus reaches (docs/operations/monitoring.md).",
    ),
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
        "A PEM file with the only CAs to trust for https requests to webhooks, clients and identity providers, for "
        "closed networks.",
    ),
    Setting(
        "GATEHOUSE_OUTGOING_ALLOWED_HOSTS",
        "none",
        "Comma-separated `host` or `host:port` of webhooks, clients and identity providers to contact although their "
        "IP address is private, or their port not one of the web.",
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
    Setting(
        "GATEHOUSE_SECURITY_CONTACT",
        "none",
        "Where to report vulnerabilities of this installation, as comma-separated URIs: `mailto:…`, `https://…` or "
        "`tel:…`. Published in `/.well-known/security.txt` (RFC 9116).",
    ),
)
