"""Management access: what an access token may do in the management API now.

A token's scopes are what it was given once; what counts is what both they and its subject hold at this moment, so
removing a role, or a scope from a client, works at once (contract, section 2).
"""

from __future__ import annotations

from app.operations.client_proof import dpop_proofs
from app.operations.directory import OrganizationView
from app.operations.people.rights import rights_of_user
from app.operations.tokens import tokens
from app.operations.tokens.audiences import management_audience
from app.rules.actor import Actor
from app.rules.authorization.authentication_contexts import MULTI_FACTOR
from app.rules.people.permissions import EVERY_PERMISSION, ROOT_ONLY, cut_down
from app.rules.people.second_factors import MULTIPLE
from app.rules.tokens.presented_token import PresentedToken


def find_token_actor(
    presented: PresentedToken, *, address: str | None, request_id: str | None, is_proven: bool = False
) -> tuple[Actor, OrganizationView] | None:
    """Who acts by the token, in its organization; None when it is not alive or meant for somebody else (TK-6).

    Raises Unauthenticated and ProofRefused unless it is presented as it is bound (DC-6). ``is_proven`` when that was
    found in the same request already: a proof counts once.
    The actor of a user's token has no ``session_id``: a token is no browser's sign-in.
    """
    view = tokens.find_bearer(presented.token, management_audience())
    if view is None:
        return None
    if not is_proven:
        dpop_proofs.require_holder(view, presented)
    client = view.client
    organization = client.organization
    granted = frozenset(view.scopes) & frozenset(client.document["scopes"]) & EVERY_PERMISSION
    if view.user_id is not None:
        held = rights_of_user(organization, organization.id, view.user_id)
    else:
        held = EVERY_PERMISSION if organization.is_root else EVERY_PERMISSION - frozenset(ROOT_ONLY)
    actor = Actor(
        "user" if view.user_id is not None else "client",
        organization.id,
        organization.id,
        permissions=cut_down(granted, held),
        is_root=organization.is_root,
        user_id=view.user_id,
        client_id=client.id,
        label=(view.user_email if view.user_id is not None else client.name) or "",
        address=address,
        request_id=request_id,
        authenticated_at=view.authenticated_at,
        token_id=view.id,
        token_expires_at=view.expires_at,
        amr=(MULTIPLE,) if view.acr == MULTI_FACTOR else (),
    )
    return actor, organization
