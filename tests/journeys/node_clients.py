"""Runs the scripts of ``node/``: clients that others wrote, with a person who goes to pages for them."""

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

from tests.support import process
from tests.support.https_server import HttpsServer, Request, Response
from tests.support.person import Page, Person

SCRIPTS = Path(__file__).parent / "node"
LONGEST = 60
MOST_PAGES = 6
# What a person presses who wants to get on, in the order in which pages ask it.
EXERCISED: dict[str, frozenset[str]] = {}
BUTTONS = ("consent-allow", "device-continue", "device-find", "logout-confirm")


class Site:
    """What a client's makers serve: documents of theirs, and an address at which they are told of sign-outs."""

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
        """The address of the path."""
        return f"{self.server.base_url}{path}"

    def publish(self, path: str, document: Any) -> str:
        """The document stands at the address that is returned."""
        self._documents[path] = document
        return self.address(path)

    def posted(self, path: str) -> str:
        """The body of the first POST to the path, waited for."""

        def found() -> list[Request]:
            return [one for one in self.server.requests if (one.method, one.path) == ("POST", path)]

        process.wait_until(found, f"somebody posts to {path}", seconds=15)
        return found()[0].body.decode()


@dataclass(frozen=True, slots=True)
class Walk:
    """How a script went: what it found, and which metadata fields it made use of."""

    found: Mapping[str, Any]
    used: frozenset[str]


@dataclass(slots=True)
class NodeClient:
    """One run of a script. ``given`` is what it knows, ``person`` goes to the pages it names."""

    script: str
    person: Person
    email: str
    password: str
    ca_path: Path
    site: Site
    given: dict[str, Any] = field(default_factory=dict)

    def walk(self) -> Walk:
        """The script ran to its end, warned of nothing, and says what it found."""
        environment = os.environ | {
            "JOURNEY": json.dumps(self.given | {"email": self.email}),
            # One for Node's own build, the other for those that believe what the machine believes.
            "NODE_EXTRA_CA_CERTS": str(self.ca_path),
            "SSL_CERT_FILE": str(self.ca_path),
            # The scripts themselves take warnings for faults.
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

    def _converse(self, running: subprocess.Popen[str]) -> Walk:
        assert running.stdin is not None and running.stdout is not None and running.stderr is not None
        for line in running.stdout:
            said = json.loads(line)
            if "used" in said:
                end = Walk(said["found"], frozenset(said["used"]))
                complaint = running.stderr.read()
                assert (running.wait(), complaint) == (0, ""), complaint
                return end
            running.stdin.write(json.dumps(self._answer(said)) + "\n")
            running.stdin.flush()
        raise AssertionError(f"{self.script}.mjs:\n{running.stderr.read()}")

    def _answer(self, said: dict[str, Any]) -> dict[str, Any]:
        if "posted" in said:
            return {"body": self.site.posted(said["posted"])}
        page = self.person.visit(said["visit"])
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
            return self.person.sign_in(page, self.email, self.password)
        for button in BUTTONS:
            if page.has(button):
                return self.person.press(page, button)
        return None
