"""The examples of docs/api-tokens.md in Python and JavaScript accept only valid tokens for their API."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import requests
from flask import Flask

from tests.factories import Factory, MadeClient
from tests.support.servers import ROOT, LiveServer

AUDIENCE = "https://api.example.com"
DOCUMENT = (ROOT / "docs" / "api-tokens.md").read_text()
PYTHON = re.findall(r"```python\n(.*?)```", DOCUMENT, re.DOTALL)
JAVASCRIPT = re.findall(r"```javascript\n(.*?)```", DOCUMENT, re.DOTALL)
NODE = ROOT / "tests" / "journeys" / "node"

Validate = Callable[[str], dict[str, Any]]


class Tokens:
    """Tokens of an organization, and the environment of an API that validates them."""

    def __init__(self, server: LiveServer, make: Factory) -> None:
        self.server, self.make, self.organization = server, make, make.organization()
        api = make.machine(self.organization, resources=[AUDIENCE])
        self.environment = {
            "ISSUER": self.organization.issuer,
            "AUDIENCE": AUDIENCE,
            "CLIENT_ID": api.client_id,
            "CLIENT_SECRET": api.secret,
        }

    def client(self, token_format: str, audience: str = AUDIENCE) -> MadeClient:
        return self.make.machine(
            self.organization, "orders:read", resources=[audience], access_token_format=token_format
        )

    def issue(self, client: MadeClient) -> str:
        form = {"grant_type": "client_credentials", "scope": "orders:read"}
        url = f"{self.organization.issuer}/oauth/token"
        token: str = requests.post(url, data=form, headers=client.basic, timeout=20).json()["access_token"]
        return token

    def rejected(self, token_format: str) -> list[str]:
        """Return tokens that the API must reject: for another API, altered, of another organization."""
        other = Tokens(self.server, self.make)
        good = self.issue(self.client(token_format))
        altered = good[:-20] + ("A" if good[-20] != "A" else "B") + good[-19:]
        return [
            self.issue(self.client(token_format, "https://other.example.com")),
            altered,
            other.issue(other.client(token_format)),
            "x",
        ]


@pytest.fixture
def tokens(live_server: LiveServer, live_make: Factory, monkeypatch: pytest.MonkeyPatch) -> Tokens:
    made = Tokens(live_server, live_make)
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    return made


def _python(number: int) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(PYTHON[number], f"example {number}", "exec"), names)  # noqa: S102 - our own document
    return names


@pytest.mark.parametrize("number", [0, 1], ids=["joserfc", "PyJWT"])
def test_python_example_validates_jwts(tokens: Tokens, number: int) -> None:
    client = tokens.client("jwt")
    validate: Validate = _python(number)["validate"]
    claims = validate(tokens.issue(client))
    assert (claims["client_id"], claims["scope"]) == (client.client_id, "orders:read")
    for wrong in tokens.rejected("jwt"):
        with pytest.raises(Exception, match=r".*"):
            validate(wrong)


@pytest.mark.parametrize("token_format", ["opaque", "jwt"])
def test_authlib_example_introspects(tokens: Tokens, token_format: str) -> None:
    client = tokens.client(token_format)
    app: Flask = _python(2)["app"]

    def call(token: str) -> tuple[int, Any]:
        answer = app.test_client().get("/orders", headers={"Authorization": f"Bearer {token}"})
        return answer.status_code, answer.get_json()

    assert call(tokens.issue(client)) == (200, {"client": client.client_id})
    assert {call(wrong)[0] for wrong in tokens.rejected(token_format)} == {401}


@pytest.mark.parametrize(("number", "token_format"), [(0, "jwt"), (1, "jwt"), (1, "opaque")])
def test_node_example_validates(tokens: Tokens, tmp_path: Path, number: int, token_format: str) -> None:
    client = tokens.client(token_format)
    sent = [tokens.issue(client), *tokens.rejected(token_format)]
    (tmp_path / "node_modules").symlink_to((NODE / "node_modules").resolve())
    (tmp_path / "example.mjs").write_text(JAVASCRIPT[number])
    (tmp_path / "run.mjs").write_text(
        'import { validate } from "./example.mjs";\n'
        "const results = [];\n"
        "for (const token of JSON.parse(process.argv[2])) {\n"
        "  results.push(await validate(token).then((claims) => claims.client_id, () => null));\n"
        "}\n"
        "console.log(JSON.stringify(results));\n"
    )
    ran = subprocess.run(
        ["node", "run.mjs", json.dumps(sent)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert json.loads(ran.stdout) == [client.client_id, None, None, None, None]
