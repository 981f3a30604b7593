"""A third-party MCP client connects to the documented example server, knowing only its URL."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest
import requests
from mcp import Client
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from pydantic import AnyUrl

from app.operations.clients.resources import define_resource
from app.operations.directory.lookups import OrganizationSnapshot
from tests.factories import Factory, MadeUser
from tests.support import process
from tests.support.databases import MariaDBDatabase
from tests.support.dpop import Prover
from tests.support.form_browser import FormBrowser
from tests.support.https_server import Request, Response, https_server
from tests.support.mariadb import MariaDB
from tests.support.servers import ROOT, LiveServer

CALLBACK = "http://127.0.0.1:33418/callback"
EXAMPLE = ROOT / "docs" / "examples" / "mcp_server.py"


class Memory:
    """An agent's storage: tokens and its registration."""

    def __init__(self) -> None:
        self.tokens: OAuthToken | None = None
        self.client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


def agent_of(
    client_id: str | None, url: str, visitor: FormBrowser, user: MadeUser, memory: Memory
) -> OAuthClientProvider:
    """Return an agent on the user's device; ``client_id`` is the URL of its metadata, if it has one."""
    came_back: dict[str, str] = {}

    async def open_browser(address: str) -> None:
        page = await asyncio.to_thread(visitor.visit, address)
        if page.left is None and page.has("login-submit"):
            page = await asyncio.to_thread(visitor.sign_in, page, user.email, user.password)
        assert page.left is None and page.has("client-origin"), page.text[:2000]
        assert "127.0.0.1:33418" in page.text, "DC-4: the page names where the answer goes"
        page = await asyncio.to_thread(visitor.press, page, "consent-allow")
        assert page.left is not None and page.left.startswith(CALLBACK), page.text[:2000]
        came_back.update(page.query)

    async def wait_for_callback() -> AuthorizationCodeResult:
        return AuthorizationCodeResult(
            code=came_back["code"], state=came_back["state"], iss=came_back.get("iss")
        )

    return OAuthClientProvider(
        server_url=url,
        client_metadata=OAuthClientMetadata(
            client_name="Heron Agent",
            redirect_uris=[AnyUrl(CALLBACK)],
            grant_types=["authorization_code", "refresh_token"],
            response_types=["code"],
            token_endpoint_auth_method="none",
        ),
        storage=memory,
        redirect_handler=open_browser,
        callback_handler=wait_for_callback,
        client_metadata_url=client_id,
    )


def answered(url: str, agent: OAuthClientProvider) -> str:
    """Call the tool in a new thread, because an earlier browser test may have left an event loop running
    here.
    """
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: asyncio.run(tool_answer(url, agent))).result()


async def tool_answer(url: str, agent: OAuthClientProvider) -> str:
    """Return the tool's response to an agent that knows only the server's URL."""
    async with httpx2.AsyncClient(auth=agent, timeout=20, follow_redirects=True) as http:
        transport = streamable_http_client(url, http_client=http)
        async with Client(transport) as client:
            result = await client.call_tool("read_note", {"number": 7})
    return "".join(getattr(part, "text", "") for part in result.content)


@pytest.fixture
def example(scratch: Path) -> Iterator[Callable[[Factory, OrganizationSnapshot], str]]:
    """Start the documented server for an organization and return its URL."""
    started = []

    def start(make: Factory, organization: OrganizationSnapshot) -> str:
        port = process.free_port()
        url = f"http://127.0.0.1:{port}/mcp"
        with make.app.app_context():
            fields = {"identifier": url, "name": "Field notes", "scopes": [{"name": "notes:read"}]}
            define_resource(make.actor(organization), fields)
        checker = make.client(
            organization,
            name="Field notes server",
            type="machine",
            scopes=[],
            redirect_uris=[],
            grant_types=["client_credentials"],
            resources=[url],
        )
        env = os.environ | {
            "ISSUER": organization.issuer,
            "RESOURCE": url,
            "CLIENT_ID": checker.client_id,
            "CLIENT_SECRET": checker.secret,
        }
        log = scratch / f"mcp-{port}.log"
        started.append(process.start([sys.executable, str(EXAMPLE)], log, env=env, cwd=ROOT))
        process.wait_until(lambda: _answers(url), f"the example server (log: {log})", seconds=30)
        return url

    yield start
    for running in started:
        process.stop(running)


def _answers(url: str) -> bool:
    try:
        return requests.post(url, json={}, timeout=2).status_code == 401
    except requests.RequestException:
        return False


def test_agent_registers_itself_and_calls_a_tool(
    live_server: LiveServer, live_make: Factory, example: Callable[[Factory, OrganizationSnapshot], str]
) -> None:
    """Resource metadata, issuer metadata, RFC 7591, code with PKCE and resource, then the tool."""
    organization = live_make.organization(settings={"oauth": {"dynamic_registration": {"mode": "open"}}})
    user, memory = live_make.user(organization), Memory()
    url = example(live_make, organization)
    agent = agent_of(None, url, FormBrowser(live_server.url), user, memory)
    assert answered(url, agent) == f"Note 7 of {user.public_id}: herons by the weir."
    assert memory.client is not None and str(memory.client.client_id).startswith("cli_")
    assert memory.tokens is not None and memory.tokens.refresh_token
    machine, prover = live_make.machine(organization, "notes:read", resources=[url]), Prover()
    endpoint = f"{organization.issuer}/oauth/token"
    form = {"grant_type": "client_credentials", "scope": "notes:read"}
    for proof, is_accepted in (({}, True), (prover.headers("POST", endpoint), False)):
        issued = requests.post(endpoint, data=form, headers=machine.basic | proof, timeout=20)
        bearer = {"Authorization": f"Bearer {issued.json()['access_token']}"}
        assert (requests.post(url, json={}, headers=bearer, timeout=20).status_code != 401) == is_accepted


def test_agent_uses_its_metadata_url_and_calls_a_tool(
    mariadb: MariaDB,
    instance: Path,
    scratch: Path,
    worker: str,
    example: Callable[[Factory, OrganizationSnapshot], str],
) -> None:
    """DC-3: one setting enables it for an organization."""

    def document(request: Request) -> Response:
        body: dict[str, Any] = {
            "client_id": address,
            "client_name": "Heron Agent",
            "redirect_uris": [CALLBACK],
            "grant_types": ["authorization_code", "refresh_token"],
            "token_endpoint_auth_method": "none",
        }
        return Response(200, json.dumps(body).encode(), {"Content-Type": "application/json"})

    with https_server(document) as publisher:
        address = f"{publisher.base_url}/agent.json"
        server = LiveServer(
            MariaDBDatabase(mariadb, f"mcp_{worker}"),
            instance,
            scratch / "mcp-gatehouse.log",
            settings=publisher.settings,
        )
        server.start()
        try:
            make = Factory(server.app)
            rules = {"dynamic_registration": {"client_id_metadata_documents": True}}
            organization = make.organization(settings={"oauth": rules})
            user, memory = make.user(organization), Memory()
            url = example(make, organization)
            agent = agent_of(address, url, FormBrowser(server.url), user, memory)
            told = answered(url, agent)
        finally:
            server.stop()
    assert told == f"Note 7 of {user.public_id}: herons by the weir."
    assert memory.client is not None and memory.client.client_id == address
    assert len(publisher.requests) >= 1
