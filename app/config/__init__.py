"""The settings, read from the environment and validated. An unsafe value ends the start.

A setting ``database_url`` is read from ``DATABASE_URL``; the others carry the prefix ``GATEHOUSE_``. On the
loopback interface plain http is allowed and missing keys are generated; elsewhere neither is (BS-2, BS-4).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlsplit

from flask import Flask
from flask.globals import app_ctx

from .commands import command_line, install_line
from .instance import FolderFault, fault_of, find_fault
from .keys import KEY_FILES, find_wrapped, key, make_key, previous_key, unwrap_keys
from .kms import wrap_key
from .mail import MailServer, mail_server
from .settings import (
    EXIT_CONFIGURATION,
    EXIT_UNAVAILABLE,
    SETTINGS,
    Setting,
    UnsafeConfiguration,
    address,
    check_base_url,
    check_surroundings,
    choice,
    choices,
    contacts,
    database_url,
    file,
    hosts,
    integer,
    is_loopback_url,
    replica_url,
    switch,
    text,
)
from .version import VERSION

__all__ = [
    "EXIT_CONFIGURATION",
    "EXIT_UNAVAILABLE",
    "KEY_FILES",
    "ROOT",
    "SETTINGS",
    "VERSION",
    "Config",
    "FolderFault",
    "MailServer",
    "Setting",
    "UnsafeConfiguration",
    "command_line",
    "current",
    "fault_of",
    "find_fault",
    "find_wrapped",
    "install_line",
    "is_loopback_url",
    "load",
    "make_key",
    "require_instance",
    "unwrap_environment",
    "wrap_key",
]

DATABASE_ENGINES = ("auto", "single", "galera", "group-replication", "aurora")
FAST_PATHS = ("middleware", "compiled-queries", "caches", "authenticated-clients", "preload")
ROOT = Path(__file__).resolve().parents[2]
at_work: ContextVar[Flask | None] = ContextVar("gatehouse application", default=None)


@dataclass(frozen=True, slots=True)
class Config:
    """The validated settings."""

    # Threads of a worker in addition to those that answer requests: see app/web/request_bodies.py.
    LATE_THREADS: ClassVar[int] = 24

    database_url: str
    database_replica_url: str | None
    base_url: str
    instance: Path
    secret_key: bytes = field(repr=False)
    master_key: bytes = field(repr=False)
    previous_master_key: bytes | None = field(repr=False)
    proxy_hops: int
    trusted_hosts: tuple[str, ...]
    log_level: str
    request_log: bool
    follow_traceparent: bool
    metrics_address: tuple[str, int] | None
    database_engine: str
    database_pool: int
    database_timeout: int
    janitor: bool
    body_timeout: int
    drain_seconds: int
    disabled_fast_paths: frozenset[str]
    outgoing_ca_bundle: Path | None
    outgoing_allowed_hosts: frozenset[str]
    mail_server: MailServer | None
    security_contacts: tuple[str, ...]

    @property
    def is_loopback(self) -> bool:
        """Return whether the service can only be reached from this machine."""
        return is_loopback_url(self.base_url)

    @property
    def is_https(self) -> bool:
        """Return whether the service is reached by https, so that cookies are Secure."""
        return self.base_url.startswith("https://")

    @property
    def is_sqlite(self) -> bool:
        """Return whether the embedded database is used."""
        return self.database_url.startswith("sqlite")

    def __repr__(self) -> str:
        return f"Config(base_url={self.base_url!r}, database={self.database_url.split(':', 1)[0]!r})"


def load(environ: Mapping[str, str] | None = None) -> Config:
    """Return the configuration of the process. Raises UnsafeConfiguration with a message that says what to type."""
    env = os.environ if environ is None else environ
    base_url = env.get("GATEHOUSE_BASE_URL", "http://127.0.0.1:8000").rstrip("/")
    check_base_url(base_url)
    check_surroundings(env, base_url)
    instance = _instance(env)
    plain = unwrap_keys(env, instance)
    env = {name: value for name, value in env.items() if name.removesuffix("_FILE") not in plain} | plain
    host, is_local = urlsplit(base_url).hostname or "", is_loopback_url(base_url)
    return Config(
        database_url=database_url(text(env, "DATABASE_URL"), instance),
        database_replica_url=replica_url(env, "DATABASE_REPLICA_URL"),
        base_url=base_url,
        instance=instance,
        secret_key=key(env, "GATEHOUSE_SECRET_KEY", instance / "secret.key", may_make=is_local),
        master_key=key(env, "GATEHOUSE_MASTER_KEY", instance / "master.key", may_make=is_local),
        previous_master_key=previous_key(env, "GATEHOUSE_PREVIOUS_MASTER_KEY"),
        proxy_hops=integer(env, "GATEHOUSE_PROXY_HOPS", 0, 0, 5),
        trusted_hosts=(
            host,
            *(("127.0.0.1", "localhost", "[::1]") if is_local else ()),
            *sorted(hosts(env, "GATEHOUSE_TRUSTED_HOSTS")),
        ),
        log_level=choice(env, "GATEHOUSE_LOG_LEVEL", "info", ("debug", "info", "warning", "error")),
        follow_traceparent=switch(env, "GATEHOUSE_FOLLOW_TRACEPARENT", "off"),
        request_log=switch(env, "GATEHOUSE_REQUEST_LOG", "on"),
        metrics_address=address(env, "GATEHOUSE_METRICS_ADDRESS"),
        database_engine=choice(env, "GATEHOUSE_DATABASE_ENGINE", "auto", DATABASE_ENGINES),
        database_pool=integer(env, "GATEHOUSE_DATABASE_POOL", 5, 1, 50),
        database_timeout=integer(env, "GATEHOUSE_DATABASE_TIMEOUT", 3, 1, 60),
        janitor=switch(env, "GATEHOUSE_JANITOR", "on"),
        body_timeout=integer(env, "GATEHOUSE_BODY_TIMEOUT", 10, 1, 300),
        drain_seconds=integer(env, "GATEHOUSE_DRAIN_SECONDS", 0 if is_local else 5, 0, 60),
        disabled_fast_paths=choices(env, "GATEHOUSE_DISABLE_FAST_PATH", FAST_PATHS),
        outgoing_ca_bundle=file(env, "GATEHOUSE_OUTGOING_CA_BUNDLE"),
        outgoing_allowed_hosts=hosts(env, "GATEHOUSE_OUTGOING_ALLOWED_HOSTS"),
        mail_server=mail_server(env),
        security_contacts=contacts(env, "GATEHOUSE_SECURITY_CONTACT"),
    )


def unwrap_environment() -> None:
    """Replace the wrapped keys of this process's environment by plain ones, for the processes that it starts.

    Workers that start again later then need no key management service. Raises UnsafeConfiguration.
    """
    plain = unwrap_keys(os.environ, _instance(os.environ))
    for variable, value in plain.items():
        os.environ.pop(f"{variable}_FILE", None)
        os.environ[variable] = value


def _instance(env: Mapping[str, str]) -> Path:
    return Path(env.get("GATEHOUSE_INSTANCE") or ROOT / "instance").resolve()


def require_instance(environ: Mapping[str, str] | None = None) -> None:
    """Require that a command names the installation that it is for. Raises UnsafeConfiguration.

    Without its settings, a command in the folder of a service would create another, empty installation there.
    """
    env = os.environ if environ is None else environ
    database = ROOT / "instance" / "gatehouse.sqlite3"
    named = any(
        env.get(variable) or env.get(f"{variable}_FILE")
        for variable in ("DATABASE_URL", "GATEHOUSE_INSTANCE")
    )
    if not (named or database.exists()):
        raise UnsafeConfiguration(
            f"Neither DATABASE_URL nor GATEHOUSE_INSTANCE is set, and there is no {database}. Load the settings of the "
            "service first, for example: set -a; . /etc/gatehouse/environment; set +a. To start a new installation on "
            "this machine: script/server"
        )


def application() -> Flask:
    """Return the current application. Raises RuntimeError outside of one."""
    return at_work.get() or app_ctx.app


def current() -> Config:
    """Return the configuration of the current application; operations, which do not import Flask, call this."""
    config: Config = application().config["GATEHOUSE"]
    return config
