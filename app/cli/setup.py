"""``flask --app wsgi setup``: set up the installation without a browser."""

from __future__ import annotations

import sys

import click
from flask import current_app
from flask.cli import with_appcontext

from app.cli.errors import report_errors
from app.config import Config
from app.operations.organizations import setup


@click.command("setup")
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
@report_errors
def setup_command(
    email: str | None,
    name: str | None,
    organization: str | None,
    organization_id: str | None,
    password_stdin: bool,
    link: bool,
) -> None:
    """Create the administrator, the first organization and the first management client."""
    config: Config = current_app.config["GATEHOUSE"]
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
    click.echo(f"Setup complete. Sign in at {config.base_url}/portal", err=True)


def _password(*, from_stdin: bool) -> str:
    if from_stdin:
        return sys.stdin.readline().rstrip("\n")
    return str(click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True))
