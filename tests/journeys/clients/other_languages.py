"""Quickstarts and API examples in other languages, of Apache and oauth2-proxy: run by ``script/test clients``."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import requests
from sqlalchemy import select

from app.extensions import db
from app.models.audit import FailedRequest
from tests.factories import Factory
from tests.journeys.api_tokens import Tokens, examples
from tests.journeys.clients.quickstart import HERE, PROGRAMS, Quickstart, copied, listening, running
from tests.support import process
from tests.support.https_server import certificate
from tests.support.servers import LiveServer

pytestmark = pytest.mark.live

HTTPD = ("/usr/sbin/apache2", "-X", "-f", "{folder}/httpd.conf")
APACHE = Quickstart(
    HTTPD,
    callback="/secure/redirect_uri",
    login="/secure/profile.html",
    profile="/secure/profile.html",
    refresh="/secure/refresh",
    logout="/secure/logout",
    signed_out="/signed-out.html",
)
QUICKSTARTS = {
    "mod_auth_openidc": APACHE,
    "go_oidc": Quickstart((f"{PROGRAMS}/go_oidc",), callback="/auth/gatehouse/callback"),
    "rust_openidconnect": Quickstart((f"{PROGRAMS}/rust_openidconnect",)),
    "nimbus": Quickstart(("sh", "run.sh")),
    "oauth2_proxy": Quickstart(
        # As its page about Keycloak says, and its page about OpenID Connect does not.
        ("sh", "run.sh", "--code-challenge-method=S256"),
        callback="/oauth2/callback",
        login="/oauth2/start?rd=/oauth2/userinfo",
        profile="/oauth2/userinfo",
        refresh="/oauth2/userinfo",
        logout="/oauth2/sign_out?rd={end_session}",
        # It reads userinfo only for what the ID token lacks.
        id_token_claims="minimal",
    ),
}


@pytest.mark.parametrize("name", QUICKSTARTS)
def test_quickstart_signs_in_refreshes_and_signs_out(node_server: LiveServer, name: str) -> None:
    with running(node_server, QUICKSTARTS[name], name) as app:
        app.walk()


def test_oauth2_proxy_without_pkce_is_told_what_to_do_or_allowed_by_the_setting(
    node_server: LiveServer,
) -> None:
    plain = replace(QUICKSTARTS["oauth2_proxy"], command=("sh", "run.sh"))
    with running(node_server, plain, "oauth2_proxy") as app:
        page = app.browser.visit(app.url + plain.login)
        # It shows the error without its description, and its own log has the option.
        assert page.status == 403 and "invalid_request" in page.text, app.story(page)
        assert "have not enabled one with --code-challenge-method" in app.story(page)
        mine = FailedRequest.client_id == app.client.registered.client.id

        def is_in_the_log() -> bool:
            with node_server.app.app_context():
                causes = db.session.scalars(select(FailedRequest.cause).where(mine)).all()
            return list(causes) == ["pkce_or_nonce_missing"]

        process.wait_until(is_in_the_log, "the entry in the log of failed requests")
    with running(node_server, replace(plain, pkce="public_clients"), "oauth2_proxy") as app:
        app.walk()


def build_go(folder: Path, token_format: str) -> tuple[str, ...]:
    """Write the example into the folder, and return the command that serves an API with it."""
    (folder / "api.go").write_text(examples("go")[0])
    for name in ("go.mod", "go.sum"):
        shutil.copy(HERE / "go_oidc" / name, folder)
    subprocess.run([os.environ["GO"], "build", "-o", "api", "."], cwd=folder, check=True)
    return ("env", *(["INTROSPECTION=1"] if token_format == "opaque" else []), "{folder}/api")


def build_spring(folder: Path, token_format: str) -> tuple[str, ...]:
    """Write the class, or the properties for opaque tokens, into the folder, and return the command."""
    sources = ["Api.java"]
    if token_format == "opaque":
        (folder / "application.properties").write_text(examples("properties")[0])
    else:
        (folder / "AccessTokens.java").write_text(examples("java")[0])
        sources.append("AccessTokens.java")
    path = f"{PROGRAMS}/spring/*:."
    subprocess.run(["javac", "-parameters", "-d", ".", "-cp", path, *sources], cwd=folder, check=True)
    trust = ["-storepass", "changeit", "-keystore", "trust.p12", "-file", str(certificate()[1])]
    subprocess.run(["keytool", "-importcert", "-noprompt", *trust], cwd=folder, check=True)
    options = ("-Djavax.net.ssl.trustStore=trust.p12", "-Djavax.net.ssl.trustStorePassword=changeit")
    return ("java", *options, "-Dserver.port={port}", "-cp", path, "com.example.Api")


def build_apache(folder: Path, token_format: str) -> tuple[str, ...]:
    """Write the lines, with the comments as the document says, and return the command."""
    lines = examples("apache")[0]
    if token_format == "opaque":
        lines = lines.replace("OIDCOAuthVerify", "# OIDCOAuthVerify").replace("# OIDCOAuthI", "OIDCOAuthI")
        lines = lines.replace("# OIDCOAuthC", "OIDCOAuthC").replace("# OIDCOAuthT", "OIDCOAuthT")
    (folder / "api.conf").write_text(lines)
    return HTTPD


def build_php(folder: Path, token_format: str) -> tuple[str, ...]:
    """Write the example into the folder, and return the command; it introspects tokens of either format."""
    (folder / "validate.php").write_text(examples("php")[0])
    return ("php", "-d", f"curl.cainfo={certificate()[1]}", "-S", "localhost:{port}", "index.php")


@pytest.mark.parametrize("token_format", ["jwt", "opaque"])
@pytest.mark.parametrize("build", [build_go, build_spring, build_apache, build_php])
def test_documented_api_accepts_only_its_tokens(
    node_server: LiveServer,
    monkeypatch: pytest.MonkeyPatch,
    build: Callable[[Path, str], tuple[str, ...]],
    token_format: str,
) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate()[1]))
    tokens = Tokens(node_server, Factory(node_server.app))
    port = process.free_port()
    name = build.__name__.removeprefix("build_")
    with (
        copied(HERE / "apis" / name) as folder,
        listening(build(folder, token_format), folder, port, tokens.environment),
    ):

        def call(token: str) -> requests.Response:
            headers = {"Authorization": f"Bearer {token}"}
            return requests.get(f"http://localhost:{port}/orders", headers=headers, timeout=30)

        client = tokens.client(token_format)
        token = tokens.issue(client)
        answer = call(token)
        assert answer.status_code == 200, (answer.text, (folder / "program.log").read_text()[-4000:])
        rejected = [call(token).status_code for token in tokens.rejected(token_format)]
        assert set(rejected) <= {401, 403}, (rejected, (folder / "program.log").read_text()[-4000:])
        if token_format == "opaque":
            tokens.revoke(client, token)
            assert call(token).status_code == 401
