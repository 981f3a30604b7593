"""Grants: a user's approval of a client, which every token of the user belongs to.

Rotation and revocation are each one conditional UPDATE of the grant's row.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import cache
from typing import Any
from uuid import UUID

from msgspec import Struct
from sqlalchemy import (
    ColumnElement,
    Integer,
    ScalarSelect,
    Select,
    and_,
    bindparam,
    exists,
    not_,
    or_,
    select,
    true,
    update,
)
from sqlalchemy.orm import aliased

from app.fast_path.compiled_query import CompiledQuery, insert_into
from app.models.audit import Revocation
from app.models.base import has_key, is_same
from app.models.client import Client, Credential
from app.models.grant import Consent, Grant
from app.models.organization import Organization
from app.models.token import AccessToken
from app.models.user import User
from app.operations.directory.snapshots import AuthenticatedClient, ClientSnapshot, OrganizationSnapshot
from app.operations.directory.users import UserSnapshot
from app.operations.grants import logout
from app.operations.store import audit, clock, keyring
from app.operations.store.transactions import OutdatedRead
from app.rules.actor import Actor
from app.rules.authorization.consents import max_consent_seconds, requires_user_consent
from app.rules.clients.client_types import FIRST_PARTY
from app.rules.identifiers import digest, new_id, new_refresh_token, public_id

CONSENT_OF_GRANT = and_(
    is_same(Consent.user_id, Grant.user_id),
    Consent.client_id == Grant.client_id,
)
# Access tokens expire within a day. Revocation log entries are kept that long.
MAX_ACCESS_TOKEN_LIFETIME = timedelta(days=1)
# The limit per user and client. One more grant revokes the oldest, so that the table stays bounded.
MAX_ACTIVE_GRANTS = 100
_INSERT = CompiledQuery(insert_into(Grant))
_LOG = CompiledQuery(insert_into(Revocation))


def _select_surplus(organization_id: Any, user_id: Any, client_id: Any) -> Select[UUID]:
    """Return the query of the grants that leave no room for one more. Ids are ordered by time, the newest is first."""
    return (
        select(Grant.id)
        .where(
            Grant.organization_id == organization_id,
            Grant.user_id == user_id,
            Grant.client_id == client_id,
            Grant.revoked_at.is_(None),
            Grant.expires_at > bindparam("now", type_=Grant.expires_at.type),
        )
        .order_by(Grant.id.desc())
        .offset(bindparam("most", type_=Integer))
        .limit(bindparam("most", type_=Integer))
    )


_SURPLUS = CompiledQuery(
    _select_surplus(bindparam("organization_id"), bindparam("user_id"), bindparam("client_id"))
)
_REVOKE_ACTIVE = (
    update(Grant)
    .where(has_key(Grant, bindparam("of_organization"), bindparam("of_grant")), Grant.revoked_at.is_(None))
    .values(
        revoked_at=bindparam("revoked_at"), revoked_reason=bindparam("revoked_reason"), sealed_answer=None
    )
)
_REVOKE = CompiledQuery(_REVOKE_ACTIVE)
_REVOKE_UNROTATED = CompiledQuery(_REVOKE_ACTIVE.where(Grant.refresh_digest == bindparam("current_digest")))


class NewGrant(Struct, frozen=True):
    """A grant of a user that is not stored yet.

    ``resources`` are all that were allowed, ``requested_resources`` those that this token request is for (RFC
    8707). ``expires_at`` is when the grant expires at the latest, if the user or the organization limited the
    consent. ``user`` is the user if the query that found the credential has read it too. ``has_room`` means that this
    query has seen that the user has few grants of the client.
    """

    id: UUID
    user_id: UUID
    session_id: UUID | None
    scopes: tuple[str, ...]
    auth_time: datetime
    amr: str
    allowed_at: datetime
    acr: str | None = None
    resources: tuple[str, ...] = ()
    requested_resources: tuple[str, ...] = ()
    claims: Mapping[str, Any] | None = None
    nonce: str | None = None
    expires_at: datetime | None = None
    user: UserSnapshot | None = None
    has_room: bool = False


class ClaimedGrant(Struct, frozen=True):
    """A grant whose code this transaction has claimed.

    ``is_stored`` means that an earlier attempt of the same transaction was committed after all.
    """

    new: NewGrant
    is_stored: bool = False


def store_grant(
    actor: Actor, authenticated: AuthenticatedClient, grant: NewGrant, refresh_token: str | None
) -> None:
    """Store a grant with its first refresh token, in the current transaction. Audit: ``grant.created``."""
    client = authenticated.client
    now = clock.now()
    settings = client.organization.settings["oauth"]["refresh_token"]
    expires_at = now + (
        timedelta(seconds=settings["ttl_seconds"]) if refresh_token else MAX_ACCESS_TOKEN_LIFETIME
    )
    expires_at = min(expires_at, grant.expires_at or expires_at)
    idle_expires_at = (
        min(expires_at, now + timedelta(seconds=settings["idle_ttl_seconds"])) if refresh_token else None
    )
    if not grant.has_room:
        _revoke_oldest(actor, client, grant.user_id)
    _INSERT.write_later(
        organization_id=client.organization.id,
        id=grant.id,
        client_id=client.id,
        user_id=grant.user_id,
        session_id=grant.session_id,
        scope=" ".join(grant.scopes),
        auth_time=grant.auth_time,
        amr=grant.amr,
        acr=grant.acr,
        resource=" ".join(grant.resources),
        claims=grant.claims,
        dpop_jkt=authenticated.dpop_jkt if client.is_public else None,
        credential_id=authenticated.credential_id,
        created_at=now,
        allowed_at=grant.allowed_at,
        expires_at=expires_at,
        idle_expires_at=idle_expires_at,
        refreshed_at=now if refresh_token else None,
        generation=0,
        refresh_digest=digest(refresh_token) if refresh_token else None,
    )
    if grant.session_id is not None and "openid" in grant.scopes:
        logout.add_listener(client, grant.session_id, grant.user_id)
    audit.record(
        actor,
        "grant.created",
        "grant",
        public_id("grt", grant.id),
        after={"user": public_id("usr", grant.user_id), "scopes": list(grant.scopes)},
    )


def revoke_grant_by_id(actor: Actor, grant_id: UUID, *, reason: str) -> bool:
    """Revoke the grant and all its tokens, in the current transaction.

    Returns False if it was already revoked. Writes the revocation log. The caller records the audit event.
    """
    revoked = _REVOKE.write(
        of_organization=actor.organization_id,
        of_grant=grant_id,
        revoked_at=clock.now(),
        revoked_reason=reason,
    )
    if revoked == 1:
        log_revocation(actor.organization_id, "grant", grant_id.bytes)
    return revoked == 1


def revoke_unrotated_grant(actor: Actor, grant_id: UUID, refresh_digest: bytes, *, reason: str) -> None:
    """Revoke the grant if its current refresh token still has this digest, in the current transaction.

    Raises OutdatedRead if the grant was rotated or revoked since it was read, also on another node of a cluster: what
    was read then proves nothing. Writes the revocation log. The caller records the audit event.
    """
    revoked = _REVOKE_UNROTATED.write(
        of_organization=actor.organization_id,
        of_grant=grant_id,
        current_digest=refresh_digest,
        revoked_at=clock.now(),
        revoked_reason=reason,
    )
    if revoked != 1:
        raise OutdatedRead
    log_revocation(actor.organization_id, "grant", grant_id.bytes)


def issues_refresh_token(client: ClientSnapshot, scopes: tuple[str, ...]) -> bool:
    """Return whether client, organization and the user's consent all allow a refresh token (CO-5)."""
    return (
        "offline_access" in scopes
        and "refresh_token" in client.document["grant_types"]
        and "refresh_token" in client.organization.settings["oauth"]["grant_types"]
    )


def generate_refresh_token(client: ClientSnapshot, grant_id: UUID) -> str:
    """Return a new refresh token that contains the grant's id and the organization's tag."""
    return new_refresh_token(
        client.organization.id, grant_id, keyring.refresh_tag_key(client.organization.id)
    )


def log_revocation(
    organization_id: str, kind: str, subject: bytes, *, not_before: datetime | None = None
) -> None:
    """Add an entry to the revocation log, which resource servers without database access read."""
    now = clock.now()
    _LOG.write_later(
        organization_id=organization_id,
        id=new_id(),
        kind=kind,
        subject=subject,
        not_before=not_before or now,
        expires_at=now + MAX_ACCESS_TOKEN_LIFETIME,
    )


def client_actor(client: ClientSnapshot, ip_address: str | None, request_id: str | None) -> Actor:
    """Return the client as an actor without permissions: it acts only on the tokens that it presents."""
    return Actor(
        "client",
        client.organization.id,
        client.organization.id,
        client_id=client.id,
        label=client.name,
        ip_address=ip_address,
        request_id=request_id,
    )


def is_active_grant(settings: Mapping[str, Any]) -> ColumnElement[bool]:
    """Return the condition that the client can still use the grant, for lists and counts."""
    return and_(
        Grant.revoked_at.is_(None),
        Grant.expires_at > clock.now(),
        or_(Grant.refresh_digest.is_(None), can_refresh(settings)),
        grant_issued_after_cutoffs(),
    )


def can_refresh(settings: Mapping[str, Any]) -> ColumnElement[bool]:
    """Return the condition that the grant's refresh token has not expired by age or disuse.

    The same rule in Python is ``settings_effects.refresh_token_expiry``.
    """
    limits = settings["oauth"]["refresh_token"]
    now = clock.now()
    longest = max_consent_seconds(settings)
    return and_(
        true() if longest is None else _is_within_consent(settings, now - timedelta(seconds=longest)),
        Grant.refresh_digest.is_not(None),
        Grant.expires_at > now,
        Grant.idle_expires_at > now,
        Grant.created_at > now - timedelta(seconds=limits["ttl_seconds"]),
        or_(
            Grant.refreshed_at.is_(None),
            Grant.refreshed_at > now - timedelta(seconds=limits["idle_ttl_seconds"]),
        ),
    )


def is_consented(settings: Mapping[str, Any]) -> ColumnElement[bool]:
    """Return the condition that the grant relies on a stored consent.

    That is so if the user's consent exists and the client is one that users are asked about.
    """
    consent, client = aliased(Consent), aliased(Client)
    given = exists().where(
        consent.organization_id == Grant.organization_id,
        consent.user_id == Grant.user_id,
        consent.client_id == Grant.client_id,
    )
    if requires_user_consent(FIRST_PARTY, settings):
        return given
    return given & exists().where(
        client.organization_id == Grant.organization_id,
        client.id == Grant.client_id,
        client.trust != FIRST_PARTY,
    )


@cache
def grant_issued_after_cutoffs() -> ColumnElement[bool]:
    """Return the condition that no cutoff revokes the grant (IT-3).

    Organization, client, user and secret each have cutoffs.
    """
    grant, allowed = Grant, Grant.allowed_at
    organization = aliased(Organization)
    client, user, secret = aliased(Client), aliased(User), aliased(Credential)
    return not_(
        or_(
            exists().where(
                organization.id == grant.organization_id,
                or_(
                    organization.tokens_valid_from > allowed,
                    organization.tokens_not_before > allowed,
                    organization.sessions_not_before > grant.auth_time,
                ),
            ),
            _has_later_cutoff(client, grant, grant.client_id, allowed),
            _has_later_cutoff(user, grant, grant.user_id, allowed),
            _is_cut_off_by_secret(secret, grant, allowed),
        )
    )


def token_issued_after_cutoffs(organization: OrganizationSnapshot | None = None) -> ColumnElement[bool]:
    """Return the condition that no cutoff applies to an access token. Its grant is checked separately.

    With the ``organization``, its cutoffs are not looked up for each token.
    """
    if organization is None:
        return not_(or_(_is_cut_off_by_organization(), _is_cut_off_by_holder()))
    cutoffs = (organization.tokens_valid_from, organization.tokens_not_before)
    issued_after = [AccessToken.issued_at >= cutoff for cutoff in cutoffs if cutoff is not None]
    return and_(not_(_is_cut_off_by_holder()), *issued_after)


@cache
def _is_cut_off_by_organization() -> ColumnElement[bool]:
    organization, issued = aliased(Organization), AccessToken.issued_at
    return exists().where(
        organization.id == AccessToken.organization_id,
        or_(organization.tokens_valid_from > issued, organization.tokens_not_before > issued),
    )


@cache
def _is_cut_off_by_holder() -> ColumnElement[bool]:
    token, issued = AccessToken, AccessToken.issued_at
    client, secret = aliased(Client), aliased(Credential)
    return or_(
        _has_later_cutoff(client, token, token.client_id, issued),
        _is_cut_off_by_secret(secret, token, issued),
    )


def _is_within_consent(settings: Mapping[str, Any], given_after: datetime) -> ColumnElement[bool]:
    return or_(Grant.allowed_at > given_after, not_(is_consented(settings)))


def _has_later_cutoff(holder: Any, row: Any, holder_id: Any, issued_at: Any) -> ColumnElement[bool]:
    return exists().where(
        holder.organization_id == row.organization_id,
        holder.id == holder_id,
        holder.tokens_not_before > issued_at,
    )


def _is_cut_off_by_secret(secret: Any, row: Any, issued_at: Any) -> ColumnElement[bool]:
    # A compiled query gets the time as a value, because it does not call this.
    now = bindparam("now", callable_=lambda: clock.now(), type_=secret.expires_at.type)
    # One look-up for both: lists and counts do it for each row.
    return exists().where(
        secret.organization_id == row.organization_id,
        secret.id == row.credential_id,
        or_(
            secret.tokens_revoked_at.is_not(None),
            secret.tokens_not_before > issued_at,
            and_(secret.takes_tokens.is_(True), secret.expires_at <= now),
        ),
    )


def find_surplus_of(credential: Any) -> ScalarSelect[UUID]:
    """Return the newest surplus grant of the credential's user and client, NULL if there is room for one more.

    The statement that it is part of needs the parameters ``now`` and ``most``, one less than the limit.
    """
    surplus = _select_surplus(credential.organization_id, credential.user_id, credential.client_id)
    return surplus.limit(1).scalar_subquery()


def _revoke_oldest(actor: Actor, client: ClientSnapshot, user_id: UUID) -> None:
    """Revoke the user's oldest grants of the client, so that there is room for one more."""
    surplus = _SURPLUS.rows(
        organization_id=client.organization.id,
        user_id=user_id,
        client_id=client.id,
        now=clock.now(),
        most=MAX_ACTIVE_GRANTS - 1,
    )
    for (grant_id,) in surplus:
        # Nothing depends on whether another request is faster: the grant is then revoked too.
        _REVOKE.write_later(
            of_organization=actor.organization_id,
            of_grant=grant_id,
            revoked_at=clock.now(),
            revoked_reason="too_many_grants",
        )
        log_revocation(actor.organization_id, "grant", grant_id.bytes)


class UnstoredRows(Struct, frozen=True):
    """The rows of an access token that is not stored: its own, and that of a status list if it is in one."""

    token: Mapping[str, Any]
    entry: Mapping[str, Any] | None


class TokenSnapshot(Struct, frozen=True):
    """An active access token with its client, user and grant.

    ``user`` is set if it was asked for, ``unstored`` are the token's rows if it has none.
    """

    id: UUID
    client: ClientSnapshot
    grant_id: UUID | None
    user_id: UUID | None
    user_email: str | None
    scopes: tuple[str, ...]
    audience: tuple[str, ...]
    issued_at: datetime
    expires_at: datetime
    authenticated_at: datetime | None
    session_id: UUID | None
    dpop_jkt: str | None
    act: Mapping[str, Any] | None
    acr: str | None
    claims: Mapping[str, Any] | None
    parent: TokenSnapshot | None = None
    user: UserSnapshot | None = None
    unstored: UnstoredRows | None = None

    @property
    def origin(self) -> ClientSnapshot:
        """The client that the first token of a token exchange chain was issued to."""
        return self.client if self.parent is None else self.parent.origin

    @property
    def depth(self) -> int:
        """Return how many times the token was exchanged (RFC 8693)."""
        return 0 if self.parent is None else self.parent.depth + 1
