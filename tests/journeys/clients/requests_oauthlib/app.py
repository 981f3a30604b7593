"""requests-oauthlib: https://requests-oauthlib.readthedocs.io/en/latest/examples/real_world_example_with_refresh.html."""

import os
from urllib.parse import urlencode

from flask import Flask, jsonify, redirect, request, session, url_for
from requests_oauthlib import OAuth2Session

app = Flask(__name__)
app.secret_key = os.urandom(16)
client_id = os.environ["CLIENT_ID"]
client_secret = os.environ["CLIENT_SECRET"]
redirect_uri = f"http://localhost:{os.environ['PORT']}/callback"
scope = ["openid", "profile", "email", "offline_access"]
issuer = os.environ["ISSUER"]
authorization_base_url = f"{issuer}/oauth/authorize"
token_url = refresh_url = f"{issuer}/oauth/token"
# The callback of this example uses http.
os.environ["OAUTHLIB_INSECURE_TRANSPORT"] = "1"


@app.route("/login")
def demo():
    gatehouse = OAuth2Session(client_id, scope=scope, redirect_uri=redirect_uri)
    authorization_url, state = gatehouse.authorization_url(authorization_base_url)
    session["oauth_state"] = state
    return redirect(authorization_url)


@app.route("/callback")
def callback():
    gatehouse = OAuth2Session(client_id, redirect_uri=redirect_uri, state=session["oauth_state"])
    session["oauth_token"] = gatehouse.fetch_token(
        token_url, client_secret=client_secret, authorization_response=request.url
    )
    return redirect(url_for(".profile"))


@app.route("/profile")
def profile():
    gatehouse = OAuth2Session(client_id, token=session["oauth_token"])
    return jsonify(gatehouse.get(f"{issuer}/oauth/userinfo").json())


@app.route("/refresh")
def manual_refresh():
    token = session["oauth_token"]
    extra = {"client_id": client_id, "client_secret": client_secret}
    gatehouse = OAuth2Session(client_id, token=token)
    # The response has no ID token, and logging out needs one.
    session["oauth_token"] = token | gatehouse.refresh_token(refresh_url, **extra)
    return profile()


@app.route("/logout")
def logout():
    # The library has nothing for this: https://openid.net/specs/openid-connect-rpinitiated-1_0.html.
    parameters = {
        "id_token_hint": session.pop("oauth_token")["id_token"],
        "post_logout_redirect_uri": url_for(".signed_out", _external=True),
    }
    return redirect(f"{issuer}/oauth/logout?{urlencode(parameters)}")


@app.route("/signed-out")
def signed_out():
    return "signed out"
