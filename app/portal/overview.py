"""The organization chooser and an organization's overview."""

from __future__ import annotations

from flask import redirect, render_template

from app.operations.authorization.approval_requests import count_open_requests
from app.operations.clients.access_records import count_pending_requests
from app.operations.organizations.overview import MAX_COUNT, get_overview
from app.operations.users.registrations import count_registrations
from app.portal.context import PageResponse, PortalContext, first_page, portal, portal_page, search_query
from app.portal.labels import AUDIT_ACTIONS
from app.rules.errors import Forbidden
from app.web.browser_session import current_sessions

_MIN_SESSIONS_FOR_SEARCH = 9


@portal.get("/portal")
def choose_organization() -> PageResponse:
    """List the organizations that this browser is signed in to."""
    sessions = current_sessions()
    if not sessions:
        return redirect("/login", 303)
    query = search_query()
    wanted = query.casefold()
    return render_template(
        "portal/choose.html",
        sessions=[
            session
            for session in sessions
            if wanted in session.organization_name.casefold()
            or wanted in session.organization_slug
            or wanted in session.user_email.casefold()
        ],
        query=query,
        is_searchable=len(sessions) >= _MIN_SESSIONS_FOR_SEARCH,
        is_instance_admin=any(session.is_root and session.permissions for session in sessions),
    )


@portal_page("", "GET")
def overview(context: PortalContext) -> PageResponse:
    """Show figures, what needs attention and recent activity; a checklist while the organization is new.

    Redirect users who may not see it, such as members who can register clients, to the first page that they may open.
    """
    try:
        figures = get_overview(context.actor)
    except Forbidden:
        page = first_page(context.organization, context.actor)
        if page is None:
            raise
        return redirect(page, 303)
    has_colleague = figures.administrators > 1 or figures.has_invited
    return context.render(
        "portal/overview.html",
        figures=figures,
        max_count=MAX_COUNT,
        requests=count_open_requests(context.actor),
        access_requests=count_pending_requests(context.actor),
        registrations=count_registrations(context.actor),
        actions=AUDIT_ACTIONS,
        has_colleague=has_colleague,
        is_new=not (figures.clients and figures.tokens_last_day and has_colleague),
    )
