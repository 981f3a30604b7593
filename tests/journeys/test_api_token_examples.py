"""The examples of docs/guides/protect-an-api.md in Python and JavaScript accept only valid tokens for their API."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import requests
from flask import Flask
from joserfc.errors import JoseError
from jwt import PyJWKClient, PyJWTError, get_unverified_header

from app.operations.clients.resources import define_resource
from app.operations.grants.key_rotation import replace_key_immediately
from app.operations.organizations.settings import update_settings
from tests.factories import Factory, MadeClient
from tests.journeys.api_tokens import AUDIENCE, Tokens, examples
from tests.support.dpop import Prover
from tests.support.https_server import certificate
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


def _replace_key(tokens: Tokens, names: dict[str, Any], client: MadeClient) -> None:
    """Replace the key that signs, and wait until the example accepts tokens of the new one."""
    before = get_unverified_header(tokens.issue(client))["kid"]
    with tokens.server.app.app_context():
        replace_key_immediately(tokens.make.actor(tokens.organization), "RS256")

    def accepts_new_key() -> bool:
        token = tokens.issue(client)
        if "fetched_at" in names:
            names["fetched_at"] -= 10
        try:
            return bool(names["validate"](token) and get_unverified_header(token)["kid"] != before)
        except (JoseError, PyJWTError):
            return False

    wait_until(accepts_new_key, "a token of the new key to be accepted")


@pytest.mark.parametrize("number", [0, 1], ids=["joserfc", "PyJWT"])
def test_python_example_validates_jwts(tokens: Tokens, number: int) -> None:
    client, names = tokens.client("jwt"), _python(number)
    if isinstance(names["keys"], PyJWKClient):
        # PyJWT reads keys that it doesn't know at most every 30 seconds.
        names["keys"].cooldown_duration = 0
    validate: Validate = names["validate"]
    token = tokens.issue(client)
    claims = validate(token)
    assert (claims["client_id"], claims["scope"]) == (client.client_id, "orders:read")
    _replace_key(tokens, names, client)
    for wrong in (*tokens.rejected("jwt"), token):
        with pytest.raises(Exception, match=r".*"):
            validate(wrong)


@pytest.mark.slow
def test_status_list_example_learns_of_revocations(tokens: Tokens, monkeypatch: pytest.MonkeyPatch) -> None:
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
    with monkeypatch.context() as away:
        # A proxy that nobody can reach.
        away.setenv("http_proxy", "http://127.0.0.1:1")
        for known in names["lists"].values():
            known["renew_at"] = 0
        assert validate(kept)["scope"] == "orders:read"
        for known in names["lists"].values():
            known["renew_at"] = known["exp"] = 0
        with pytest.raises(requests.ConnectionError):
            validate(kept)
    _replace_key(tokens, names, client)
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
    results = _run_node(tmp_path, number, "(token) => token", sent)
    assert results == [client.client_id, *(None for _ in sent[1:])]


def test_node_example_verifies_proofs(
    node_server: LiveServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RFC 9449 sections 4.3 and 7.1: a proof counts for its key, token, method and URL."""
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate()[1]))
    tokens, prover, url = Tokens(node_server, Factory(node_server.app)), Prover(), f"{AUDIENCE}/orders"
    for name, value in {**tokens.environment, "NODE_EXTRA_CA_CERTS": str(certificate()[1])}.items():
        monkeypatch.setenv(name, value)
    client = tokens.client("jwt")
    token, other = tokens.issue(client, prover), tokens.issue(client, prover)
    for_others = tokens.issue(tokens.client("jwt", "https://other.example.com"), prover)
    accepted = [
        {"Authorization": f"Bearer {tokens.issue(client)}"},
        prover.headers("GET", url, access_token=token),
    ]
    rejected = [
        {"Authorization": f"Bearer {token}"},
        {"Authorization": f"DPoP {token}"},
        prover.headers("GET", url, access_token=token) | {"Authorization": f"Bearer {token}"},
        prover.headers("GET", url, access_token=other) | {"Authorization": f"DPoP {token}"},
        prover.headers("GET", url, access_token=for_others),
        Prover().headers("GET", url, access_token=token),
        prover.headers("POST", url, access_token=token),
        prover.headers("GET", f"{AUDIENCE}/other", access_token=token),
        prover.headers("GET", url, access_token=token, iat=int(time.time()) - 400),
        *({"Authorization": f"Bearer {wrong}"} for wrong in tokens.rejected("jwt")),
    ]
    results = _run_node(tmp_path, 2, f"(headers) => new Request({url!r}, {{ headers }})", accepted + rejected)
    assert results == [*(client.client_id for _ in accepted), *(None for _ in rejected)]


def _run_node(folder: Path, number: int, argument: str, sent: list[Any]) -> list[str | None]:
    """Call the example's ``validate`` for each value, as the expression converts it; return the client IDs or None."""
    (folder / "node_modules").symlink_to((NODE / "node_modules").resolve())
    (folder / "example.mjs").write_text(JAVASCRIPT[number])
    (folder / "run.mjs").write_text(
        'import { validate } from "./example.mjs";\n'
        f"const convert = {argument};\n"
        "const results = [];\n"
        "for (const value of JSON.parse(process.argv[2])) {\n"
        "  results.push(await validate(convert(value)).then((claims) => claims.client_id, () => null));\n"
        "}\n"
        "console.log(JSON.stringify(results));\n"
    )
    ran = subprocess.run(
        ["node", "--experimental-global-webcrypto", "run.mjs", json.dumps(sent)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    results: list[str | None] = json.loads(ran.stdout)
    return results


def test_examples_wait_only_seconds_for_the_service() -> None:
    for language, request, limit in (
        ("python", r"requests\.(?:get|post)\(", r"timeout=5\b"),
        ("javascript", r"\bfetch\(|\bvalidateJwtAccessToken\(", r"AbortSignal\.timeout\(5000\)"),
        ("go", r"http\.(?:Client\{|DefaultClient)", r"Timeout: 5 \* time\.Second"),
    ):
        code = "\n".join(examples(language))
        found = [len(re.findall(pattern, code)) for pattern in (request, limit)]
        assert found[0] == found[1] > 0, (language, found)
