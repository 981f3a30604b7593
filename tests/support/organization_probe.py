"""An organization on the live server, to check what a setting changes on each worker."""

from __future__ import annotations

import itertools
import time
from functools import cached_property
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

import requests

from app.rules.authorization.authorization_request import challenge_of
from app.rules.organizations.settings_table import LIMITS
from tests.factories import Factory, MadeClient, MadeUser, bearer_header
from tests.support.mail_server import Mailbox
from tests.support.process import WORKER_HEADER
from tests.support.servers import LiveServer

VERIFIER = "v" * 43
CALLBACK = "https://orchard.example/callback"
numbers = itertools.count(1)
# On a busy machine one worker may answer many quick requests before the other is scheduled.
_PATIENCE_SECONDS = 30


class OrganizationProbe:
    """An organization on the live server, asked on one connection, and so one worker, until it is to be another.

    A context manager that closes the connection.
    """

    def __init__(self, server: LiveServer, make: Factory, box: Mailbox | None = None) -> None:
        self.server, self.make = server, make
        self.box = box or Mailbox()
        self._session = requests.Session()
        self._session.trust_env = False
        self.notes: dict[str, Any] = {}
        self.organization = make.organization()
        self.slug = self.organization.slug
        self.headers = bearer_header(make.bearer(self.organization))
        # Clients are registered before a setting forbids it, because their use is tested.
        self.machine = make.machine(self.organization, "clients:read")
        self.worker = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()

    def leave(self, *workers: str) -> None:
        """Connect to a worker that is none of these, for at most half a minute."""
        ends = time.monotonic() + _PATIENCE_SECONDS
        while self.worker in workers:
            assert time.monotonic() < ends, f"only {workers} answered"
            self._session.close()
            self.ask("GET", "/healthz")

    @cached_property
    def web(self) -> MadeClient:
        # RSA keys are slow to generate for each organization.
        fields = {"redirect_uris": [CALLBACK], "id_token_signed_response_alg": "ES256"}
        return self.make.client(self.organization, trust="first_party", **fields)

    @cached_property
    def stranger(self) -> MadeClient:
        """A client without the reviewed mark."""
        return self.make.client(self.organization, redirect_uris=[CALLBACK])

    @cached_property
    def device(self) -> MadeClient:
        return self.make.client(
            self.organization, type="device", redirect_uris=[], token_endpoint_auth_method="none"
        )

    @cached_property
    def ada(self) -> MadeUser:
        return self.make.user(self.organization)

    @cached_property
    def cookie(self) -> dict[str, str]:
        return self.cookie_of(self.ada)

    def cookie_of(self, user: MadeUser) -> dict[str, str]:
        """Return the session cookie of a new sign-in of the user."""
        return {self.make.cookie_name(self.organization): self.make.sign_in(user).token}

    def ask(self, method: str, path: str, **more: Any) -> requests.Response:
        """Send one request without cookies of others; ``worker`` is the process that answered."""
        self._session.cookies.clear()
        answer = self._session.request(
            method, f"{self.server.url}{path}", allow_redirects=False, timeout=20, **more
        )
        self.worker = answer.headers[WORKER_HEADER]
        return answer

    def manage(self, method: str, path: str, body: Any = None) -> Any:
        answer = self.ask(method, path, headers=self.headers, json=body)
        return answer.json() | {"status": answer.status_code}

    def change(self, path: str, value: Any, beside: dict[str, Any]) -> None:
        """Change the setting; an image goes to the upload endpoint."""
        if isinstance(value, bytes):
            headers = self.headers | {"Content-Type": "image/png"}
            sent = self.ask("PUT", f"/organizations/{self.slug}/logo", headers=headers, data=value)
            assert sent.status_code == 200, sent.text
            return
        document: dict[str, Any] = {}
        for name, entry in (beside | {path: value}).items():
            *heads, last = name.split(".")
            node = document
            for head in heads:
                node = node.setdefault(head, {})
            node[last] = entry
        headers = self.headers
        if path.startswith(LIMITS):
            # Its own administrators may not, and its own requests may be limited already.
            headers = bearer_header(self.make.bearer(self.make.root()))
        stored = self.ask("PUT", f"/organizations/{self.slug}/settings", headers=headers, json=document)
        assert stored.status_code == 200, stored.text

    def page(self, path: str, *, signed_in: bool = False) -> str:
        cookies = self.cookie if signed_in else None
        return self.ask("GET", f"/organizations/{self.slug}{path}", cookies=cookies).text

    def token(self, **form: str) -> requests.Response:
        form = {"grant_type": "client_credentials"} | form
        return self.ask("POST", "/oauth/token", data=form, headers=self.machine.basic)

    def authorize(
        self, client: MadeClient | None = None, *, client_id: str | None = None, without_pkce: bool = False
    ) -> requests.Response:
        query = {
            "response_type": "code",
            "client_id": client_id or (client or self.web).client_id,
            "redirect_uri": CALLBACK,
            "scope": "openid offline_access",
            "code_challenge": challenge_of(VERIFIER),
            "code_challenge_method": "S256",
        }
        if without_pkce:
            del query["code_challenge"], query["code_challenge_method"]
        return self.ask("GET", "/oauth/authorize", params=query, cookies=self.cookie)

    def code(self) -> str:
        place = self.authorize().headers["Location"]
        return parse_qs(urlsplit(place).query)["code"][0]

    def redeem(self, code: str) -> requests.Response:
        form = {"grant_type": "authorization_code", "code": code, "redirect_uri": CALLBACK}
        return self.form(form | {"code_verifier": VERIFIER})

    def flow(self) -> dict[str, Any]:
        return self.redeem(self.code()).json()  # type: ignore[no-any-return]

    def form(self, form: dict[str, str]) -> requests.Response:
        return self.ask("POST", "/oauth/token", data=form, headers=self.web.basic)

    def refresh(self, token: str) -> requests.Response:
        return self.form({"grant_type": "refresh_token", "refresh_token": token})

    def register(self, **fields: Any) -> Any:
        good = {"name": f"Further {next(numbers)}", "redirect_uris": [CALLBACK], "type": "web"}
        return self.manage("POST", "/clients", good | fields)

    def discovery(self) -> dict[str, Any]:
        found: dict[str, Any] = self.ask(
            "GET", f"/organizations/{self.slug}/.well-known/openid-configuration"
        ).json()
        return found
