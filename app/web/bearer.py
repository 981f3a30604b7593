"""Authentication for the management API: an access token by Bearer or DPoP, and nothing else (CF-3)."""

from __future__ import annotations

import base64
import binascii
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote_plus

from authlib.integrations.flask_oauth2 import ResourceProtector
from authlib.oauth2 import OAuth2Error
from authlib.oauth2.rfc6750 import InvalidTokenError
from flask import Response, request

from app.operations.directory.lookups import OrganizationSnapshot
from app.operations.sign_in.actor_access import enter_organization
from app.operations.store.audit import actor_public_id
from app.operations.tokens.introspection import actor_of_token, find_management_token
from app.rules.actor import Actor
from app.rules.clients.dpop import ALGORITHMS
from app.rules.errors import InvalidInput, Unauthenticated
from app.web.parameters import query_parameters
from app.web.request_log import note, request_id
from app.web.token_validators import protect

ACTING = "organization_id"
_protector = protect(ResourceProtector(), find_management_token)


@dataclass(frozen=True, slots=True)
class ApiContext:
    """An authenticated request: who acts, in which organization, and the checked query parameters."""

    actor: Actor
    organization: OrganizationSnapshot
    parameters: dict[str, str] = field(default_factory=dict)


def requires_management_token(
    *parameters: str, names_organization: bool = True
) -> Callable[[Callable[..., Response]], Callable[..., Response]]:
    """Decorate a view to receive an ApiContext first; without a valid token the caller gets a 401.

    ``parameters`` are the query parameters that the view knows. With ``names_organization`` the parameter
    ``organization_id`` selects the organization to act in, which only root may choose; routes that have it in their
    path go without.
    """
    known = (*parameters, ACTING) if names_organization else parameters

    def decorate(view: Callable[..., Response]) -> Callable[..., Response]:
        @functools.wraps(view)
        def run(**values: Any) -> Response:
            actor, organization = authenticate_caller()
            sent = query_parameters(known)
            named = sent.pop(ACTING, None)
            if named is not None:
                actor, organization = enter_organization(actor, named)
            return view(ApiContext(actor, organization, sent), **values)

        return run

    return decorate


def authenticate_again(context: ApiContext) -> ApiContext:
    """Return the context after a body was received, which may take minutes, with the caller's current permissions.

    Raises Unauthenticated if the access token is not valid any more, NotFound if the caller may not act there now.
    """
    actor, organization = authenticate_caller(is_proven=True)
    if context.organization.id != organization.id:
        actor, organization = enter_organization(actor, context.organization.slug)
    return ApiContext(actor, organization, context.parameters)


def authenticate_caller(*, is_proven: bool = False) -> tuple[Actor, OrganizationSnapshot]:
    """Return who calls, by the access token in the header. Raises Unauthenticated, also if only a cookie was sent.

    ``is_proven`` means that the DPoP proof of this request was verified before: a proof can be used only once.
    """
    if len(request.headers.getlist("Authorization")) > 1:
        raise InvalidInput("The header Authorization was sent twice.", field="Authorization")
    try:
        token = _protector.acquire_token(is_proven=is_proven)
    except InvalidTokenError:
        raise Unauthenticated(
            "The access token is invalid, expired, revoked, or not valid for the management API."
        ) from None
    except OAuth2Error:
        raise Unauthenticated(
            "Send an access token for the management API: Authorization: Bearer <token>."
        ) from None
    actor, organization = actor_of_token(token.view, address=request.remote_addr, request_id=request_id())
    note(organization=organization.slug, actor=actor_public_id(actor))
    return actor, organization


def read_basic(header: str) -> tuple[str, str] | None:
    """Return (name, secret) of an ``Authorization: Basic`` header, or None when it is malformed."""
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        decoded = base64.b64decode(encoded.strip(), validate=True).decode()
    except (binascii.Error, ValueError):
        return None
    name, colon, secret = decoded.partition(":")
    return (unquote_plus(name), unquote_plus(secret)) if colon else None


_ALGS = f'algs="{" ".join(ALGORITHMS)}"'


def challenges(resource: str, why: Mapping[str, str], *, by_dpop: bool) -> list[str]:
    """Return the values of the ``WWW-Authenticate`` headers.

    ``resource`` holds the parameters that describe the resource (``realm="…"``), ``why`` those of the error, none of
    them user input. ``by_dpop`` means that the token was presented by DPoP; other callers see both schemes.
    """
    error = "".join(f', {name}="{value}"' for name, value in why.items())
    if by_dpop:
        return [f"DPoP {resource}{error}, {_ALGS}"]
    return [f"Bearer {resource}{error}", f"DPoP {resource}, {_ALGS}"]
