"""Access tokens for an API that validates them as docs/guides/protect-an-api.md shows, and its examples."""

from __future__ import annotations

import re

import requests

from tests.factories import Factory, MadeClient
from tests.support.dpop import Prover
from tests.support.servers import ROOT, LiveServer

AUDIENCE = "https://api.example.com"
DOCUMENT = (ROOT / "docs" / "guides" / "protect-an-api.md").read_text()


def examples(language: str) -> list[str]:
    """Return the examples in the language, as they are printed."""
    return re.findall(rf"```{language}\n(.*?)```", DOCUMENT, re.DOTALL)


class Tokens:
    """Tokens of an organization, and the environment of an API that validates them."""

    def __init__(self, server: LiveServer, make: Factory) -> None:
        self.server, self.make, self.organization = server, make, make.organization()
        make.signing_key(self.organization)
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

    def issue(self, client: MadeClient, prover: Prover | None = None) -> str:
        form = {"grant_type": "client_credentials", "scope": "orders:read"}
        url = f"{self.organization.issuer}/oauth/token"
        headers = client.basic | ({} if prover is None else prover.headers("POST", url))
        token: str = requests.post(url, data=form, headers=headers, timeout=20).json()["access_token"]
        return token

    def revoke(self, client: MadeClient, token: str) -> None:
        url = f"{self.organization.issuer}/oauth/revoke"
        answer = requests.post(url, data={"token": token}, headers=client.basic, timeout=20)
        assert answer.status_code == 200, answer.text

    def rejected(self, token_format: str) -> list[str]:
        """Return what the API must reject: tokens for another API, altered, of another organization, of a key."""
        other = Tokens(self.server, self.make)
        good = self.issue(self.client(token_format))
        altered = good[:-20] + ("A" if good[-20] != "A" else "B") + good[-19:]
        return [
            self.issue(self.client(token_format, "https://other.example.com")),
            altered,
            other.issue(other.client(token_format)),
            self.issue(self.client(token_format), Prover()),
            "x",
        ]
