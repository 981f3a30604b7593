"""Face: the OAuth 2.0 and OpenID Connect wire; Authlib translates."""

from __future__ import annotations

from collections.abc import Callable

from flask import Blueprint, Flask, Response

from app.extensions import csrf
from app.oauth import authorize, cors, discovery, introspection, revocation, server, token, userinfo
from app.oauth.call import Answer, Call
from app.oauth.lane import Lane
from app.oauth.path import take_organization, use_organization_of_path

_ORGANIZATION = "/organizations/<organization>"


def open_lane(app: Flask) -> None:
    """What machines call all day goes past Flask's request handling; innermost, so before all other layers."""
    app.wsgi_app = Lane(app, app.wsgi_app)  # type: ignore[method-assign]


def register(app: Flask) -> None:
    """Every endpoint stands twice: where the client decides the organization, and under its issuer."""
    server.register(app)
    for name, prefix in (("oauth", "/oauth"), ("organization_oauth", f"{_ORGANIZATION}/oauth")):
        app.register_blueprint(_endpoints(name), url_prefix=prefix)
    app.register_blueprint(_pages())
    app.register_blueprint(_metadata())


def _endpoints(name: str) -> Blueprint:
    blueprint = Blueprint(name, __name__)
    blueprint.url_value_preprocessor(take_organization)
    blueprint.before_request(use_organization_of_path)
    blueprint.add_url_rule("/authorize", "authorize", authorize.begin, methods=["GET", "POST"])
    blueprint.add_url_rule(
        "/token", "token", _flask(token.issue), methods=["POST"], provide_automatic_options=False
    )
    blueprint.add_url_rule("/introspect", "introspect", _flask(introspection.introspect), methods=["POST"])
    blueprint.add_url_rule(
        "/revoke", "revoke", _flask(revocation.revoke), methods=["POST"], provide_automatic_options=False
    )
    blueprint.add_url_rule(
        "/userinfo",
        "userinfo",
        _flask(userinfo.userinfo),
        methods=["GET", "POST"],
        provide_automatic_options=False,
    )
    blueprint.add_url_rule("/jwks", "jwks", discovery.jwks)
    # Flask's own answer to OPTIONS would come first and tell a browser nothing.
    for path in ("/token", "/revoke", "/userinfo"):
        blueprint.add_url_rule(path, f"preflight_{path[1:]}", cors.preflight, methods=["OPTIONS"])
    # They carry no cookie's authority: a form token would be nothing to them.
    csrf.exempt(blueprint)
    return blueprint


def _flask(handler: Callable[[Call], Answer]) -> Callable[[], Response]:
    """The handler as a view of Flask's."""
    return lambda: handler(Call.current()).as_response()


def _pages() -> Blueprint:
    blueprint = Blueprint("interaction", __name__, url_prefix=f"{_ORGANIZATION}/oauth/authorize")
    blueprint.url_value_preprocessor(take_organization)
    blueprint.before_request(use_organization_of_path)
    blueprint.add_url_rule("/resume", "resume", authorize.resume)
    blueprint.add_url_rule("/decision", "decide", authorize.decide, methods=["POST"])
    return blueprint


def _metadata() -> Blueprint:
    blueprint = Blueprint("discovery", __name__)
    blueprint.url_value_preprocessor(take_organization)
    for kind in ("openid-configuration", "oauth-authorization-server"):
        blueprint.add_url_rule(f"/.well-known/{kind}", f"root_{kind}", discovery.metadata)
        blueprint.add_url_rule(f"/.well-known/{kind}{_ORGANIZATION}", f"inserted_{kind}", discovery.metadata)
        blueprint.add_url_rule(f"{_ORGANIZATION}/.well-known/{kind}", f"appended_{kind}", discovery.metadata)
    return blueprint
