"""The WSGI entry point: ``app`` for the server, and for ``flask --app wsgi``."""

from __future__ import annotations

import os
import sys

from app import create_app
from app.config import UnsafeConfiguration
from app.operations.signing.master_key import require_master_key
from app.web import background

# Flask's command line sets this.
from_command_line = os.environ.get("FLASK_RUN_FROM_CLI") == "true"
try:
    app = create_app(commands=from_command_line)
    if not from_command_line:
        with app.app_context():
            require_master_key()
except UnsafeConfiguration as refusal:
    sys.stderr.write(f"{refusal}\n")
    raise

# A command that is over in a second needs no janitor beside it.
if not from_command_line:
    background.start(app)
