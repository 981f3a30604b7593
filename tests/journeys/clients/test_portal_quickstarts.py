"""The snippets of the portal's Quickstart tab run exactly as the page prints them."""

from __future__ import annotations

import html
import json
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from app.operations.clients.clients import update_client
from tests.factories import Factory, MadeClient, MadeUser
from tests.journeys.clients.quickstart import NODE_MODULES, PYTHON, listening
from tests.support import process
from tests.support.browser import sign_in, watched
from tests.support.form_browser import FormBrowser, Page
from tests.support.https_server import certificate
from tests.support.servers import LiveServer

pytestmark = pytest.mark.live

_BLOCK = re.compile(r'<pre tabindex="0" data-title="([^"]*)"><code>(.*?)</code></pre>', re.DOTALL)


class Printed:
    """The Quickstart tab of a new client: its files, saved in a folder, and the command that runs them."""

    def __init__(self, server: LiveServer, folder: Path, task: str, language: str, **fields: Any) -> None:
        self.server, self.folder = server, folder
        make = Factory(server.app)
        # Device apps ask every five seconds otherwise.
        self.organization = make.organization(settings={"oauth": {"device_poll_interval_seconds": 1}})
        make.signing_key(self.organization)
        self.port = process.free_port()
        url = f"http://localhost:{self.port}"
        self.redirect_uri = url + fields.pop("path", "/callback")
        has_redirect = fields.get("type", "web") in {"web", "spa", "native"}
        self.client: MadeClient = make.client(
            self.organization, redirect_uris=[self.redirect_uri] if has_redirect else [], **fields
        )
        self.user: MadeUser = make.user(self.organization, role="admin")
        self.browser = FormBrowser(server.url, app=url, ca_path=certificate()[1])
        self.tab = f"/portal/{self.organization.slug}/clients/{self.client.client_id}/quickstart"
        page = self.sign_in(self.browser.visit(f"{self.tab}?task={task}&lang={language}"))
        assert "Waiting for your first token" in page.text and 'role="status"' in page.text, page.text
        blocks = [
            (title, html.unescape(re.sub(r"<[^>]+>", "", code))) for title, code in _BLOCK.findall(page.text)
        ]
        for title, code in blocks:
            if title:
                (folder / title).parent.mkdir(parents=True, exist_ok=True)
                (folder / title).write_text(code)
        (folder / "node_modules").symlink_to(NODE_MODULES.resolve())
        # Debian's Node.js 18 has these globals behind a flag, later versions always.
        self.environment = {
            "CLIENT_SECRET": self.client.registered.secret or "",
            "NODE_OPTIONS": "--experimental-global-webcrypto",
            "PATH": f"{Path(PYTHON[0]).parent}:{os.environ['PATH']}",
        }
        self.command = [code for title, code in blocks if not title][-1]

    def sign_in(self, page: Page) -> Page:
        """Sign in and allow everything where Gatehouse asks for it."""
        for _ in range(4):
            if page.has("login-submit"):
                page = self.browser.sign_in(page, self.user.email, self.user.password)
            elif page.has("consent-allow"):
                page = self.browser.press(page, "consent-allow")
            else:
                break
        return page

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Run the command, which listens on the port of the redirect URI."""
        with listening(("sh", "-c", f"exec {self.command}"), self.folder, self.port, self.environment):
            yield

    @contextmanager
    def running(self) -> Iterator[subprocess.Popen[str]]:
        """Run the command and talk to it."""
        authority = str(certificate()[1])
        trusted = dict.fromkeys(
            ("NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE", "CURL_CA_BUNDLE"), authority
        )
        with subprocess.Popen(
            ["sh", "-c", self.command],
            cwd=self.folder,
            env=os.environ | trusted | self.environment,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        ) as program:
            try:
                yield program
            finally:
                process.stop(program)

    def read_url(self, program: subprocess.Popen[str]) -> str:
        """Return the next URL of this server that the program prints."""
        assert program.stdout is not None
        seen = ""
        for line in program.stdout:
            seen += line
            if found := re.search(rf"{re.escape(self.server.url)}\S+", line):
                return found[0]
        raise AssertionError(f"no URL in {seen!r}")

    def check_first_token(self) -> None:
        """Check that the tab has turned green."""
        process.wait_until(
            lambda: json.loads(self.browser.visit(f"{self.tab}/state").text)["has_token"], "the first token"
        )
        assert '<p class="note ok" id="first-token"' in self.browser.visit(self.tab).text


WEB = [
    pytest.param(language, {"type": kind, "token_endpoint_auth_method": method}, id=f"{language}-{method}")
    for language in ("python", "node")
    for kind, method in (("web", "client_secret_basic"), ("web", "client_secret_post"), ("native", "none"))
] + [
    pytest.param(
        "node",
        {"require_pushed_authorization_requests": True, "dpop_bound_access_tokens": True},
        id="node-pushed-and-bound",
    )
]


@pytest.mark.parametrize(("language", "fields"), WEB)
def test_web_quickstart_signs_a_user_in(
    node_server: LiveServer, tmp_path: Path, language: str, fields: dict[str, Any]
) -> None:
    printed = Printed(node_server, tmp_path, "web", language, **fields)
    with printed.serving():
        page = printed.sign_in(printed.browser.visit(f"http://localhost:{printed.port}/login"))
        assert page.url.startswith(printed.redirect_uri) and page.status == 200, page.text
        assert printed.user.public_id in page.text and printed.user.email in page.text, page.text
    printed.check_first_token()


@pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post", "none"])
def test_curl_quickstart_signs_a_user_in(node_server: LiveServer, tmp_path: Path, method: str) -> None:
    kind = "native" if method == "none" else "web"
    printed = Printed(node_server, tmp_path, "web", "curl", type=kind, token_endpoint_auth_method=method)
    with printed.running() as program:
        # Nothing listens at the redirect URI: the browser shows an error and the address.
        browser = FormBrowser(node_server.url, ca_path=certificate()[1])
        printed.browser = browser
        page = printed.sign_in(browser.visit(printed.read_url(program)))
        assert page.left is not None, page.text
        output, _ = program.communicate(f"{page.left}\n", timeout=60)
        assert program.returncode == 0, output
    assert '"id_token"' in output and printed.user.email in output, output
    printed.check_first_token()


def test_curl_quickstart_rejects_another_state_and_an_error(node_server: LiveServer, tmp_path: Path) -> None:
    printed = Printed(node_server, tmp_path, "web", "curl")
    with printed.running() as program:
        printed.read_url(program)
        output, _ = program.communicate(f"{printed.redirect_uri}?code=x&state=y\n", timeout=60)
        assert program.returncode == 1 and "another state" in output
    with printed.running() as program:
        state = parse_qs(urlsplit(printed.read_url(program)).query)["state"][0]
        denied = f"{printed.redirect_uri}?error=access_denied&state={state}"
        output, _ = program.communicate(f"{denied}\n", timeout=60)
        assert program.returncode == 1 and output.endswith(f"The sign-in failed: {denied}\n"), output


def test_service_quickstarts_get_a_token(node_server: LiveServer, tmp_path: Path) -> None:
    """All run at once, because what they count is written every five seconds."""
    with ExitStack() as stack:
        begun: dict[str, tuple[Printed, subprocess.Popen[str]]] = {}
        for language in ("curl", "python", "node"):
            for method in ("client_secret_basic", "client_secret_post"):
                folder = tmp_path / f"{language} {method}"
                folder.mkdir()
                fields = {"type": "machine", "scopes": ["orders:read"], "token_endpoint_auth_method": method}
                printed = Printed(node_server, folder, "service", language, **fields)
                begun[folder.name] = printed, stack.enter_context(printed.running())
        for name, (_, program) in begun.items():
            output, _ = program.communicate(timeout=60)
            assert program.returncode == 0 and "gth_at_" in output, (name, output)
        for printed, _ in begun.values():
            printed.check_first_token()


@pytest.mark.parametrize("language", ["curl", "python", "node"])
def test_device_quickstart_signs_in(node_server: LiveServer, tmp_path: Path, language: str) -> None:
    printed = Printed(node_server, tmp_path, "device", language, type="device")
    with printed.running() as program:
        page = printed.browser.visit(printed.read_url(program))
        for button in ("device-find", "device-continue", "consent-allow"):
            page = printed.browser.press(page, button)
        assert page.has("device-allowed"), page.text
        output, _ = program.communicate(timeout=120)
        assert program.returncode == 0, output
    assert "gth_at_" in output, output
    printed.check_first_token()


@pytest.mark.parametrize(
    ("kind", "task", "language"),
    [("device", "device", "curl"), ("device", "device", "python"), ("machine", "service", "python")],
)
def test_quickstart_shows_why_its_first_request_was_rejected(
    node_server: LiveServer, tmp_path: Path, kind: str, task: str, language: str
) -> None:
    scopes = {"scopes": ["orders:read", "orders:write"]}
    printed = Printed(node_server, tmp_path, task, language, type=kind, **scopes)
    with node_server.app.app_context():
        update_client(
            Factory(node_server.app).system(printed.organization),
            printed.client.client_id,
            {"scopes": ["orders:read"]},
        )
    with printed.running() as program:
        output, _ = program.communicate(timeout=60)
        assert program.returncode == 1, output
    assert "one of these scopes" in output and len(output.splitlines()) == 1, output


@pytest.mark.browser
@pytest.mark.parametrize("path", ["/callback", "/"])
def test_browser_quickstart_signs_a_user_in(
    node_server: LiveServer, tmp_path: Path, chromium: Any, path: str
) -> None:
    printed = Printed(node_server, tmp_path, "spa", "browser", type="spa", path=path)
    with printed.serving(), watched(chromium) as context:
        page = context.new_page()
        page.goto(printed.redirect_uri)
        page.wait_for_function("document.querySelector('#profile').textContent === 'Not signed in'")
        page.click("#sign-in")
        sign_in(page, printed.user.email)
        page.click("#consent-allow")
        page.wait_for_function("document.querySelector('#profile')?.textContent.includes('sub')")
        assert json.loads(page.text_content("#profile"))["sub"] == printed.user.public_id
        assert urlsplit(page.url).query == ""
    printed.check_first_token()
