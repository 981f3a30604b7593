"""Code that the interfaces share. It may use Flask and makes no decisions."""

from __future__ import annotations

from flask import Flask
from werkzeug.middleware.proxy_fix import ProxyFix

from app.config import Config
from app.web import (
    browser_session,
    error_pages,
    failed_requests,
    headers,
    health,
    languages,
    request_bodies,
    request_log,
    security_txt,
    static_files,
)


def register(app: Flask, config: Config) -> None:
    """Set up hosts, proxies, request ids, sessions, headers and health for all interfaces."""
    app.config["TRUSTED_HOSTS"] = list(config.trusted_hosts)
    app.config["MAX_CONTENT_LENGTH"] = 64 * 1024
    app.config["MAX_FORM_MEMORY_SIZE"] = 64 * 1024
    if config.proxy_hops:
        hops = config.proxy_hops
        app.wsgi_app = ProxyFix(app.wsgi_app, x_for=hops, x_proto=hops, x_host=0, x_prefix=0)  # type: ignore[method-assign]
    # Werkzeug would redirect "//clients" to "/clients" with a page, also for a program.
    app.url_map.merge_slashes = False
    for part in (
        headers,
        browser_session,
        languages,
        static_files,
        health,
        security_txt,
        error_pages,
        request_bodies,
        request_log,
        failed_requests,
    ):
        part.register(app)
