"""Whether an installation stands: a question put to the database's driver, without importing the application."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

_REVISION = re.compile(r"^(down_)?revision(?:\s*:[^=]+)?\s*=\s*[\"']([^\"']+)[\"']", re.MULTILINE)


def stands(database_url: str, versions: Path, opens: Callable[[str, bytes], object]) -> bool:
    """Whether the schema is the newest, set-up was done, and root's data key opens.

    ``opens`` is called with root's routing key and its wrapped data key, and raises when it cannot. Any doubt is a
    no: then the long way looks closely.
    """
    try:
        with closing(connect(database_url)) as connection:
            cursor = connection.cursor()
            cursor.execute("SELECT version_num FROM alembic_version")
            revisions = {row[0] for row in cursor.fetchall()}
            # Names are binary, and SQLite tells a blob from a text.
            cursor.execute("SELECT COUNT(*) FROM instance_facts WHERE name = X'7365742d7570'")
            is_set_up = cursor.fetchone()[0] == 1
            cursor.execute("SELECT id, data_key FROM organizations WHERE slug = X'726f6f74'")
            for organization_id, wrapped in cursor.fetchall():
                opens(bytes(organization_id).decode(), bytes(wrapped))
    except Exception:  # noqa: BLE001 - unreachable, no tables, no driver: the long way says it in words
        return False
    return is_set_up and revisions == heads(versions)


def connect(database_url: str) -> Any:
    """A connection of the driver itself."""
    if database_url.startswith("sqlite"):
        path = Path(database_url.removeprefix("sqlite:///"))
        return sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    import MySQLdb

    parts = urlsplit(database_url)
    options = dict(parse_qsl(parts.query))
    encryption = {
        name.removeprefix("ssl_"): value for name, value in options.items() if name.startswith("ssl_")
    }
    return MySQLdb.connect(
        host=parts.hostname or "localhost",
        port=parts.port or 3306,
        user=unquote(parts.username or ""),
        passwd=unquote(parts.password or ""),
        db=parts.path.lstrip("/"),
        connect_timeout=2,
        read_timeout=2,
        **({"unix_socket": options["unix_socket"]} if "unix_socket" in options else {}),
        **({"ssl": encryption} if encryption else {}),
    )


def heads(versions: Path) -> set[str]:
    """The revisions that no other one comes after."""
    own, before = set(), set()
    for path in versions.glob("*.py"):
        for is_down, revision in _REVISION.findall(path.read_text()):
            (before if is_down else own).add(revision)
    return own - before
