"""What a browser carries: one cookie for each sign-in, and one anonymous cookie for its forms.

There is no "current organization" in a session: it stands in the URL, and the sign-in of that organization's cookie
counts there and nowhere else (TN-16). The anonymous cookie holds the browser's id and its form token, signed; it
is read only by pages that ask for it, so that token requests pay nothing.
"""

from __future__ import annotations

from flask import Flask, current_app, g, request, session
from werkzeug.wrappers import Response

from app.config import Config
from app.extensions import csrf, login_manager
from app.operations.directory.lookups import OrganizationSnapshot, get_root_organization
from app.operations.directory.permissions import get_user_permissions
from app.operations.sign_in.known_browsers import KNOWN_BROWSER_LIFETIME
from app.operations.sign_in.sessions import SessionRecord, find_session
from app.rules.actor import Actor
from app.rules.errors import NotFound
from app.rules.identifiers import is_routing_key, public_id
from app.web.anonymous_cookie import AnonymousCookie, new_browser_id
from app.web.request_log import note, request_id
from app.web.same_site import refuse_other_sites
from app.web.signed_in_user import SignedInUser

MOST_SIGN_INS = 50
"""Cookies of one browser that are looked at; more than any person has organizations."""
_FIELD = "csrf_token"


def register(app: Flask) -> None:
    """Cookies, form tokens, the origin check and ``current_user`` work."""
    config: Config = app.config["GATEHOUSE"]
    app.session_interface = AnonymousCookie(_prefix(config), is_secure=config.is_https)
    app.config["WTF_CSRF_TIME_LIMIT"] = None  # As long as the cookie: people leave forms open over lunch.
    app.config["WTF_CSRF_SSL_STRICT"] = False  # The origin check beside it needs no Referer.
    app.config["WTF_CSRF_FIELD_NAME"] = _FIELD
    refuse_other_sites(app)
    csrf.init_app(app)
    # Flask-Login's remember cookie is not used (SS-1). No request can carry a cookie with a semicolon in its name.
    app.config["REMEMBER_COOKIE_NAME"] = "remember;unused"
    # In the context of each template it would look up all sign-ins of the browser, on the error page too.
    login_manager.init_app(app, add_context_processor=False)
    login_manager.session_protection = None
    login_manager.request_loader(_load_user)


def session_for(organization_id: str) -> SessionRecord | None:
    """This browser's living sign-in at the organization, or None. Asked once a request, unless it is forgotten."""
    known: dict[str, SessionRecord | None] = g.setdefault("sign_ins", {})
    if organization_id not in known:
        token = sign_in_token(organization_id)
        view = find_session(token) if token else None
        known[organization_id] = (
            view if view is not None and view.organization_id == organization_id else None
        )
    return known[organization_id]


def forget_sign_ins() -> None:
    """Whoever asks from now on reads anew which sign-ins live."""
    g.pop("sign_ins", None)


def current_sessions() -> list[SessionRecord]:
    """All living sign-ins of this browser, by the organization's name."""
    prefix = f"{_prefix(_config())}-"
    names = (name.removeprefix(prefix) for name in request.cookies if name.startswith(prefix))
    keys = [name for name in names if is_routing_key(name)]
    views = [session_for(key) for key in keys[:MOST_SIGN_INS]]
    return sorted(
        (view for view in views if view is not None), key=lambda view: view.organization_name.casefold()
    )


def actor_for(organization: OrganizationSnapshot) -> Actor:
    """Who this browser is in the organization; an anonymous actor when nobody is signed in.

    An administrator of root acts in any organization by naming it in the URL. Whoever is signed in to both acts
    by the own account there, unless that one may do nothing.
    """
    own = session_for(organization.id)
    if own is not None:
        note(organization=organization.slug, actor=public_id("usr", own.user_id))
    actor = own.actor(ip_address=request.remote_addr, request_id=request_id()) if own is not None else None
    if actor is None or not actor.permissions:
        visiting = _visiting_actor(organization)
        if visiting is not None:
            return visiting
    return actor or Actor.anonymous(organization.id, request.remote_addr, request_id())


def account_actor(organization_id: str) -> Actor | None:
    """The person signed in at the organization itself, for the pages of the own account; root does not count."""
    own = session_for(organization_id)
    return own.actor(ip_address=request.remote_addr, request_id=request_id()) if own is not None else None


def sign_in_token(organization_id: str) -> str | None:
    """The value of this browser's cookie for the organization."""
    return request.cookies.get(cookie_name(organization_id))


def cookie_name(organization_id: str) -> str:
    """The name of the cookie that holds the sign-in at the organization."""
    return f"{_prefix(_config())}-{organization_id}"


def set_sign_in(response: Response, organization_id: str, token: str, *, known: str = "") -> None:
    """The browser is signed in from this answer on; its forms have a new token (login CSRF, fixation).

    ``known`` is the value of its cookie of known browsers, where the sign-in made one.
    """
    config = _config()
    response.set_cookie(
        cookie_name(organization_id), token, secure=config.is_https, httponly=True, samesite="Lax", path="/"
    )
    if known:
        set_known_browser(response, organization_id, known)
    renew_form_token()


def known_browser(organization_id: str) -> str:
    """The value of this browser's cookie that says whose browser it is known to be; it signs nobody in (LK-1)."""
    return request.cookies.get(known_cookie_name(organization_id), "")


def known_cookie_name(organization_id: str) -> str:
    """The name of the cookie of known browsers for the organization."""
    return f"{_prefix(_config())}-known-{organization_id}"


def set_known_browser(response: Response, organization_id: str, value: str) -> None:
    """The browser is known from this answer on, for a year, signed in or not."""
    response.set_cookie(
        known_cookie_name(organization_id),
        value,
        max_age=KNOWN_BROWSER_LIFETIME,
        secure=_config().is_https,
        httponly=True,
        samesite="Lax",
        path="/",
    )


def clear_sign_in(response: Response, organization_id: str) -> None:
    """The browser forgets the sign-in; its forms have a new token."""
    config = _config()
    response.delete_cookie(
        cookie_name(organization_id), secure=config.is_https, httponly=True, samesite="Lax", path="/"
    )
    renew_form_token()


def browser_id() -> str:
    """This browser's anonymous id: what a request under way is bound to, before anybody has signed in."""
    value = session.get("browser")
    if not isinstance(value, str):
        value = session["browser"] = new_browser_id()
    return value


def renew_form_token() -> None:
    """Forms that were loaded before no longer work."""
    session.pop(_FIELD, None)
    g.pop(_FIELD, None)


def _visiting_actor(organization: OrganizationSnapshot) -> Actor | None:
    if organization.is_root:
        return None
    try:
        root = get_root_organization()
    except NotFound:
        return None
    view = session_for(root.id)
    if view is None:
        return None
    permissions = get_user_permissions(organization, root.id, view.user_id)
    if not permissions:
        return None
    actor = view.actor(ip_address=request.remote_addr, request_id=request_id())
    return actor.acting_in(organization.id, permissions)


def _load_user(_request: object) -> SignedInUser | None:
    """``current_user`` of Flask-Login: the sign-in of the organization in the URL (SS-1)."""
    slug = (request.view_args or {}).get("organization")
    for view in current_sessions():
        if view.organization_slug == slug:
            return SignedInUser(view)
    return None


def _prefix(config: Config) -> str:
    # A __Host- cookie must be Secure, which plain http on the loopback interface cannot set everywhere.
    return "__Host-gatehouse" if config.is_https else "gatehouse"


def _config() -> Config:
    config: Config = current_app.config["GATEHOUSE"]
    return config
