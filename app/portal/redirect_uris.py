"""Redirect URIs in the portal: a verdict on each line while it is typed, and what frameworks use by default."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import quote

from flask import jsonify, request
from msgspec import Struct
from werkzeug.wrappers import Response

from app.operations.directory.snapshots import OrganizationSnapshot
from app.portal.context import PortalContext, portal_page
from app.portal.labels import CLIENT_TYPE_LABELS
from app.rules.clients.redirect_uris import is_loopback, redirect_uri_problem
from app.web.languages import gettext, lazy_gettext, translate

MAX_LINES = 100
# Framework and its redirect URI during development, by type of client.
EXAMPLES: dict[str, tuple[tuple[str, str], ...]] = {
    "web": (
        ("Next.js (Auth.js)", "http://localhost:3000/api/auth/callback/gatehouse"),
        ("Flask (Authlib)", "http://localhost:5000/callback"),
        ("Django (allauth)", "http://localhost:8000/accounts/oidc/gatehouse/login/callback/"),
        ("Express (openid-client)", "http://localhost:3000/callback"),
        ("Spring Security", "http://localhost:8080/login/oauth2/code/gatehouse"),
        ("ASP.NET Core", "https://localhost:5001/signin-oidc"),
        ("Rails (OmniAuth)", "http://localhost:3000/auth/openid_connect/callback"),
        ("Laravel (Socialite)", "http://localhost:8000/auth/callback"),
    ),
    "spa": (
        ("Vite (React, Vue, Svelte)", "http://localhost:5173/callback"),
        ("Angular", "http://localhost:4200/callback"),
        ("Create React App", "http://localhost:3000/callback"),
    ),
    "native": (
        (lazy_gettext("Command line and desktop"), "http://127.0.0.1/callback"),
        ("iOS and Android", "com.example.app:/callback"),
        ("Electron", "http://127.0.0.1/auth/callback"),
    ),
}


class Verdict(Struct, frozen=True):
    """Whether one line can be registered, and what to know about it."""

    uri: str
    is_valid: bool
    message: str


def validate_redirect_uris(
    uris: Iterable[str], client_type: str, organization: OrganizationSnapshot
) -> list[Verdict]:
    """Return a verdict on each redirect URI, by the rules of the registration."""
    hosts = organization.settings["oauth"]["redirect_uris"]["allowed_hosts"]
    verdicts: list[Verdict] = []
    for uri in list(uris)[:MAX_LINES]:
        problem = redirect_uri_problem(uri, client_type=client_type, allowed_hosts=hosts)
        if problem is not None:
            verdicts.append(Verdict(uri, False, translate(problem.message)))
        elif any(other.uri == uri for other in verdicts):
            verdicts.append(Verdict(uri, False, gettext("Duplicate entry.")))
        else:
            verdicts.append(Verdict(uri, True, _remark(uri, client_type)))
    return verdicts


def _remark(uri: str, client_type: str) -> str:
    if not is_loopback(uri):
        return gettext("Valid")
    return (
        gettext("Valid on any port")
        if client_type == "native"
        else gettext("Valid, for development on this device")
    )


@portal_page("/redirect-uris/check", "GET")
def check_redirect_uris(context: PortalContext) -> Response:
    """Return the verdicts on ``uris``, one per line, for a client of the ``type``, by default a web app, as JSON."""
    context.actor.require_for_own("clients:write")
    client_type = request.args.get("type", "")
    client_type = client_type if client_type in CLIENT_TYPE_LABELS else "web"
    uris = [line.strip() for line in request.args.get("uris", "").splitlines() if line.strip()]
    verdicts = validate_redirect_uris(uris, client_type, context.organization)
    return jsonify([{"uri": each.uri, "valid": each.is_valid, "message": each.message} for each in verdicts])


def check_url(context: PortalContext, client_type: str) -> str:
    """Return the URL that the script on the page asks for verdicts."""
    return context.url(f"/redirect-uris/check?type={quote(client_type)}")
