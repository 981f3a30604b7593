"""Sign-outs at identity providers, which end the sessions here (OpenID Connect Back-Channel Logout 1.0)."""

from __future__ import annotations

from functools import partial
from uuid import UUID

from sqlalchemy import ColumnElement, select, union

from app.extensions import db
from app.models.second_factor import PendingSignIn
from app.models.session import Session
from app.operations.directory.snapshots import OrganizationSnapshot
from app.operations.directory.users import hold_user
from app.operations.sign_in.identity_providers import IdentityProviderRecord, find_enabled_provider
from app.operations.sign_in.linked_identities import find_identity
from app.operations.sign_in.pending_sign_ins import delete_pending_sign_ins_with_provider
from app.operations.sign_in.provider_metadata import ProviderUnusable, verify_with_keys
from app.operations.sign_in.sessions import end_sessions
from app.operations.store import audit, clock
from app.operations.store.transactions import read, transaction
from app.rules.actor import Actor
from app.rules.errors import NotFound, OAuthError, Unavailable
from app.rules.sign_in.provider_tokens import (
    ProviderLogout,
    ProviderTokenInvalid,
    verify_logout_token,
)

_MAX_USERS = 100
"""A session at a provider is that of one person, unless the provider is broken."""


def end_sessions_of_provider(
    actor: Actor, organization: OrganizationSnapshot, provider_slug: str, logout_token: str
) -> None:
    """End the sessions that began with the sign-in that the logout token ends, with their grants.

    ``actor`` is the anonymous actor. Sign-ins that wait for a second factor end, too. Sessions that began in another
    way, such as with a password, go on. Call it outside of a transaction. Raises NotFound without such an enabled
    provider, OAuthError if the token is not valid, and Unavailable if the provider's keys cannot be read now. Audit:
    ``session.ended_by_provider``.
    """
    # Also of a suspended organization: its sessions continue when it is resumed.
    provider = find_enabled_provider(organization.id, provider_slug)
    if provider is None:
        raise NotFound("There is no such identity provider.")
    try:
        logout = _verify(provider, logout_token)
    except ProviderUnusable as error:
        raise Unavailable from error
    except ProviderTokenInvalid as error:
        raise OAuthError(f"The logout token is not valid: {error}.") from error
    for user_id in _find_users(provider, logout):
        _end(actor.as_system(provider.name), provider, logout, user_id)


def _verify(provider: IdentityProviderRecord, logout_token: str) -> ProviderLogout:
    verify = partial(
        verify_logout_token,
        logout_token,
        issuer=provider.issuer,
        client_id=provider.client_id,
        now=clock.now(),
    )
    return verify_with_keys(provider.organization_id, provider.issuer, verify)


@read
def _find_users(provider: IdentityProviderRecord, logout: ProviderLogout) -> list[UUID]:
    """Return whose sessions to look at: the linked user's, or if nobody is linked, those with the named session."""
    linked = find_identity(provider, logout.subject) if logout.subject is not None else None
    if linked is not None:
        return [linked.user_id]
    if logout.sid is None:
        return []
    found = union(
        *(
            select(model.user_id).where(
                model.organization_id == provider.organization_id,
                model.provider_id == provider.id,
                model.provider_sid == logout.sid,
            )
            for model in (Session, PendingSignIn)
        )
    )
    return sorted(db.session.scalars(found.limit(_MAX_USERS)))


@transaction
def _end(actor: Actor, provider: IdentityProviderRecord, logout: ProviderLogout, user_id: UUID) -> None:
    hold_user(provider.organization_id, user_id)
    delete_pending_sign_ins_with_provider(
        provider.organization_id, provider.id, _is_named(PendingSignIn, logout, user_id)
    )
    ended = end_sessions(
        provider.organization_id, (Session.provider_id == provider.id) & _is_named(Session, logout, user_id)
    )
    if ended:
        after = {"provider": provider.public_id, "sessions": ended}
        audit.record_user_event(actor, "session.ended_by_provider", user_id, after=after)


def _is_named(
    model: type[Session | PendingSignIn], logout: ProviderLogout, user_id: UUID
) -> ColumnElement[bool]:
    """Return which rows of the user the sign-out ends.

    If it names a session there, one whose ID token did not name it may be the same.
    """
    if logout.sid is None:
        return model.user_id == user_id
    return (model.user_id == user_id) & ((model.provider_sid == logout.sid) | model.provider_sid.is_(None))
