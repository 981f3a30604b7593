"""The WSGI entry point: ``app`` for the server, and for ``flask --app wsgi``."""

from __future__ import annotations

import gc
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flask import Flask


def made() -> Flask:
    """The application, imported, configured and, unless it is for the command line, at work.

    What imports make stays for good: looking through all of it for garbage again and again is a seventh of the start,
    and later a pause of a tenth of a second in some request's thread. So the collector rests meanwhile, and what
    stands then is never looked at again.
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
    # A command that is over in a second needs no janitor beside it.
    if not from_command_line:
        background.start(application)
    return application


app = made()
