"""Redeeming authorization codes by the operations that the token endpoint calls, without HTTP."""

from __future__ import annotations

from app.operations.authorization import codes
from app.operations.directory.snapshots import AuthenticatedClient
from app.operations.grants import grants
from app.operations.store.transactions import transaction
from app.operations.tokens import issuance
from app.operations.tokens.access_tokens import TokenResponse


def redeem_code(
    authenticated: AuthenticatedClient, code: str, *, redirect_uri: str, verifier: str
) -> TokenResponse:
    """Redeem a code that was not used before, in one transaction."""
    issuance.ensure_signing_keys(authenticated.client)
    return _redeem(authenticated, code, redirect_uri, verifier)


@transaction
def _redeem(authenticated: AuthenticatedClient, code: str, redirect_uri: str, verifier: str) -> TokenResponse:
    actor = grants.client_actor(authenticated.client, None, None)
    row = codes.find_code(authenticated, code, redirect_uri)
    codes.require_verifier(authenticated.client, row, verifier)
    claimed = codes.claim_code(actor, authenticated, row, ())
    assert isinstance(claimed, grants.ClaimedGrant)
    prepared = issuance.prepare_grant_tokens(authenticated, claimed.new)
    if not claimed.is_stored:
        issuance.store_grant_tokens(actor, authenticated, claimed.new, prepared)
    return prepared.answer
