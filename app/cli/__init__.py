"""Interface: the command line. ``flask --app wsgi`` lists the commands."""

from __future__ import annotations

from flask import Flask

from app.cli.audit import audit_commands
from app.cli.clients import clients_commands
from app.cli.isolation.check import isolation_check_command
from app.cli.keys import keys_commands
from app.cli.maintenance import demo_command, doctor_command, purge_command, setup_command
from app.cli.organizations import organizations_commands
from app.cli.restore import maintenance_commands
from app.cli.revoke import revoke_command
from app.cli.users import users_commands


def register(app: Flask) -> None:
    """Add the commands to Flask's own."""
    for command in (
        setup_command, doctor_command, keys_commands, audit_commands, organizations_commands, users_commands,
        clients_commands, maintenance_commands, purge_command, revoke_command, demo_command, isolation_check_command,
    ):  # fmt: skip
        app.cli.add_command(command)
