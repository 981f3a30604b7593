"""The examples of docs/guides/protect-an-api.md in Python and JavaScript accept only valid tokens for their API."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flask import Flask

from app.operations.clients.resources import define_resource
from app.operations.organizations.settings import update_settings
from tests.factories import Factory
from tests.journeys.api_tokens import AUDIENCE, Tokens, examples
from tests.support.process import wait_until
from tests.support.servers import ROOT, LiveServer

PYTHON, JAVASCRIPT = examples("python"), examples("javascript")
NODE = ROOT / "tests" / "journeys" / "node"

Validate = Callable[[str], dict[str, Any]]


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


@pytest.mark.slow
def test_status_list_example_learns_of_revocations(tokens: Tokens) -> None:
    """Without asking about the token: by its signature and a list that was read."""
    api = {"access_token_format": "jwt", "access_token_storage": "status_list", "access_policy": "open"}
    with tokens.server.app.app_context():
        settings = {"oauth": {"access_token": {"allow_unstored": True}}}
        update_settings(tokens.make.system(tokens.organization), tokens.organization.slug, settings)
        fields = {"identifier": AUDIENCE, "name": "Orders", **api}
        define_resource(tokens.make.actor(tokens.organization), fields)
    names = _python(3)
    validate: Validate = names["validate"]
    client = tokens.client("jwt")
    revoked, kept = tokens.issue(client), tokens.issue(client)
    assert validate(revoked)["client_id"] == validate(kept)["client_id"] == client.client_id
    tokens.revoke(client, revoked)

    def is_rejected() -> bool:
        names["lists"].clear()
        try:
            validate(revoked)
        except ValueError as error:
            return str(error) == "the token was revoked"
        return False

    wait_until(is_rejected, "the revocation in the list", seconds=120, pause=0.5)
    assert validate(kept)["scope"] == "orders:read"
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
        ["node", "--experimental-global-webcrypto", "run.mjs", json.dumps(sent)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert json.loads(ran.stdout) == [client.client_id, *(None for _ in sent[1:])]
