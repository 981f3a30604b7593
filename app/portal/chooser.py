"""Chooser: the organizations that this browser is signed in to."""

from __future__ import annotations

from flask import redirect, render_template, request

from app.portal.blueprint import portal
from app.portal.visit import Answer
from app.web.browser_session import current_sessions

_SEARCH_FROM = 9


@portal.get("/portal")
def choose() -> Answer:
    """The list; whoever is signed in nowhere is asked to sign in first."""
    sessions = current_sessions()
    if not sessions:
        return redirect("/login", 303)
    query = request.args.get("q", "").strip()[:100]
    wanted = query.casefold()
    shown = [
        session
        for session in sessions
        if wanted in session.organization_name.casefold()
        or wanted in session.organization_slug
        or wanted in session.user_email.casefold()
    ]
    return render_template(
        "portal/choose.html",
        sessions=shown,
        query=query,
        is_searchable=len(sessions) >= _SEARCH_FROM,
        instance_admin=next(
            (session for session in sessions if session.is_root and session.permissions), None
        ),
    )
