"""What answers when no face does: unknown paths, wrong methods, foreign hosts, forms without a token, faults.

A person gets a page, a program the envelope of the API (contract, section 3); neither gets a stack, SQL or the text
of an exception. A face's own error handler comes first.
"""

from __future__ import annotations

import re

from flask import Flask, Response, make_response, render_template, request
from flask_wtf.csrf import CSRFError
from werkzeug.exceptions import HTTPException, SecurityError

from app.rules.errors import DomainError
from app.rules.languages.sentences import sentence
from app.web import json_api
from app.web.branding import branding_of_path
from app.web.languages import follow_browser
from app.web.request_log import request_id

_PAGES = re.compile(
    r"(?:/organizations/[^/]+)?/(?:login|register|logout|device|invite|forgot|reset|confirm|confirm-address|account|portal|setup|static"
    r"|oauth/(?:authorize|logout))(?:/|$)|/$"
)
_API = re.compile(r"/(?:api|clients|organizations|me|openapi\.json)(?:/|$)")
_WORDS = {
    400: (
        sentence("This request cannot be understood"),
        sentence("The address or form is incomplete. Go back and try again."),
    ),
    403: (
        sentence("You may not do this"),
        sentence("Sign in with another account, or ask an administrator."),
    ),
    404: (
        sentence("This page does not exist"),
        sentence("Check the address, or start again from the front page."),
    ),
    405: (
        sentence("This page does not exist"),
        sentence("Check the address, or start again from the front page."),
    ),
    413: (sentence("That is too much"), sentence("What was sent is larger than this service takes.")),
    415: (
        sentence("This request cannot be understood"),
        sentence("It was sent in a format that is not read here."),
    ),
    429: (sentence("Too many tries"), sentence("Wait a little, then try again.")),
    503: (
        sentence("Please try again in a moment"),
        sentence("The service cannot answer right now. Nothing was lost."),
    ),
}
_FAULT = (
    sentence("Something went wrong here"),
    sentence("It is not your fault, and it was noted. Try again in a moment."),
)


def register(app: Flask) -> None:
    """Every failure has a page or an envelope."""
    app.register_error_handler(CSRFError, _expired_form)
    app.register_error_handler(DomainError, _refusal)
    app.register_error_handler(HTTPException, _http_error)
    app.register_error_handler(SecurityError, _foreign_host)


def _expired_form(error: CSRFError) -> Response:
    page = render_template(
        "error.html",
        title=sentence("This form can no longer be sent"),
        message=sentence(
            "It was open while you signed in or out, or your browser does not keep cookies for this site."
        ),
        hint=sentence("Go back, load the page again, and send the form once more. Nothing was changed."),
        error_code="form_expired",
        request_id=request_id(),
    )
    return make_response(page, 400)


def _refusal(error: DomainError) -> Response:
    if _wants_json():
        return json_api.error_response(error)
    title, hint = _WORDS.get(error.status, _WORDS[400])
    response = _page(error.status, title, error.description, hint, error.code)
    retry_after = getattr(error, "retry_after", None)
    if retry_after is not None:
        response.headers["Retry-After"] = str(retry_after)
    return response


def _foreign_host(_error: SecurityError) -> Response:
    # Without a host of ours no address can be built, so this page has no style and no links (TR-2).
    return Response("This host name is not served here.\n", 400, mimetype="text/plain")


def _http_error(error: HTTPException) -> Response | HTTPException:
    status = error.code or 500
    if status < 400 or error.response is not None:
        return error
    if _wants_json():
        return json_api.http_error_response(error)
    title, message = _WORDS.get(status, _WORDS[400] if status < 500 else _FAULT)
    response = _page(status, title, message, None, json_api.error_code(status))
    for name, value in error.get_headers():
        if name in {"Allow", "Retry-After", "WWW-Authenticate"}:
            response.headers[name] = value
    return response


def _page(status: int, title: str, message: str, hint: str | None, code: str) -> Response:
    if status >= 500:
        follow_browser()
    page = render_template(
        "error.html",
        title=title,
        message=message,
        hint=hint,
        error_code=code,
        request_id=request_id(),
        # A fault may be that nothing can be read: its page asks for nothing.
        **(branding_of_path() if status < 500 else {}),
    )
    return make_response(page, status)


def _wants_json() -> bool:
    if _PAGES.match(request.path):
        return False
    if _API.match(request.path) or "/.well-known/" in request.path or "/oauth/" in request.path:
        return True
    if request.is_json or request.headers.get("Authorization", "")[:7].lower() == "bearer ":
        return True
    # A browser always names text/html; curl and HTTP libraries send */* or nothing.
    return "text/html" not in request.accept_mimetypes.values()
