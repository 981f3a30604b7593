"""Audiences: for which resources a client's token is, by its organization's catalog (RFC 8707)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from app.config import current
from app.operations.directory import ClientView
from app.operations.registration.resource_catalog import catalog_of
from app.rules.authorization import resource_indicators
from app.rules.authorization.authorization_request import AuthorizationParameters
from app.rules.authorization.resource_indicators import Asking, Target
from app.rules.oauth_errors import AuthorizationRefusal, InvalidTarget

JWT = "jwt"
LONGEST_JWT_SECONDS = 3600


def management_audience() -> str:
    """The resource indicator of the management API."""
    config = current()
    return f"{config.base_url}/management"


def target_of(client: ClientView, scopes: Sequence[str], asked: Sequence[str]) -> Target:
    """What a token of the client holds when it asks for these scopes and resources. Raises InvalidTarget."""
    asking = Asking(
        client.organization.issuer,
        management_audience(),
        client.document.get("resources") or (),
        client.document["scopes"],
    )
    return resource_indicators.settle(scopes, asked, asking, catalog_of(client.organization.id))


def authorized(client: ClientView, parameters: AuthorizationParameters) -> AuthorizationParameters:
    """The request with those of its scopes that fit its resources. Raises AuthorizationRefusal (RFC 8707 section 2)."""
    try:
        target = target_of(client, parameters.scopes, parameters.resources)
    except InvalidTarget as refused:
        raise AuthorizationRefusal(refused.code, refused.description) from refused
    if not target.scopes:
        raise AuthorizationRefusal(
            "invalid_scope", "None of the scopes belongs to a resource that is offered."
        )
    owners = catalog_of(client.organization.id).owners
    spoken_of = {owners.get(scope) for scope in target.scopes}
    bare = tuple(resource for resource in parameters.resources if resource not in spoken_of)
    return replace(parameters, scopes=target.scopes, bare_resources=bare)


def chosen(
    client: ClientView, scopes: Sequence[str], granted: Sequence[str], asked: Sequence[str]
) -> tuple[str, ...]:
    """The resources of one token under a grant: those asked for now, or all that were granted.

    ``scopes`` and ``granted`` are what the user allowed. Raises InvalidTarget for more (RFC 8707 section 2.2).
    """
    if asked:
        resource_indicators.require_within(asked, granted or target_of(client, scopes, ()).audience)
    return tuple(asked or granted)


def is_jwt(client: ClientView, audience: Sequence[str]) -> bool:
    """Whether the token is a JWT: as its resources want, else the client, else the organization."""
    otherwise = (
        client.document.get("access_token_format")
        or client.organization.settings["oauth"]["access_token"]["format"]
    )
    return resource_indicators.format_of(audience, catalog_of(client.organization.id), otherwise) == JWT


def may_be_jwt(client: ClientView) -> bool:
    """Whether some token of the client can be a JWT: its own choice, its organization's, or a resource's."""
    return is_jwt(client, ()) or catalog_of(client.organization.id).has_jwt


def seconds_of_life(client: ClientView, audience: Sequence[str], *, as_jwt: bool) -> int:
    """Seconds that the token lives: as its resources want, else by the organization's settings."""
    settings = client.organization.settings["oauth"]["access_token"]
    otherwise = int(settings["jwt_ttl_seconds"] if as_jwt else settings["ttl_seconds"])
    # A JWT may be believed by who asks nobody: a resource cannot make it live longer than any setting can.
    most = LONGEST_JWT_SECONDS if as_jwt else 86_400
    return resource_indicators.seconds_of(audience, catalog_of(client.organization.id), otherwise, most=most)
