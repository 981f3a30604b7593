"""Run the scripts of ``node/``: third-party clients, with a user who visits pages for them.

Each script makes its own checks. The tests decide which client it runs as.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from app.rules.organizations.settings_table import GRANT_TYPES, TOKEN_EXCHANGE
from tests.factories import Factory, MadeClient, MadeUser
from tests.support import process
from tests.support.form_browser import FormBrowser, Page
from tests.support.https_server import HttpsServer, Request, Response
from tests.support.servers import LiveServer
from tests.support.signer import Signer

REDIRECT_URI = "https://orchard.example/callback"
SCOPE = "openid profile email offline_access"
SCRIPTS = Path(__file__).parent / "node"
LONGEST = 60
MOST_PAGES = 6
EVERYTHING_ON = {
    "authentication": {"registration": {"mode": "open", "verify_email": False}},
    "oauth": {
        "grant_types": [*GRANT_TYPES, TOKEN_EXCHANGE],
        "dynamic_registration": {"mode": "initial_access_token", "client_id_metadata_documents": True},
        "device_poll_interval_seconds": 1,
    },
}
# The buttons that continue, in the order of the pages.
BUTTONS = ("consent-allow", "device-continue", "device-find", "logout-confirm")


class Site:
    """A client's site: it hosts documents and receives logout notifications."""

    def __init__(self) -> None:
        self.server: HttpsServer
        self._documents: dict[str, Any] = {}

    def __call__(self, request: Request) -> Response:
        if request.method == "POST":
            return Response()
        found = self._documents.get(urlsplit(request.path).path)
        if found is None:
            return Response(404)
        return Response(body=json.dumps(found).encode(), headers={"Content-Type": "application/json"})

    def address(self, path: str) -> str:
        """Return the URL of the path."""
        return f"{self.server.base_url}{path}"

    def publish(self, path: str, document: Any) -> str:
        """Serve the document and return its URL."""
        self._documents[path] = document
        return self.address(path)

    def posted(self, path: str) -> str:
        """Wait for the first POST to the path and return its body."""

        def found() -> list[Request]:
            return [one for one in self.server.requests if (one.method, one.path) == ("POST", path)]

        process.wait_until(found, f"a POST to {path}", seconds=15)
        return found()[0].body.decode()


@dataclass(slots=True)
class NodeClient:
    """One run of a script. ``given`` is its input, ``visitor`` visits the pages it names."""

    script: str
    visitor: FormBrowser
    email: str
    password: str
    ca_path: Path
    site: Site
    given: dict[str, Any] = field(default_factory=dict)

    def walk(self) -> Mapping[str, Any]:
        """Run the script as the client and return what it found."""
        environment = os.environ | {
            "JOURNEY": json.dumps(self.given | {"email": self.email}),
            # One for the official Node build, the other for builds that use the system certificates.
            "NODE_EXTRA_CA_CERTS": str(self.ca_path),
            "SSL_CERT_FILE": str(self.ca_path),
            # The scripts treat warnings as failures.
            "NODE_NO_WARNINGS": "1",
        }
        with subprocess.Popen(
            ["node", f"{self.script}.mjs"],
            cwd=SCRIPTS,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as running:
            clock = threading.Timer(LONGEST, running.kill)
            clock.start()
            try:
                return self._converse(running)
            finally:
                clock.cancel()
                running.kill()

    def _converse(self, running: subprocess.Popen[str]) -> Mapping[str, Any]:
        assert running.stdin is not None and running.stdout is not None and running.stderr is not None
        for line in running.stdout:
            said = json.loads(line)
            if "found" in said:
                found: Mapping[str, Any] = said["found"]
                complaint = running.stderr.read()
                assert (running.wait(), complaint) == (0, ""), complaint
                return found
            running.stdin.write(json.dumps(self._answer(said)) + "\n")
            running.stdin.flush()
        raise AssertionError(f"{self.script}.mjs:\n{running.stderr.read()}")

    def _answer(self, said: dict[str, Any]) -> dict[str, Any]:
        if "posted" in said:
            return {"body": self.site.posted(said["posted"])}
        page = self.visitor.visit(said["visit"])
        for _ in range(MOST_PAGES):
            if page.left is not None:
                return {"left": page.left}
            if page.has("authorization-continue"):
                form = page.form_with("authorization-continue")
                return {"action": form.action, "fields": dict(form.values)}
            following = self._press(page)
            if following is None:
                return {"shown": page.url, "status": page.status, "text": page.text[:3000]}
            page = following
        raise AssertionError(f"there is no end to the pages: {page.url}")

    def _press(self, page: Page) -> Page | None:
        if page.has("login-submit"):
            return self.visitor.sign_in(page, self.email, self.password)
        for button in BUTTONS:
            if page.has(button):
                return self.visitor.press(page, button)
        return None


@dataclass(frozen=True, slots=True)
class Grove:
    """An organization with every feature enabled, its user, and the scripts that use it."""

    server: LiveServer
    site: Site
    make: Factory
    user: MadeUser

    def register(self, **fields: Any) -> MadeClient:
        """Register a client, a web client unless ``fields`` say otherwise."""
        good: dict[str, Any] = {"redirect_uris": [REDIRECT_URI], "scopes": SCOPE.split()}
        for algorithm in {"RS256", fields.get("id_token_signed_response_alg", "RS256")}:
            self.make.signing_key(self.user.organization, algorithm)
        return self.make.client(self.user.organization, **(good | fields))

    def walk(self, script: str, client: MadeClient | None = None, **given: Any) -> Mapping[str, Any]:
        """Run the script as the client in the organization, and return what it found."""
        visitor = FormBrowser(self.server.url, ca_path=self.site.server.ca_path)
        known: dict[str, Any] = {"issuer": self.user.organization.issuer, "redirect_uri": REDIRECT_URI}
        if client is not None:
            known["client_id"] = client.client_id
            known["client_secret"] = client.registered.secret
            known["method"] = client.registered.client.token_endpoint_auth_method
        run = NodeClient(
            script,
            visitor,
            self.user.email,
            self.user.password,
            self.site.server.ca_path,
            self.site,
            known | given,
        )
        return run.walk()


def private(signer: Signer) -> dict[str, Any]:
    """Return the client's private key."""
    return {**signer.key.as_dict(private=True), "kid": signer.key_id, "alg": signer.algorithm}
