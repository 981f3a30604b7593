"""What happens before the server serves: pending migrations run, and somebody is told where to click."""

from __future__ import annotations

import sys

from flask import current_app
from flask_migrate import upgrade

from app.config import Config
from app.operations.maintenance import doctor
from app.operations.maintenance.master_key import require_master_key
from app.operations.organizations import setup


def before_serving(*, with_demo: bool = False) -> None:
    """The schema is the newest; standard error says where to click, with a set-up link while nobody is set up."""
    config: Config = current_app.config["GATEHOUSE"]
    # Before the first thing that writes (KY-6).
    require_master_key()
    if doctor.has_pending_migrations():
        _say("Bringing the database's schema up to date.")
        upgrade()
    if with_demo:
        from app.cli.demo import fill_and_print

        fill_and_print()
    elif not setup.is_set_up():
        _say("", "This installation is new. Open this link to set it up (once, within an hour):", "")
        _say(f"    {config.base_url}/setup?token={setup.issue_setup_token()}", "")


def _say(*lines: str) -> None:
    print(*lines, sep="\n", file=sys.stderr, flush=True)
