"""Check through the database driver, without importing the application, whether an installation is ready to serve."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

_REVISION = re.compile(r"^(down_)?revision(?:\s*:[^=]+)?\s*=\s*[\"']([^\"']+)[\"']", re.MULTILINE)


def is_ready(
    database_url: str, migrations: Path, open_data_key: Callable[[str, bytes], object], instance: Path
) -> bool:
    """Return whether the schema is current, setup was completed, root's data key can be opened, and no later
    checkpoint of the database is known in the instance folder.

    ``open_data_key`` takes root's routing key and its wrapped data key, and raises when it cannot open it. Any error
    means no: the caller then prepares the installation, which reports what is wrong.
    """
    try:
        with closing(connect(database_url)) as connection:
            cursor = connection.cursor()
            cursor.execute("SELECT version_num FROM alembic_version")
            revisions = {row[0] for row in cursor.fetchall()}
            # Names are binary columns, and SQLite distinguishes blobs from text: these are "set-up", "root" and, below,
            # "checkpoint".
            cursor.execute("SELECT COUNT(*) FROM instance_facts WHERE name = X'7365742d7570'")
            is_set_up = cursor.fetchone()[0] == 1
            cursor.execute("SELECT id, data_key FROM organizations WHERE slug = X'726f6f74'")
            for organization_id, wrapped in cursor.fetchall():
                root_id = bytes(organization_id).decode()
                open_data_key(root_id, bytes(wrapped))
                cursor.execute("SELECT value FROM instance_facts WHERE name = X'636865636b706f696e74'")
                if is_behind(instance / f"checkpoint-{root_id}.json", cursor.fetchone()):
                    return False
    except Exception:  # noqa: BLE001 - unreachable, no tables, no driver: preparing the installation reports it
        return False
    return is_set_up and revisions == heads(migrations)


def is_behind(file: Path, row: Any) -> bool:
    """Return whether the database may have fallen behind the checkpoint in the file; ``row`` has the database's."""
    if not file.exists():
        return False
    seen, found = json.loads(file.read_text()), json.loads(row[0])
    return bool(seen["epochs"][-1] != found["epochs"][-1] or seen["sequence"] > found["sequence"])


def connect(database_url: str) -> Any:
    """Return a connection of the driver itself."""
    if database_url.startswith("sqlite"):
        path = Path(database_url.removeprefix("sqlite:///"))
        return sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    import MySQLdb
    from MySQLdb.constants import CLIENT

    parts = urlsplit(database_url)
    options = dict(parse_qsl(parts.query))
    mode = {"ssl_mode": options.pop("ssl_mode")} if "ssl_mode" in options else {}
    encryption = {
        name.removeprefix("ssl_"): value for name, value in options.items() if name.startswith("ssl_")
    }
    connection = MySQLdb.connect(
        host=parts.hostname or "localhost",
        port=parts.port or 3306,
        user=unquote(parts.username or ""),
        passwd=unquote(parts.password or ""),
        db=parts.path.lstrip("/"),
        connect_timeout=2,
        read_timeout=2,
        **({"unix_socket": options["unix_socket"]} if "unix_socket" in options else {}),
        **({"ssl": encryption} if encryption else {}),
        **mode,
    )
    # As in app/mysql_connection.py.
    is_required = encryption or mode.get("ssl_mode") == "REQUIRED"
    if is_required and not connection.server_capabilities & CLIENT.SSL:
        connection.close()
        raise ConnectionError("The server does not offer TLS.")
    return connection


def heads(migrations: Path) -> set[str]:
    """Return the revisions that no other revision follows."""
    own, before = set(), set()
    for path in migrations.glob("*.py"):
        for is_down, revision in _REVISION.findall(path.read_text()):
            (before if is_down else own).add(revision)
    return own - before
