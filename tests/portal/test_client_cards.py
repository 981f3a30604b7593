"""The cards that begin a registration: what is no type of its own has a card too."""

from __future__ import annotations

from typing import Any

from app.operations.clients.clients import list_clients
from app.operations.clients.resources import define_resource


def test_who_builds_an_api_is_led_to_define_it(ada: Any) -> None:
    ada.get("/clients/new")
    assert "API or MCP server" in ada.text and "AI agent or MCP client" in ada.text
    assert ada.get("/clients/new?type=api").headers["Location"].endswith("/apis/new")


def test_an_agent_is_a_public_client_of_the_apis_that_were_chosen(
    ada: Any, acme: Any, app: Any, make: Any
) -> None:
    fields = {
        "identifier": "https://notes.example/mcp",
        "name": "Field notes",
        "scopes": [{"name": "notes:read"}],
    }
    ada.get("/clients/new?type=agent")
    assert "No API is defined yet" in ada.text and "bring an id of their own" in ada.text
    with app.app_context():
        define_resource(make.actor(acme), fields)
    ada.get("/clients/new?type=agent")
    ada.send(
        "/clients/new",
        type="native",
        is_agent="y",
        name="Scribe",
        redirect_uris="http://127.0.0.1/callback",
        scopes=["notes:read"],
        resources=["https://notes.example/mcp"],
    )
    with app.app_context():
        [client] = list_clients(make.actor(acme), query="Scribe").items
    assert client.type == "native" and list(client.resources) == ["https://notes.example/mcp"]
    assert client.token_endpoint_auth_method == "none"
