"""Which grants and tokens outlive the moments that revocations set, as a condition for lists and counts.

Whoever presents a token is judged by ``tokens`` and ``refresh_tokens`` from rows that they read anyway; this is the
same rule for those who look at many.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from functools import cache
from typing import Any

from sqlalchemy import ColumnElement, and_, bindparam, exists, not_, or_
from sqlalchemy.orm import aliased

from app.models.client import Client
from app.models.credential import Credential
from app.models.grant import Grant
from app.models.organization import Organization
from app.models.token import AccessToken
from app.models.user import User
from app.operations import clock

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
    return and_(
        Grant.refresh_digest.is_not(None),
        Grant.expires_at > now,
        Grant.idle_expires_at > now,
        Grant.created_at > now - timedelta(seconds=limits["ttl_seconds"]),
        or_(
            Grant.refreshed_at.is_(None),
            Grant.refreshed_at > now - timedelta(seconds=limits["idle_ttl_seconds"]),
        ),
    )


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
