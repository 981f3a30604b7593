"""What a serving process does beside its requests: one thread that purges expired rows and rotates old keys.

Every worker of every host has such a thread; leases elect the one that does the work.
"""

from __future__ import annotations

import logging
import random
import secrets
import threading

from flask import Flask

from app.config import Config
from app.operations.protocol.key_rotation import rotate_due_keys
from app.operations.upkeep.janitor import purge
from app.rules.actor import Actor

EVERY_SECONDS = 60.0
_log = logging.getLogger("gatehouse.janitor")


def start(app: Flask) -> threading.Thread | None:
    """The thread runs, unless the configuration says no. It ends with the process and keeps nothing half done."""
    config: Config = app.config["GATEHOUSE"]
    if not config.janitor:
        return None
    thread = threading.Thread(target=_work, args=(app,), name="janitor", daemon=True)
    thread.start()
    return thread


def _work(app: Flask) -> None:
    me = secrets.token_hex(8)
    pause = threading.Event()
    while True:
        # Workers that started together do not ask together.
        pause.wait(EVERY_SECONDS * random.uniform(0.5, 1.5))  # noqa: S311 - jitter is no secret
        with app.app_context():
            try:
                gone = purge(Actor.system("", "janitor"), holder=me)
                rotated = rotate_due_keys(Actor.system("", "key rotation"))
            except Exception:  # noqa: BLE001 - in a minute the database may be back; the thread must be there then
                _log.warning("the work of this minute was not done", exc_info=True)
                continue
        if gone:
            _log.info("purged %s", ", ".join(f"{table} {count}" for table, count in sorted(gone.items())))
        if rotated:
            _log.info("signing keys published or rotated: %s", ", ".join(rotated))
