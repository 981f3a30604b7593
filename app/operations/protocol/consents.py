"""Consents: what users allowed clients, remembered until withdrawn."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from uuid import UUID

from sqlalchemy import ColumnElement, bindparam, exists, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from app.extensions import db
from app.models.client import DELETED, Client
from app.models.device import DeviceCode
from app.models.grant import AuthorizationCode, Consent, Grant
from app.operations import audit, clock
from app.operations.database_errors import is_duplicate_key
from app.operations.directory import ClientView
from app.operations.protocol import grants
from app.operations.statements import Statement
from app.operations.transaction import read, transaction
from app.rules.actor import Actor
from app.rules.errors import NotFound
from app.rules.identifiers import client_id_of, new_id, public_id
from app.rules.protocol.scopes import narrow

MOST_LISTED = 200


@dataclass(frozen=True, slots=True)
class ConsentRecord:
    """One connected app of a user. ``id`` is the consent's, or the client's when it has grants without one."""

    id: UUID
    client_id: str
    client_name: str
    client_type: str
    trust: str
    scopes: tuple[str, ...]
    created_at: datetime
    updated_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None

    @property
    def public_id(self) -> str:
        """``con_…``."""
        return public_id("con", self.id)


_STANDING = Statement(
    select(Consent.scope, Consent.expires_at).where(
        Consent.organization_id == bindparam("organization_id"),
        Consent.user_id == bindparam("user_id"),
        Consent.client_id == bindparam("client_id"),
    )
)


def allowed_scopes(client: ClientView, user_id: UUID) -> tuple[str, ...]:
    """The scopes that the user's standing consent covers; none when there is no consent or it has ended."""
    row = _STANDING.first(organization_id=client.organization.id, user_id=user_id, client_id=client.id)
    if row is None or (row.expires_at is not None and row.expires_at <= clock.now()):
        return ()
    return tuple(row.scope.split())


def remember(actor: Actor, client: ClientView, user_id: UUID, scopes: tuple[str, ...]) -> None:
    """The user's consent covers the scopes too; part of the transaction under way. Audit: ``consent.given``."""
    before = _widen(client, user_id, scopes)
    if before is None:
        try:
            with db.session.begin_nested():
                _insert(client, user_id, scopes)
            before = ()
        except IntegrityError as error:
            if not is_duplicate_key(error):
                raise
            # Another tab was faster; what it allowed stands, and this is allowed beside it.
            before = _widen(client, user_id, scopes) or ()
    audit.record(
        actor,
        "consent.given",
        target_type="client",
        target_id=client.client_id,
        before={"scopes": list(before)},
        after={"scopes": _together(client, before, scopes).split()},
    )


def _widen(client: ClientView, user_id: UUID, scopes: tuple[str, ...]) -> tuple[str, ...] | None:
    """The consent that stands covers the scopes too; what it covered before, or None when there is none."""
    now = clock.now()
    own = (
        Consent.organization_id == client.organization.id,
        Consent.user_id == user_id,
        Consent.client_id == client.id,
    )
    row = db.session.execute(select(Consent.scope, Consent.expires_at).where(*own).with_for_update()).first()
    if row is None:
        return None
    before = () if row.expires_at is not None and row.expires_at <= now else tuple(row.scope.split())
    db.session.execute(
        update(Consent)
        .where(*own)
        .values(
            scope=_together(client, before, scopes),
            updated_at=now,
            expires_at=_end(client, now),
            last_used_at=now,
        )
        .execution_options(synchronize_session=False)
    )
    return before


def _insert(client: ClientView, user_id: UUID, scopes: tuple[str, ...]) -> None:
    now = clock.now()
    db.session.execute(
        insert(Consent).values(
            organization_id=client.organization.id,
            id=new_id(),
            user_id=user_id,
            client_id=client.id,
            scope=" ".join(scopes),
            created_at=now,
            updated_at=now,
            expires_at=_end(client, now),
            last_used_at=now,
        )
    )


def _end(client: ClientView, now: datetime) -> datetime | None:
    ttl = client.organization.settings["oauth"]["consent"]["ttl_seconds"]
    return None if ttl is None else now + timedelta(seconds=ttl)


def _together(client: ClientView, before: tuple[str, ...], scopes: tuple[str, ...]) -> str:
    # What the client may no longer ask for is forgotten: the list stays within what a client can hold.
    return " ".join(dict.fromkeys((*narrow(before, client.document["scopes"]), *scopes)))


@read
def list_consents(actor: Actor) -> list[ConsentRecord]:
    """The apps that may act for the user: those allowed, the newest first, then those trusted without asking.

    Each client stands there once. One that was never asked for, a first party's, is known by its living grants.
    """
    rows = db.session.execute(
        select(
            Consent.__table__,
            Client.name,
            Client.type,
            Client.trust,
        )
        .join(Client, (Client.organization_id == Consent.organization_id) & (Client.id == Consent.client_id))
        .where(
            Consent.organization_id == actor.organization_id,
            Consent.user_id == actor.user_id,
            Client.status != DELETED,
        )
        .order_by(Consent.id.desc())
        .limit(MOST_LISTED)
    )
    consented = [
        ConsentRecord(
            id=row.id,
            client_id=client_id_of(actor.organization_id, row.client_id),
            client_name=row.name,
            client_type=row.type,
            trust=row.trust,
            scopes=tuple(row.scope.split()),
            created_at=row.created_at,
            updated_at=row.updated_at,
            expires_at=row.expires_at,
            last_used_at=row.last_used_at,
        )
        for row in rows
    ]
    return consented + _trusted(actor)


def _trusted(actor: Actor) -> list[ConsentRecord]:
    consented = exists().where(
        Consent.organization_id == Grant.organization_id,
        Consent.user_id == Grant.user_id,
        Consent.client_id == Grant.client_id,
    )
    rows = db.session.execute(
        select(
            Grant.client_id,
            Client.name,
            Client.type,
            Client.trust,
            Grant.scope,
            func.min(Grant.created_at).label("created_at"),
            func.max(Grant.created_at).label("updated_at"),
            func.max(Grant.rotated_at).label("rotated_at"),
            func.max(Grant.expires_at).label("expires_at"),
        )
        .join(Client, (Client.organization_id == Grant.organization_id) & (Client.id == Grant.client_id))
        .where(*_living(actor), Client.status != DELETED, ~consented)
        .group_by(Grant.client_id, Client.name, Client.type, Client.trust, Grant.scope)
        .order_by(Client.name, Grant.client_id)
        .limit(MOST_LISTED)
    ).all()
    records = []
    for client_id, group in groupby(rows, lambda row: row.client_id):
        parts = list(group)
        records.append(
            ConsentRecord(
                id=client_id,
                client_id=client_id_of(actor.organization_id, client_id),
                client_name=parts[0].name,
                client_type=parts[0].type,
                trust=parts[0].trust,
                scopes=tuple(dict.fromkeys(scope for part in parts for scope in part.scope.split())),
                created_at=min(part.created_at for part in parts),
                updated_at=max(part.updated_at for part in parts),
                expires_at=max(part.expires_at for part in parts),
                last_used_at=max(part.rotated_at or part.updated_at for part in parts),
            )
        )
    return records


def _living(actor: Actor) -> tuple[ColumnElement[bool], ...]:
    return (
        Grant.organization_id == actor.organization_id,
        Grant.user_id == actor.user_id,
        Grant.revoked_at.is_(None),
        Grant.expires_at > clock.now(),
    )


@transaction
def withdraw_consent(actor: Actor, consent_id: UUID) -> int:
    """The app may do nothing more for the acting user: consent, grants, codes and tokens end now (CO-3).

    ``consent_id`` is the ``id`` of a record of ``list_consents``: the consent's, or the client's where there is
    none. Returns how many grants ended. Raises NotFound. Audit: ``consent.withdrawn``.
    """
    now = clock.now()
    consent = db.session.scalar(
        select(Consent).where(
            Consent.organization_id == actor.organization_id,
            Consent.id == consent_id,
            Consent.user_id == actor.user_id,
        )
    )
    client_id = consent_id if consent is None else consent.client_id
    living = db.session.execute(
        select(Grant.id, Grant.scope).where(*_living(actor), Grant.client_id == client_id)
    ).all()
    if consent is None and not living:
        raise NotFound("There is no such connected app.")
    for model in (AuthorizationCode, DeviceCode):
        db.session.execute(
            update(model)
            .where(
                model.organization_id == actor.organization_id,
                model.client_id == client_id,
                model.user_id == actor.user_id,
                model.used_at.is_(None),
            )
            .values(expires_at=now)
        )
    ended = sum(grants.revoke(actor, grant.id, reason="consent_withdrawn") for grant in living)
    scopes = dict.fromkeys(scope for grant in living for scope in grant.scope.split())
    if consent is not None:
        scopes = dict.fromkeys(consent.scope.split())
        db.session.delete(consent)
    audit.record(
        actor,
        "consent.withdrawn",
        target_type="client",
        target_id=client_id_of(actor.organization_id, client_id),
        before={"scopes": list(scopes)},
        after={"ended_grants": ended},
    )
    return ended
