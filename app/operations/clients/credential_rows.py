"""The rows of client secrets: made, shown as ledger entries, ended. Part of the operations on clients and secrets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import Select, func, literal, or_, select, union_all, update

from app.extensions import db
from app.models.client import Client
from app.models.credential import Credential, CredentialUse
from app.models.grant import Grant
from app.models.token import AccessToken
from app.operations.directory.lookups import get_organization_by_id, touch_organization
from app.operations.grants import grants
from app.operations.grants.grants import grant_issued_after_cutoffs, token_issued_after_cutoffs
from app.operations.store import clock, keyring
from app.operations.store.transactions import count_changed
from app.rules.actor import Actor
from app.rules.clients.credentials import LIVE, MANY_TOKENS, REVOKED, status_of, verdict
from app.rules.identifiers import new_id, public_id
from app.rules.token_values import CLIENT_SECRET, digest, hint, new_token
from app.rules.versions import compute_version

REVEAL = "reveal"
MOST_ADDRESSES = 20
MOST_NAMES_LOOKED_AT = 50


@dataclass(frozen=True, slots=True)
class AddressUse:
    """An address that a secret was used from, and when last."""

    address: str
    last_used_at: datetime


@dataclass(frozen=True, slots=True)
class CredentialRecord:
    """One entry of the ledger; ``live_tokens`` stops at 1,000, ``verdict`` says in words whether it can go."""

    id: UUID
    name: str
    hint: str
    status: str
    created_at: datetime
    created_by: str | None
    expires_at: datetime | None
    revoked_at: datetime | None
    first_used_at: datetime | None
    last_used_at: datetime | None
    last_used_address: str | None
    addresses: tuple[AddressUse, ...]
    live_tokens: int
    verdict: str
    revealable: bool
    is_retiring: bool
    retiring_since: datetime | None = None
    takes_tokens: bool = False
    revoked_by: str | None = None

    @property
    def version(self) -> int:
        """Another number once its name, end or status is another; uses are no change."""
        return compute_version(self.id, self.name, self.status, self.expires_at, self.revoked_at)

    @property
    def public_id(self) -> str:
        """``sec_…``."""
        return public_id("sec", self.id)

    @property
    def is_live(self) -> bool:
        """Whether it authenticates the client now."""
        return self.status in LIVE


def add_credential(
    actor: Actor,
    client: Client,
    settings: Mapping[str, Any],
    *,
    name: str | None,
    expires_at: datetime | None,
) -> tuple[CredentialRecord, str]:
    """A fresh secret of the client, with its value in clear; nothing but its digest and a sealed copy is stored."""
    credential_id = new_id()
    secret = new_token(CLIENT_SECRET, client.organization_id)
    now = clock.now()
    row = Credential(
        organization_id=client.organization_id,
        id=credential_id,
        client_id=client.id,
        name=name or _free_name(client, f"{now:%Y-%m}"),
        digest=digest(secret),
        hint=hint(secret),
        sealed=_sealed(client, credential_id, secret) if may_reveal(settings) else None,
        created_at=now,
        created_by=actor.label[:200] or None,
        expires_at=expires_at or _default_end(settings, now),
    )
    db.session.add(row)
    db.session.flush()
    if row.sealed is not None and not _may_still_reveal(client.organization_id):
        row.sealed = None
    return _record(row, now, (), 0, settings), secret  # new: nobody has used it


def _may_still_reveal(organization_id: str) -> bool:
    """What the organization says once its row is ours: a change to ``once`` that came before is seen, and one that
    comes later waits for this unit and then wipes its copy too (SE-7)."""
    touch_organization(organization_id)
    return may_reveal(get_organization_by_id(organization_id).settings)


def _free_name(client: Client, wanted: str) -> str:
    """The month, or when several secrets were made in it the month and a number."""
    taken = {row.name for row in rows_of(client, limit=MOST_NAMES_LOOKED_AT)}
    numbered = (wanted, *(f"{wanted}-{number}" for number in range(2, MOST_NAMES_LOOKED_AT + 2)))
    return next(name for name in numbered if name not in taken)


def may_reveal(settings: Mapping[str, Any]) -> bool:
    """Whether the organization lets secrets be viewed again."""
    return bool(settings["oauth"]["clients"]["secret_display"] == REVEAL)


def unseal(client: Client, row: Credential) -> str:
    """The secret of the sealed copy. Raises sealing.CannotOpen when the copy was moved from another row (SE-6)."""
    if row.sealed is None:
        raise ValueError("there is no sealed copy")
    return keyring.unseal(client.organization_id, row.sealed, _place(client.id, row.id)).decode()


def rows_of(client: Client, *, limit: int) -> list[Credential]:
    """The newest secrets of the client, ended ones included, newest first."""
    statement = (
        select(Credential)
        .where(Credential.organization_id == client.organization_id, Credential.client_id == client.id)
        .order_by(Credential.id.desc())
        .limit(limit)
    )
    return list(db.session.scalars(statement, execution_options={"populate_existing": True}))


def live_condition(client: Client, now: datetime) -> Any:
    """The secrets of the client that authenticate it."""
    return (
        (Credential.organization_id == client.organization_id)
        & (Credential.client_id == client.id)
        & Credential.revoked_at.is_(None)
        & (Credential.expires_at.is_(None) | (Credential.expires_at > now))
    )


def revoke_all_secrets(actor: Actor, client: Client) -> int:
    """No secret of the client works any more; returns how many did. Part of the transaction under way."""
    now = clock.now()
    return count_changed(
        update(Credential)
        .where(live_condition(client, now))
        .values(revoked_at=now, revoked_by=actor.label[:200] or None, sealed=None)
    )


def log_ended_tokens(credential: Credential) -> None:
    """Checkers without this database hear that the tokens of the secret are dead."""
    grants.log_revocation(credential.organization_id, "credential", credential.id.bytes)


def records_of(rows: Sequence[Credential], settings: Mapping[str, Any]) -> list[CredentialRecord]:
    """The rows as ledger entries, in three queries however many there are."""
    now = clock.now()
    used, counted = _addresses(rows, now), _live_tokens(rows, now)
    return [_record(row, now, used.get(row.id, ()), counted.get(row.id, 0), settings) for row in rows]


def _record(
    row: Credential,
    now: datetime,
    addresses: tuple[AddressUse, ...],
    live_tokens: int,
    settings: Mapping[str, Any],
) -> CredentialRecord:
    status = status_of(
        now, expires_at=row.expires_at, retiring_since=row.retiring_since, revoked_at=row.revoked_at
    )
    return CredentialRecord(
        id=row.id,
        name=row.name,
        hint=row.hint,
        status=status,
        created_at=row.created_at,
        created_by=row.created_by,
        expires_at=row.expires_at,
        revoked_at=row.revoked_at,
        first_used_at=row.first_used_at,
        last_used_at=row.last_used_at,
        last_used_address=row.last_used_address,
        addresses=addresses,
        live_tokens=live_tokens,
        verdict=verdict(
            now,
            status=status,
            created_at=row.created_at,
            ended_at=row.revoked_at if status == REVOKED else row.expires_at,
            last_used_at=row.last_used_at,
            addresses=len(addresses),
            live_tokens=live_tokens,
        ),
        revealable=row.sealed is not None and status in LIVE and may_reveal(settings),
        is_retiring=row.retiring_since is not None and status in LIVE,
        revoked_by=row.revoked_by,
        retiring_since=row.retiring_since,
        takes_tokens=row.takes_tokens,
    )


def _addresses(rows: Sequence[Credential], now: datetime) -> dict[UUID, tuple[AddressUse, ...]]:
    if not rows:
        return {}
    found: dict[UUID, tuple[AddressUse, ...]] = {}
    uses = db.session.execute(
        select(CredentialUse.credential_id, CredentialUse.address, CredentialUse.last_used_at)
        .where(
            CredentialUse.organization_id == rows[0].organization_id,
            CredentialUse.credential_id.in_([row.id for row in rows]),
            CredentialUse.expires_at > now,
        )
        .order_by(CredentialUse.last_used_at.desc())
        .limit(MOST_ADDRESSES * len(rows))
    )
    for use in uses:
        found[use.credential_id] = (
            *found.get(use.credential_id, ()),
            AddressUse(use.address, use.last_used_at),
        )[:MOST_ADDRESSES]
    return found


def living_tokens(organization_id: str, client_id: UUID, now: datetime) -> Select[UUID]:
    """The ids of the client's access tokens that neither ended themselves nor with their grant or secret."""
    return (
        select(AccessToken.id)
        .outerjoin(
            Grant,
            (Grant.organization_id == AccessToken.organization_id) & (Grant.id == AccessToken.grant_id),
        )
        .outerjoin(
            Credential,
            (Credential.organization_id == AccessToken.organization_id)
            & (Credential.id == AccessToken.credential_id),
        )
        .where(
            AccessToken.organization_id == organization_id,
            AccessToken.client_id == client_id,
            AccessToken.expires_at > now,
            AccessToken.revoked_at.is_(None),
            Grant.revoked_at.is_(None),
            Credential.tokens_revoked_at.is_(None),
            token_issued_after_cutoffs(),
            or_(Grant.id.is_(None), grant_issued_after_cutoffs()),
        )
    )


def _live_tokens(rows: Sequence[Credential], now: datetime) -> dict[UUID, int]:
    """Each count is cut off at its ceiling, so that a busy secret costs no more than a quiet one."""
    minting = [row for row in rows if row.tokens_revoked_at is None]
    if not minting:
        return {}
    counts = []
    for position, row in enumerate(minting):
        minted = living_tokens(row.organization_id, row.client_id, now).where(
            AccessToken.credential_id == row.id
        )
        living = minted.limit(MANY_TOKENS).subquery()
        counts.append(select(literal(position), func.count()).select_from(living))
    return {minting[position].id: number for position, number in db.session.execute(union_all(*counts))}


def _default_end(settings: Mapping[str, Any], now: datetime) -> datetime | None:
    seconds = settings["oauth"]["clients"]["secret_ttl_seconds"]
    return None if seconds is None else now + timedelta(seconds=seconds)


def _sealed(client: Client, credential_id: UUID, secret: str) -> bytes:
    return keyring.seal(client.organization_id, secret.encode(), _place(client.id, credential_id))


def _place(client_id: UUID, credential_id: UUID) -> str:
    """The organization and the key's version are added by the keyring."""
    return f"client-secret|{client_id.hex}|{credential_id.hex}"
