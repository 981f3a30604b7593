"""Readers of settings by type; an invalid value ends the start."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from .refusal import UnsafeConfiguration

_HOST = re.compile(r"([a-z0-9.-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?")


def database_url(given: str, instance: Path) -> str:
    """Return SQLAlchemy's database URL; by default the embedded database in the instance folder."""
    if not given:
        instance.mkdir(mode=0o700, parents=True, exist_ok=True)
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
