"""Token exchange (RFC 8693): a token for another resource in return for one that was given to the client.

The new token hangs from the same grant and names the token it came from: it is alive only while both are. So
whatever ends the subject token, its revocation included, ends all that was exchanged for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import insert

from app.extensions import db
from app.models.token import AccessToken
from app.operations.directory.lookups import AuthenticatedClient, ClientSnapshot
from app.operations.grants import grants, signing_keys
from app.operations.grants.token_snapshots import TokenSnapshot
from app.operations.store import audit, clock
from app.operations.store.transactions import current_unit_of_work, transaction
from app.operations.tokens import access_tokens, tokens
from app.operations.tokens import access_tokens as audiences
from app.operations.tokens.access_tokens import MadeToken, TokenAnswer
from app.operations.tokens.id_tokens import subject_of
from app.rules.clients.client_requirements import signing_algorithm_for
from app.rules.clients.client_types import IMPERSONATION
from app.rules.identifiers import public_id
from app.rules.oauth_errors import InvalidScope, InvalidTarget, OAuthError, UnauthorizedClient
from app.rules.scopes import is_subset, restrict_scopes
from app.rules.tokens.token_exchange import (
    ACCESS_TOKEN_TYPE,
    GRANT_TYPE,
    JWT_TYPE,
    MOST_ACTORS,
    ExchangeRequest,
    actors,
)


@dataclass(frozen=True, slots=True)
class Exchanged:
    """The new token, and which of the registered kinds it is (RFC 8693 section 3)."""

    answer: TokenAnswer
    issued_token_type: str

    def as_document(self) -> dict[str, Any]:
        """The JSON object of the answer (RFC 8693 section 2.2.1)."""
        return self.answer.as_document() | {"issued_token_type": self.issued_token_type}


def exchange(
    authenticated: AuthenticatedClient,
    request: ExchangeRequest,
    *,
    address: str | None,
    request_id: str | None,
) -> Exchanged:
    """An access token of the subject's for the client, no wider and no longer than the subject token.

    The subject token must be the client's own or meant for one of its resources. Raises UnauthorizedClient where
    the client's policy allows none, OAuthError (invalid_request) for a token that is none or not the client's to
    exchange (RFC 8693 section 2.2.2), InvalidScope, InvalidTarget. Audit: ``token.exchanged``.
    """
    client = authenticated.client
    policy = client.document.get("token_exchange")
    if client.is_public or policy is None:
        raise UnauthorizedClient(GRANT_TYPE)
    subject = _presented(client, request.subject_token, "subject_token")
    actor = None
    if request.actor_token is not None:
        if policy == IMPERSONATION:
            raise OAuthError("This client exchanges tokens without an actor_token.").with_cause(
                "exchange_refused"
            )
        actor = _presented(client, request.actor_token, "actor_token")
    if subject.dpop_jkt is not None and authenticated.dpop_jkt is None:
        # What was bound to a key does not become a token that anybody can use.
        raise OAuthError("The subject token is bound to a key: send a DPoP proof.").with_cause(
            "exchange_refused"
        )
    if subject.depth >= MOST_ACTORS:
        raise OAuthError("The token was exchanged too often already.").with_cause("exchange_refused")
    act = actors(
        policy,
        of_subject=subject.act,
        actor=client.client_id if actor is None else _subject_of(client, actor),
        of_actor=None if actor is None else actor.act,
    )
    scopes = _scopes(client, request.scopes, subject)
    if audiences.may_be_jwt(client):
        algorithm = signing_algorithm_for(client.document, client.organization.settings)
        signing_keys.get_active_key(client.organization, algorithm)
    return _issue(authenticated, request, subject, act, scopes, address, request_id)


@transaction
def _issue(
    authenticated: AuthenticatedClient,
    request: ExchangeRequest,
    subject: TokenSnapshot,
    act: dict[str, Any] | None,
    scopes: tuple[str, ...],
    address: str | None,
    request_id: str | None,
) -> Exchanged:
    client = authenticated.client

    def make() -> MadeToken:
        return access_tokens.make(
            client,
            scopes,
            now=clock.now(),
            subject=_subject_of(client, subject),
            resources=request.resources,
            auth_time=subject.authenticated_at,
            acr=subject.acr,
            dpop_jkt=authenticated.dpop_jkt,
            act=act,
            ends_by=subject.expires_at,
        )

    made = current_unit_of_work().stable_value("token", make)
    if made.expires_in < 1:
        raise OAuthError("The subject token is ending right now.").with_cause("exchange_refused")
    if not made.row["scope"] and not set(made.row["audience"].split()) <= set(subject.audience):
        # Nothing that was allowed is for it: a token that tells only who the user is would still open doors there.
        raise InvalidTarget("None of the subject token's scopes is for that resource.").with_cause(
            "resource_not_allowed", received=made.row["audience"], expected=subject.audience
        )
    if request.wants_jwt and not made.is_jwt:
        raise OAuthError("Tokens for this resource are opaque: ask for an access_token.").with_cause(
            "exchange_refused", received=JWT_TYPE, expected=ACCESS_TOKEN_TYPE
        )
    db.session.execute(
        insert(AccessToken).values(
            organization_id=client.organization.id,
            client_id=client.id,
            grant_id=subject.grant_id,
            credential_id=authenticated.credential_id,
            parent_id=subject.id,
            **made.row,
        )
    )
    audit.record(
        grants.client_actor(client, address, request_id),
        "token.exchanged",
        target_type="token",
        target_id=public_id("tok", made.row["id"]),
        after={
            "subject": _subject_of(client, subject),
            "subject_token": public_id("tok", subject.id),
            "from_client": subject.client.client_id,
            "audience": made.row["audience"].split(),
            "scopes": made.row["scope"].split(),
        },
    )
    answer = TokenAnswer(made.value, made.expires_in, made.row["scope"], token_type=made.token_type)
    return Exchanged(answer, JWT_TYPE if request.wants_jwt else ACCESS_TOKEN_TYPE)


def _presented(client: ClientSnapshot, token: str, name: str) -> TokenSnapshot:
    """The living token, if it was issued to the client or for one of its resources."""
    view = tokens.introspect(client, token)
    if view is None:
        raise OAuthError(
            f"The {name} is not a living access token that this client may exchange."
        ).with_cause(
            "exchange_refused", expected="a living access token of the client, or for one of its resources"
        )
    return view


def _subject_of(client: ClientSnapshot, token: TokenSnapshot) -> str:
    if token.user_id is not None:
        return subject_of(client, token.user_id)
    return token.origin.client_id


def _scopes(client: ClientSnapshot, asked: tuple[str, ...], subject: TokenSnapshot) -> tuple[str, ...]:
    allowed = restrict_scopes(subject.scopes, client.document["scopes"])
    if not is_subset(asked, allowed):
        raise InvalidScope(
            "A scope was asked for beyond the subject token's, or beyond the client's own."
        ).with_cause("scope_not_allowed", received=" ".join(asked), expected=allowed)
    return asked or allowed
