"""A Python client that openapi-python-client generates from the OpenAPI document, used without edits."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.factories import Factory
from tests.support.servers import LiveServer

# The generator leaves out what is not JSON: images, CSV files and the lines of an export.
_EXPECTED = {"GET /audit-events/export", "PUT /organizations/{id}/logo", "POST /users/imports"}

Call = Callable[..., Any]


@pytest.fixture
def generated(live_server: LiveServer, tmp_path: Path) -> Iterator[str]:
    """Generate the package and return its name."""
    document, settings = tmp_path / "openapi.json", tmp_path / "config.yml"
    document.write_text(requests.get(f"{live_server.url}/openapi.json", timeout=20).text)
    settings.write_text("post_hooks: []\n")
    said = subprocess.run(
        [
            *(sys.executable, "-m", "openapi_python_client", "generate", "--meta", "none"),
            *("--path", document, "--config", settings, "--output-path", tmp_path / "generated_gatehouse"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
        timeout=120,
    )
    warned = re.findall(r"^(?:WARNING|ERROR) parsing (\S+ \S+) within", said.stdout, re.MULTILINE)
    assert set(warned) == _EXPECTED, said.stdout
    assert "Unable to process schema" not in said.stdout, said.stdout
    sys.path.insert(0, str(tmp_path))
    yield "generated_gatehouse"
    sys.path.remove(str(tmp_path))
    for name in [name for name in sys.modules if name.startswith("generated_gatehouse")]:
        del sys.modules[name]


def test_generated_client_manages_clients(
    generated: str, live_server: LiveServer, live_make: Factory
) -> None:
    models = importlib.import_module(f"{generated}.models")
    package = importlib.import_module(f"{generated}.client")
    token = live_make.bearer(live_make.organization())
    gatehouse = package.AuthenticatedClient(
        base_url=live_server.url, token=token, raise_on_unexpected_status=True
    )
    with gatehouse:
        _manage(generated, models, gatehouse)


def _manage(generated: str, models: Any, gatehouse: Any) -> None:
    def call(name: str, tag: str = "clients") -> Call:
        found: Call = importlib.import_module(f"{generated}.api.{tag}.{name}").sync
        return lambda *arguments, **named: found(*arguments, client=gatehouse, **named)

    made = call("register_client")(
        body=models.NewClientInOrganization(
            name="Orchard", redirect_uris=["https://orchard.example/callback"], scopes=["openid"]
        )
    )
    assert isinstance(made, models.RegisterClientResponse)
    assert made.data.client_secret.startswith("gth_cs_")
    client_id = made.data.client_id
    listed = call("list_clients")(limit=100)
    assert isinstance(listed, models.ListClientsResponse) and listed.meta.next_cursor is None
    assert [client.name for client in listed.data if client.client_id == client_id] == ["Orchard"]
    changed = call("update_client")(client_id, body=models.ClientChange(name="Meadow"))
    assert (changed.data.name, changed.meta.changed) == ("Meadow", ["name"])
    events = {event.action: event for event in call("list_audit_events", "audit_log")(target=client_id).data}
    registered = call("get_audit_event", "audit_log")(events["client.registered"].id).data
    assert registered.before is None and registered.after["name"] == "Orchard"
    assert events["client.updated"].before["name"] == "Orchard"
    refused = call("update_client")(
        client_id, body=models.ClientChange(redirect_uris=["http://meadow.example"])
    )
    assert isinstance(refused, models.ErrorResponse) and (refused.error_code, refused.error) == (
        400,
        "invalid_input",
    )
    assert [invalid.field for invalid in refused.errors] == ["redirect_uris[0]"]
    assert call("delete_client")(client_id).success is True
    gone = call("get_client")(client_id)
    assert isinstance(gone, models.ErrorResponse) and gone.error_code == 404
