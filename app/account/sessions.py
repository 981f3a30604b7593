"""The user's sessions, recognized browsers, account activity and connected apps."""

from __future__ import annotations

from flask import redirect
from werkzeug.wrappers import Response

from app.account.context import AccountContext, account_page
from app.operations.audit.audit_events import ACTIVITY_WINDOW, list_activity
from app.operations.authorization.connected_apps import ConsentRecord, list_consents, withdraw_consent
from app.operations.clients.scopes import ScopeRecord, list_scopes
from app.operations.clients.sector_documents import find_login_urls
from app.operations.sign_in.known_browsers import forget_browser, list_known_browsers
from app.operations.sign_in.sessions import end_other_sessions, end_session, list_sessions
from app.rules.audit.events import ACCOUNT_EVENTS, SUSPICIOUS_EVENTS
from app.rules.errors import NotFound
from app.rules.sign_in.browser_names import browser_name
from app.web.browser_session import clear_sign_in, known_browser
from app.web.languages import translate
from app.web.pagination import page_in_url


@account_page("/account/sessions", "GET")
def sessions_page(context: AccountContext) -> Response:
    """List sessions and recognized browsers, this browser first."""
    sessions = [(session, browser_name(session.user_agent)) for session in list_sessions(context.actor)]
    known = list_known_browsers(context.actor, known_browser(context.organization.id))
    return context.render(
        "account/sessions.html",
        sessions=sessions,
        known=[(browser, browser_name(browser.user_agent)) for browser in known],
    )


@account_page("/account/sessions/known/<browser_id>/forget", "POST")
def remove_browser(context: AccountContext, browser_id: str) -> Response:
    """Stop recognizing a browser; a session in it stays active."""
    forget_browser(context.actor, browser_id)
    return context.done("/sessions", "forgotten")


@account_page("/account/sessions/<session_id>/end", "POST")
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


@account_page("/account/sessions/end-others", "POST")
def end_all_other_sessions(context: AccountContext) -> Response:
    """End every session but the current one."""
    end_other_sessions(context.actor)
    return context.done("/sessions", "others-ended")


@account_page("/account/activity", "GET")
def activity_page(context: AccountContext) -> Response:
    """List sign-ins, failed attempts, security changes and app access, newest first."""
    page = list_activity(context.actor, page_in_url(context.organization.id))
    return context.render(
        "account/activity.html",
        page=page,
        titles=ACCOUNT_EVENTS,
        alarming=SUSPICIOUS_EVENTS,
        days=ACTIVITY_WINDOW.days,
    )


@account_page("/account/apps", "GET")
def apps_page(context: AccountContext) -> Response:
    """List the apps with access to the account and what each may do."""
    apps = list_consents(context.actor)
    login_urls = find_login_urls(context.actor, [app.client_id for app in apps])
    return context.render(
        "account/apps.html", apps=apps, login_urls=login_urls, titles=_scope_titles(context)
    )


@account_page("/account/apps/<consent_id>/remove", "GET")
def remove_app_page(context: AccountContext, consent_id: str) -> Response:
    """Show what the app will no longer be able to do."""
    app = _find(context, consent_id)
    return context.render("account/app_remove.html", app=app, titles=_scope_titles(context))


@account_page("/account/apps/<consent_id>/remove", "POST")
def remove_app(context: AccountContext, consent_id: str) -> Response:
    """Remove the app's access."""
    withdraw_consent(context.actor, _find(context, consent_id).id)
    return context.done("/apps", "removed")


def _find(context: AccountContext, consent_id: str) -> ConsentRecord:
    for app in list_consents(context.actor):
        if app.public_id == consent_id:
            return app
    raise NotFound("This app is no longer connected.")


def _scope_titles(context: AccountContext) -> dict[str, str]:
    return {scope.name: _title(scope) for scope in list_scopes(context.actor)}


def _title(scope: ScopeRecord) -> str:
    """Return the title of a scope; only titles of built-in scopes are translated."""
    title = scope.title or scope.name
    return translate(title) if scope.is_identity else title
