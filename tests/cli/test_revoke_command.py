"""``revoke``: preview, revocation, and an error without a selection."""

from __future__ import annotations

import re

from flask import Flask

from tests.cli.test_commands import run
from tests.factories import Factory, bearer_header
from tests.support.server_script import ROOT


def test_tokens_are_counted_and_then_revoked(app: Flask, make: Factory) -> None:
    acme = make.organization("acme")
    ada = make.user(acme)
    client = make.machine(acme, "clients:read")
    form = {"grant_type": "client_credentials"}
    http = app.test_client()
    token = http.post("/oauth/token", data=form, headers=client.basic).get_json()["access_token"]

    def is_alive() -> bool:
        return http.get("/clients", headers=bearer_header(token)).status_code == 200

    chosen = ("--organization", "acme", "--client", client.client_id)
    counted = run(app, "revoke", *chosen, "--dry-run")
    assert counted.exit_code == 0 and ": 1 access tokens" in counted.stdout, counted.output
    assert is_alive()
    done = run(app, "revoke", *chosen, "--reason", "Laptop lost")
    assert done.exit_code == 0 and done.stdout.splitlines()[1].startswith("rev_"), done.output
    assert not is_alive()
    assert run(app, "revoke", "--organization", "acme", "--user", ada.email).exit_code == 0
    assert run(app, "revoke", "--organization", "acme", "--all", "--sessions").exit_code == 0


def test_commands_of_the_incidents_page_succeed(app: Flask, make: Factory) -> None:
    """They are typed when nobody has time to look up what is wrong with them."""
    make.root()
    acme = make.organization("acme")
    make.user(acme, email="bob@acme.example")
    client = make.machine(acme, "clients:read")
    page = (ROOT / "docs/operations/incidents.md").read_text()
    commands = re.findall(
        r"`gatehouse ((?:audit|clients|keys rotate|organizations|revoke|users) [^`]+)`", page
    )
    assert len(commands) >= 9
    for command in commands:
        done = run(app, *command.replace("CLIENT_ID", client.client_id).split())
        assert done.exit_code == 0, (command, done.output)


def test_missing_selection_revokes_nothing(app: Flask, make: Factory) -> None:
    make.organization("acme")
    for selection in ((), ("--all", "--client", "x")):
        result = run(app, "revoke", "--organization", "acme", *selection)
        assert result.exit_code == 1 and "exactly one" in result.stderr
    wrong = run(app, "revoke", "--organization", "acme", "--all", "--issued-before", "yesterday")
    assert wrong.exit_code == 1 and "issued_before" in wrong.stderr
