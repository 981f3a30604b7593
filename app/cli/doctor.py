"""``flask --app wsgi doctor``: what is wrong with this installation, and how to mend it."""

from __future__ import annotations

import click
from flask import current_app
from flask.cli import with_appcontext

from app.operations.maintenance.doctor import run_checks

_MARKS = {"ok": "ok   ", "warning": "note ", "problem": "WRONG"}


@click.command("doctor")
@click.option("--strict", is_flag=True, help="Notes count as wrong.")
@with_appcontext
def doctor_command(strict: bool) -> None:
    """Look at the keys, the addresses, the database and this machine; change nothing.

    Exit status 0: nothing is wrong. 1: something is.
    """
    diagnosis = run_checks(current_app.config["GATEHOUSE"])
    for finding in diagnosis.findings:
        click.echo(f"{_MARKS[finding.level]}  {finding.topic}: {finding.message}")
        if finding.fix:
            click.echo(f"         -> {finding.fix}")
    is_noted = any(finding.level != "ok" for finding in diagnosis.findings)
    if not diagnosis.is_healthy or (strict and is_noted):
        raise SystemExit(1)
