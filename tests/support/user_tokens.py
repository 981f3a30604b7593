"""An access token of a user for the management API, by the code flow of a trusted client."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

from flask import Flask

from app.rules.authorization.authorization_request import challenge_of
from app.rules.directory.permissions import PERMISSIONS, ROOT_ONLY
from tests.factories import Factory, MadeUser

_VERIFIER = "v" * 43
_CALLBACK = "https://console.example/callback"


def user_token(app: Flask, make: Factory, user: MadeUser) -> str:
    """Return a token with every management scope; the user's permissions decide what it can do."""
    held = set(PERMISSIONS) | (set(ROOT_ONLY) if user.organization.is_root else set())
    scopes = " ".join(sorted(held))
    client = make.client(
        user.organization,
        scopes=scopes.split(),
        trust="first_party",
        redirect_uris=[_CALLBACK],
        name="Console",
    )
    http = app.test_client()
    make.sign_in(user, http)
    asked = {
        "response_type": "code",
        "client_id": client.client_id,
        "redirect_uri": _CALLBACK,
        "scope": scopes,
        "code_challenge": challenge_of(_VERIFIER),
        "code_challenge_method": "S256",
    }
    answer = http.get("/oauth/authorize", query_string=asked)
    code = parse_qs(urlsplit(answer.headers["Location"]).query)["code"][0]
    form = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": _CALLBACK,
        "code_verifier": _VERIFIER,
    }
    tokens = http.post("/oauth/token", data=form, headers=client.basic)
    assert tokens.status_code == 200, tokens.text
    return str(tokens.get_json()["access_token"])
