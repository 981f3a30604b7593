"""The OAuth 2.0 and OpenID Connect endpoints: Authlib runs the protocol, operations decide."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from flask import Blueprint, Flask, Response, g, request

from app.extensions import csrf
from app.oauth import (
    authorize,
    device,
    discovery,
    logout,
    playground,
    provider_logout,
    registration,
    server,
    userinfo,
)
from app.oauth.client_endpoints import respond
from app.oauth.fast_path import install_fast_path
from app.oauth.protocol_request import ProtocolRequest, handle
from app.oauth.protocol_response import ProtocolResponse
from app.operations.directory import lookups
from app.rules.clients.resource_indicators import WELL_KNOWN
from app.web import endpoint_calls

__all__ = ["install_fast_path", "register"]

_ORGANIZATION = "/organizations/<organization>"
# Endpoints whose handlers also run on the fast path, and so answer for an unknown organization themselves.
_FINDS_ORGANIZATION_IN_HANDLER = frozenset({"token", "introspect", "revoke"})


def register(app: Flask) -> None:
    """Register every endpoint twice: where the client decides the organization, and under its issuer."""
    server.register(app)
    endpoint_calls.register(app, playground.answer)
    for name, prefix in (("oauth", "/oauth"), ("organization_oauth", f"{_ORGANIZATION}/oauth")):
        app.register_blueprint(_endpoints(name), url_prefix=prefix)
    app.register_blueprint(_pages())
    app.register_blueprint(_device_pages())
    app.register_blueprint(_metadata())
    app.register_blueprint(_provider_logout())
    app.register_blueprint(_pictures())


def _endpoints(name: str) -> Blueprint:
    blueprint = Blueprint(name, __name__)
    blueprint.url_value_preprocessor(_take_organization)
    blueprint.before_request(_use_organization_of_path)
    blueprint.add_url_rule("/authorize", "authorize", authorize.begin, methods=["GET", "POST"])
    for path, endpoint in (
        ("/token", "token"),
        ("/introspect", "introspect"),
        ("/revoke", "revoke"),
        ("/par", "push"),
        ("/device_authorization", "device_authorization"),
    ):
        blueprint.add_url_rule(path, endpoint, _flask(respond), methods=["POST"])
    blueprint.add_url_rule("/userinfo", "userinfo", _handled(userinfo.userinfo), methods=["GET", "POST"])
    own = "/register/<client_id>"
    for path, view, method in (
        ("/register", registration.register, "POST"),
        (own, registration.show, "GET"),
        (own, registration.replace, "PUT"),
        (own, registration.remove, "DELETE"),
    ):
        name = f"{view.__name__}_registration"
        blueprint.add_url_rule(path, name, view, methods=[method])
    blueprint.add_url_rule("/jwks", "jwks", _handled(discovery.jwks))
    blueprint.add_url_rule("/status-lists", "status_lists", discovery.list_status_lists)
    blueprint.add_url_rule("/status-lists/<list_id>", "status_list", discovery.status_list)
    blueprint.add_url_rule("/logout", "logout", logout.begin, methods=["GET", "POST"])
    # No cookie authorizes anything here, so there is no CSRF to protect against.
    csrf.exempt(blueprint)
    return blueprint


def _flask(respond: Callable[[ProtocolRequest], ProtocolResponse]) -> Callable[[], Response]:
    """Return a Flask view for what answers with and without Flask."""
    return lambda: respond(ProtocolRequest.from_flask()).to_flask()


def _handled(handler: Callable[[ProtocolRequest], ProtocolResponse]) -> Callable[[], Response]:
    """Return a Flask view for a handler at which no client authenticates."""
    return _flask(partial(handle, handler))


def _pages() -> Blueprint:
    blueprint = Blueprint("interaction", __name__, url_prefix=f"{_ORGANIZATION}/oauth")
    blueprint.url_value_preprocessor(_take_organization)
    blueprint.before_request(_use_organization_of_path)
    blueprint.add_url_rule("/authorize/resume", "resume", authorize.resume)
    blueprint.add_url_rule(
        "/authorize/account", "select_account", authorize.select_account, methods=["GET", "POST"]
    )
    blueprint.add_url_rule("/authorize/decision", "decide", authorize.decide, methods=["POST"])
    blueprint.add_url_rule("/logout/confirm", "confirm_logout", logout.confirm, methods=["POST"])
    return blueprint


def _device_pages() -> Blueprint:
    blueprint = Blueprint("device", __name__)
    blueprint.url_value_preprocessor(_take_organization)
    blueprint.before_request(_use_organization_of_path)
    blueprint.add_url_rule("/device", "choose", device.choose_organization)
    blueprint.add_url_rule(f"{_ORGANIZATION}/device", "enter", device.enter)
    blueprint.add_url_rule(f"{_ORGANIZATION}/device", "decide", device.decide, methods=["POST"])
    return blueprint


def _pictures() -> Blueprint:
    blueprint = Blueprint("logos", __name__)
    blueprint.add_url_rule("/logos/<client_id>/<digest>.png", "show", discovery.show)
    blueprint.add_url_rule(
        "/logos/organizations/<organization_id>/<digest>.png", "organization", discovery.show_of_organization
    )
    return blueprint


def _metadata() -> Blueprint:
    blueprint = Blueprint("discovery", __name__)
    blueprint.url_value_preprocessor(_take_organization)
    blueprint.add_url_rule(
        f"{WELL_KNOWN}/management", "protected_resource", _handled(discovery.protected_resource)
    )
    for kind in ("openid-configuration", "oauth-authorization-server"):
        blueprint.add_url_rule(f"/.well-known/{kind}", f"root_{kind}", _handled(discovery.metadata))
        blueprint.add_url_rule(
            f"/.well-known/{kind}{_ORGANIZATION}", f"inserted_{kind}", _handled(discovery.metadata)
        )
        blueprint.add_url_rule(
            f"{_ORGANIZATION}/.well-known/{kind}", f"appended_{kind}", _handled(discovery.metadata)
        )
    return blueprint


def _provider_logout() -> Blueprint:
    blueprint = Blueprint("provider_logout", __name__, url_prefix=f"{_ORGANIZATION}/oauth")
    blueprint.url_value_preprocessor(_take_organization)

    def end_sessions(provider: str) -> Response:
        return _handled(partial(provider_logout.end_sessions, provider=provider))()

    blueprint.add_url_rule("/backchannel-logout/<provider>", "end_sessions", end_sessions, methods=["POST"])
    # No cookie authorizes anything here, so there is no CSRF to protect against.
    csrf.exempt(blueprint)
    return blueprint


def _take_organization(_endpoint: str | None, values: dict[str, Any] | None) -> None:
    """Move the slug from the view's arguments to ``g``: the same views serve paths with and without one."""
    g.organization_slug = values.pop("organization", None) if values else None


def _use_organization_of_path() -> None:
    """Set the organization: views under ``/organizations/{id}/oauth`` know only its clients (MX-3)."""
    slug = g.organization_slug
    if (request.endpoint or "").rpartition(".")[2] in _FINDS_ORGANIZATION_IN_HANDLER:
        g.organization_id = None
        return
    g.organization_id = lookups.get_organization_by_slug(slug, fresh=False).id if slug is not None else None
