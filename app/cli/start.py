"""Preparation before the server starts: run pending migrations, and print the setup link."""

from __future__ import annotations

import sys

from flask import current_app
from flask_migrate import upgrade

from app.config import Config
from app.operations.maintenance import doctor
from app.operations.maintenance.master_key import require_master_key
from app.operations.organizations import setup


def before_serving(*, with_demo: bool = False) -> None:
    """Migrate the schema, and print the setup link of a new installation or the sign-ins of the demo."""
    config: Config = current_app.config["GATEHOUSE"]
    # Before anything is written (KY-6).
    require_master_key()
    if doctor.has_pending_migrations():
        _say("Updating the database schema.")
        upgrade()
    if with_demo:
        from app.cli.demo import fill_and_print

        fill_and_print()
    elif not setup.is_set_up():
        _say(
            "",
            "This installation is new. Open this link within an hour to set it up. It can be used once:",
            "",
        )
        _say(f"    {config.base_url}/setup?token={setup.issue_setup_token()}", "")


def _say(*lines: str) -> None:
    print(*lines, sep="\n", file=sys.stderr, flush=True)
