"""``clients``: list, disable and enable."""

from __future__ import annotations

from flask import Flask

from tests.cli.test_commands import run
from tests.factories import Factory


def test_client_is_listed_disabled_and_enabled(app: Flask, make: Factory) -> None:
    client = make.machine(make.organization("acme"), "clients:read", name="Reports")
    other = make.client(make.organization("globex"))
    asked = {"grant_type": "client_credentials"}

    def may_get_tokens() -> bool:
        return app.test_client().post("/oauth/token", data=asked, headers=client.basic).status_code == 200

    here = ("--organization", "acme")
    for command, status in (("disable", "disabled"), ("enable", "active")):
        done = run(app, "clients", command, *here, client.client_id)
        assert done.stdout == f"{client.client_id} {status} Reports\n", done.output
        assert may_get_tokens() == (status == "active")
        assert run(app, "clients", "list", *here).stdout == done.stdout
    assert run(app, "clients", "list", *here, "--search", "none").stdout == ""
    refused = run(app, "clients", "disable", *here, other.client_id)
    assert refused.exit_code == 1 and "no such client" in refused.stderr
