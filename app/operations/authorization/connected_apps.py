"""Connected apps and consents: users list and withdraw their own, administrators those of all users."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any
from uuid import UUID

from msgspec import Struct
from sqlalchemy import ColumnElement, ScalarSelect, Select, delete, exists, func, or_, select, true
from sqlalchemy.orm import InstrumentedAttribute

from app.extensions import db
from app.models.base import has_key, is_same
from app.models.client import DELETED, Client
from app.models.grant import Consent, Grant
from app.models.user import User
from app.operations.authorization.consents import covered_scopes, revoke_access
from app.operations.directory.lookups import get_organization_by_id
from app.operations.grants.grant_lists import FILTERS, restrict_to_visible
from app.operations.grants.grants import CONSENT_OF_GRANT, is_active_grant
from app.operations.store import audit, clock
from app.operations.store.rows import Page, PageRequest, filter_conditions, get_row, read_page
from app.operations.store.transactions import OutdatedRead, count_changed, read, transaction
from app.rules.actor import Actor
from app.rules.authorization.consents import consent_expiry, max_consent_seconds
from app.rules.clients.redirect_uris import get_display_hosts
from app.rules.errors import NotFound
from app.rules.filters import read_filters
from app.rules.identifiers import HasPublicId, format_client_id, parse_public_id, public_id

MAX_LISTED = 200
PREFIX = "con"


class ConsentRecord(HasPublicId, Struct, frozen=True):
    """A connected app. ``id`` is the consent's, or the client's if it has grants without a consent.

    ``redirect_hosts`` are the hosts of its redirect URIs, or their schemes for an app's private scheme.
    """

    id_prefix = "con"
    id: UUID
    client_id: str
    client_name: str
    trust: str
    scopes: tuple[str, ...]
    created_at: datetime
    updated_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    redirect_hosts: tuple[str, ...]


@read
def list_consents(actor: Actor) -> list[ConsentRecord]:
    """Return the apps with access to the user's account: with consent, newest first, then those without.

    Each client is listed once. A first-party client, or one whose consent expired, is listed while it has active
    grants.
    """
    settings = get_organization_by_id(actor.organization_id, fresh=False).settings
    rows = db.session.execute(
        select(
            Consent.__table__,
            Client.name,
            Client.trust,
            Client.document,
            _newest_of_grants(Grant.created_at).label("granted_at"),
            _newest_of_grants(Grant.rotated_at).label("rotated_at"),
        )
        .join(Client, is_same(Client.id, Consent.client_id))
        .where(
            Consent.organization_id == actor.organization_id,
            Consent.user_id == actor.user_id,
            Client.status != DELETED,
            is_active_consent(settings),
        )
        .order_by(Consent.id.desc())
        .limit(MAX_LISTED)
    )
    consented = [
        ConsentRecord(
            id=row.id,
            client_id=format_client_id(actor.organization_id, row.client_id),
            client_name=row.name,
            trust=row.trust,
            scopes=covered_scopes(actor.organization_id, row),
            created_at=row.created_at,
            updated_at=row.updated_at,
            expires_at=consent_expiry(row.updated_at, row.expires_at, max_consent_seconds(settings)),
            # A consent is also used without a page, by a silent authorization request or a refresh.
            last_used_at=max(filter(None, (row.last_used_at, row.granted_at, row.rotated_at)), default=None),
            redirect_hosts=get_display_hosts(row.document.get("redirect_uris")),
        )
        for row in rows
    ]
    return consented + _list_without_consent(actor, settings)


def _newest_of_grants(column: InstrumentedAttribute[Any]) -> ScalarSelect[Any]:
    """Select the newest of these times of the consent's grants, one column at a time: MySQL 8.0.15 returns text for
    MAX(COALESCE(…)).
    """
    return (
        select(func.max(column))
        .where(
            is_same(Grant.user_id, Consent.user_id),
            Grant.client_id == Consent.client_id,
        )
        .correlate(Consent)
        .scalar_subquery()
    )


def _list_without_consent(actor: Actor, settings: Mapping[str, Any]) -> list[ConsentRecord]:
    consented = exists().where(
        is_same(Consent.user_id, Grant.user_id),
        Consent.client_id == Grant.client_id,
        is_active_consent(settings),
    )
    granted = (
        select(
            Grant.client_id,
            Grant.scope,
            func.min(Grant.created_at).label("created_at"),
            func.max(Grant.created_at).label("updated_at"),
            func.max(Grant.rotated_at).label("rotated_at"),
            func.max(Grant.expires_at).label("expires_at"),
        )
        .where(
            Grant.organization_id == actor.organization_id,
            Grant.user_id == actor.user_id,
            is_active_grant(settings),
            ~consented,
        )
        .group_by(Grant.client_id, Grant.scope)
        .subquery()
    )
    rows = db.session.execute(
        select(granted, Client.name, Client.trust, Client.document)
        .join(Client, Client.id == granted.c.client_id)
        .where(Client.organization_id == actor.organization_id, Client.status != DELETED)
        .order_by(Client.name, granted.c.client_id)
        .limit(MAX_LISTED)
    ).all()
    records = []
    for client_id, group in groupby(rows, lambda row: row.client_id):
        parts = list(group)
        records.append(
            ConsentRecord(
                id=client_id,
                client_id=format_client_id(actor.organization_id, client_id),
                client_name=parts[0].name,
                trust=parts[0].trust,
                scopes=tuple(dict.fromkeys(scope for part in parts for scope in part.scope.split())),
                created_at=min(part.created_at for part in parts),
                updated_at=max(part.updated_at for part in parts),
                expires_at=max(part.expires_at for part in parts),
                last_used_at=max(part.rotated_at or part.updated_at for part in parts),
                redirect_hosts=get_display_hosts(parts[0].document.get("redirect_uris")),
            )
        )
    return records


def is_active_consent(settings: Mapping[str, Any]) -> ColumnElement[bool]:
    """Return the condition that a consent has not expired; ``settings`` are its organization's."""
    now, max_seconds = clock.now(), max_consent_seconds(settings)
    return or_(Consent.expires_at.is_(None), Consent.expires_at > now) & (
        true() if max_seconds is None else Consent.updated_at > now - timedelta(seconds=max_seconds)
    )


@transaction
def withdraw_consent(actor: Actor, consent_id: UUID) -> int:
    """Withdraw the actor's consent and revoke the app's grants, codes and tokens (CO-3).

    ``consent_id`` is the ``id`` of a record of ``list_consents``. Return the number of revoked grants. Raises NotFound.
    Audit: ``consent.withdrawn``.
    """
    consent = db.session.scalar(
        select(Consent).where(
            has_key(Consent, actor.organization_id, consent_id), Consent.user_id == actor.user_id
        )
    )
    client_id = consent_id if consent is None else consent.client_id
    revoked_count, scopes = revoke_access(actor, actor.user_id, client_id)
    if consent is None and not revoked_count:
        raise NotFound("This app is no longer connected.")
    audit.record(
        actor,
        "consent.withdrawn",
        "client",
        format_client_id(actor.organization_id, client_id),
        before={"scopes": scopes if consent is None else consent.scope.split()},
        after={"ended_grants": revoked_count},
    )
    if consent is not None:
        _delete(consent)
    return revoked_count


def revoke_consent(actor: Actor, consent: Consent) -> int:
    """Withdraw another user's consent in the current transaction. Audit: ``consent.withdrawn`` about the user."""
    revoked_count, _ = revoke_access(actor, consent.user_id, consent.client_id)
    client_id = format_client_id(consent.organization_id, consent.client_id)
    audit.record_user_event(
        actor,
        "consent.withdrawn",
        consent.user_id,
        before={"client_id": client_id, "scopes": consent.scope.split()},
        after={"ended_grants": revoked_count},
    )
    _delete(consent)
    return revoked_count


def _delete(consent: Consent) -> None:
    """Delete the consent. Raises OutdatedRead if another request has just withdrawn it."""
    of_user = (Consent.organization_id == consent.organization_id) & (Consent.id == consent.id)
    if not count_changed(delete(Consent).where(of_user)):
        raise OutdatedRead


class UserConsentRecord(HasPublicId, Struct, frozen=True):
    """A consent that is valid, or that expired while the client still has an active grant."""

    id_prefix = PREFIX
    id: UUID
    client_id: str
    client_name: str
    user_id: str
    user_email: str
    scopes: tuple[str, ...]
    created_at: datetime
    updated_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None


@read
def list_user_consents(
    actor: Actor, page_request: PageRequest = PageRequest(), *, filters: Mapping[str, str] = {}
) -> Page[UserConsentRecord]:
    """Return a page of the consents, newest first; with ``consents:read:own``, for the actor's own clients.

    ``filters`` are of FILTERS. Raises InvalidInput, Forbidden.
    """
    values = read_filters(actor, FILTERS, filters)
    statement = _visible(actor, "consents:read").where(*filter_conditions(Consent, values))
    return read_page(statement, (Consent.id,), page_request).map(_record)


@read
def get_user_consent(actor: Actor, consent_id: str) -> UserConsentRecord:
    """Return one consent. Raises NotFound, Forbidden."""
    return _record(_get(actor, consent_id, "consents:read"))


@transaction
def withdraw_user_consent(actor: Actor, consent_id: str) -> int:
    """Withdraw a user's consent for a client (CO-3); return the number of revoked grants.

    Raises NotFound, Forbidden. Audit: ``consent.withdrawn``.
    """
    return revoke_consent(actor, _get(actor, consent_id, "consents:write")[0])


def _get(actor: Actor, consent_id: str, permission: str) -> Any:
    statement = _visible(actor, permission).where(Consent.id == parse_public_id(PREFIX, consent_id))
    return get_row(statement, "There is no such consent.")


def _visible(actor: Actor, permission: str) -> Select[Any]:
    columns: tuple[Any, ...] = (Consent, Client.name, User.email)
    settings = _settings(actor.organization_id)
    # An expired consent is listed and can be withdrawn while the client has an active grant.
    has_active_grant = exists().where(CONSENT_OF_GRANT, is_active_grant(settings)).correlate(Consent)
    return (
        restrict_to_visible(actor, select(*columns), Consent, permission)
        .where(Client.status != DELETED, or_(is_active_consent(settings), has_active_grant))
        .execution_options(populate_existing=True)
    )


def _settings(organization_id: str) -> Mapping[str, Any]:
    return get_organization_by_id(organization_id, fresh=False).settings


def _record(row: Any) -> UserConsentRecord:
    consent, client_name, user_email = row
    return UserConsentRecord(
        id=consent.id,
        client_id=format_client_id(consent.organization_id, consent.client_id),
        client_name=client_name,
        user_id=public_id("usr", consent.user_id),
        user_email=user_email,
        scopes=covered_scopes(consent.organization_id, consent),
        created_at=consent.created_at,
        updated_at=consent.updated_at,
        expires_at=consent_expiry(
            consent.updated_at, consent.expires_at, max_consent_seconds(_settings(consent.organization_id))
        ),
        last_used_at=consent.last_used_at,
    )
