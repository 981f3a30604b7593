"""Provisioning of users and groups by SCIM 2.0 (RFC 7643 and 7644), for the identity providers of an organization."""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib import import_module
from typing import NoReturn

from flask import Blueprint, Flask, Response, abort, request
from werkzeug.exceptions import HTTPException
from werkzeug.routing import Map, Rule

from app.extensions import csrf
from app.rules.errors import DomainError
from app.scim.errors import error_response, http_error_response

_ROUTES = (
    ("GET", "/ServiceProviderConfig", "show_configuration"),
    ("GET", "/ResourceTypes", "list_resource_types"),
    ("GET", "/ResourceTypes/<name>", "show_resource_type"),
    ("GET", "/Schemas", "list_schemas"),
    ("GET", "/Schemas/<name>", "show_schema"),
    ("GET", "/Users", "list_users"),
    ("POST", "/Users", "create_user"),
    ("POST", "/Users/.search", "search_users"),
    ("GET", "/Users/<user_id>", "show_user"),
    ("PUT", "/Users/<user_id>", "replace_user"),
    ("PATCH", "/Users/<user_id>", "patch_user"),
    ("DELETE", "/Users/<user_id>", "delete_user"),
    ("GET", "/Groups", "list_groups"),
    ("POST", "/Groups", "create_group"),
    ("POST", "/Groups/.search", "search_groups"),
    ("GET", "/Groups/<group_id>", "show_group"),
    ("PUT", "/Groups/<group_id>", "replace_group"),
    ("PATCH", "/Groups/<group_id>", "patch_group"),
    ("DELETE", "/Groups/<group_id>", "delete_group"),
)


def register(app: Flask) -> None:
    """Register the endpoints below the organization's base URL for SCIM."""
    blueprint = Blueprint("scim", __name__, url_prefix="/organizations/<organization>/scim/v2")
    for method, path, name in _ROUTES:
        blueprint.add_url_rule(path, name, _view(name), methods=[method], provide_automatic_options=False)
    methods = sorted({method for method, _, _ in _ROUTES})
    blueprint.add_url_rule("/<path:path>", "unknown", _unknown, methods=[*methods, "OPTIONS"])
    for path, unsupported in (("/.search", ["POST"]), ("/Bulk", ["POST"]), ("/Me", methods)):
        blueprint.add_url_rule(path, "unsupported", _unsupported, methods=unsupported)
    # No cookie authorizes anything here, so there is no CSRF to protect against.
    csrf.exempt(blueprint)
    blueprint.register_error_handler(DomainError, error_response)
    blueprint.register_error_handler(HTTPException, http_error_response)
    app.register_blueprint(blueprint)


def _view(name: str) -> Callable[..., Response]:
    """Return a view that imports the endpoints at the first request: their library costs half a second and 7 MB."""

    def view(**values: str) -> Response:
        response: Response = getattr(import_module("app.scim.endpoints"), name)(**values)
        return response

    view.__name__ = name
    return view


def _unknown(organization: str, path: str) -> Response:
    """Answer an unknown path with 404 and an unknown method with 405, as SCIM errors, and OPTIONS with the methods."""
    routes = _known_routes().bind("")
    allowed = routes.allowed_methods(f"/{path}")
    if request.method != "OPTIONS" or not allowed:
        routes.match(f"/{path}", request.method)
        abort(404)
    return Response(headers={"Allow": ", ".join(sorted({*allowed, "OPTIONS"}))})


@functools.cache
def _known_routes() -> Map:
    rules = [Rule(path, methods=[method], endpoint=name) for method, path, name in _ROUTES]
    return Map(rules, merge_slashes=False)


def _unsupported(organization: str) -> NoReturn:
    abort(501)
