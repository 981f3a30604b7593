"""The WSGI entry point: ``app`` for the server, and for ``flask --app wsgi``."""

from __future__ import annotations

import gc
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flask import Flask


def create() -> Flask:
    """Return the application; unless it is for the command line, its background work has started.

    Modules and classes are never garbage. Collecting them takes a seventh of the start, and later pauses some request
    for a tenth of a second. So garbage collection is off during the start, and then ignores what exists.
    """
    gc.disable()
    from app import create_app
    from app.config import UnsafeConfiguration, require_instance
    from app.operations.maintenance.master_key import require_master_key
    from app.operations.store.checkpoints import require_current_database
    from app.web import background

    # Flask's command line sets this.
    from_command_line = os.environ.get("FLASK_RUN_FROM_CLI") == "true"
    try:
        if from_command_line:
            require_instance()
        application = create_app(commands=from_command_line)
        if not from_command_line:
            with application.app_context():
                require_master_key()
                require_current_database()
    except UnsafeConfiguration as refusal:
        sys.stderr.write(f"{refusal}\n")
        raise
    gc.freeze()
    gc.enable()
    # Commands run for a second or so and need no background work.
    if not from_command_line:
        background.start(application)
    return application


app = create()
