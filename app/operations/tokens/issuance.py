"""Issuing tokens under a grant: generate and sign them first, then store grant and token in one transaction."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from app.operations.directory.snapshots import AuthenticatedClient, ClientSnapshot
from app.operations.directory.users import get_user
from app.operations.grants import grants, signing_keys
from app.operations.grants.grants import NewGrant
from app.operations.store import clock
from app.operations.store.transactions import current_unit_of_work
from app.operations.tokens import access_tokens, id_tokens, status_lists
from app.operations.tokens.access_tokens import PreparedAccessToken, TokenResponse
from app.operations.tokens.app_claims import load_app_claims
from app.operations.tokens.id_tokens import subject_of
from app.operations.tokens.status_lists import INSERT_ENTRY
from app.rules.actor import Actor
from app.rules.authorization.authorization_request import ID_TOKEN, requested_names
from app.rules.clients.client_coherence import signing_algorithm_for
from app.rules.clients.client_types import MINIMAL
from app.rules.scopes import SCOPE_OF_CLAIM
from app.rules.tokens.claims import ID_TOKEN_CLAIMS, id_token_claims_for

_SCOPES_WITH_CLAIMS = frozenset(SCOPE_OF_CLAIM[name] for name in ID_TOKEN_CLAIMS)


class PreparedTokens(Struct, frozen=True):
    """Generated tokens that are not stored yet: the access token and the response."""

    access_token: PreparedAccessToken
    answer: TokenResponse


def prepare_grant_tokens(authenticated: AuthenticatedClient, grant: NewGrant) -> PreparedTokens:
    """Generate the first tokens of a grant without storing them. Raises InvalidTarget."""
    client = authenticated.client
    refresh_token = None
    if grants.issues_refresh_token(client, grant.scopes):
        refresh_token = current_unit_of_work().stable_value(
            "refresh_token", lambda: grants.generate_refresh_token(client, grant.id)
        )
    return prepare_tokens(authenticated, grant, grant.scopes, refresh_token)


def store_grant_tokens(
    actor: Actor, authenticated: AuthenticatedClient, grant: NewGrant, prepared: PreparedTokens
) -> None:
    """Store a grant and its first tokens in the current transaction. Audit: ``grant.created``."""
    grants.store_grant(actor, authenticated, grant, prepared.answer.refresh_token)
    store_access_token(authenticated, grant, prepared)


def prepare_tokens(
    authenticated: AuthenticatedClient,
    grant: NewGrant,
    scopes: tuple[str, ...],
    refresh_token: str | None,
    *,
    needs_scope: bool = False,
) -> PreparedTokens:
    """Generate an access token under the grant without storing it. Raises InvalidTarget, InvalidScope.

    ``needs_scope`` if the client named the scopes and must not get a token without any of them.

    Everything is signed before the statement that redeems the code, so that a failing key does not use up the
    code (CD-5).
    """
    client = authenticated.client
    subject = subject_of(client, grant.user_id)

    def generate() -> PreparedTokens:
        access_token = access_tokens.prepare_access_token(
            client,
            scopes,
            now=clock.now(),
            subject=subject,
            user_id=grant.user_id,
            resources=access_tokens.select_resources(
                client, grant.scopes, grant.resources, grant.requested_resources
            ),
            auth_time=grant.auth_time,
            acr=grant.acr,
            dpop_jkt=authenticated.dpop_jkt,
            latest_expiry=grant.expires_at,
            grant_id=grant.id,
            credential_id=authenticated.credential_id,
            needs_scope=needs_scope,
        )
        return PreparedTokens(access_token, TokenResponse.of(access_token, refresh_token))

    return current_unit_of_work().stable_value("tokens", generate)


def sign_id_token(client: ClientSnapshot, grant: NewGrant, *, access_token: str) -> str:
    """Sign an ID token for the sign-in that the grant is based on (OIDC Core section 2)."""
    facts = id_tokens.IdTokenDetails(
        subject=subject_of(client, grant.user_id),
        auth_time=grant.auth_time,
        amr=grant.amr,
        nonce=grant.nonce,
        session_id=grant.session_id if _knows_sessions(client) else None,
        acr=grant.acr,
        user_claims=_id_token_claims(client, grant)
        | load_app_claims(client, grant.user_id, grant.scopes, ID_TOKEN, grant.user),
    )
    return id_tokens.sign_id_token(client, facts, access_token=access_token, now=clock.now())


def store_access_token(authenticated: AuthenticatedClient, grant: NewGrant, prepared: PreparedTokens) -> None:
    """Insert the rows of the access token, with its grant and the secret that authenticated the client."""
    access_token, organization_id = prepared.access_token, authenticated.client.organization.id
    if access_token.is_stored:
        access_tokens.INSERT_TOKEN.write_later(
            organization_id=organization_id,
            client_id=authenticated.client.id,
            grant_id=grant.id,
            credential_id=authenticated.credential_id,
            **access_token.row,
        )
    if access_token.entry is not None:
        INSERT_ENTRY.write_later(organization_id=organization_id, **access_token.entry)


def ensure_signing_keys(client: ClientSnapshot) -> None:
    """Create the signing keys for the client's tokens if they are missing, and a status list for their indexes.

    Call this before a transaction, because generating an RSA key takes a second, and both are committed on their own.
    """
    organization = client.organization
    if "openid" in client.document["scopes"]:
        signing_keys.get_active_key(organization, id_tokens.algorithm_of(client))
    if access_tokens.may_be_jwt(client):
        signing_keys.get_active_key(
            organization, signing_algorithm_for(client.document, organization.settings)
        )
    if access_tokens.may_be_listed(client):
        status_lists.ensure_list(organization)


def _knows_sessions(client: ClientSnapshot) -> bool:
    """Return whether ID tokens have a ``sid``: minimal ones only if logout tokens refer to it."""
    document = client.document
    return document.get("id_token_claims") != MINIMAL or bool(document.get("backchannel_logout_uri"))


def _id_token_claims(client: ClientSnapshot, grant: NewGrant) -> dict[str, Any]:
    """Return the user claims of the ID token: for the scopes (OIDC Core 5.4) and for the ``claims`` parameter (5.5)."""
    requested = requested_names(grant.claims, ID_TOKEN)
    scopes = () if client.document.get("id_token_claims") == MINIMAL else grant.scopes
    if not requested and _SCOPES_WITH_CLAIMS.isdisjoint(scopes):
        return {}
    user = grant.user or get_user(client.organization.id, grant.user_id)
    return id_token_claims_for(user.claims, scopes, requested)
