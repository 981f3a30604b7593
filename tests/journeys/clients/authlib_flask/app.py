"""Authlib's Flask client: https://docs.authlib.org/en/latest/client/flask.html and /client/oidc.html."""

import os

from authlib.integrations.flask_client import OAuth
from flask import Flask, redirect, session, url_for

app = Flask(__name__)
app.secret_key = os.urandom(16)
app.config["GATEHOUSE_CLIENT_ID"] = os.environ["CLIENT_ID"]
app.config["GATEHOUSE_CLIENT_SECRET"] = os.environ["CLIENT_SECRET"]
tokens = {}  # the application's database


def update_token(name, token, refresh_token=None, access_token=None):
    tokens[session["user"]["sub"]] = token


oauth = OAuth(app, update_token=update_token)
oauth.register(
    name="gatehouse",
    server_metadata_url=f"{os.environ['ISSUER']}/.well-known/openid-configuration",
    client_kwargs={"scope": "openid profile email offline_access"},
)


@app.route("/login")
def login():
    return oauth.gatehouse.authorize_redirect(url_for("authorize", _external=True))


@app.route("/authorize")
def authorize():
    token = oauth.gatehouse.authorize_access_token()
    session["user"] = token["userinfo"]
    tokens[session["user"]["sub"]] = token
    return redirect("/profile")


@app.route("/profile")
def profile():
    return dict(oauth.gatehouse.userinfo(token=tokens[session["user"]["sub"]]))


@app.route("/refresh")
def refresh():
    tokens[session["user"]["sub"]]["expires_at"] = 1  # as an hour later: the next request refreshes
    return profile()


@app.route("/logout")
def logout():
    token = tokens.pop(session.pop("user")["sub"])
    return oauth.gatehouse.logout_redirect(
        post_logout_redirect_uri=url_for("signed_out", _external=True), id_token_hint=token["id_token"]
    )


@app.route("/signed-out")
def signed_out():
    oauth.gatehouse.validate_logout_response()
    return "signed out"
