"""Signing out: a GET asks, a POST does it (CF-4)."""

from __future__ import annotations

from flask import make_response, redirect, render_template, request
from werkzeug.wrappers import Response

from app.account.blueprint import account
from app.operations.directory.lookups import get_organization_by_slug
from app.operations.sign_in.sessions import end_session
from app.web.branding import branding_of
from app.web.browser_session import account_actor, clear_sign_in, session_for
from app.web.headers import page_class


@account.get("/organizations/<organization>/logout")
@page_class("flow")
def ask_to_sign_out(organization: str) -> Response:
    """A question for somebody signed in; for anybody else the news that nobody is."""
    named = get_organization_by_slug(organization)
    page = render_template(
        "account/sign_out.html", organization=named, session=session_for(named.id), **branding_of(named)
    )
    return make_response(page)


@account.post("/organizations/<organization>/logout")
@page_class("flow")
def sign_out(organization: str) -> Response:
    """The sign-in at the organization is over, in the database and in the browser."""
    named = get_organization_by_slug(organization)
    actor = account_actor(named.id)
    if actor is not None:
        end_session(actor)
    response = redirect(request.path, 303)
    clear_sign_in(response, named.id)
    return response
