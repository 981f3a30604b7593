"""The WSGI entry point: ``app`` for the server, and for ``flask --app wsgi``."""

from __future__ import annotations

import os
import sys

from app import create_app
from app.config import UnsafeConfiguration
from app.web import background

try:
    app = create_app()
except UnsafeConfiguration as refusal:
    sys.stderr.write(f"{refusal}\n")
    raise

# Flask's command line sets this: a command that is over in a second needs no janitor beside it.
if os.environ.get("FLASK_RUN_FROM_CLI") != "true":
    background.start(app)
