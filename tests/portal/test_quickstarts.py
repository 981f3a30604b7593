"""The Quickstart tab: code with the client's own values, for each task that fits the client."""

from __future__ import annotations

import ast
import html
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from joserfc.jwk import ECKey, OKPKey, RSAKey

from app.operations.clients.resources import define_resource
from app.operations.store.usage_counters import counters
from app.portal.quickstarts import FOLDER, LANGUAGES, TASKS, quickstart_snippet, quickstart_text
from tests.support.caches import clear_recorded_uses

# Fields of the client, its tasks, and the languages of the first one.
CLIENTS: dict[str, tuple[dict[str, Any], list[str], set[str]]] = {
    "web": ({"redirect_uris": ["https://orchard.example/back", "http://localhost:3000/callback"]}, ["web"],
            {"python", "node", "nextjs", "go", "java", "php", "dotnet", "curl"}),
    "web without ID tokens": ({"scopes": ["orders:read"], "redirect_uris": ["http://localhost:3000/callback"]}, ["web"],
                              {"python", "node", "curl"}),
    "spa": ({"type": "spa", "redirect_uris": ["http://localhost:5173/"]}, ["spa"], {"browser"}),
    "pushed": ({"require_pushed_authorization_requests": True}, ["web"], {"node"}),
    "bound": ({"type": "machine", "scopes": ["orders:read"], "redirect_uris": [], "dpop_bound_access_tokens": True},
              ["service"], {"node"}),
    "ES256": ({"id_token_signed_response_alg": "ES256"}, ["web"],
              {"python", "node", "nextjs", "go", "dotnet", "curl"}),
    "EdDSA": ({"id_token_signed_response_alg": "EdDSA"}, ["web"], {"python", "node", "nextjs", "go", "curl"}),
    "native": ({"type": "native", "redirect_uris": ["http://127.0.0.1/callback"]}, ["web"],
               {"curl", "node", "python", "go"}),
    "machine": ({"type": "machine", "scopes": ["orders:read"], "redirect_uris": []}, ["service"],
                {"python", "node", "go", "java", "php", "dotnet", "curl"}),
    "api": ({"type": "machine", "scopes": [], "resources": ["https://api.example.com"], "redirect_uris": []},
            ["api"], {"python", "node", "go", "java", "php", "dotnet", "apache", "mcp"}),
    "api by post": ({"type": "machine", "scopes": [], "resources": ["https://api.example.com"], "redirect_uris": [],
                     "token_endpoint_auth_method": "client_secret_post"}, ["api"], {"dotnet"}),
    "device": ({"type": "device", "redirect_uris": []}, ["device"], {"python", "node", "curl"}),
    "post": ({"token_endpoint_auth_method": "client_secret_post"}, ["web"],
             {"python", "node", "nextjs", "go", "java", "php", "dotnet", "curl"}),
}  # fmt: skip
_BLOCK = re.compile(r'<pre tabindex="0" data-title="([^"]*)"><code>(.*?)</code></pre>', re.DOTALL)


def blocks(page: str) -> list[tuple[str, str]]:
    """Return the title and the code of each block of a page, as a browser copies it."""
    return [(title, html.unescape(re.sub(r"<[^>]+>", "", code))) for title, code in _BLOCK.findall(page)]


@pytest.mark.parametrize("kind", CLIENTS)
def test_every_quickstart_of_a_client_has_its_values_and_correct_syntax(
    ada: Any, acme: Any, make: Any, kind: str, tmp_path: Path
) -> None:
    fields, tasks, languages = CLIENTS[kind]
    client = make.client(acme, **fields)
    page = ada.get(f"/clients/{client.client_id}/quickstart").text
    offered = re.findall(r'href="\?task=(\w+)&amp;lang=(\w+)"', page)
    assert {task for task, _ in offered} == {tasks[0]}
    assert re.findall(r'href="\?task=(\w+)"', page) == (tasks if len(tasks) > 1 else [])
    assert {language for _, language in offered} == languages
    for task, language in offered:
        answer = ada.get(f"/clients/{client.client_id}/quickstart?task={task}&lang={language}")
        assert ("Waiting for your first token" in answer.text) == (task != "api")
        assert len(answer.data) < 50_000
        code = blocks(answer.text)
        everything = "\n".join(text for _, text in code)
        assert acme.issuer in everything and client.client_id in everything
        assert (client.registered.secret or "gth_cs_") not in answer.text
        if kind == "native":
            assert "http://127.0.0.1:8080/callback" in everything
        if kind == "web" and language != "nextjs":
            assert "localhost:3000" in everything and "/callback" in everything
        # Blocks without a title are commands, or parts of the guide, whose examples have a test.
        for title, text in code if task != "api" or language == "mcp" else []:
            check_syntax(title, text, tmp_path)


def check_syntax(title: str, code: str, folder: Path) -> None:
    suffix = Path(title).suffix
    file = folder / f"file{suffix}"
    file.write_text(code)
    if suffix == ".py":
        ast.parse(code)
    elif suffix == ".json":
        json.loads(code)
    elif suffix == ".mjs":
        subprocess.run(["node", "--check", file], check=True, capture_output=True)
    elif suffix == ".go" and shutil.which("gofmt"):
        assert (
            subprocess.run(["gofmt", "-l", file], check=True, capture_output=True, text=True).stdout == ""
        ), code
    elif suffix == ".sh":
        subprocess.run(["sh", "-n", file], check=True, capture_output=True)


def test_every_template_has_a_task_and_a_language() -> None:
    for path in FOLDER.glob("*.md"):
        task, language, suffix = path.name.split(".")
        assert (task in TASKS, language in LANGUAGES, suffix) == (True, True, "md")


@pytest.mark.parametrize(
    ("language", "written"),
    [("python", "os.environ"), ("node", "process.env"), ("curl", '"$CLIENT_ID:$CLIENT_SECRET"')],
)
def test_snippet_is_the_central_file(acme: Any, make: Any, language: str, written: str) -> None:
    client = make.client(acme, scopes=["openid"])
    snippet = quickstart_snippet(client.registered.client, language, organization=acme)
    assert snippet is not None and snippet.language == language
    assert written in snippet.code and client.client_id in snippet.code
    assert html.unescape(re.sub(r"<[^>]+>", "", snippet.html)) == snippet.code
    assert (language, LANGUAGES[language]) in snippet.languages


def test_values_cannot_end_their_strings(acme: Any, make: Any) -> None:
    """Scopes may have quotes, dollars and backticks (RFC 6749 section 3.3)."""
    client = make.client(acme, type="machine", redirect_uris=[], scopes=["a'b$(id)`id`"])
    for language in ("curl", "python", "node"):
        snippet = quickstart_snippet(client.registered.client, language, organization=acme)
        assert snippet is not None
        if language == "curl":
            assert "'scope=a'\"'\"'b$(id)`id`'" in snippet.code
        else:
            assert '"a\'b$(id)`id`"' in snippet.code


def test_code_listens_where_the_redirect_uri_leads(acme: Any, make: Any) -> None:
    """Also at an IPv6 address, whose colons need brackets in a URL; and Auth.js decides about the path of its own."""
    loopback = make.client(acme, redirect_uris=["http://[::1]:3000/callback"])
    own = "http://localhost:3001/api/auth/callback/gatehouse"
    authjs = make.client(acme, redirect_uris=["http://localhost:8080/callback", own])
    cases = (
        (loopback, "go", 'ListenAndServe("[::1]:3000"'),
        (loopback, "dotnet", 'app.Run("http://[::1]:3000")'),
        (loopback, "php", "php -S '[::1]:3000' index.php"),
        (loopback, "python", "--host ::1 --port 3000"),
        (loopback, "nextjs", "such as `http://[::1]:3000/api/auth/callback/gatehouse`"),
        (authjs, "nextjs", "next dev --port 3001"),
        (authjs, "node", ".listen(8080,"),
        # openid-client refuses plain http otherwise.
        (authjs, "node", "execute: [client.allowInsecureRequests]"),
    )
    assert acme.issuer.startswith("http:")
    for client, language, expected in cases:
        text = quickstart_text(client.registered.client, "web", language, organization=acme)
        assert expected in text, (language, text)
    assert "Register that redirect URI" not in quickstart_text(
        authjs.registered.client, "web", "nextjs", organization=acme
    )


def test_token_of_a_service_has_all_scopes_of_its_client(
    acme: Any, make: Any, app: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those of other APIs than the one that the client stands for."""
    identifiers = ["https://orders.example.com", "https://stock.example.com"]
    for identifier, scope in zip(identifiers, ("orders:read", "stock:read"), strict=True):
        described = {"identifier": identifier, "name": scope, "scopes": [{"name": scope}]}
        with app.app_context():
            define_resource(make.system(acme), described | {"access_policy": "open"})
    fields = {"type": "machine", "redirect_uris": [], "scopes": ["orders:read", "stock:read"]}
    client = make.client(acme, resources=identifiers[:1], **fields)

    def post(url: str, data: dict[str, str], auth: tuple[str, str], timeout: int) -> Any:
        answer = app.test_client().post(url, data=data, auth=auth)
        issued.append(answer.get_json())
        return SimpleNamespace(ok=answer.status_code == 200, json=answer.get_json)

    issued: list[dict[str, Any]] = []
    monkeypatch.setitem(sys.modules, "requests", SimpleNamespace(post=post))
    monkeypatch.setenv("CLIENT_SECRET", client.registered.secret)
    snippet = quickstart_snippet(client.registered.client, "python", organization=acme)
    assert snippet is not None
    exec(snippet.code, {})  # noqa: S102 - the code that the page prints
    assert issued[0]["scope"] == "orders:read stock:read"


def test_code_in_node_reads_every_key_that_can_be_registered(acme: Any, make: Any, tmp_path: Path) -> None:
    """Also keys that do not name their algorithm."""
    keys = (
        (RSAKey.generate_key(2048), {}, "RSASSA-PKCS1-v1_5"),
        (RSAKey.generate_key(2048), {"alg": "PS256"}, "RSA-PSS"),
        (ECKey.generate_key("P-256"), {}, "ECDSA"),
        (OKPKey.generate_key("Ed25519"), {}, "Ed25519"),
    )
    for key, named, expected in keys:
        client = make.client(
            acme,
            type="machine",
            redirect_uris=[],
            scopes=["orders:read"],
            token_endpoint_auth_method="private_key_jwt",
            jwks={"keys": [key.as_dict(private=False) | named]},
        )
        code = quickstart_text(client.registered.client, "service", "node", organization=acme)
        reading = code[code.index("import { readFile }") : code.index("const config")]
        (tmp_path / "key.mjs").write_text(f"{reading}console.log(privateKey.algorithm.name);")
        (tmp_path / "private-key.json").write_text(json.dumps(key.as_dict(private=True) | named))
        command = ["node", "--experimental-global-webcrypto", "key.mjs"]
        ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert ran.stdout == f"{expected}\n", ran.stderr


def test_device_script_waits_longer_after_each_slow_down(acme: Any, make: Any, tmp_path: Path) -> None:
    client = make.client(acme, type="device", redirect_uris=[], scopes=["openid"])
    snippet = quickstart_snippet(client.registered.client, "curl", organization=acme)
    assert snippet is not None
    (tmp_path / "1").write_text('{"device_code":"d","verification_uri_complete":"u","interval":7}')
    for number, error in enumerate(("authorization_pending", "slow_down", "slow_down", "access_denied"), 2):
        (tmp_path / str(number)).write_text(f'{{"error":"{error}"}}')
    # The programs of the script: one returns the next response, the other notes the pause.
    stubs = {"curl": "echo >>asked; cat $(grep -c '' asked)", "sleep": 'echo "$1" >>pauses'}
    for name, line in stubs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / name).chmod(0o755)
    path = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    subprocess.run(["sh", "-c", snippet.code], cwd=tmp_path, env=path, check=True, timeout=60)
    assert (tmp_path / "pauses").read_text().split() == ["7", "7", "12", "17"]


def test_page_learns_of_the_first_token(ada: Any, acme: Any, make: Any, app: Any) -> None:
    client = make.client(acme, type="machine", redirect_uris=[], scopes=["orders:read"])
    path = f"/clients/{client.client_id}/quickstart"

    def request_token(scope: str) -> int:
        fields = {"grant_type": "client_credentials", "scope": scope}
        answer = app.test_client().post("/oauth/token", data=fields, headers=client.basic)
        with app.app_context():
            counters.flush()
        return answer.status_code

    ada.get(path)
    assert "Waiting for your first token" in ada.text
    assert ada.get(f"{path}/state").get_json() == {"has_token": False}
    clear_recorded_uses()
    assert request_token("orders:write") == 400
    assert ada.get(f"{path}/state").get_json() == {"has_token": False}
    ada.get(path)
    assert "A request arrived, but no token was issued" in ada.text
    assert request_token("orders:read") == 200
    assert ada.get(f"{path}/state").get_json() == {"has_token": True}
    assert '<p class="note ok" id="first-token"' in ada.get(path).text


def test_unknown_language_is_not_found(ada: Any, acme: Any, make: Any) -> None:
    client = make.client(acme)
    assert ada.get(f"/clients/{client.client_id}/quickstart?lang=cobol").status_code == 404
    snippet = quickstart_snippet(client.registered.client, "cobol", organization=acme)
    assert snippet is not None and snippet.language == "python"
