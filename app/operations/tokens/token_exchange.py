"""Token exchange (RFC 8693): a client exchanges an access token for one with another audience.

The new token belongs to the same grant and refers to the subject token, and is valid only while both are. Revoking the
subject token therefore revokes everything that was exchanged for it.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from app.operations.clients.resources import get_catalog
from app.operations.directory.snapshots import AuthenticatedClient, ClientSnapshot
from app.operations.grants import grants
from app.operations.grants.grants import TokenSnapshot
from app.operations.store import audit, clock
from app.operations.store.transactions import current_unit_of_work, transaction
from app.operations.tokens import access_tokens, issuance, status_lists, tokens
from app.operations.tokens.access_tokens import PreparedAccessToken, TokenResponse
from app.operations.tokens.id_tokens import subject_of
from app.rules.clients.client_types import IMPERSONATION, TOKEN_EXCHANGE
from app.rules.errors import InvalidScope, InvalidTarget, OAuthError, UnauthorizedClient
from app.rules.identifiers import public_id
from app.rules.scopes import disallowed_scopes, is_subset, restrict_scopes
from app.rules.tokens.token_exchange import (
    ACCESS_TOKEN_TYPE,
    JWT_TYPE,
    MAX_ACTORS,
    ExchangeRequest,
    actor_claim,
)


class ExchangeResponse(Struct, frozen=True):
    """A token exchange response; ``issued_token_type`` is a type of RFC 8693 section 3."""

    answer: TokenResponse
    issued_token_type: str

    def as_document(self) -> dict[str, Any]:
        """Return the JSON object of the response (RFC 8693 section 2.2.1)."""
        return self.answer.as_document() | {"issued_token_type": self.issued_token_type}


def exchange(
    authenticated: AuthenticatedClient,
    request: ExchangeRequest,
    *,
    ip_address: str | None,
    request_id: str | None,
) -> ExchangeResponse:
    """Issue an access token for the subject to the client, with at most the scopes and lifetime of the subject token.

    The subject token must have been issued to the client or for one of its resources. Of its scopes, those that were
    deleted and created again since count as others (CO-2). Raises UnauthorizedClient if the
    client's policy does not allow exchanges, OAuthError (invalid_request) for a token that is invalid or that the
    client may not exchange (RFC 8693 section 2.2.2), InvalidScope, InvalidTarget. Audit: ``token.exchanged``.
    """
    client = authenticated.client
    policy = client.document.get("token_exchange")
    if client.is_public or policy is None:
        raise UnauthorizedClient(TOKEN_EXCHANGE)
    subject = _require_exchangeable(client, request.subject_token, "subject_token")
    actor = None
    if request.actor_token is not None:
        if policy == IMPERSONATION:
            raise OAuthError("This client must not send an actor_token.").with_cause("exchange_refused")
        actor = _require_exchangeable(client, request.actor_token, "actor_token")
        if actor.dpop_jkt not in {None, authenticated.dpop_jkt}:
            # The subject token was sent to the client by others; the actor is the sender, who has to hold its key.
            raise OAuthError(
                "The actor token is bound to a key. Send a DPoP proof with that key."
            ).with_cause("exchange_refused")
    if subject.dpop_jkt is not None and authenticated.dpop_jkt is None:
        # A bound token must not be exchanged for a bearer token.
        raise OAuthError("The subject token is bound to a key. Send a DPoP proof.").with_cause(
            "exchange_refused"
        )
    if subject.depth >= MAX_ACTORS:
        raise OAuthError("The subject token has been exchanged too often.").with_cause("exchange_refused")
    act = actor_claim(
        policy,
        of_subject=subject.act,
        actor=client.client_id if actor is None else _subject_of(client, actor),
        of_actor=None if actor is None else actor.act,
    )
    scopes = _granted_scopes(client, request.scopes, subject)
    issuance.ensure_signing_keys(client)
    return _issue(authenticated, request, subject, act, scopes, ip_address, request_id)


@transaction
def _issue(
    authenticated: AuthenticatedClient,
    request: ExchangeRequest,
    subject: TokenSnapshot,
    act: dict[str, Any] | None,
    scopes: tuple[str, ...],
    ip_address: str | None,
    request_id: str | None,
) -> ExchangeResponse:
    client = authenticated.client

    def make() -> PreparedAccessToken:
        return access_tokens.prepare_access_token(
            client,
            scopes,
            now=clock.now(),
            subject=_subject_of(client, subject),
            user_id=subject.user_id,
            resources=request.resources,
            auth_time=subject.authenticated_at,
            acr=subject.acr,
            dpop_jkt=authenticated.dpop_jkt,
            act=act,
            latest_expiry=subject.expires_at,
            is_consented=False,
            grant_id=subject.grant_id,
            credential_id=authenticated.credential_id,
            must_store=True,
        )

    made = current_unit_of_work().stable_value("token", make)
    if made.expires_in < 1:
        raise OAuthError("The subject token has expired.").with_cause("exchange_refused")
    added = set(made.row["audience"].split()).difference(subject.audience)
    if access_tokens.find_bare_resources(client, made.row["scope"].split(), added, fits_any=True):
        # No granted scope belongs to the resource. Even a token without scopes could give access there.
        raise InvalidTarget("None of the subject token's scopes is for that resource.").with_cause(
            "resource_not_allowed", received=made.row["audience"], expected=subject.audience
        )
    if request.scopes and not made.row["scope"]:
        # A response without scope would tell the client that it received them (RFC 6749 section 5.1).
        raise InvalidScope(access_tokens.NO_SCOPE_LEFT)
    if request.wants_jwt and not made.is_jwt:
        raise OAuthError("Tokens for this resource are opaque. Request the type access_token.").with_cause(
            "exchange_refused", received=JWT_TYPE, expected=ACCESS_TOKEN_TYPE
        )
    if subject.unstored is not None:
        tokens.store_unstored(client.organization.id, subject.unstored)
    if made.entry is not None:
        status_lists.INSERT_ENTRY.write(organization_id=client.organization.id, **made.entry)
    access_tokens.INSERT_TOKEN.write(
        organization_id=client.organization.id,
        client_id=client.id,
        grant_id=subject.grant_id,
        credential_id=authenticated.credential_id,
        parent_id=subject.id,
        **made.row,
    )
    audit.record(
        grants.client_actor(client, ip_address, request_id),
        "token.exchanged",
        "token",
        public_id("tok", made.row["id"]),
        after={
            "subject": _subject_of(client, subject),
            "subject_token": public_id("tok", subject.id),
            "from_client": subject.client.client_id,
            "audience": made.row["audience"].split(),
            "scopes": made.row["scope"].split(),
        },
    )
    answer = TokenResponse(made.value, made.expires_in, made.row["scope"], token_type=made.token_type)
    return ExchangeResponse(answer, JWT_TYPE if request.wants_jwt else ACCESS_TOKEN_TYPE)


def _require_exchangeable(client: ClientSnapshot, token: str, name: str) -> TokenSnapshot:
    """Return the valid token if it was issued to the client or for one of its resources."""
    token_snapshot = tokens.introspect(client, token)
    if token_snapshot is None:
        raise OAuthError(f"The {name} is not a valid access token that this client may exchange.").with_cause(
            "exchange_refused", expected="a valid access token of the client, or for one of its resources"
        )
    return token_snapshot


def _subject_of(client: ClientSnapshot, token: TokenSnapshot) -> str:
    if token.user_id is not None:
        return subject_of(client, token.user_id)
    return token.origin.client_id


def _granted_scopes(
    client: ClientSnapshot, requested: tuple[str, ...], subject: TokenSnapshot
) -> tuple[str, ...]:
    existing = get_catalog(client.organization.id).select_allowed(subject.scopes, subject.issued_at)
    allowed = restrict_scopes(existing, client.document["scopes"])
    if not is_subset(requested, allowed):
        raise InvalidScope(
            "A requested scope is not among those of the subject token and the client."
        ).with_cause(
            "scope_not_allowed" if is_subset(requested, subject.scopes) else "scope_beyond_token",
            received=" ".join(disallowed_scopes(requested, allowed)),
            expected=allowed,
        )
    return requested or access_tokens.accessible_scopes(client, allowed, is_consented=False)
