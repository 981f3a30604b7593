"""``flask --app wsgi doctor``: find problems of this installation and how to fix them."""

from __future__ import annotations

import click
from flask import current_app
from flask.cli import with_appcontext

from app.operations.maintenance.doctor import run_checks

_MARKS = {"ok": "ok   ", "warning": "note ", "problem": "WRONG"}


@click.command("doctor")
@click.option("--strict", is_flag=True, help="Treat notes as problems.")
@with_appcontext
def doctor_command(strict: bool) -> None:
    """Check the keys, the URLs, the database and this machine. Nothing is changed.

    Exit status 0: no problems. 1: at least one problem.
    """
    diagnosis = run_checks(current_app.config["GATEHOUSE"])
    for finding in diagnosis.findings:
        click.echo(f"{_MARKS[finding.level]}  {finding.topic}: {finding.message}")
        if finding.fix:
            click.echo(f"         -> {finding.fix}")
    is_noted = any(finding.level != "ok" for finding in diagnosis.findings)
    if not diagnosis.is_healthy or (strict and is_noted):
        raise SystemExit(1)
