"""``flask --app wsgi keys``: the signing keys of organizations, and the master key."""

from __future__ import annotations

import os

import click

from app.cli.operator import OperatorGroup, operator
from app.config import UnsafeConfiguration, current, wrap_key
from app.operations.maintenance import master_key
from app.operations.store import keyring
from app.operations.tokens import signing_key_lists
from app.operations.tokens.signing_key_lists import SigningKeyRecord
from app.rules.actor import Actor
from app.rules.clients.client_types import SIGNING_ALGORITHMS

keys_commands = OperatorGroup("keys", help="Signing keys of organizations, and the master key.")
_organization = click.option(
    "--organization", default="root", show_default=True, help="ID of the organization."
)


@keys_commands.command("list")
@_organization
def list_command(organization: str) -> None:
    """List the published keys: algorithm, state, next change, kid."""
    for key in signing_key_lists.list_signing_keys(operator(organization), organization):
        click.echo(_line(key))


@keys_commands.command("rotate")
@_organization
@click.option(
    "--algorithm", type=click.Choice(SIGNING_ALGORITHMS), help="Default: the algorithm in the settings."
)
@click.option(
    "--now", is_flag=True, help="Replace and withdraw the key at once, because it may have been exposed."
)
def rotate_command(organization: str, algorithm: str | None, now: bool) -> None:
    """Publish the next signing key. It is used for signing after one day.

    The previous key stays published until everything it signed has expired. With --now it is withdrawn instead,
    with every other key of the algorithm.
    """
    key = signing_key_lists.rotate_signing_key(
        operator(organization), organization, {"algorithm": algorithm, "emergency": now}
    )
    click.echo(_line(key))
    if now:
        click.echo(
            "The new key is in use. ID tokens and JWT access tokens signed by earlier keys are no longer valid: users "
            "have to sign in to their apps again, and APIs reject tokens until apps fetch new ones. Verifiers may "
            "cache the withdrawn keys for up to five minutes.",
            err=True,
        )
    elif key.state == "next":
        click.echo("The key is published. It is used for signing after one day.", err=True)
    else:
        click.echo("The key is in use. The previous key stays published for another day.", err=True)


@keys_commands.command("rewrap")
def rewrap_command() -> None:
    """Wrap every organization's data key with the new master key.

    GATEHOUSE_MASTER_KEY (or …_FILE) is the new one, GATEHOUSE_PREVIOUS_MASTER_KEY (or …_FILE) the old one. Servers
    that have both keep working in the meantime. An interrupted run continues where it stopped.
    """
    done = master_key.rewrap_data_keys(Actor.system("", "command line"))
    click.echo(f"rewrapped {done.rewrapped}, already wrapped with the new key {done.unchanged}")
    if done.unreadable:
        raise click.ClickException(
            f"Neither key opens the data keys of: {', '.join(done.unreadable)}. Keep both keys and restore "
            "the master key of these organizations."
        )
    click.echo(
        "All data keys are wrapped with the new master key. The old one is no longer needed.", err=True
    )


@keys_commands.command("wrap")
@click.option("--kms", help="URL of the service's key: vault://… or pkcs11:…")
@click.option("--plain", is_flag=True, help="Print the key itself, to keep it in a file without a service.")
@click.option("--key", type=click.Choice(["master", "secret"]), default="master", show_default=True)
@click.option("--new", is_flag=True, help="A new random key instead of the one in use.")
def wrap_command(kms: str | None, plain: bool, key: str, new: bool) -> None:
    """Print this installation's key, wrapped by a key management service.

    Only the service opens it, so it can be copied to other hosts openly. Write it to a new file, never to that of the
    key in use, which would be lost. Name it by GATEHOUSE_MASTER_KEY_FILE or GATEHOUSE_SECRET_KEY_FILE, and restart.
    """
    if (kms is None) != plain:
        raise click.UsageError("Give either --kms URL or --plain.")
    own = current().master_key if key == "master" else current().secret_key
    found = os.urandom(32) if new else own
    try:
        click.echo(found.hex() if kms is None else wrap_key(os.environ, kms, found))
    except UnsafeConfiguration as refusal:
        raise click.ClickException(str(refusal)) from refusal
    click.echo(f"Fingerprint of the {key} key: {keyring.fingerprint(found)}", err=True)


def _line(key: SigningKeyRecord) -> str:
    return f"{key.algorithm} {key.state} {key.changes_at:%Y-%m-%dT%H:%M:%SZ} {key.kid}"
