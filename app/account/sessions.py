"""The user's sessions, recognized browsers and account activity."""

from __future__ import annotations

from flask import redirect, request
from werkzeug.wrappers import Response

from app.account.blueprint import account
from app.account.context import AccountContext, account_page
from app.operations.audit.audit_events import ACTIVITY_WINDOW, list_activity
from app.operations.sign_in.known_browsers import forget_browser, list_known_browsers
from app.operations.sign_in.sessions import end_other_sessions, end_session, list_sessions
from app.rules.audit.events import ACCOUNT_EVENTS, SUSPICIOUS_EVENTS
from app.rules.errors import InvalidInput
from app.rules.sign_in.browser_names import browser_name
from app.web.browser_session import clear_sign_in, known_browser
from app.web.pagination import page_meta, page_position

_ACTIVITY = "account activity"


@account.get("/organizations/<organization>/account/sessions")
@account_page
def sessions_page(context: AccountContext) -> Response:
    """List sessions and recognized browsers, this browser first."""
    sessions = [(session, browser_name(session.user_agent)) for session in list_sessions(context.actor)]
    known = list_known_browsers(context.actor, known_browser(context.organization.id))
    return context.render(
        "account/sessions.html",
        sessions=sessions,
        known=[(browser, browser_name(browser.user_agent)) for browser in known],
    )


@account.post("/organizations/<organization>/account/sessions/known/<browser_id>/forget")
@account_page
def remove_browser(context: AccountContext, browser_id: str) -> Response:
    """Stop recognizing a browser; a session in it stays active."""
    forget_browser(context.actor, browser_id)
    return context.done("/sessions", "forgotten")


@account.post("/organizations/<organization>/account/sessions/<session_id>/end")
@account_page
def end_one_session(context: AccountContext, session_id: str) -> Response:
    """End a session; ending the current one leads to the sign-out page."""
    is_current = any(
        session.is_current and session.public_id == session_id for session in list_sessions(context.actor)
    )
    end_session(context.actor, session_id)
    if not is_current:
        return context.done("/sessions", "ended")
    response = redirect(f"/organizations/{context.organization.slug}/logout", 303)
    clear_sign_in(response, context.organization.id)
    return response


@account.post("/organizations/<organization>/account/sessions/end-others")
@account_page
def end_all_other_sessions(context: AccountContext) -> Response:
    """End every session but the current one."""
    end_other_sessions(context.actor)
    return context.done("/sessions", "others-ended")


@account.get("/organizations/<organization>/account/activity")
@account_page
def activity_page(context: AccountContext) -> Response:
    """List sign-ins, failed attempts, security changes and app access, newest first."""
    organization_id = context.organization.id
    sent = {"cursor": request.args["cursor"]} if request.args.get("cursor") else {}
    try:
        after = page_position(sent, organization_id, _ACTIVITY)
    except InvalidInput:
        after = None
    page = list_activity(context.actor, after=after)
    cursor = page_meta(page, {}, organization_id, _ACTIVITY)["next_cursor"]
    url = context.url("/activity")
    return context.render(
        "account/activity.html",
        page=page,
        titles=ACCOUNT_EVENTS,
        alarming=SUSPICIOUS_EVENTS,
        days=ACTIVITY_WINDOW.days,
        first_url=url if after else None,
        next_url=f"{url}?cursor={cursor}" if cursor else None,
    )
