"""Security headers of every response: content policy, framing, caching and referrer."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Literal, TypeVar

from flask import Flask, Response, request

from app.config import Config
from app.web.languages import add_language_headers
from app.web.static_files import static_files

PageClass = Literal["portal", "account", "flow"]
View = TypeVar("View", bound=Callable[..., Any])

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; connect-src 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
_NOTHING = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
_FEATURES = (
    "accelerometer, autoplay, camera, display-capture, fullscreen, geolocation, gyroscope, hid, "
    "idle-detection, magnetometer, microphone, midi, payment, serial, usb, xr-spatial-tracking"
)
_PERMISSIONS_POLICY = ", ".join(f"{name}=()" for name in _FEATURES.split(", "))
# Where nothing more is known, such as while a page's form waits for a limit.
_RETRY_SECONDS = "60"
_HSTS = "max-age=31536000; includeSubDomains"


def page_class(kind: PageClass) -> Callable[[View], View]:
    """Decorate a view with the class of its pages.

    ``portal`` and ``account`` pages post to ourselves alone. ``flow`` pages are those whose form may end at a
    client: Chromium holds ``form-action`` against the whole redirect chain of a form and would silently cancel
    sign-in and consent, so they have none; and a client that opened us in a popup keeps its window, so they do
    not isolate it.
    """

    def mark(view: View) -> View:
        view.page_class = kind  # type: ignore[attr-defined]
        return view

    return mark


@functools.cache
def program_headers(is_https: bool) -> tuple[tuple[str, str], ...]:
    """Return all headers of a response to a program, to be passed to its Response together.

    Setting them one by one would cost the token endpoints more than everything else in this module.
    """
    headers = [
        ("X-Content-Type-Options", "nosniff"),
        ("Cross-Origin-Resource-Policy", "same-origin"),
        ("Content-Security-Policy", _NOTHING),
        ("Referrer-Policy", "no-referrer"),
        ("Cache-Control", "no-store"),
        ("Server", ""),  # Granian would name itself in its place (HD-4).
    ]
    if is_https:
        headers.append(("Strict-Transport-Security", _HSTS))
    return tuple(headers)


@functools.cache
def redirect_headers(is_https: bool) -> tuple[tuple[str, str], ...]:
    """Return all headers of a redirect to a client but its Location: those of a page of class ``flow``."""
    headers = [
        ("Content-Type", "text/html; charset=utf-8"),
        ("Content-Length", "0"),
        ("X-Content-Type-Options", "nosniff"),
        ("Server", ""),
        ("Cross-Origin-Resource-Policy", "same-origin"),
        ("Cache-Control", "no-store"),
        ("Content-Security-Policy", _POLICY),
        ("X-Frame-Options", "DENY"),
        ("Permissions-Policy", _PERMISSIONS_POLICY),
        ("Referrer-Policy", "no-referrer"),
        ("Cross-Origin-Opener-Policy", "unsafe-none"),
        ("Vary", "Cookie"),
    ]
    if is_https:
        headers.append(("Strict-Transport-Security", _HSTS))
    return tuple(headers)


def page_policy(form_action: str) -> str:
    """Return the Content-Security-Policy of a page whose forms submit to these sources (CSP 3 section 6.4.1)."""
    return f"{_POLICY}; form-action {form_action}"


def register(app: Flask) -> None:
    """Add the headers to every response; headers that a view has set are kept."""
    config: Config = app.config["GATEHOUSE"]
    app.after_request(lambda response: _harden(app, config, response))


def _harden(app: Flask, config: Config, response: Response) -> Response:
    headers = response.headers
    if response.status_code in {429, 503} and "Retry-After" not in headers:
        headers["Retry-After"] = _RETRY_SECONDS
    if "X-Content-Type-Options" in headers:
        return response  # Made with ``program_headers``.
    headers["X-Content-Type-Options"] = "nosniff"
    headers["Server"] = ""
    headers.setdefault("Cross-Origin-Resource-Policy", "same-origin")
    if config.is_https:
        headers["Strict-Transport-Security"] = _HSTS
    if request.endpoint == "static":
        version, file = request.args.get("v"), static_files().get((request.view_args or {})["filename"])
        if version is None:
            headers["Cache-Control"] = "public, max-age=3600"
        elif file is not None and version == file.version:
            headers["Cache-Control"] = "public, max-age=31536000, immutable"
        else:
            # The page came from another version of the service.
            headers["Cache-Control"] = "no-cache"
        headers["Content-Security-Policy"] = _NOTHING
        return response
    if "Cache-Control" not in headers:
        headers["Cache-Control"] = "no-store"
    if response.mimetype != "text/html":
        headers.setdefault("Content-Security-Policy", _NOTHING)
        headers.setdefault("Referrer-Policy", "no-referrer")
        return response
    kind = _class_of_page(app)
    headers.setdefault("Content-Security-Policy", _POLICY if kind == "flow" else page_policy("'self'"))
    headers["X-Frame-Options"] = "DENY"
    headers["Permissions-Policy"] = _PERMISSIONS_POLICY
    # Under no-referrer browsers send "Origin: null" with form posts, which would fail the origin check (CF-2).
    headers.setdefault("Referrer-Policy", "same-origin")
    headers["Cross-Origin-Opener-Policy"] = "unsafe-none" if kind == "flow" else "same-origin"
    response.vary.add("Cookie")
    add_language_headers(response)
    return response


def _class_of_page(app: Flask) -> PageClass:
    chosen: PageClass | None = getattr(app.view_functions.get(request.endpoint or ""), "page_class", None)
    if chosen is not None:
        return chosen
    if request.blueprint == "portal":
        return "portal"
    # Any other page, an error page included, may be between a form and a client.
    return "account" if request.blueprint == "account" else "flow"
