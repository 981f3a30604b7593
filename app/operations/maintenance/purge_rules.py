"""What the janitor deletes: expired rows of each table, and the rows of deleted clients and organizations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from msgspec import Struct
from sqlalchemy import (
    ColumnElement,
    Table,
    exists,
    not_,
    or_,
)

from app.models.audit import (
    CacheInvalidation,
    FailedRequest,
    IdempotencyKey,
    OutboxMessage,
    Revocation,
    RevocationReceipt,
    SampledRequest,
    UsageCounter,
    UsedIdentifier,
    Webhook,
    WebhookDelivery,
)
from app.models.base import Base, is_same
from app.models.client import (
    Client,
    ClientAccess,
    ClientLogo,
    ClientRegistration,
    ClientRequest,
    Credential,
    CredentialUse,
    RegistrationToken,
)
from app.models.grant import AuthorizationCode, AuthorizationRequest, Consent, Grant, PlaygroundRun
from app.models.second_factor import PendingSignIn, SecondFactorTry
from app.models.session import Attempt, KnownBrowser, RequestCount, Session, SessionClient
from app.models.token import (
    AccessToken,
    DeviceCode,
    PushedRequest,
    SigningKey,
    StatusList,
    StatusListEntry,
)
from app.models.user import (
    AccountLink,
    AppRoleAssignment,
    Invitation,
    Registration,
    UserImport,
    UserImportPart,
    UserImportRefusal,
)
from app.operations.directory.lookups import is_served_here
from app.operations.grants.signing_keys import record_key_removals
from app.operations.store import usage_counters
from app.rules.actor import Actor

# Expired rows are kept for a day: a replayed token is still recognized, and a wrong clock does no harm (F18).
RETENTION = timedelta(days=1)
# Rows of deleted clients are kept for a month, so that their secrets can still be identified.
DELETED_CLIENT_RETENTION = timedelta(days=30)
# Longer than a refresh token issued with the secret can last: the row says whether the grant was revoked with it.
ENDED_SECRET_RETENTION = timedelta(days=400)


class PurgeRule(Struct, frozen=True):
    """One table: rows whose ``ends`` is longer ago than ``retention`` are deleted, unless ``unless`` says they are
    needed.

    ``before`` is called with the janitor as actor and the rows of an organization that are about to be deleted, in the
    same transaction.
    """

    table: Table
    ends: ColumnElement[datetime]
    retention: timedelta = RETENTION
    unless: Callable[[], ColumnElement[bool]] | None = None
    before: Callable[[Actor, Sequence[UUID]], None] | None = None


def _rule(model: type[Base], column: str, retention: timedelta = RETENTION, **more: Any) -> PurgeRule:
    table = Base.metadata.tables[model.__tablename__]
    return PurgeRule(table, table.c[column], retention, **more)


def _grant_has_tokens() -> ColumnElement[bool]:
    return exists().where(is_same(AccessToken.grant_id, Grant.id))


def _secret_has_rows() -> ColumnElement[bool]:
    return or_(
        exists().where(
            is_same(AccessToken.credential_id, Credential.id), AccessToken.client_id == Credential.client_id
        ),
        exists().where(is_same(CredentialUse.credential_id, Credential.id)),
    )


def _is_not_sent() -> ColumnElement[bool]:
    return OutboxMessage.done_at.is_(None)


def _has_deliveries() -> ColumnElement[bool]:
    return exists().where(is_same(WebhookDelivery.webhook_id, Webhook.id))


def _has_moved() -> ColumnElement[bool]:
    # Its removal would be recorded in an audit log that the other cell goes on with.
    return not_(is_served_here(SigningKey.organization_id))


def _import_has_rows() -> ColumnElement[bool]:
    return or_(
        *(
            exists().where(
                table.organization_id == UserImport.organization_id, table.import_id == UserImport.id
            )
            for table in (UserImportPart, UserImportRefusal)
        )
    )


# Children before their parents. Each column named here has an index.
PURGE_RULES = (
    _rule(AccessToken, "expires_at"),
    # Readers may allow for a difference of clocks.
    _rule(StatusListEntry, "expires_at", timedelta(hours=1)),
    _rule(StatusList, "expires_at", timedelta()),
    _rule(AuthorizationCode, "purge_at", timedelta()),
    _rule(DeviceCode, "expires_at"),
    _rule(FailedRequest, "expires_at", timedelta()),
    _rule(SampledRequest, "expires_at", timedelta()),
    _rule(ClientRequest, "expires_at", timedelta()),
    # Created by unauthenticated requests and not used after they expire.
    _rule(AuthorizationRequest, "expires_at", timedelta()),
    _rule(PlaygroundRun, "expires_at", timedelta()),
    # Created by unauthenticated requests. One that was used in time may be completed up to half an hour later.
    _rule(PushedRequest, "expires_at", timedelta(hours=1)),
    _rule(Grant, "expires_at", unless=_grant_has_tokens),
    _rule(Session, "expires_at"),
    _rule(SessionClient, "expires_at"),
    _rule(Attempt, "expires_at"),
    _rule(RequestCount, "expires_at", timedelta()),
    _rule(KnownBrowser, "expires_at", timedelta()),
    _rule(AccountLink, "expires_at", timedelta()),
    _rule(Registration, "expires_at", timedelta()),
    _rule(PendingSignIn, "expires_at", timedelta()),
    _rule(SecondFactorTry, "expires_at", timedelta()),
    _rule(Invitation, "expires_at", DELETED_CLIENT_RETENTION),
    _rule(RegistrationToken, "expires_at", DELETED_CLIENT_RETENTION),
    # Personal data: uploaded rows and rejected rows.
    _rule(UserImportPart, "expires_at", timedelta()),
    _rule(UserImportRefusal, "expires_at", timedelta()),
    _rule(UserImport, "expires_at", timedelta(), unless=_import_has_rows),
    _rule(IdempotencyKey, "expires_at"),
    _rule(CredentialUse, "expires_at"),
    _rule(Credential, "revoked_at", ENDED_SECRET_RETENTION, unless=_secret_has_rows),
    _rule(Credential, "expires_at", ENDED_SECRET_RETENTION, unless=_secret_has_rows),
    _rule(UsedIdentifier, "expires_at", timedelta()),
    _rule(UsageCounter, "starts_at", usage_counters.RETENTION),
    _rule(OutboxMessage, "expires_at", unless=_is_not_sent),
    _rule(WebhookDelivery, "expires_at", timedelta()),
    # A worker with an outdated cache may still create a delivery for a deleted webhook.
    _rule(Webhook, "deleted_at", timedelta(minutes=15), unless=_has_deliveries),
    _rule(Revocation, "expires_at"),
    _rule(RevocationReceipt, "expires_at", timedelta()),
    _rule(SigningKey, "remove_at", timedelta(), unless=_has_moved, before=record_key_removals),
)

# The rows of one client, children first; the column that names it.
CLIENT_ROWS = (
    (AccessToken, "client_id"),
    (AuthorizationCode, "client_id"),
    (AuthorizationRequest, "client_id"),
    (PlaygroundRun, "client_id"),
    (PushedRequest, "client_id"),
    (DeviceCode, "client_id"),
    (FailedRequest, "client_id"),
    (UsageCounter, "client_id"),
    (SampledRequest, "client_id"),
    (ClientRequest, "client_id"),
    (ClientAccess, "client_id"),
    (AppRoleAssignment, "client_id"),
    (Consent, "client_id"),
    (SessionClient, "client_id"),
    (Grant, "client_id"),
    (ClientRegistration, "id"),
    (ClientLogo, "id"),
)

DELETED_CLIENTS = _rule(Client, "deleted_at", DELETED_CLIENT_RETENTION)


def organization_tables() -> list[Table]:
    """List every table with rows of organizations, children first, except that of cache invalidations.

    Those may only be pruned.
    """
    pruned = CacheInvalidation.__tablename__
    tables = reversed(Base.metadata.sorted_tables)
    return [table for table in tables if "organization_id" in table.c and table.name != pruned]
