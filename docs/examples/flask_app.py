"""A Flask app whose users sign in with Gatehouse."""

import os

from authlib.integrations.flask_client import OAuth, OAuthError
from flask import Flask, redirect, render_template_string, session, url_for

app = Flask(__name__)
app.secret_key = os.environ["SECRET_KEY"]  # signs the cookie of the app's own session
app.config.update(SESSION_COOKIE_NAME="flask_app", SESSION_COOKIE_SAMESITE="Lax")

oauth = OAuth(app)
oauth.register(
    "gatehouse",
    client_id=os.environ["CLIENT_ID"],
    client_secret=os.environ["CLIENT_SECRET"],
    server_metadata_url=os.environ["ISSUER"] + "/.well-known/openid-configuration",
    client_kwargs={"scope": "openid profile email", "code_challenge_method": "S256"},
)

PAGE = """<!doctype html>
<html lang="en">
<meta name="viewport" content="width=device-width">
<title>Flask app</title>
<style>
  :root { color-scheme: light dark; font: 1.1rem/1.5 system-ui, sans-serif }
  body { max-width: 28rem; margin: 15vh auto; padding: 0 1rem }
  a { display: inline-block; padding: .5rem 1.25rem; border-radius: .5rem; text-decoration: none }
  a { background: #3347c9; color: #fff }
  p { overflow-wrap: anywhere }
</style>
{% if user %}
<h1>Hello, {{ user.name }}</h1>
<p>You are signed in as {{ user.email }}.</p>
<a href="{{ url_for('sign_out') }}">Sign out</a>
{% else %}
<h1>Flask app</h1>
<p>{{ error or "You are not signed in." }}</p>
<a href="{{ url_for('sign_in') }}">Sign in</a>
{% endif %}"""


@app.get("/")
def home():
    return render_template_string(PAGE, user=session.get("user"))


@app.get("/sign-in")
def sign_in():
    return oauth.gatehouse.authorize_redirect(url_for("callback", _external=True))


@app.get("/callback")
def callback():
    try:
        token = oauth.gatehouse.authorize_access_token()  # checks state, issuer, nonce and ID token
    except OAuthError as error:
        return render_template_string(PAGE, error=f"Not signed in: {error.description or error.error}"), 400
    session["user"] = {name: token["userinfo"].get(name) for name in ("sub", "name", "email")}
    return redirect(url_for("home"))


@app.get("/sign-out")
def sign_out():
    session.clear()
    return redirect(url_for("home"))
