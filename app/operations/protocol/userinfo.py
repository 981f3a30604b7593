"""What a user's token tells of the user."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from app.operations import directory
from app.operations.people.users import get_user
from app.operations.protocol import tokens
from app.operations.protocol.client_authentication import AuthenticatedClient
from app.rules.errors import Forbidden, Unauthenticated
from app.rules.identifiers import client_id_of
from app.rules.protocol.claims import claims_for


@dataclass(frozen=True, slots=True)
class ReleasedClaims:
    """The claims, and the client they were released to."""

    claims: dict[str, Any]
    client: AuthenticatedClient | None


def claims_of(token: str, *, organization_id: str | None) -> ReleasedClaims:
    """The claims of the token's user that its scopes release (OIDC Core 5.4).

    Raises Unauthenticated for a token that is dead, of another organization than the path's, or meant for
    somebody else; Forbidden when ``openid`` is not among its scopes.
    """
    view = tokens.find_token(token, organization_id=organization_id)
    if view is None or view.user_id is None:
        raise Unauthenticated("The access token is invalid, ended or revoked.")
    organization = directory.organization_by_id(view.organization_id, fresh=False)
    if "openid" not in view.scopes:
        raise Forbidden("This needs the scope openid.", permission="openid")
    if organization.issuer not in view.audience:
        raise Unauthenticated("The access token is meant for somebody else.")
    user = get_user(view.organization_id, view.user_id)
    client = directory.find_client(client_id_of(view.organization_id, view.client_id), fresh=True)
    return ReleasedClaims(
        claims_for(user.claims, view.scopes),
        AuthenticatedClient(client, None) if client is not None else None,
    )
