"""Settings of one kind each: what is no such value stops the start."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from .refusal import UnsafeConfiguration

_HOST = re.compile(r"([a-z0-9.-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?")


def database_url(given: str, instance: Path) -> str:
    """SQLAlchemy's URL of the database; the embedded one in the instance folder when none is given."""
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


def integer(env: Mapping[str, str], variable: str, default: int, least: int, most: int) -> int:
    """A whole number from ``least`` to ``most``."""
    text = env.get(variable, str(default))
    if not text.isascii() or not text.isdigit() or not least <= int(text) <= most:
        raise UnsafeConfiguration(
            f"{variable} is {text!r}; it must be a whole number from {least} to {most}."
        )
    return int(text)


def choice(env: Mapping[str, str], variable: str, default: str, allowed: tuple[str, ...]) -> str:
    """One of the allowed words, in any case."""
    text = env.get(variable, default).lower()
    if text not in allowed:
        raise UnsafeConfiguration(f"{variable} is {text!r}; it must be one of {', '.join(allowed)}.")
    return text


def words(env: Mapping[str, str], variable: str) -> tuple[str, ...]:
    """The parts of a comma-separated list."""
    return tuple(part.strip() for part in env.get(variable, "").split(",") if part.strip())


def hosts(env: Mapping[str, str], variable: str) -> frozenset[str]:
    """A comma-separated list of ``host`` or ``host:port``, in small letters."""
    named = frozenset(word.lower() for word in words(env, variable))
    for host in named:
        if not _HOST.fullmatch(host):
            raise UnsafeConfiguration(
                f"{variable} names {host!r}; it must be a host or host:port, as in jwks.internal:8443."
            )
    return named


def file(env: Mapping[str, str], variable: str) -> Path | None:
    """A file that can be read, or None."""
    if not env.get(variable):
        return None
    path = Path(env[variable]).resolve()
    if not os.access(path, os.R_OK) or not path.is_file():
        raise UnsafeConfiguration(f"{variable} names {str(path)!r}, which cannot be read.")
    return path
