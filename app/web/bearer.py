"""Callers of the management API: ``Authorization: Bearer`` or ``DPoP`` becomes an actor; nothing else does (CF-3)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from flask import Response, request

from app.config import current
from app.operations.directory.lookups import OrganizationSnapshot
from app.operations.sign_in.actor_access import enter_organization
from app.operations.store.audit import actor_public_id
from app.operations.tokens.introspection import find_token_actor
from app.rules.actor import Actor
from app.rules.errors import InvalidInput, Unauthenticated
from app.rules.tokens.protected_resources import PresentedToken, read_credentials
from app.web.parameters import query_parameters
from app.web.request_log import note, request_id

ACTING = "organization_id"


@dataclass(frozen=True, slots=True)
class ApiContext:
    """One authenticated request: who acts, in which organization, and the query parameters, checked."""

    actor: Actor
    organization: OrganizationSnapshot
    parameters: dict[str, str] = field(default_factory=dict)


def requires_management_token(
    *parameters: str, names_organization: bool = True
) -> Callable[[Callable[..., Response]], Callable[..., Response]]:
    """A decorator: the view gets an ApiContext first, or the caller a 401; ``parameters`` are the known ones.

    With ``names_organization`` the parameter ``organization_id`` names the organization to act in, which only root
    may choose; routes that have it in their path go without.
    """
    known = (*parameters, ACTING) if names_organization else parameters

    def decorate(view: Callable[..., Response]) -> Callable[..., Response]:
        @functools.wraps(view)
        def run(**values: Any) -> Response:
            actor, organization = caller()
            sent = query_parameters(known)
            named = sent.pop(ACTING, None)
            if named is not None:
                actor, organization = enter_organization(actor, named)
            return view(ApiContext(actor, organization, sent), **values)

        return run

    return decorate


def asked_again(context: ApiContext) -> ApiContext:
    """The same request after its body came in, which may take minutes: who calls is read anew, and what they may.

    Raises Unauthenticated when the access token has ended meanwhile, NotFound when they act there no more.
    """
    actor, organization = caller(is_proven=True)
    if context.organization.id != organization.id:
        actor, organization = enter_organization(actor, context.organization.slug)
    return ApiContext(actor, organization, context.parameters)


def caller(*, is_proven: bool = False) -> tuple[Actor, OrganizationSnapshot]:
    """Who calls, by the access token in the header. Raises Unauthenticated, also when only a cookie came.

    ``is_proven`` when this very request was asked before: its DPoP proof counted then, and counts once.
    """
    presented = presented_token()
    if presented is None:
        raise Unauthenticated("Send an access token for the management API: Authorization: Bearer <token>.")
    found = find_token_actor(
        presented, address=request.remote_addr, request_id=request_id(), is_proven=is_proven
    )
    if found is None:
        raise Unauthenticated(
            "The access token is unknown, has ended, or is not meant for the management API."
        )
    actor, organization = found
    note(organization=organization.slug, actor=actor_public_id(actor))
    return actor, organization


def presented_token() -> PresentedToken | None:
    """The token of the one Authorization header, by Bearer or with its DPoP proof; None when there is none."""
    headers = request.headers.getlist("Authorization")
    if not headers:
        return None
    if len(headers) > 1:
        raise InvalidInput("The header Authorization was sent twice.", field="Authorization")
    credentials = read_credentials(headers[0])
    if credentials is None:
        return None
    by_dpop, token = credentials
    return PresentedToken(
        token,
        by_dpop,
        # Two proofs come joined by a comma, and that is no proof.
        proof=request.headers.get("DPoP"),
        method=request.method,
        url=current().base_url + request.path,
    )
