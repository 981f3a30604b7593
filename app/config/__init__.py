"""The settings, read from the environment and checked. Unsafe values stop the start.

A setting ``database_url`` is read from ``DATABASE_URL``; the others carry the prefix ``GATEHOUSE_``. On the
loopback interface plain http is allowed and missing keys are made once; elsewhere neither is (BS-2, BS-4).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from flask import Flask, current_app

from .base_url import check_base_url, check_surroundings, is_loopback_url
from .keys import key, make_key, previous_key
from .mail import MailServer, mail_server
from .refusal import EXIT_CONFIGURATION, UnsafeConfiguration
from .settings import SETTINGS, Setting
from .values import choice, database_url, file, hosts, integer, words

__all__ = [
    "EXIT_CONFIGURATION",
    "ROOT",
    "SETTINGS",
    "Config",
    "MailServer",
    "Setting",
    "UnsafeConfiguration",
    "current",
    "is_loopback_url",
    "load",
    "make_key",
]

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Config:
    """The settings, read and checked."""

    database_url: str
    base_url: str
    instance: Path
    secret_key: bytes = field(repr=False)
    master_key: bytes = field(repr=False)
    previous_master_key: bytes | None = field(repr=False)
    proxy_hops: int
    trusted_hosts: tuple[str, ...]
    log_level: str
    request_log: bool
    database_pool: int
    database_timeout: int
    janitor: bool
    outgoing_ca_bundle: Path | None
    outgoing_allowed_hosts: frozenset[str]
    mail_server: MailServer | None

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
    check_base_url(base_url)
    check_surroundings(env, base_url)
    instance = Path(env.get("GATEHOUSE_INSTANCE") or ROOT / "instance").resolve()
    host = urlsplit(base_url).hostname or ""
    return Config(
        database_url=database_url(env.get("DATABASE_URL", ""), instance),
        base_url=base_url,
        instance=instance,
        secret_key=key(
            env, "GATEHOUSE_SECRET_KEY", instance / "secret.key", may_make=is_loopback_url(base_url)
        ),
        master_key=key(
            env, "GATEHOUSE_MASTER_KEY", instance / "master.key", may_make=is_loopback_url(base_url)
        ),
        previous_master_key=previous_key(env, "GATEHOUSE_PREVIOUS_MASTER_KEY"),
        proxy_hops=integer(env, "GATEHOUSE_PROXY_HOPS", 0, 0, 5),
        trusted_hosts=(
            host,
            *(("127.0.0.1", "localhost", "[::1]") if is_loopback_url(base_url) else ()),
            *words(env, "GATEHOUSE_TRUSTED_HOSTS"),
        ),
        log_level=choice(env, "GATEHOUSE_LOG_LEVEL", "info", ("debug", "info", "warning", "error")),
        request_log=choice(env, "GATEHOUSE_REQUEST_LOG", "on", ("on", "off")) == "on",
        database_pool=integer(env, "GATEHOUSE_DATABASE_POOL", 5, 1, 50),
        database_timeout=integer(env, "GATEHOUSE_DATABASE_TIMEOUT", 3, 1, 60),
        janitor=choice(env, "GATEHOUSE_JANITOR", "on", ("on", "off")) == "on",
        outgoing_ca_bundle=file(env, "GATEHOUSE_OUTGOING_CA_BUNDLE"),
        outgoing_allowed_hosts=hosts(env, "GATEHOUSE_OUTGOING_ALLOWED_HOSTS"),
        mail_server=mail_server(env),
    )


# The application at work where there is no context of Flask's: what ``oauth/lane`` answers needs none.
at_work: ContextVar[Flask | None] = ContextVar("gatehouse application", default=None)


def application() -> Flask:
    """The application that is at work. Raises RuntimeError outside of one."""
    # Through Flask's proxy each attribute would be looked up three times, and every request asks several times.
    app: Flask = at_work.get() or current_app._get_current_object()  # type: ignore[attr-defined]
    return app


def current() -> Config:
    """The configuration of the application that is at work; operations ask here and know no Flask."""
    config: Config = application().config["GATEHOUSE"]
    return config
