"""Which grants and tokens live: what outlives revocations and settings, as conditions for lists and counts.

Whoever presents a token is judged by ``tokens`` and ``refresh_tokens`` from rows that they read anyway; this is the
same rule for those who look at many.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from sqlalchemy import ColumnElement, and_, bindparam, exists, not_, or_, true
from sqlalchemy.orm import aliased

from app.models.client import Client
from app.models.credential import Credential
from app.models.grant import Consent, Grant
from app.models.organization import Organization
from app.models.token import AccessToken
from app.models.user import User
from app.operations import clock
from app.rules.consents.ends import FIRST_PARTY, asks_people, longest_life

CONSENT_OF_GRANT = and_(
    Consent.organization_id == Grant.organization_id,
    Consent.user_id == Grant.user_id,
    Consent.client_id == Grant.client_id,
)
# To build a long condition costs more than to ask it, so it is done once: what changes is bound when it is asked.


@cache
def outlives_moments() -> ColumnElement[bool]:
    """No moment of its organization, client, user or secret came after the grant was allowed (IT-3)."""
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
            _came_later(client, grant, grant.client_id, allowed),
            _came_later(user, grant, grant.user_id, allowed),
            _came_later(secret, grant, grant.credential_id, allowed),
            _ended_with_tokens(secret, grant),
        )
    )


def still_refreshes(settings: Mapping[str, Any]) -> ColumnElement[bool]:
    """Its refresh tokens have not ended by age or for want of use: ``lifetimes.end_of_family`` as a condition."""
    limits = settings["oauth"]["refresh_token"]
    now = clock.now()
    longest = longest_life(settings)
    return and_(
        true() if longest is None else _within_consent(settings, now - timedelta(seconds=longest)),
        Grant.refresh_digest.is_not(None),
        Grant.expires_at > now,
        Grant.idle_expires_at > now,
        Grant.created_at > now - timedelta(seconds=limits["ttl_seconds"]),
        or_(
            Grant.refreshed_at.is_(None),
            Grant.refreshed_at > now - timedelta(seconds=limits["idle_ttl_seconds"]),
        ),
    )


def is_living(settings: Mapping[str, Any]) -> ColumnElement[bool]:
    """A grant by which its client may still do something, as lists and counts have it."""
    return and_(
        Grant.revoked_at.is_(None),
        Grant.expires_at > clock.now(),
        or_(Grant.refresh_digest.is_(None), still_refreshes(settings)),
        outlives_moments(),
    )


def is_consented(settings: Mapping[str, Any]) -> ColumnElement[bool]:
    """It rests on a consent of its user: there is one, and its client is of those that people are asked about."""
    consent, client = aliased(Consent), aliased(Client)
    given = exists().where(
        consent.organization_id == Grant.organization_id,
        consent.user_id == Grant.user_id,
        consent.client_id == Grant.client_id,
    )
    if asks_people(FIRST_PARTY, settings):
        return given
    return given & exists().where(
        client.organization_id == Grant.organization_id,
        client.id == Grant.client_id,
        client.trust != FIRST_PARTY,
    )


def _within_consent(settings: Mapping[str, Any], given_after: datetime) -> ColumnElement[bool]:
    return or_(Grant.allowed_at > given_after, not_(is_consented(settings)))


@cache
def token_outlives_moments() -> ColumnElement[bool]:
    """The same of an access token by itself; its grant is asked beside it."""
    token, issued = AccessToken, AccessToken.issued_at
    organization, client, secret = aliased(Organization), aliased(Client), aliased(Credential)
    return not_(
        or_(
            exists().where(
                organization.id == token.organization_id,
                or_(organization.tokens_valid_from > issued, organization.tokens_not_before > issued),
            ),
            _came_later(client, token, token.client_id, issued),
            _came_later(secret, token, token.credential_id, issued),
            _ended_with_tokens(secret, token),
        )
    )


def _came_later(holder: Any, row: Any, holder_id: Any, made_at: Any) -> ColumnElement[bool]:
    return exists().where(
        holder.organization_id == row.organization_id,
        holder.id == holder_id,
        holder.tokens_not_before > made_at,
    )


def _ended_with_tokens(secret: Any, row: Any) -> ColumnElement[bool]:
    return exists().where(
        secret.organization_id == row.organization_id,
        secret.id == row.credential_id,
        secret.takes_tokens.is_(True),
        secret.expires_at <= bindparam(None, callable_=lambda: clock.now(), type_=secret.expires_at.type),
    )
