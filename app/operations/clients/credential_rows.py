"""Rows of client secrets: create them, convert them to records, revoke them and count their tokens."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from msgspec import Struct
from sqlalchemy import ColumnElement, Select, func, literal, or_, select, union_all, update

from app.extensions import db
from app.models.base import is_same
from app.models.client import Client, Credential, CredentialUse
from app.models.grant import Grant
from app.models.token import AccessToken
from app.operations.clients.client_records import ClientRecord
from app.operations.directory.snapshots import OrganizationSnapshot
from app.operations.grants import grants
from app.operations.grants.grants import grant_issued_after_cutoffs, token_issued_after_cutoffs
from app.operations.store import clock, keyring
from app.operations.store.rows import make_record
from app.operations.store.transactions import count_changed
from app.rules.actor import Actor
from app.rules.clients.credentials import (
    BLOCKED,
    LIVE,
    MANY_TOKENS,
    REVOKED,
    describe_credential_use,
    get_credential_status,
)
from app.rules.identifiers import (
    CLIENT_SECRET,
    HasPublicId,
    digest,
    format_client_id,
    hint,
    new_id,
    new_token,
)
from app.rules.versions import compute_version

REVEAL = "reveal"
MAX_IP_ADDRESSES = 20
MAX_NAMES_CHECKED = 50


class IpAddressUse(Struct, frozen=True):
    """An IP address that a secret was used from, and when it was last."""

    address: str
    last_used_at: datetime


class CredentialRecord(HasPublicId, Struct, frozen=True):
    """A secret without its value. ``live_tokens`` stops at 1,000. ``verdict`` says whether it can be revoked.

    ``previous_expires_at`` is the expiry before the rotation that retires it.
    """

    id_prefix = "sec"
    id: UUID
    client_id: str
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
    addresses: tuple[IpAddressUse, ...]
    live_tokens: int
    verdict: str
    revealable: bool
    is_retiring: bool
    retiring_since: datetime | None = None
    previous_expires_at: datetime | None = None
    takes_tokens: bool = False
    revoked_by: str | None = None

    @property
    def version(self) -> int:
        """A number that changes with the name, expiry or status. Uses do not change it."""
        return compute_version(self.id, self.name, self.status, self.expires_at, self.revoked_at)

    @property
    def is_blocked(self) -> bool:
        """Whether it is from before a restore of a backup and has to be confirmed."""
        return self.status == BLOCKED

    @property
    def is_live(self) -> bool:
        """Return whether it can authenticate the client now."""
        return self.status in LIVE


def add_credential(
    actor: Actor,
    client: Client,
    organization: OrganizationSnapshot,
    *,
    name: str | None,
    expires_at: datetime | None,
    is_first: bool = False,
) -> tuple[CredentialRecord, str]:
    """Add a secret to the client. Return its record and its value in clear. A secret without a name gets the month.

    Only a digest is stored, and a sealed copy if the organization lets secrets be viewed again. ``organization``
    comes from ``hold_organization``: a change to ``once`` waits for this transaction and then deletes the copy (SE-7).
    """
    credential_id = new_id()
    secret = new_token(CLIENT_SECRET, client.organization_id)
    now = clock.now()
    row = Credential(
        organization_id=client.organization_id,
        id=credential_id,
        client_id=client.id,
        name=name
        or _choose_name(() if is_first else list_credential_rows(client, limit=MAX_NAMES_CHECKED), now),
        digest=digest(secret),
        hint=hint(secret),
        sealed=_seal_secret(client, credential_id, secret)
        if can_reveal_secrets(organization.settings)
        else None,
        created_at=now,
        created_by=actor.author,
        expires_at=expires_at or _default_expiry(organization.settings, now),
    )
    db.session.add(row)
    db.session.flush()
    return _record(row, now, (), 0, organization), secret


def _choose_name(others: Iterable[Credential], now: datetime) -> str:
    """Return the month as a name, with a number if the name is taken."""
    base_name, taken = f"{now:%Y-%m}", {row.name for row in others}
    numbered = (base_name, *(f"{base_name}-{number}" for number in range(2, MAX_NAMES_CHECKED + 2)))
    return next(name for name in numbered if name not in taken)


def can_reveal_secrets(settings: Mapping[str, Any]) -> bool:
    """Return whether the organization lets secrets be viewed again."""
    return bool(settings["oauth"]["clients"]["secret_display"] == REVEAL)


def unseal_secret(client: Client, row: Credential) -> str:
    """Return the secret from its sealed copy.

    Raises sealing.UnsealError if the copy was moved from another row (SE-6).
    """
    if row.sealed is None:
        raise ValueError("there is no sealed copy")
    return keyring.unseal(client.organization_id, row.sealed, _sealing_context(client.id, row.id)).decode()


def select_credentials(client: Client | ClientRecord) -> Select[Credential]:
    """Return the statement for the client's secrets, revoked and expired ones included, as the database has them."""
    return select(Credential).where(_belongs_to(client)).execution_options(populate_existing=True)


def list_credential_rows(client: Client | ClientRecord, *, limit: int) -> list[Credential]:
    """List the client's newest secrets, revoked and expired ones included, newest first."""
    return list(db.session.scalars(select_credentials(client).order_by(Credential.id.desc()).limit(limit)))


def list_active_rows(client: Client | ClientRecord) -> list[Credential]:
    """List the secrets that can authenticate the client, newest first."""
    active = select_credentials(client).where(is_active_credential(client, clock.now()))
    return list(db.session.scalars(active.order_by(Credential.id.desc())))


def is_active_credential(client: Client | ClientRecord, now: datetime) -> Any:
    """Return the condition for the secrets that can authenticate the client."""
    return (
        _belongs_to(client)
        & Credential.revoked_at.is_(None)
        & (Credential.expires_at.is_(None) | (Credential.expires_at > now))
    )


def revoke_all_secrets(actor: Actor, client: Client) -> int:
    """Revoke every active secret of the client in the current transaction. Return how many."""
    now = clock.now()
    return count_changed(
        update(Credential)
        .where(is_active_credential(client, now))
        .values(revoked_at=now, revoked_by=actor.author, sealed=None)
    )


def log_token_revocation(credential: Credential) -> None:
    """Add the secret's tokens to the revocation log, for resource servers without database access."""
    grants.log_revocation(credential.organization_id, "credential", credential.id.bytes)


def to_credential_records(
    rows: Sequence[Credential], organization: OrganizationSnapshot
) -> list[CredentialRecord]:
    """Return the rows of the organization as records, with three queries in total."""
    now = clock.now()
    used, counted = _list_ip_addresses(rows, now), _count_active_tokens(rows, now)
    return [_record(row, now, used.get(row.id, ()), counted.get(row.id, 0), organization) for row in rows]


def _belongs_to(client: Client | ClientRecord) -> ColumnElement[bool]:
    return (Credential.organization_id == client.organization_id) & (Credential.client_id == client.id)


def _record(
    row: Credential,
    now: datetime,
    addresses: tuple[IpAddressUse, ...],
    live_tokens: int,
    organization: OrganizationSnapshot,
) -> CredentialRecord:
    status = get_credential_status(
        now,
        expires_at=row.expires_at,
        retiring_since=row.retiring_since,
        revoked_at=row.revoked_at,
        is_blocked=organization.blocks_secret(row.created_at, row.confirmed_at),
    )
    return make_record(
        CredentialRecord,
        row,
        client_id=format_client_id(row.organization_id, row.client_id),
        status=status,
        addresses=addresses,
        live_tokens=live_tokens,
        verdict=describe_credential_use(
            now,
            status=status,
            created_at=row.created_at,
            ended_at=row.revoked_at if status == REVOKED else row.expires_at,
            last_used_at=row.last_used_at,
            addresses=len(addresses),
            live_tokens=live_tokens,
        ),
        revealable=row.sealed is not None and status in LIVE and can_reveal_secrets(organization.settings),
        is_retiring=row.retiring_since is not None and status in LIVE,
    )


def _list_ip_addresses(rows: Sequence[Credential], now: datetime) -> dict[UUID, tuple[IpAddressUse, ...]]:
    """List the last addresses of each secret, so that those of a busy one do not hide the others'."""
    used = [row for row in rows if row.last_used_at is not None]
    if not used:
        return {}
    lists = []
    for row in used:
        last = (
            select(CredentialUse.credential_id, CredentialUse.address, CredentialUse.last_used_at)
            .where(
                CredentialUse.organization_id == row.organization_id,
                CredentialUse.credential_id == row.id,
                CredentialUse.expires_at > now,
            )
            .order_by(CredentialUse.last_used_at.desc())
            .limit(MAX_IP_ADDRESSES)
            .subquery()
        )
        lists.append(select(last))
    found: dict[UUID, list[IpAddressUse]] = {}
    for use in db.session.execute(union_all(*lists)):
        found.setdefault(use.credential_id, []).append(IpAddressUse(use.address, use.last_used_at))
    for uses in found.values():
        uses.sort(key=lambda use: use.last_used_at, reverse=True)
    return {row_id: tuple(uses) for row_id, uses in found.items()}


def active_tokens_of_client(organization_id: str, client_id: UUID, now: datetime) -> Select[UUID]:
    """Return a query for the ids of the client's active access tokens.

    It excludes those whose grant or secret is revoked.
    """
    return (
        select(AccessToken.id)
        .outerjoin(Grant, is_same(Grant.id, AccessToken.grant_id))
        .where(
            AccessToken.organization_id == organization_id,
            AccessToken.client_id == client_id,
            AccessToken.expires_at > now,
            AccessToken.revoked_at.is_(None),
            Grant.revoked_at.is_(None),
            token_issued_after_cutoffs(),
            or_(Grant.id.is_(None), grant_issued_after_cutoffs()),
        )
    )


def _count_active_tokens(rows: Sequence[Credential], now: datetime) -> dict[UUID, int]:
    """Count the active tokens per secret, up to a limit, so that a busy secret does not cost more."""
    issuing = [row for row in rows if row.tokens_revoked_at is None]
    if not issuing:
        return {}
    counts = []
    for position, row in enumerate(issuing):
        issued = active_tokens_of_client(row.organization_id, row.client_id, now).where(
            AccessToken.credential_id == row.id
        )
        active = issued.limit(MANY_TOKENS).subquery()
        counts.append(select(literal(position), func.count()).select_from(active))
    return {issuing[position].id: number for position, number in db.session.execute(union_all(*counts))}


def _default_expiry(settings: Mapping[str, Any], now: datetime) -> datetime | None:
    seconds = settings["oauth"]["clients"]["secret_ttl_seconds"]
    return None if seconds is None else now + timedelta(seconds=seconds)


def _seal_secret(client: Client, credential_id: UUID, secret: str) -> bytes:
    return keyring.seal(client.organization_id, secret.encode(), _sealing_context(client.id, credential_id))


def _sealing_context(client_id: UUID, credential_id: UUID) -> str:
    """Return the sealing context of a secret. The keyring adds the organization and key version."""
    return f"client-secret|{client_id.hex}|{credential_id.hex}"
