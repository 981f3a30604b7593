"""``flask --app wsgi``: set up, start, check and purge the installation, and create demo data."""

from __future__ import annotations

import logging
import sys

import click
from flask.cli import with_appcontext
from flask_migrate import upgrade

from app.cli.operator import OperatorCommand
from app.config import UnsafeConfiguration, current
from app.operations.maintenance import demo, doctor
from app.operations.maintenance.demo import DemoData
from app.operations.maintenance.doctor import run_checks
from app.operations.maintenance.janitor import purge_expired
from app.operations.maintenance.master_key import require_master_key
from app.operations.organizations import setup
from app.operations.store.checkpoints import require_current_database
from app.rules.actor import Actor

_MARKS = {"ok": "ok   ", "warning": "note ", "problem": "WRONG"}


def before_serving(*, demo_app_url: str | None = None) -> dict[str, str]:
    """Migrate the schema, and print the setup link of a new installation or the sign-ins of the demo.

    With ``demo_app_url`` the demo data is created, unless others use the database. Return the demo app's environment.
    """
    config = current()
    doctor.require_database()
    # Before anything is written (KY-6).
    require_master_key()
    require_current_database()
    if doctor.has_pending_migrations():
        if doctor.has_schema():
            _say("Updating the database schema.")
        else:
            _say("Creating the database schema.")
            # Dozens of steps that follow each other at once would hide the setup link.
            logging.getLogger("alembic.runtime.migration").setLevel(logging.WARNING)
        upgrade()
    if demo_app_url is not None:
        if setup.is_set_up() and not demo.has_demo():
            raise UnsafeConfiguration(
                "This installation is in use, so --demo does not add its data. To try the demo, start an instance of "
                "its own: env -u DATABASE_URL GATEHOUSE_INSTANCE=demo script/server --demo. To add the data here "
                "nevertheless: .venv/bin/flask --app wsgi demo"
            )
        made = fill_and_print(demo_app_url)
        return {
            "ISSUER": made.issuer,
            "CLIENT_ID": made.app.client_id,
            "CLIENT_SECRET": made.app.client_secret or "",
        }
    if not setup.is_set_up():
        _say(
            "",
            "This installation is new. Open this link within an hour to set it up. It can be used once:",
            "",
        )
        _say(f"    {config.base_url}/setup?token={setup.issue_setup_token()}", "")
    return {}


def _say(*lines: str) -> None:
    print(*lines, sep="\n", file=sys.stderr, flush=True)


@click.command("demo", cls=OperatorCommand)
@with_appcontext
def demo_command() -> None:
    """Create the organization acme with users, clients and traffic, and print how to sign in.

    If it was created before, only print how to sign in.
    """
    fill_and_print()


def fill_and_print(app_url: str = demo.APP_URL) -> DemoData:
    """Create the demo organization if it is missing, and print its sign-ins; ``app_url`` is the demo app's."""
    config = current()
    made = demo.create_demo(app_url)
    width = max(len(person.email) for person in made.sign_ins)
    click.echo("\nSign in with these, unless you changed a password:\n")
    for person in made.sign_ins:
        click.echo(f"    {person.email:{width}}  {person.password}  {person.role}")
        click.echo(f"    {'':{width}}  {config.base_url}/organizations/{person.organization_id}/login")
    if made.clients:
        click.echo("\nClients:\n")
    for client in made.clients:
        click.echo(f"    {client.name}\n        {client.client_id}")
        if client.client_secret is not None:
            click.echo(f"        {client.client_secret}")
    click.echo("")
    return made


@click.command("doctor")
@click.option("--strict", is_flag=True, help="Treat notes as problems.")
@with_appcontext
def doctor_command(strict: bool) -> None:
    """Check the keys, the URLs, the database and this machine. Nothing is changed.

    Exit status 0: no problems. 1: at least one problem.
    """
    diagnosis = run_checks(current())
    for finding in diagnosis.findings:
        click.echo(f"{_MARKS[finding.level]}  {finding.topic}: {finding.message}")
        if finding.fix:
            click.echo(f"         -> {finding.fix}")
    is_noted = any(finding.level != "ok" for finding in diagnosis.findings)
    if not diagnosis.is_healthy or (strict and is_noted):
        raise SystemExit(1)


@click.command("purge", cls=OperatorCommand)
@with_appcontext
def purge_command() -> None:
    """Delete what expired more than a day ago, and clients and organizations deleted 30 days ago.

    Exit status 0: done. 2: another worker is purging.
    """
    gone = purge_expired(Actor.system("", "command line"))
    if gone is None:
        click.echo("Another worker is purging. Try again later.", err=True)
        raise SystemExit(2)
    for table, count in sorted(gone.items()):
        click.echo(f"{table}: {count}")
    click.echo(f"{sum(gone.values())} rows deleted.", err=True)


@click.command("setup", cls=OperatorCommand)
@click.option("--email", help="Email address of the administrator.")
@click.option("--name", help="Name of the administrator (default: the part of the email before the @).")
@click.option("--organization", help="Name of the first organization.")
@click.option("--organization-id", help="Its ID in URLs (default: made from the name).")
@click.option("--password-stdin", is_flag=True, help="Read the password from standard input.")
@click.option(
    "--link",
    is_flag=True,
    help="Only print a setup link for the browser: one use, one hour.",
)
@with_appcontext
def setup_command(
    email: str | None,
    name: str | None,
    organization: str | None,
    organization_id: str | None,
    password_stdin: bool,
    link: bool,
) -> None:
    """Create the administrator, the first organization and the first management client."""
    config = current()
    if setup.is_set_up():
        raise click.ClickException("This installation is already set up.")
    if link:
        click.echo(f"{config.base_url}/setup?token={setup.issue_setup_token()}")
        return
    email = email or click.prompt("Email of the administrator", err=True)
    organization = organization or click.prompt("Name of the first organization", err=True)
    result = setup.complete_setup(
        None,
        email=email,
        name=name or email.split("@")[0],
        password=_password(from_stdin=password_stdin or not sys.stdin.isatty()),
        organization_name=organization,
        organization_id=organization_id,
    )
    # Standard output is for programs: one name=value per line.
    click.echo(f"GATEHOUSE_ADMINISTRATOR={result.email}")
    click.echo(f"GATEHOUSE_ORGANIZATION={result.organization_id}")
    click.echo(f"GATEHOUSE_CLIENT_ID={result.client_id}")
    click.echo(f"GATEHOUSE_CLIENT_SECRET={result.client_secret}")
    sign_in = f"{config.base_url}/organizations/{result.organization_id}/login"
    click.echo(f"Setup complete. Sign in to {result.organization_name} at {sign_in}", err=True)
    click.echo(
        f"To manage all organizations, sign in at {config.base_url}/organizations/root/login", err=True
    )


def _password(*, from_stdin: bool) -> str:
    if from_stdin:
        return sys.stdin.readline().rstrip("\n")
    return str(click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True))
