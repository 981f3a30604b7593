"""Error responses outside the interfaces: unknown paths, wrong methods, foreign hosts, expired forms, failures.

A browser gets a page and a program gets the JSON envelope of the API. Neither contains a stack trace, SQL or the text
of an exception. The error handlers of the blueprints come first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from flask import Flask, Response, make_response, render_template, request
from flask_login import current_user
from flask_wtf.csrf import CSRFError
from werkzeug.exceptions import HTTPException, SecurityError
from werkzeug.exceptions import NotFound as PageNotFound

from app.database_errors import DATABASE_ERRORS, is_temporary
from app.rules.errors import DomainError, Unavailable
from app.rules.languages.translation import lazy_gettext
from app.web import json_api
from app.web.branding import branding_of_path
from app.web.browser_session import CSRF_FIELD, referring_page
from app.web.languages import apply_browser_language
from app.web.request_log import request_id

_PAGES = re.compile(
    r"(?:/organizations/[^/]+)?/(?:login|register|logout|device|invite|forgot|reset|confirm|confirm-address|account|portal|setup|static"
    r"|oauth/(?:authorize|logout))(?:/|$)|/$"
)
_API = re.compile(r"/(?:api|clients|organizations|me|openapi\.json)(?:/|$)")
# Fields whose values a page must not repeat.
CONFIDENTIAL = frozenset(
    {
        *("password", "password_again", "current_password", "new_password"),
        *("client_secret", "secret", "code", "token", "sign_in", "answer"),
    }
)
_NOT_FOUND = (
    lazy_gettext("Page not found"),
    lazy_gettext("Check the URL, or start again from the home page."),
)
_TEXTS = {
    400: (
        lazy_gettext("This request isn't valid"),
        lazy_gettext("The URL or form is incomplete. Go back and try again."),
    ),
    403: (
        lazy_gettext("You don't have permission"),
        lazy_gettext("Sign in with another account, or contact your administrator."),
    ),
    404: _NOT_FOUND,
    405: _NOT_FOUND,
    413: (
        lazy_gettext("The request is too large"),
        lazy_gettext("The request is larger than this service allows."),
    ),
    415: (
        lazy_gettext("This request isn't valid"),
        lazy_gettext("The content type isn't supported."),
    ),
    429: (lazy_gettext("Too many attempts"), lazy_gettext("Wait a moment, then try again.")),
    503: (
        lazy_gettext("Try again in a moment"),
        lazy_gettext("The service is unavailable right now. Nothing was lost."),
    ),
}
_HOME_BUTTON = {"back_url": "/", "back_label": lazy_gettext("Go to the home page")}
_FAILURE = (
    lazy_gettext("Something went wrong"),
    lazy_gettext(
        "Something went wrong on our side. Try again in a moment, and include this request ID if you "
        "report it."
    ),
)


def register(app: Flask) -> None:
    """Register the error handlers."""
    app.register_error_handler(CSRFError, _expired_form)
    app.register_error_handler(DomainError, error_response)
    app.register_error_handler(HTTPException, _http_error)
    app.register_error_handler(SecurityError, _foreign_host)
    for kind in DATABASE_ERRORS:
        app.register_error_handler(kind, _database_error)


def _expired_form(error: CSRFError) -> Response:
    resend = _fields_to_send_again()
    if resend:
        message = lazy_gettext("You signed in or out after opening this form. Nothing was changed.")
        hint = lazy_gettext(
            "You are signed in as %(email)s now. Submit it again to save what you entered.",
            email=current_user.session.user_email,
        )
    else:
        message = lazy_gettext(
            "You signed in or out after opening this form, or your browser blocks cookies for this site."
        )
        hint = lazy_gettext("Nothing was changed. Go back, reload the page and submit the form again.")
    return _page(
        400,
        title=lazy_gettext("This form has expired"),
        message=message,
        hint=hint,
        error_code="form_expired",
        resend=resend,
        # The page with the form, so that a sign-in to an app can continue.
        back_url=referring_page() or None,
        back_label=lazy_gettext("Back to the form") if resend else lazy_gettext("Try again"),
    )


def _fields_to_send_again() -> list[tuple[str, str]]:
    """Return what a signed-in user entered in a form that expired, so that it isn't lost; a click sends it again.

    Nothing is offered if another site may have sent the form (CF-1), nor for passwords, tokens and files, which a page
    must not repeat.
    """
    may_repeat = (
        request.blueprint in {"portal", "account"}
        and request.headers.get("Sec-Fetch-Site") == "same-origin"
        and not request.files
        and CONFIDENTIAL.isdisjoint(request.form)
    )
    with suppress(DomainError):
        if may_repeat and current_user.is_authenticated:
            return [(name, value) for name, value in request.form.items(multi=True) if name != CSRF_FIELD]
    return []


def error_response(error: DomainError) -> Response:
    """Return a page or the envelope of the API, with the headers that the status requires."""
    if _wants_json():
        return json_api.error_response(error)
    title, hint = _TEXTS.get(error.status, _TEXTS[400])
    return page_of_error(error, title, hint)


def _database_error(error: Exception) -> Response:
    """Respond 503 while the database is away, also where a page reads outside of an operation."""
    if not is_temporary(error):
        raise error
    return error_response(Unavailable())


def _foreign_host(_error: SecurityError) -> Response:
    # No URL can be built for a foreign host, so this page has no style and no links (TR-2).
    text = (
        "This host name is not served here. The proxy must pass on the Host header of GATEHOUSE_BASE_URL. "
        "GATEHOUSE_TRUSTED_HOSTS has further names.\n"
    )
    return Response(text, 400, mimetype="text/plain")


def _http_error(error: HTTPException) -> Response | HTTPException:
    status = error.code or 500
    if status < 400 or error.response is not None:
        return error
    if _wants_json():
        return json_api.http_error_response(error)
    title, message = _TEXTS.get(status, _TEXTS[400] if status < 500 else _FAILURE)
    response = _page(status, title=title, message=message, error_code=json_api.error_code(status))
    for name, value in error.get_headers():
        if name in {"Allow", "Retry-After", "WWW-Authenticate"}:
            response.headers[name] = value
    return response


def page_of_error(
    error: DomainError, title: str, hint: str | None, *, back: tuple[str, str] | None = None
) -> Response:
    """Return the page of an error; ``back`` is the URL and the label of its button."""
    back_url, back_label = back or (None, None)
    response = _page(
        error.status,
        title=title,
        message=error.description,
        hint=hint,
        error_code=error.code,
        back_url=back_url,
        back_label=back_label,
    )
    retry_after = getattr(error, "retry_after", None)
    if retry_after is not None:
        response.headers["Retry-After"] = str(retry_after)
    return response


def _page(status: int, **variables: Any) -> Response:
    if status >= 500:
        # The database may have failed, so the page of a server error reads nothing.
        apply_browser_language()
        return _render(status, {}, variables)
    try:
        return _render(status, branding_of_path(), variables)
    except Unavailable as error:
        return error_response(error)


def _render(status: int, branding: Mapping[str, Any], variables: Mapping[str, Any]) -> Response:
    home = _HOME_BUTTON if status in {404, 405} and not variables.get("back_url") else {}
    page = render_template("error.html", request_id=request_id(), **{**branding, **variables, **home})
    return make_response(page, status)


def _wants_json() -> bool:
    is_program = request.is_json or request.headers.get("Authorization", "")[:7].lower() == "bearer "
    # A browser always names text/html; curl and HTTP libraries send */* or nothing.
    is_browser = not is_program and "text/html" in request.accept_mimetypes.values()
    if _PAGES.match(request.path) or (is_browser and isinstance(request.routing_exception, PageNotFound)):
        return False
    if _API.match(request.path) or "/.well-known/" in request.path or "/oauth/" in request.path:
        return True
    return not is_browser
