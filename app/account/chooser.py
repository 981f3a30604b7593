"""Choosing an organization to sign in to."""

from __future__ import annotations

from urllib.parse import urlencode

from flask import make_response, redirect, render_template, request
from werkzeug.wrappers import Response

from app.account.blueprint import account
from app.operations.directory.lookups import get_organization_by_slug
from app.operations.organizations.setup import is_set_up
from app.rules.errors import NotFound
from app.rules.languages.sentences import sentence
from app.web.browser_session import current_sessions
from app.web.headers import page_class
from app.web.local_paths import own_path


@account.get("/")
def front_door() -> Response:
    """Set-up on the first run, the portal ever after."""
    return redirect("/portal" if is_set_up() else "/setup", 303)


@account.get("/login")
@page_class("flow")
def choose_organization() -> Response:
    """The sign-ins of this browser, and a field for another organization's name in its address."""
    named = request.args.get("organization", "").strip().lower()
    following = own_path(request.args.get("next"), "")
    errors = {}
    if named:
        try:
            organization = get_organization_by_slug(named)
        except NotFound:
            errors["organization"] = sentence(
                "There is no such organization. Ask whoever invited you for its address."
            )
        else:
            query = f"?{urlencode({'next': following})}" if following else ""
            return redirect(f"/organizations/{organization.slug}/login{query}", 303)
    page = render_template(
        "account/chooser.html", sessions=current_sessions(), named=named, errors=errors, following=following
    )
    return make_response(page, 404 if errors else 200)
