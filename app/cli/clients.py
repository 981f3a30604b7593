"""``flask --app wsgi clients``: list, disable and enable clients, for example after a secret was stolen."""

from __future__ import annotations

import click

from app.cli.operator import OperatorGroup, operator
from app.operations.clients.client_records import ClientRecord, list_clients
from app.operations.clients.clients import update_client
from app.operations.store.rows import iterate_pages

clients_commands = OperatorGroup("clients", help="Clients of an organization.")
_organization = click.option("--organization", required=True, help="ID of the organization.")
_client_id = click.argument("client_id")


@clients_commands.command("list")
@_organization
@click.option("--search", help="Part of a name.")
def list_command(organization: str, search: str | None) -> None:
    """List clients: client_id, status, name."""
    for client in iterate_pages(list_clients, operator(organization), query=search):
        _show(client)


@clients_commands.command("disable")
@_organization
@_client_id
def disable_command(organization: str, client_id: str) -> None:
    """Disable CLIENT_ID: it gets no tokens, and those that it has are rejected until it is enabled again.

    The command revoke ends them for good.
    """
    _set_status(organization, client_id, "disabled")


@clients_commands.command("enable")
@_organization
@_client_id
def enable_command(organization: str, client_id: str) -> None:
    """Enable CLIENT_ID again."""
    _set_status(organization, client_id, "active")


def _set_status(organization: str, client_id: str, status: str) -> None:
    _show(update_client(operator(organization), client_id, {"status": status}).client)


def _show(client: ClientRecord) -> None:
    click.echo(f"{client.client_id} {client.status} {client.name}")
