"""The first page of a registration: APIs and agents have cards of their own."""

from __future__ import annotations

from typing import Any

from app.operations.clients.client_records import list_clients
from app.operations.clients.resources import define_resource


def test_api_card_leads_to_api_form(ada: Any) -> None:
    ada.get("/clients/new")
    assert "API or MCP server" in ada.text and "AI agent or MCP client" in ada.text
    assert ada.get("/clients/new?type=api").headers["Location"].endswith("/apis/new")


def test_agent_is_registered_as_public_client_of_chosen_apis(
    ada: Any, acme: Any, app: Any, make: Any
) -> None:
    fields = {
        "identifier": "https://notes.example/mcp",
        "name": "Field notes",
        "scopes": [{"name": "notes:read"}],
    }
    ada.get("/clients/new?type=agent")
    assert "There are no APIs yet" in ada.text and "client ID metadata document" in ada.text
    with app.app_context():
        define_resource(make.actor(acme), fields)
    ada.get("/clients/new?type=agent")
    ada.send(
        "/clients/new?type=agent",
        name="Scribe",
        redirect_uris="http://127.0.0.1/callback",
        scopes=["notes:read"],
        resources=["https://notes.example/mcp"],
    )
    with app.app_context():
        [client] = list_clients(make.actor(acme), query="Scribe").items
    assert client.type == "native" and list(client.resources) == ["https://notes.example/mcp"]
    assert client.token_endpoint_auth_method == "none"
