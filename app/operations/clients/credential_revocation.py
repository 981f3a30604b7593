"""Revoke client secrets, optionally with every token issued with them.

Grants that the secret redeemed are revoked in small batches afterwards. A message queued in the same
transaction as the secret's revocation lets the dispatcher finish this if the process dies in between.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from uuid import UUID

from msgspec import Struct
from sqlalchemy import select, update

from app.extensions import db
from app.models.base import has_key, is_same
from app.models.client import Client, Credential
from app.models.grant import Grant
from app.models.token import AccessToken
from app.operations.clients.client_permissions import require_client_within_permissions
from app.operations.clients.client_records import get_client_row, update_client_row
from app.operations.clients.credential_rows import (
    list_active_rows,
    log_token_revocation,
    to_credential_records,
)
from app.operations.directory.lookups import get_unpurged_organization
from app.operations.grants.revocation import revoke_matching_grants
from app.operations.sign_in.reauthentication import require_fresh_user_sign_in
from app.operations.store import audit, clock, outbox
from app.operations.store.outbox import DeliveryUnfinished, Message
from app.operations.store.rows import get_row
from app.operations.store.transactions import count_changed, transaction
from app.rules.actor import Actor
from app.rules.identifiers import format_client_id, parse_public_id, public_id
from app.rules.versions import ExpectedVersion, combine_versions, require_version

KIND = "grants_of_secret"
BATCH_SIZE = 200
_MAX_BATCHES = 5_000
# Keeps a delivery far below the lease time of a message.
_MAX_BATCHES_PER_DELIVERY = 20


class RevokedCredentials(Struct, frozen=True):
    """Numbers of revoked secrets and tokens. ``tokens`` stops at 1,000, which means "or more"."""

    credentials: int
    tokens: int


def revoke_credentials(
    actor: Actor,
    client_id: str,
    *,
    credential_id: str | None = None,
    revoke_tokens: bool = False,
    expected_version: ExpectedVersion = None,
) -> RevokedCredentials:
    """Revoke one secret of the client, or all active ones.

    ``revoke_tokens`` also revokes every token issued with them, and can be used for a secret that was revoked
    before. ``expected_version`` is that of the secret, or of the list of active secrets. Calling it again is
    harmless. Raises NotFound, Forbidden, PreconditionFailed, and FreshSignInRequired if no active secret would remain
    and the user signed in too long ago (PO-4). Audit: ``credential.revoked`` for each.
    """
    counts, flagged = revoke_credentials_in_transaction(
        actor,
        client_id,
        credential_id=credential_id,
        revoke_tokens=revoke_tokens,
        expected_version=expected_version,
    )
    revoke_grants_of_secrets(actor, flagged)
    return counts


def revoke_grants_of_secrets(actor: Actor, credential_ids: Iterable[UUID]) -> None:
    """Revoke the grants that were redeemed or refreshed with the secrets, in small batches with a transaction each.

    The secret's flag already invalidates the access tokens, and the grants that it redeemed. This also ends those that
    it only refreshed, as far as the rows of access tokens still tell.
    """
    for row_id in credential_ids:
        for _ in range(_MAX_BATCHES):
            if _revoke_grant_batch(actor, row_id) == 0:
                break


def register() -> None:
    """Register the outbox delivery that finishes an interrupted revocation."""
    outbox.register_delivery(KIND, deliver, receiver_type="credential")


def deliver(message: Message) -> None:
    """Revoke the remaining grants of the secret.

    Raises DeliveryUnfinished if more are left than one delivery revokes.
    """
    row_id = parse_public_id("sec", message.receiver)
    actor = Actor.system(message.organization_id, str(message.payload["by"]))
    for _ in range(_MAX_BATCHES_PER_DELIVERY):
        if row_id is None or _revoke_grant_batch(actor, row_id) == 0:
            return
    raise DeliveryUnfinished


@transaction
def revoke_credentials_in_transaction(
    actor: Actor,
    client_id: str,
    *,
    credential_id: str | None = None,
    revoke_tokens: bool = False,
    expected_version: ExpectedVersion = None,
) -> tuple[RevokedCredentials, list[UUID]]:
    """Revoke as ``revoke_credentials`` does, in one transaction.

    Also returns the secrets whose grants ``revoke_grants_of_secrets`` has to revoke next.
    """
    client = get_client_row(actor, client_id, "credentials:write")
    require_client_within_permissions(actor, client)
    rows = _rows(client, credential_id)
    # The version is raised first, because cached snapshots of the client contain its active secrets.
    update_client_row(client)
    records = to_credential_records(rows, get_unpurged_organization(actor.organization_id))
    current_version = (
        records[0].version if credential_id else combine_versions(each.version for each in records)
    )
    require_version(current_version, expected_version)
    require_fresh_sign_in_for_last_secrets(actor, client, {row.id for row in rows})
    revoked = [row for row in rows if _revoke(actor, row)]
    flagged = [row for row in rows if revoke_tokens and _mark_tokens_revoked(row)]
    for row in {row.id: row for row in (*revoked, *flagged)}.values():
        _record_event(actor, client, row, is_revoked=row in revoked, are_tokens_revoked=row in flagged)
    for row in flagged:
        # The caller usually revokes the grants before the message is delivered, which then does nothing.
        outbox.enqueue(row.organization_id, KIND, {"by": actor.label}, receiver=public_id("sec", row.id))
    tokens = sum(record.live_tokens for record in records) if flagged else 0
    return RevokedCredentials(len(revoked), tokens), [row.id for row in flagged]


def revoke_unused_secrets(actor: Actor, client: Client) -> None:
    """Revoke the active secrets of a client that no longer authenticates by secret, in the transaction that changes it.

    Their tokens stay valid. Audit: ``credential.revoked`` for each.
    """
    for row in list_active_rows(client):
        if _revoke(actor, row):
            _record_event(actor, client, row, is_revoked=True, are_tokens_revoked=False)


def require_fresh_sign_in_for_last_secrets(
    actor: Actor, client: Client, credential_ids: Collection[UUID]
) -> None:
    """Require a fresh sign-in of a user if these are all the secrets that work, and there are any (PO-4).

    A secret that a restore of a backup blocked does not work. Raises FreshSignInRequired.
    """
    organization = get_unpurged_organization(actor.organization_id)
    working = {
        record.id for record in to_credential_records(_rows(client, None), organization) if record.is_live
    }
    if working and working <= set(credential_ids):
        require_fresh_user_sign_in(actor)


def _rows(client: Client, credential_id: str | None) -> list[Credential]:
    if credential_id is None:
        return list_active_rows(client)
    key = has_key(Credential, client.organization_id, parse_public_id("sec", credential_id))
    statement = select(Credential).where(key, Credential.client_id == client.id)
    return [get_row(statement, "There is no such secret.")]


def _revoke(actor: Actor, row: Credential) -> bool:
    now = clock.now()
    changed = count_changed(
        update(Credential)
        .where(has_key(Credential, row.organization_id, row.id), Credential.revoked_at.is_(None))
        .values(revoked_at=now, revoked_by=actor.author, sealed=None)
    )
    return changed == 1


def _mark_tokens_revoked(row: Credential) -> bool:
    changed = count_changed(
        update(Credential)
        .where(has_key(Credential, row.organization_id, row.id), Credential.tokens_revoked_at.is_(None))
        .values(tokens_revoked_at=clock.now())
    )
    if changed == 1:
        log_token_revocation(row)
    return changed == 1


@transaction
def _revoke_grant_batch(actor: Actor, credential_id: UUID) -> int:
    """Revoke a batch of active grants that the secret redeemed or refreshed. Return how many."""
    active = (
        select(Grant.id)
        .join(AccessToken, is_same(AccessToken.grant_id, Grant.id))
        .where(
            Grant.organization_id == actor.organization_id,
            Grant.revoked_at.is_(None),
            AccessToken.client_id
            == select(Credential.client_id)
            .where(has_key(Credential, actor.organization_id, credential_id))
            .scalar_subquery(),
            AccessToken.credential_id == credential_id,
        )
        .distinct()
        .limit(BATCH_SIZE)
    )
    ids = list(db.session.scalars(active))
    return revoke_matching_grants(actor, Grant.id.in_(ids), reason="credential_revoked") if ids else 0


def _record_event(
    actor: Actor, client: Client, row: Credential, *, is_revoked: bool, are_tokens_revoked: bool
) -> None:
    audit.record(
        actor,
        "credential.revoked" if is_revoked else "credential.tokens_revoked",
        "credential",
        public_id("sec", row.id),
        after={
            "client_id": format_client_id(client.organization_id, client.id),
            "name": row.name,
            "tokens_revoked": are_tokens_revoked,
        },
    )
