"""What a user's token tells of the user."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from app.operations.people.users import get_user
from app.operations.protocol import dpop_proofs, tokens
from app.operations.protocol.client_authentication import AuthenticatedClient
from app.rules.errors import Forbidden, Unauthenticated
from app.rules.protocol.claims import claims_for
from app.rules.protocol.presented_token import PresentedToken


@dataclass(frozen=True, slots=True)
class ReleasedClaims:
    """The claims, and the client they were released to."""

    claims: dict[str, Any]
    client: AuthenticatedClient


def claims_of(presented: PresentedToken, *, organization_id: str | None) -> ReleasedClaims:
    """The claims of the token's user that its scopes release (OIDC Core 5.4).

    Raises Unauthenticated for a token that is dead, of another organization than the path's, or meant for
    somebody else, or presented otherwise than it is bound; ProofRefused when the DPoP proof beside it does not count;
    Forbidden when ``openid`` is not among its scopes.
    """
    view = tokens.find_token(presented.token, organization_id=organization_id)
    if view is None or view.user_id is None:
        raise Unauthenticated("The access token is invalid, ended or revoked.")
    dpop_proofs.require_holder(view, presented)
    organization = view.client.organization
    if "openid" not in view.scopes:
        raise Forbidden("This needs the scope openid.", permission="openid")
    if organization.issuer not in view.audience:
        raise Unauthenticated("The access token is meant for somebody else.")
    user = get_user(organization.id, view.user_id)
    return ReleasedClaims(
        claims_for(user.claims, view.scopes),
        AuthenticatedClient(view.client, None),
    )
