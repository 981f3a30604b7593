"""What the janitor removes: every table that grows, when its rows may go, and which of them are still needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import ColumnElement, Table, exists, or_

from app.models.account_link import AccountLink, Registration
from app.models.base import Base
from app.models.client import Client
from app.models.client_request import ClientRequest
from app.models.credential import CredentialUse
from app.models.device import DeviceCode
from app.models.event import IdempotencyKey, OutboxMessage, Revocation, UsedIdentifier, ViewChange
from app.models.failed_request import FailedRequest
from app.models.grant import AuthorizationCode, AuthorizationRequest, Consent, Grant
from app.models.logo import ClientLogo
from app.models.pushed_request import PushedRequest
from app.models.registration import ClientRegistration, RegistrationToken
from app.models.revocation_receipt import RevocationReceipt
from app.models.second_factor import PendingSignIn, SecondFactorTry
from app.models.session import Attempt, KnownBrowser, Session, SessionClient
from app.models.signing_key import SigningKey
from app.models.token import AccessToken
from app.models.user import Invitation
from app.models.user_import import UserImport, UserImportPart, UserImportRefusal
from app.models.webhook import Webhook, WebhookDelivery
from app.operations.signing.rotation import note_removals
from app.rules.actor import Actor

# A dead row is kept a day: a replayed token is still recognised, and a clock an hour off hurts nobody (F18).
KEPT_AFTER_END = timedelta(days=1)
# Deleted clients keep their rows for a month: their ledger answers "which secret was that?".
KEPT_AFTER_DELETION = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class Sweep:
    """One table: rows whose ``ends`` is longer ago than ``kept`` go, unless ``unless`` says they are needed.

    ``before`` is told, with the janitor as actor, which rows of an organization are about to go, in the transaction
    that removes them.
    """

    table: Table
    ends: ColumnElement[datetime]
    kept: timedelta = KEPT_AFTER_END
    unless: Callable[[], ColumnElement[bool]] | None = None
    before: Callable[[Actor, Sequence[UUID]], None] | None = None


def _sweep(
    model: type[Base],
    column: str,
    kept: timedelta = KEPT_AFTER_END,
    unless: Callable[[], ColumnElement[bool]] | None = None,
    before: Callable[[Actor, Sequence[UUID]], None] | None = None,
) -> Sweep:
    table = Base.metadata.tables[model.__tablename__]
    return Sweep(table, table.c[column], kept, unless, before)


def _grant_has_tokens() -> ColumnElement[bool]:
    return exists().where(
        AccessToken.organization_id == Grant.organization_id, AccessToken.grant_id == Grant.id
    )


def _is_not_sent() -> ColumnElement[bool]:
    return OutboxMessage.done_at.is_(None)


def _has_deliveries() -> ColumnElement[bool]:
    return exists().where(
        WebhookDelivery.organization_id == Webhook.organization_id, WebhookDelivery.webhook_id == Webhook.id
    )


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
SWEEPS = (
    _sweep(AccessToken, "expires_at"),
    _sweep(AuthorizationCode, "purge_at", timedelta()),
    _sweep(DeviceCode, "expires_at"),
    _sweep(FailedRequest, "expires_at", timedelta()),
    _sweep(ClientRequest, "expires_at", timedelta()),
    # Strangers make them; nothing asks for one that has ended.
    _sweep(AuthorizationRequest, "expires_at", timedelta()),
    # Strangers make them too; one that was brought in time may be answered half an hour later, and none after that.
    _sweep(PushedRequest, "expires_at", timedelta(hours=1)),
    _sweep(Grant, "expires_at", unless=_grant_has_tokens),
    _sweep(Session, "expires_at"),
    _sweep(SessionClient, "expires_at"),
    _sweep(Attempt, "expires_at"),
    _sweep(KnownBrowser, "expires_at", timedelta()),
    _sweep(AccountLink, "expires_at", timedelta()),
    _sweep(Registration, "expires_at", timedelta()),
    _sweep(PendingSignIn, "expires_at", timedelta()),
    _sweep(SecondFactorTry, "expires_at", timedelta()),
    _sweep(Invitation, "expires_at", KEPT_AFTER_DELETION),
    _sweep(RegistrationToken, "expires_at", KEPT_AFTER_DELETION),
    # Personal data: what was uploaded, and what was refused of it.
    _sweep(UserImportPart, "expires_at", timedelta()),
    _sweep(UserImportRefusal, "expires_at", timedelta()),
    _sweep(UserImport, "expires_at", timedelta(), unless=_import_has_rows),
    _sweep(IdempotencyKey, "expires_at"),
    _sweep(CredentialUse, "expires_at"),
    _sweep(ViewChange, "at", timedelta(minutes=1)),
    _sweep(UsedIdentifier, "expires_at", timedelta()),
    _sweep(OutboxMessage, "expires_at", unless=_is_not_sent),
    _sweep(WebhookDelivery, "expires_at", timedelta()),
    # A worker that has not heard yet that it was deleted may still put down a delivery for it.
    _sweep(Webhook, "deleted_at", timedelta(minutes=15), unless=_has_deliveries),
    _sweep(Revocation, "expires_at"),
    _sweep(RevocationReceipt, "expires_at", timedelta()),
    _sweep(SigningKey, "remove_at", timedelta(), before=note_removals),
)

# The rows of one client, children first; the column that names it.
CLIENT_ROWS = (
    (AccessToken, "client_id"),
    (AuthorizationCode, "client_id"),
    (AuthorizationRequest, "client_id"),
    (PushedRequest, "client_id"),
    (DeviceCode, "client_id"),
    (FailedRequest, "client_id"),
    (ClientRequest, "client_id"),
    (Consent, "client_id"),
    (SessionClient, "client_id"),
    (Grant, "client_id"),
    (ClientRegistration, "id"),
    (ClientLogo, "id"),
)

DELETED_CLIENTS = _sweep(Client, "deleted_at", KEPT_AFTER_DELETION)


def tables_of_an_organization() -> list[Table]:
    """Every table that holds rows of organizations, children first."""
    return [table for table in reversed(Base.metadata.sorted_tables) if "organization_id" in table.c]
