"""``flask --app wsgi setup``: the first run without a browser."""

from __future__ import annotations

import sys

import click
from flask import current_app
from flask.cli import with_appcontext

from app.cli.refusals import refusing
from app.config import Config
from app.operations.organizations import setup


@click.command("setup")
@click.option("--email", help="E-mail address of the administrator.")
@click.option("--name", help="Name of the administrator; the part of the address before the @ when left out.")
@click.option("--organization", help="Name of the first organization.")
@click.option("--organization-id", help="Its id in addresses; follows the name when left out.")
@click.option("--password-stdin", is_flag=True, help="Read the password from standard input.")
@click.option("--link", is_flag=True, help="Only print a set-up link for the browser: one hour, one use.")
@with_appcontext
@refusing
def setup_command(
    email: str | None,
    name: str | None,
    organization: str | None,
    organization_id: str | None,
    password_stdin: bool,
    link: bool,
) -> None:
    """Make the administrator, the first organization and the first management client."""
    config: Config = current_app.config["GATEHOUSE"]
    if setup.is_set_up():
        raise click.ClickException("This installation is set up already.")
    if link:
        click.echo(f"{config.base_url}/setup?token={setup.issue_setup_token()}")
        return
    email = email or click.prompt("E-mail of the administrator", err=True)
    organization = organization or click.prompt("Name of the first organization", err=True)
    result = setup.complete_setup(
        None,
        email=email,
        name=name or email.split("@")[0],
        password=_password(from_stdin=password_stdin or not sys.stdin.isatty()),
        organization_name=organization,
        organization_id=organization_id,
    )
    # What programs read goes to standard output, one name=value a line.
    click.echo(f"GATEHOUSE_ADMINISTRATOR={result.email}")
    click.echo(f"GATEHOUSE_ORGANIZATION={result.organization_id}")
    click.echo(f"GATEHOUSE_CLIENT_ID={result.client_id}")
    click.echo(f"GATEHOUSE_CLIENT_SECRET={result.client_secret}")
    click.echo(f"Set up. Sign in at {config.base_url}/portal", err=True)


def _password(*, from_stdin: bool) -> str:
    if from_stdin:
        return sys.stdin.readline().rstrip("\n")
    return str(click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True))
