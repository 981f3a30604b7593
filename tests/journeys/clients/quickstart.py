"""Run the programs of this folder: the quickstarts of libraries, each with a client and a user of its own."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import requests
from sqlalchemy import select

from app.extensions import db
from app.models.grant import Grant
from app.models.session import Session
from tests.factories import Factory, MadeClient, MadeUser
from tests.support import process
from tests.support.form_browser import FormBrowser, Page
from tests.support.https_server import certificate
from tests.support.servers import ROOT, LiveServer

HERE = Path(__file__).parent
NODE_MODULES = ROOT / "tests" / "journeys" / "node" / "node_modules"
PYTHON = (str(ROOT / ".venv/bin/python"),)
FLASK = (*PYTHON, "-m", "flask", "--app", "app", "run", "--host", "localhost", "--port", "{port}")
# Where script/test builds the programs of other languages.
PROGRAMS = ROOT / ".cache" / "clients" / "bin"
# Debian's Node.js 18 has these globals behind a flag, later versions always.
NODE = ("node", "--experimental-global-webcrypto", "app.mjs")
LOG = "program.log"
MAX_PAGES = 6


@dataclass(frozen=True, slots=True)
class Quickstart:
    """A program: its command, its paths, and what it needs of the client and of the setting ``oauth.pkce``.

    ``command`` runs in a copy of its folder. ``{port}`` in it is the port to listen on, ``{folder}`` that folder. Its
    environment has ISSUER, CLIENT_ID, CLIENT_SECRET and PORT. ``{end_session}`` in ``logout`` is Gatehouse's page to
    sign out, where the user then remains.
    """

    command: tuple[str, ...]
    callback: str = "/callback"
    login: str = "/login"
    profile: str = "/profile"
    refresh: str = "/refresh"
    logout: str = "/logout"
    signed_out: str = "/signed-out"
    type: str = "web"
    id_token_claims: str = "full"
    pkce: str | None = None


@dataclass(frozen=True, slots=True)
class App:
    """A running program with its client, and the browser of the user who visits it."""

    quickstart: Quickstart
    server: LiveServer
    url: str
    client: MadeClient
    user: MadeUser
    browser: FormBrowser
    folder: Path

    def walk(self) -> None:
        """Sign in, see what userinfo returns, refresh and sign out."""
        self.check_profile(self.visit(self.quickstart.login))
        first = self.refresh_digest()
        assert self.has_session()

        def is_refreshed() -> bool:
            self.check_profile(self.visit(self.quickstart.refresh))
            return bool(self.refresh_digest() != first)

        process.wait_until(is_refreshed, "a refresh")
        end_session = f"{self.user.organization.issuer}/oauth/logout?client_id={self.client.client_id}"
        page = self.visit(self.quickstart.logout.replace("{end_session}", quote(end_session)))
        assert page.url.startswith(self.url) or "{end_session}" in self.quickstart.logout, self.story(page)
        self.check_signed_out()

    def visit(self, path: str) -> Page:
        """Open the page of the program, and sign in and allow everything where Gatehouse asks for it."""
        page = self.browser.visit(self.url + path)
        for _ in range(MAX_PAGES):
            if page.has("login-submit"):
                page = self.browser.sign_in(page, self.user.email, self.user.password)
            elif page.has("consent-allow"):
                page = self.browser.press(page, "consent-allow")
            elif page.has("logout-confirm"):
                page = self.browser.press(page, "logout-confirm")
            elif "<form" in page.text and page.url.startswith(self.url):
                # The only button of a page of Auth.js: to sign in, without an id, or to sign out.
                page = self.browser.press(page, "submitButton" if page.has("submitButton") else "")
            else:
                break
        assert page.left is None and page.status == 200, self.story(page)
        return page

    def check_profile(self, page: Page) -> None:
        """Check that the page shows the user's claims as userinfo returns them."""
        assert page.url.startswith(self.url + self.quickstart.profile) or self.quickstart.refresh in page.url
        assert self.user.email in page.text and self.user.public_id in page.text, self.story(page)

    def check_signed_out(self) -> None:
        """Check that both sessions ended: Gatehouse asks for the password again, and the program knows no user."""
        assert not self.has_session()
        account = self.browser.visit(f"{self.server.url}/organizations/{self.user.organization.slug}/account")
        assert account.has("login-submit"), self.story(account)
        assert self.user.email not in self.browser.visit(self.url + self.quickstart.profile).text

    def has_session(self) -> bool:
        """Return whether the user has a session with Gatehouse."""
        with self.server.app.app_context():
            sessions = select(Session.id).where(
                Session.organization_id == self.user.organization.id, Session.user_id == self.user.id
            )
            return db.session.scalars(sessions).first() is not None

    def refresh_digest(self) -> Any:
        """Return the digest of the current refresh token of the client's only grant; each refresh replaces it."""
        with self.server.app.app_context():
            return db.session.scalars(
                select(Grant.refresh_digest).where(
                    Grant.organization_id == self.user.organization.id,
                    Grant.client_id == self.client.registered.client.id,
                )
            ).one()

    def story(self, page: Page) -> str:
        """Return what went wrong: the page and the program's output."""
        log = (self.folder / LOG).read_text()[-4000:]
        return f"{page.left or page.url} ({page.status}):\n{page.text[:4000]}\n{log}"


def register(make: Factory, quickstart: Quickstart, url: str) -> MadeClient:
    """Register a client as the portal's form does, in a new organization with the setting of the quickstart."""
    settings = None if quickstart.pkce is None else {"oauth": {"pkce": quickstart.pkce}}
    organization = make.organization(settings=settings)
    make.signing_key(organization)
    return make.client(
        organization,
        type=quickstart.type,
        id_token_claims=quickstart.id_token_claims,
        redirect_uris=[url + quickstart.callback],
        post_logout_redirect_uris=[url + quickstart.signed_out],
    )


@contextmanager
def running(server: LiveServer, quickstart: Quickstart, name: str) -> Iterator[App]:
    """Run a copy of the program ``name`` until the end, and wait until it listens."""
    port = process.free_port()
    url = f"http://localhost:{port}"
    make = Factory(server.app)
    client = register(make, quickstart, url)
    user = make.user(client.organization)
    environment = {
        "ISSUER": client.organization.issuer,
        "ISSUER_HOST": urlsplit(client.organization.issuer).netloc,
        "CLIENT_ID": client.client_id,
        "CLIENT_SECRET": client.registered.secret or "",
    }
    with copied(HERE / name) as folder, listening(quickstart.command, folder, port, environment):
        browser = FormBrowser(server.url, app=url, ca_path=certificate()[1])
        yield App(quickstart, server, url, client, user, browser, folder)


@contextmanager
def copied(source: Path) -> Iterator[Path]:
    """Copy the program's folder to a temporary one, with the packages of Node.js."""
    with tempfile.TemporaryDirectory(prefix="gatehouse-quickstart-") as made:
        folder = Path(made)
        shutil.copytree(source, folder, dirs_exist_ok=True)
        # The processes of Apache are another user's.
        folder.chmod(0o755)
        (folder / "node_modules").symlink_to(NODE_MODULES.resolve())
        yield folder


@contextmanager
def listening(
    command: Sequence[str], folder: Path, port: int, environment: Mapping[str, str]
) -> Iterator[None]:
    """Run the command in the folder and wait until it listens on the port."""
    authority = str(shutil.copy(certificate()[1], folder / "ca.pem"))
    known = {
        "PORT": str(port),
        "PROGRAMS": str(PROGRAMS),
        "PWD": str(folder),
        # Each language has its own name for the certificates to trust.
        **dict.fromkeys(("NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"), authority),
    }
    filled = [part.replace("{port}", str(port)).replace("{folder}", str(folder)) for part in command]
    log = folder / LOG
    program = process.start(filled, log, env=os.environ | known | environment, cwd=folder)
    url = f"http://localhost:{port}"
    try:
        process.wait_until(
            lambda: program.poll() is not None or _answers(url), f"{command[0]} to listen", seconds=120
        )
        assert program.poll() is None, log.read_text()
        yield
    finally:
        process.stop(program)


def _answers(url: str) -> bool:
    try:
        requests.get(url, timeout=5)
    except requests.ConnectionError:
        return False
    return True
