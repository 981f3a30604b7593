"""What a user's token tells of the user."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from app.operations.client_proof import dpop_proofs
from app.operations.client_proof.authenticated_client import AuthenticatedClient
from app.operations.directory import ClientView
from app.operations.people.users import get_user
from app.operations.tokens import signing_keys, tokens
from app.operations.tokens.subjects import subject_of
from app.rules.authorization.claims_parameter import USERINFO, names_for
from app.rules.errors import Forbidden, Unauthenticated
from app.rules.registration.demands import algorithm_for
from app.rules.tokens.claims import claims_for
from app.rules.tokens.presented_token import PresentedToken


@dataclass(frozen=True, slots=True)
class ReleasedClaims:
    """The claims, and the client they were released to; ``signed`` is the same as a JWT, for clients that want it."""

    claims: dict[str, Any]
    client: AuthenticatedClient
    signed: str | None


def claims_of(presented: PresentedToken, *, organization_id: str | None) -> ReleasedClaims:
    """The claims of the token's user that its scopes release (OIDC Core 5.4) or that were asked for by name (5.5).

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
    claims = claims_for(user.claims, view.scopes, names_for(view.claims, USERINFO))
    # Last, so that nothing overwrites it: the client's own name for the user, as in its ID tokens.
    claims["sub"] = subject_of(view.client, view.user_id)
    return ReleasedClaims(claims, AuthenticatedClient(view.client, None), _signed(view.client, claims))


def _signed(client: ClientView, claims: Mapping[str, Any]) -> str | None:
    """OIDC Core 5.3.2: with ``iss`` and ``aud``; no type of its own is registered for it."""
    chosen = client.document.get("userinfo_signed_response_alg")
    if chosen is None:
        return None
    organization = client.organization
    algorithm = algorithm_for(client.document, organization.settings, chosen)
    whole = {**claims, "iss": organization.issuer, "aud": client.client_id}
    return signing_keys.sign(organization, algorithm, whole, token_type="JWT")  # noqa: S106 - a header, no password
