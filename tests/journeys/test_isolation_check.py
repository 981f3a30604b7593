"""``isolation-check`` on a running server of two workers."""

from __future__ import annotations

import re

from app.operations.directory.lookups import get_root_organization
from app.operations.maintenance import janitor
from app.rules.actor import Actor
from tests.cli.test_commands import run
from tests.factories import Factory
from tests.support.servers import LiveServer


def test_isolation_check_passes_on_a_running_server_and_leaves_nothing(
    live_server: LiveServer, live_make: Factory
) -> None:
    """TN-1, TN-2, TN-3, TN-6, TN-15, TN-16. The janitor purges the organizations of the check."""
    app = live_server.app
    result = run(app, "isolation-check", "--url", live_server.url)
    assert result.exit_code == 0, result.output
    last = result.stdout.splitlines()[-1]
    counted = {group: int(count) for count, group in re.findall(r"(\d+) on (\w+)", last)}
    assert (
        counted["api"] > 130 and counted["pages"] > 100 and counted["OAuth"] > 10 and counted["tables"] > 20
    )
    assert "none went through" in result.stdout
    assert "not tried" not in result.output
    assert "isolation-" in run(app, "organizations", "list", "--status", "deleted").stdout
    with app.app_context():
        janitor.purge_expired(Actor.system(get_root_organization().id), pause=0)
    for status in ("active", "deleted"):
        assert "isolation-" not in run(app, "organizations", "list", "--status", status).stdout


def test_unreachable_server_is_reported(live_server: LiveServer, live_make: Factory) -> None:
    result = run(live_server.app, "isolation-check", "--url", "http://127.0.0.1:9")
    assert result.exit_code == 1 and "does not answer" in result.output
