"""Sign-ins: the browsers in which one is signed in."""

from __future__ import annotations

from flask import redirect
from werkzeug.wrappers import Response

from app.account.blueprint import account
from app.account.visit import Visit, own_account
from app.operations.sign_in.known_browsers import forget_browser, list_known_browsers
from app.operations.sign_in.sessions import end_other_sessions, end_session, list_sessions
from app.rules.sign_in.browser_names import browser_name
from app.web.browser_session import clear_sign_in, known_browser


@account.get("/organizations/<organization>/account/sessions")
@own_account
def sessions_page(visit: Visit) -> Response:
    """Every browser, this one first."""
    listed = [(sign_in, browser_name(sign_in.user_agent)) for sign_in in list_sessions(visit.actor)]
    known = list_known_browsers(visit.actor, known_browser(visit.organization.id))
    return visit.render(
        "account/sessions.html",
        sessions=listed,
        known=[(browser, browser_name(browser.user_agent)) for browser in known],
    )


@account.post("/organizations/<organization>/account/sessions/known/<browser_id>/forget")
@own_account
def forget_known(visit: Visit, browser_id: str) -> Response:
    """That browser is known as one's own no more; who is signed in there stays so."""
    forget_browser(visit.actor, browser_id)
    return visit.done("/sessions", "forgotten")


@account.post("/organizations/<organization>/account/sessions/<session_id>/end")
@own_account
def end_one(visit: Visit, session_id: str) -> Response:
    """That browser is signed out; when it is this one, the sign-in page follows."""
    is_current = any(
        sign_in.is_current and sign_in.public_id == session_id for sign_in in list_sessions(visit.actor)
    )
    end_session(visit.actor, session_id)
    if not is_current:
        return visit.done("/sessions", "ended")
    response = redirect(f"/organizations/{visit.organization.slug}/logout", 303)
    clear_sign_in(response, visit.organization.id)
    return response


@account.post("/organizations/<organization>/account/sessions/end-others")
@own_account
def end_others(visit: Visit) -> Response:
    """Every other browser is signed out."""
    end_other_sessions(visit.actor)
    return visit.done("/sessions", "others-ended")
