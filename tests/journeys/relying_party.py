"""A web application that signs users in with Gatehouse: Authlib's Flask client in its own process.

It reads RP_CLIENT_ID, RP_CLIENT_SECRET, RP_METADATA_URL and RP_SCOPE from the environment and imports nothing
of Gatehouse.
"""

from __future__ import annotations

import os
from typing import Any

from authlib.integrations.base_client.errors import OAuthError
from authlib.integrations.flask_client import OAuth
from flask import Flask, redirect, session, url_for

app = Flask(__name__)
app.secret_key = os.urandom(16)
oauth = OAuth(app)
oauth.register(
    "gatehouse",
    client_id=os.environ["RP_CLIENT_ID"],
    client_secret=os.environ["RP_CLIENT_SECRET"],
    server_metadata_url=os.environ["RP_METADATA_URL"],
    client_kwargs={"scope": os.environ["RP_SCOPE"], "code_challenge_method": "S256"},
)
# One process with one user; a real application would use its database.
tokens: dict[str, Any] = {}


@app.get("/")
def home() -> str:
    """Show who is signed in."""
    return f"<h1 id=who>{session.get('email', 'nobody')}</h1><a id=sign-in href=/sign-in>Sign in</a>"


@app.get("/sign-in")
def sign_in() -> Any:
    """Redirect to Gatehouse."""
    return oauth.gatehouse.authorize_redirect(url_for("callback", _external=True))


@app.get("/callback")
def callback() -> Any:
    """Handle the callback; Authlib has checked state, issuer, nonce and ID token."""
    try:
        token = oauth.gatehouse.authorize_access_token()
    except OAuthError as error:
        return f"<h1 id=who>refused: {error.error}</h1>", 400
    tokens.update(token)
    session["email"] = token["userinfo"].get("email") or oauth.gatehouse.userinfo(token=token)["email"]
    return redirect("/")


@app.get("/call")
def call() -> Any:
    """Call the API with the access token and return its response."""
    answer = oauth.gatehouse.get(
        oauth.gatehouse.load_server_metadata()["userinfo_endpoint"], token=dict(tokens)
    )
    return f"<h1 id=status>{answer.status_code}</h1><p id=body>{answer.json().get('email', '')}</p>"


@app.get("/tokens")
def held() -> dict[str, Any]:
    """Return what this application stores; the test acts as its owner."""
    return {name: tokens[name] for name in ("access_token", "refresh_token") if name in tokens}
