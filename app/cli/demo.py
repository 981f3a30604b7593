"""``flask --app wsgi demo``: create a demo organization and print its sign-ins."""

from __future__ import annotations

import click
from flask import current_app
from flask.cli import with_appcontext

from app.cli.errors import report_errors
from app.config import Config
from app.operations.maintenance import demo


@click.command("demo")
@with_appcontext
@report_errors
def demo_command() -> None:
    """Create the organization acme with users, clients and traffic, and print how to sign in."""
    fill_and_print()


def fill_and_print() -> None:
    """Create the demo organization and print its sign-ins. The passwords are generated now and not stored in clear."""
    config: Config = current_app.config["GATEHOUSE"]
    made = demo.create_demo()
    width = max(len(person.email) for person in made.sign_ins)
    click.echo("\nSign in with:\n")
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
