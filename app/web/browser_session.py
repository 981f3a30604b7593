"""Sessions of browsers: a cookie for each organization, ``current_user``, the anonymous cookie and the same-site check.

A session has no "current organization": the URL names it, and only that organization's cookie is read (TN-16). The
anonymous cookie holds the browser's id and its CSRF token, signed.
"""

from __future__ import annotations

import functools
import hashlib
import re
import secrets
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

from flask import Blueprint, Flask, Request, g, redirect, request, session
from flask.sessions import SecureCookieSession, SessionInterface, SessionMixin
from flask_login import UserMixin, current_user, login_required
from flask_wtf.csrf import CSRFError
from itsdangerous import BadSignature, URLSafeSerializer
from werkzeug.http import parse_cookie
from werkzeug.wrappers import Response

from app.config import Config, current
from app.extensions import csrf, login_manager
from app.operations.directory.lookups import (
    get_organization_by_slug,
    get_root_organization,
    get_user_permissions,
)
from app.operations.directory.snapshots import OrganizationSnapshot
from app.operations.sign_in.known_browsers import KNOWN_BROWSER_LIFETIME
from app.operations.sign_in.sessions import SessionRecord, find_session
from app.operations.store.keyring import derive_instance_key
from app.rules.actor import Actor
from app.rules.errors import NotFound, OrganizationMoving
from app.rules.identifiers import is_routing_key, public_id
from app.web.request_log import note, request_id

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

View = Callable[..., Any]
MAX_SESSIONS = 50
"""How many session cookies of one browser are read."""
CSRF_FIELD = "csrf_token"
"""The field of every form that holds the CSRF token."""
_SAFE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
_BLUEPRINTS = frozenset({"portal", "account", "interaction", "device"})
MAX_PATH_LENGTH = 1000

# One slash, then no second one; characters of RFC 3986 paths and queries. No backslash, tab, space or escape of
# them: browsers turn ``/\\e``, ``/<tab>/e`` and the like into another host's address.
_PATH = re.compile(
    r"/(?:[A-Za-z0-9._~!$&'()*+,=:@-][A-Za-z0-9._~!$&'()*+,;=:@/-]*)?(?:\?[A-Za-z0-9._~!$&'()*+,;=:@/?%-]*)?"
)
_HIDDEN = re.compile(r"%(?:[01][0-9a-f]|7f|5c|2f(?:%2f|/))", re.IGNORECASE)


class SignedInUser(UserMixin):
    """The ``current_user`` of a page: the user whose session belongs to the organization in the URL.

    ``actor`` is the user as operations expect it, ``organization`` the one in the URL.
    """

    def __init__(self, session: SessionRecord, actor: Actor, organization: OrganizationSnapshot) -> None:
        self.session = session
        self.actor = actor
        self.organization = organization

    @property
    def id(self) -> str:
        """Return ``usr_…``."""
        return self.session.user_public_id


def register(app: Flask) -> None:
    """Set up cookies, CSRF protection and Flask-Login."""
    config: Config = app.config["GATEHOUSE"]
    app.session_interface = _AnonymousCookie(_prefix(config), is_secure=config.is_https)
    # A form is valid as long as the cookie: users leave forms open over lunch.
    app.config["WTF_CSRF_TIME_LIMIT"] = None
    # ``check_origin`` needs no Referer header.
    app.config["WTF_CSRF_SSL_STRICT"] = False
    app.config["WTF_CSRF_FIELD_NAME"] = CSRF_FIELD
    # Flask-Login's remember cookie is not used (SS-1). No request can carry a cookie with a semicolon in its name.
    app.config["REMEMBER_COOKIE_NAME"] = "remember;unused"
    app.before_request(_refuse_other_sites)
    csrf.init_app(app)
    # A context processor would load the user for every template, also for the page of a failed database.
    login_manager.init_app(app, add_context_processor=False)
    login_manager.session_protection = None
    login_manager.request_loader(load_signed_in_user)
    login_manager.unauthorized_handler(redirect_to_sign_in)


def load_signed_in_user(_request: object) -> SignedInUser | None:
    """Return Flask-Login's ``current_user``: the user of the session at the organization in the URL (SS-1).

    In the portal, an administrator of root may act in another organization. Account pages belong to the
    organization's own users. Raises NotFound for an unknown organization.
    """
    slug = (request.view_args or {}).get("organization")
    if slug is None:
        return None
    organization = get_organization_by_slug(slug)
    if request.blueprint == "portal":
        actor = actor_for(organization)
        view = session_for(actor.home_organization_id)
        return SignedInUser(view, actor, organization) if view is not None else None
    view = session_for(organization.id)
    return SignedInUser(view, actor_of_session(view), organization) if view is not None else None


def redirect_to_sign_in() -> Response:
    """Redirect to the sign-in page of the organization in the URL, which leads back to this page."""
    slug = (request.view_args or {})["organization"]
    return redirect(f"/organizations/{slug}/login?{urlencode(return_to_page())}", 303)


def return_to_page() -> dict[str, str]:
    """Return the parameters of a sign-in page that leads back to this page.

    A path that only accepts POST returns to the page with its form. After a POST, ``unsaved`` lets the sign-in page say
    that nothing was changed.
    """
    unsaved = {} if request.method in _SAFE else {"unsaved": "1"}
    return {"next": _page_to_return_to(), **unsaved}


def _page_to_return_to() -> str:
    if request.url_rule is None or "GET" in (request.url_rule.methods or ()):
        # Werkzeug adds a "?" to the path of a request without a query.
        return request.full_path.rstrip("?")
    slug = (request.view_args or {}).get("organization", "")
    home = f"/portal/{slug}" if request.blueprint == "portal" else f"/organizations/{slug}/account"
    page = referring_page()
    return page if f"{page.partition('?')[0]}/".startswith(f"{home}/") else home


def referring_page() -> str:
    """Return the path of the page of this service that led here, or an empty string."""
    page = urlsplit(request.referrer or "")
    if page.netloc != request.host:
        return ""
    path = own_path(page.path, "")
    return f"{path}?{page.query}" if path and page.query else path


def session_for(organization_id: str) -> SessionRecord | None:
    """Return this browser's active session at the organization, or None. Cached for the request."""
    known: dict[str, SessionRecord | None] = g.setdefault("sessions", {})
    if organization_id not in known:
        known[organization_id] = _find_session(sign_in_token(organization_id), organization_id)
    return known[organization_id]


def session_of(environ: WSGIEnvironment, organization_id: str) -> SessionRecord | None:
    """As ``session_for``, for a request that Flask does not handle."""
    return _find_session(parse_cookie(environ).get(cookie_name(organization_id)), organization_id)


def _find_session(token: str | None, organization_id: str) -> SessionRecord | None:
    view = find_session(token) if token else None
    return view if view is not None and view.organization_id == organization_id else None


def has_session_cookie(environ: WSGIEnvironment) -> bool:
    """Return whether the browser may have a session, without a look at it."""
    return f"{_prefix(current())}-" in environ.get("HTTP_COOKIE", "")


def forget_sign_ins() -> None:
    """Read the sessions again from here on in this request."""
    g.pop("sessions", None)


def current_sessions() -> list[SessionRecord]:
    """Return all active sessions of this browser, sorted by the organization's name.

    Those at organizations that another cell serves now are left out.
    """
    prefix = f"{_prefix(current())}-"
    names = (name.removeprefix(prefix) for name in request.cookies if name.startswith(prefix))
    keys = [name for name in names if is_routing_key(name)]
    views = []
    for key in keys[:MAX_SESSIONS]:
        with suppress(OrganizationMoving):
            views.append(session_for(key))
    return sorted(
        (view for view in views if view is not None), key=lambda view: view.organization_name.casefold()
    )


def actor_for(organization: OrganizationSnapshot) -> Actor:
    """Return the actor of this browser in the organization; an anonymous actor without a session.

    An administrator of root acts in any organization by naming it in the URL. A user with sessions at both acts with
    the organization's own account, unless that account has no permissions.
    """
    own = session_for(organization.id)
    if own is not None:
        note(organization=organization.slug, actor=public_id("usr", own.user_id))
    actor = actor_of_session(own) if own is not None else None
    if actor is None or not actor.permissions:
        root_actor = _root_actor(organization)
        if root_actor is not None:
            return root_actor
    return actor or anonymous_actor(organization)


def anonymous_actor(organization: OrganizationSnapshot) -> Actor:
    """Return the actor of a request without a session, or before the sign-in is complete."""
    return Actor.anonymous(organization.id, request.remote_addr, request_id())


def actor_of_session(session: SessionRecord) -> Actor:
    """Return the actor of a request with this session."""
    return session.actor(ip_address=request.remote_addr, request_id=request_id())


def account_actor(organization_id: str) -> Actor | None:
    """Return the actor of the session at the organization itself, or None; a session at root does not count."""
    own = session_for(organization_id)
    return actor_of_session(own) if own is not None else None


def sign_in_token(organization_id: str) -> str | None:
    """Return the value of this browser's session cookie for the organization."""
    return request.cookies.get(cookie_name(organization_id))


def cookie_name(organization_id: str) -> str:
    """Return the name of the session cookie for the organization."""
    return f"{_prefix(current())}-{organization_id}"


def page_decorator(
    blueprint: Blueprint, base: str, context: Callable[[OrganizationSnapshot, Actor], object]
) -> Callable[..., Callable[[View], View]]:
    """Return the decorator that registers a view at a path below ``base/<organization>`` for the methods after it.

    The view receives its ``context`` in place of the organization's slug. Requires a sign-in. The decorated name stays
    the view itself, so that another view can show its page.
    """

    def page(path: str, *methods: str) -> Callable[[View], View]:
        def register(view: View) -> View:
            @blueprint.route(f"{base}/<organization>{path}", methods=methods)
            @functools.wraps(view)
            @login_required
            def run(organization: str, **values: Any) -> Any:
                return view(context(current_user.organization, current_user.actor), **values)

            return view

        return register

    return page


def set_sign_in(response: Response, organization_id: str, token: str, *, known: str = "") -> None:
    """Set the session cookie and renew the CSRF token (login CSRF, fixation).

    ``known`` is the value of the cookie of recognized browsers, if the sign-in created one.
    """
    response.set_cookie(cookie_name(organization_id), token, **_cookie_attributes())
    if known:
        set_known_browser(response, organization_id, known)
    renew_form_token()


def known_browser(organization_id: str) -> str:
    """Return the value of this browser's cookie of recognized browsers; it does not sign anyone in (LK-1)."""
    return request.cookies.get(known_cookie_name(organization_id), "")


def known_cookie_name(organization_id: str) -> str:
    """Return the name of the cookie of recognized browsers for the organization."""
    return f"{_prefix(current())}-known-{organization_id}"


def set_known_browser(response: Response, organization_id: str, value: str) -> None:
    """Set the cookie by which the browser is recognized for a year, with or without a session."""
    response.set_cookie(
        known_cookie_name(organization_id),
        value,
        max_age=KNOWN_BROWSER_LIFETIME,
        **_cookie_attributes(),
    )


def clear_sign_in(response: Response, organization_id: str) -> None:
    """Delete the session cookie and renew the CSRF token."""
    response.delete_cookie(cookie_name(organization_id), **_cookie_attributes())
    renew_form_token()


def once_cookie(key: str) -> tuple[str, dict[str, Any]]:
    """Return the name and the attributes of the cookie with what one page shows once (``app.web.flash``)."""
    return f"{_prefix(current())}-once-{key}", _cookie_attributes()


def _cookie_attributes() -> dict[str, Any]:
    return {"secure": current().is_https, "httponly": True, "samesite": "Lax", "path": "/"}


def browser_id() -> str:
    """Return this browser's anonymous ID, to which pending requests are bound before the user signs in."""
    value = session.get("browser")
    if not isinstance(value, str):
        value = session["browser"] = secrets.token_urlsafe(32)
    return value


def renew_form_token() -> None:
    """Invalidate the CSRF token of forms that were loaded before."""
    session.pop(CSRF_FIELD, None)
    g.pop(CSRF_FIELD, None)


def own_path(text: str | None, default: str = "/") -> str:
    """Return the text if it is a path of this service, else ``default``.

    A path begins with exactly one slash and has no ``//``, dot segment or fragment. A percent sign is allowed only in
    the query.
    """
    if text is None or len(text) > MAX_PATH_LENGTH or _PATH.fullmatch(text) is None or _HIDDEN.search(text):
        return default
    path = text.partition("?")[0]
    if "//" in path or any(segment in {".", ".."} for segment in path.split("/")):
        return default
    return text


def check_origin() -> None:
    """Raise CSRFError if another site sent the request."""
    site = request.headers.get("Sec-Fetch-Site")
    if site is not None:
        if site not in {"same-origin", "none"}:
            raise CSRFError("The form was sent from another site.")
        return
    origin = request.headers.get("Origin")
    if origin is not None and origin not in {current().base_url, request.host_url.rstrip("/")}:
        raise CSRFError("The form was sent from another site.")


def _refuse_other_sites() -> None:
    # APIs use no cookies and are not checked.
    if request.blueprint in _BLUEPRINTS and request.method not in _SAFE:
        check_origin()


def _root_actor(organization: OrganizationSnapshot) -> Actor | None:
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
    return actor_of_session(view).acting_in(organization.id, permissions)


def _prefix(config: Config) -> str:
    # A __Host- cookie must be Secure, which plain http on the loopback interface cannot set everywhere.
    return "__Host-gatehouse" if config.is_https else "gatehouse"


class _AnonymousCookie(SessionInterface):
    """A signed session cookie: HttpOnly, SameSite=Lax, deleted with the browser session. It holds no secret."""

    def __init__(self, name: str, *, is_secure: bool) -> None:
        self.name = name
        self.is_secure = is_secure

    def open_session(self, app: Flask, request: Request) -> SecureCookieSession:
        value = request.cookies.get(self.name)
        try:
            values = self._signer().loads(value) if value else {}
        except BadSignature:
            values = {}
        return SecureCookieSession(values if isinstance(values, dict) else {})

    def save_session(self, app: Flask, session: SessionMixin, response: Response) -> None:
        if session.modified:
            value = self._signer().dumps(dict(session))
            response.set_cookie(
                self.name, value, secure=self.is_secure, httponly=True, samesite="Lax", path="/"
            )

    @staticmethod
    def _signer() -> URLSafeSerializer:
        return URLSafeSerializer(
            derive_instance_key("anonymous cookie"),
            salt="gatehouse",
            signer_kwargs={"digest_method": hashlib.sha256},
        )
