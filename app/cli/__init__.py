"""Face: the command line. ``flask --app wsgi`` lists the commands."""

from __future__ import annotations

import importlib
from importlib.util import find_spec

from flask import Flask

_COMMANDS = {
    "setup": "setup_command",
    "doctor": "doctor_command",
    "keys": "keys_commands",
    "purge": "purge_command",
    "demo": "demo_command",
}


def register(app: Flask) -> None:
    """The commands stand beside Flask's own."""
    for module, command in _COMMANDS.items():
        if find_spec(f"app.cli.{module}") and find_spec("app.operations.clients"):
            app.cli.add_command(getattr(importlib.import_module(f"app.cli.{module}"), command))
