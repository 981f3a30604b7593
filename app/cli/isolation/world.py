"""The two organizations of the check, with their own ids and tokens."""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import time
from base64 import urlsafe_b64encode
from typing import Any
from urllib.parse import parse_qs, urlsplit

from msgspec import Struct, field

from app.cli.isolation.visitor import Visitor
from app.operations.maintenance.isolation import REDIRECT_URI, IsolationOrganization
from app.rules.errors import Unavailable
from app.rules.identifiers import format_client_id, new_id, public_id
from app.web.browser_session import cookie_name

# The path parameter for the id of an item of each list.
_NAMES = ("client_id", "id", "kid", "name")
_PUBLIC_ID = re.compile(r"([a-z]+)_[0-9a-z]{26}")
_VERIFIER = secrets.token_urlsafe(48)
_CHALLENGE = urlsafe_b64encode(hashlib.sha256(_VERIFIER.encode()).digest()).decode().rstrip("=")


class Side(Struct):
    """One organization with its ids and tokens. ``ids`` are keyed by the names of path parameters."""

    corner: IsolationOrganization
    visitor: Visitor
    bearer: str = ""
    ids: dict[str, str] = field(default_factory=dict)

    @property
    def slug(self) -> str:
        """The organization's id in the API."""
        return self.corner.organization.slug

    @property
    def issuer_path(self) -> str:
        """Return the path of the organization's OAuth endpoints."""
        return f"/organizations/{self.slug}"

    @property
    def app(self) -> tuple[str, str]:
        """client_id and secret of its app."""
        return self.corner.app.client.client_id, self.corner.app.secret or ""

    @property
    def machine(self) -> tuple[str, str]:
        """client_id and secret of its management client."""
        return self.corner.machine.client.client_id, self.corner.machine.secret or ""

    @property
    def cookies(self) -> dict[str, str]:
        """The cookies of its signed-in administrator."""
        return {cookie_name(self.corner.organization.id): self.corner.session_token}

    def prepare(self, document: dict[str, Any]) -> None:
        """Get a management token, a grant, and one id of each kind that the API lists."""
        answer = self.visitor.send(
            "POST", "/oauth/token", basic=self.machine, form={"grant_type": "client_credentials"}
        )
        self.bearer = _expected(answer.document, "access_token")
        self.tokens()
        self._be_refused()
        self.ids = {"id": self.slug, **self.corner.ids}
        for path in sorted(document["paths"], key=lambda path: (path.count("{"), path)):
            self._find_id(path, document["paths"][path])

    def code(self) -> str:
        """Return a new authorization code of its administrator for its app."""
        asked = {
            "response_type": "code",
            "client_id": self.app[0],
            "redirect_uri": REDIRECT_URI,
            "scope": "openid email offline_access",
            "state": "s",
            "code_challenge": _CHALLENGE,
            "code_challenge_method": "S256",
        }
        answer = self.visitor.send("GET", "/oauth/authorize", query=asked, cookies=self.cookies)
        query = parse_qs(urlsplit(answer.headers.get("location", "")).query)
        return str(_expected({name: values[0] for name, values in query.items()}, "code"))

    def redemption(self, code: str) -> dict[str, str]:
        """Return the form fields that redeem the code."""
        return {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": REDIRECT_URI,
            "code_verifier": _VERIFIER,
        }

    def tokens(self) -> dict[str, Any]:
        """Return new tokens of its administrator for its app."""
        answer = self.visitor.send(
            "POST", "/oauth/token", basic=self.app, form=self.redemption(self.code())
        ).document
        _expected(answer, "refresh_token")
        return dict(answer)

    def absent(self, name: str) -> str:
        """Return a well-formed id of this kind that was never used."""
        own = self.ids[name]
        if name == "id":
            return f"isolation-{secrets.token_hex(8)}"
        if own.startswith("cli_"):
            return format_client_id(self.corner.organization.id, new_id())
        kind = _PUBLIC_ID.fullmatch(own)
        return public_id(kind[1], new_id()) if kind else secrets.token_urlsafe(24).replace("-", "_")

    def _be_refused(self) -> None:
        """Wait for an entry in the log of failed requests, which is written just after the response."""
        form = self.redemption("never-was")
        self.visitor.send("POST", "/oauth/token", basic=self.app, form=form)
        for _ in range(50):
            answer = self.visitor.send("GET", "/logs/failed-requests", bearer=self.bearer).document
            if isinstance(answer, dict) and answer.get("data"):
                return
            time.sleep(0.1)

    def _find_id(self, path: str, item: dict[str, Any]) -> None:
        collection, _, last = path.rpartition("/")
        if not last.startswith("{") or last[1:-1] in self.ids or "get" not in item:
            return
        target = filled(collection, self.ids)
        if target is None:
            return
        answer = self.visitor.send("GET", target, bearer=self.bearer).document
        listed = answer.get("data") if isinstance(answer, dict) else None
        if isinstance(listed, list) and listed:
            # A scope that no other organization has; all of them have openid.
            chosen = next((one for one in listed if self.corner.marker in json.dumps(one)), listed[-1])
            named = [name for name in _NAMES if name in chosen]
            if named:
                self.ids[last[1:-1]] = str(chosen[named[0]])


def filled(path: str, ids: dict[str, str]) -> str | None:
    """Return the path with its parameters, or None if one of them is unknown."""
    for name, value in ids.items():
        path = path.replace(f"{{{name}}}", value)
    return None if "{" in path else path


def _expected(answer: Any, name: str) -> str:
    if not isinstance(answer, dict) or name not in answer:
        raise Unavailable(
            f"The isolation check could not begin: no {name} was given to it. Is the service running?"
        )
    return str(answer[name])
