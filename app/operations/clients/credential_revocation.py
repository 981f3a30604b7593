"""Revoking client secrets, and if asked every token that was minted with them.

What refresh tokens hang from is ended in small batches after the secret. That this is left to do is written with the
secret's end, as a message: should the process die in between, a dispatcher finishes it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import select, update

from app.extensions import db
from app.models.client import Client
from app.models.credential import Credential
from app.models.grant import Grant
from app.models.token import AccessToken
from app.operations.clients.client_records import change_row, get_row, require_not_above, still_changing
from app.operations.clients.credential_rows import live_condition, log_ended_tokens, records_of
from app.operations.directory.lookups import get_unpurged_organization
from app.operations.grants.revocation import end_grants
from app.operations.store import audit, clock, outbox
from app.operations.store.outbox import DeliveryDeferred, Message
from app.operations.store.transactions import count_changed, transaction
from app.rules.actor import Actor
from app.rules.errors import NotFound, PreconditionFailed
from app.rules.identifiers import format_client_id, parse_public_id, public_id
from app.rules.versions import combine_versions

KIND = "grants_of_secret"
BATCH = 200
_MOST_RACES = 10
_MOST_BATCHES = 5_000
# A delivery stays far below the time that a message is leased for.
_MOST_OF_A_DELIVERY = 20


@dataclass(frozen=True, slots=True)
class RevokedCredentials:
    """How many secrets ended, and how many tokens with them; the latter stops at 1,000, then "or more"."""

    credentials: int
    tokens: int


def revoke_credentials(
    actor: Actor,
    client_id: str,
    *,
    credential_id: str | None = None,
    revoke_tokens: bool = False,
    expected_version: int | None = None,
) -> RevokedCredentials:
    """No live secret of the client works any more, or the one named does not.

    ``revoke_tokens`` ends every token that was minted with them, too, those of secrets revoked before included
    when one is named. ``expected_version`` is of the one named, or of the ledger. Repeating is harmless. Raises
    NotFound, Forbidden, PreconditionFailed. Audit: ``credential.revoked`` for each.
    """
    counts, flagged = revoke_at_once(
        actor,
        client_id,
        credential_id=credential_id,
        revoke_tokens=revoke_tokens,
        expected_version=expected_version,
    )
    end_grants_of(actor, flagged)
    return counts


def end_grants_of(actor: Actor, credential_ids: Iterable[UUID]) -> None:
    """What refresh tokens that the secrets minted hang from is revoked, in small batches, each its own unit.

    Their access tokens are dead by the flag on the secret.
    """
    for row_id in credential_ids:
        for _ in range(_MOST_BATCHES):
            if _end_grants_of(actor, row_id) == 0:
                break


def register() -> None:
    """The outbox finishes what a process that died has left."""
    outbox.register_delivery(KIND, finish, receiver_type="credential")


def finish(message: Message) -> None:
    """No grant of the secret lives. Raises NotNow when more are left than one delivery ends."""
    row_id = parse_public_id("sec", message.receiver)
    actor = Actor.system(message.organization_id, str(message.payload["by"]))
    for _ in range(_MOST_OF_A_DELIVERY):
        if row_id is None or _end_grants_of(actor, row_id) == 0:
            return
    raise DeliveryDeferred("more grants of the secret are left")


@transaction
def revoke_at_once(
    actor: Actor,
    client_id: str,
    *,
    credential_id: str | None = None,
    revoke_tokens: bool = False,
    expected_version: int | None = None,
) -> tuple[RevokedCredentials, list[UUID]]:
    """As ``revoke_credentials``, in one unit; returns also the secrets that ``end_grants_of`` is to follow."""
    for _ in range(_MOST_RACES):
        client = get_row(actor, client_id, "credentials:write")
        require_not_above(actor, client)
        rows = _rows(client, credential_id)
        # The version moves first: cached views of the client hold its live secrets.
        if not change_row(client, {}):
            continue
        settings = get_unpurged_organization(actor.organization_id).settings
        records = records_of(rows, settings)
        # They are live: of the ledger those alone count, which come, end and get ends.
        standing = records[0].version if credential_id else combine_versions(each.version for each in records)
        if expected_version not in {None, standing}:
            raise PreconditionFailed("The secrets were changed since you read them. Read them again.")
        ended = [row for row in rows if _end(actor, row)]
        flagged = [row for row in rows if revoke_tokens and _flag(row)]
        for row in {row.id: row for row in (*ended, *flagged)}.values():
            _record(actor, client, row, is_end=row in ended, is_flag=row in flagged)
        for row in flagged:
            _leave_to_do(actor, row)
        tokens = sum(record.live_tokens for record in records) if flagged else 0
        return RevokedCredentials(len(ended), tokens), [row.id for row in flagged]
    raise still_changing()


def _rows(client: Client, credential_id: str | None) -> list[Credential]:
    if credential_id is None:
        statement = select(Credential).where(live_condition(client, clock.now()))
        return list(db.session.scalars(statement, execution_options={"populate_existing": True}))
    row_id = parse_public_id("sec", credential_id)
    statement = select(Credential).where(
        Credential.organization_id == client.organization_id,
        Credential.client_id == client.id,
        Credential.id == row_id,
    )
    row = (
        None
        if row_id is None
        else db.session.scalar(statement, execution_options={"populate_existing": True})
    )
    if row is None:
        raise NotFound("There is no such secret.")
    return [row]


def _end(actor: Actor, row: Credential) -> bool:
    now = clock.now()
    changed = count_changed(
        update(Credential)
        .where(
            Credential.organization_id == row.organization_id,
            Credential.id == row.id,
            Credential.revoked_at.is_(None),
        )
        .values(revoked_at=now, revoked_by=actor.label[:200] or None, sealed=None)
    )
    return changed == 1


def _leave_to_do(actor: Actor, row: Credential) -> None:
    # Usually it is done before anybody takes the message, which then costs one look.
    outbox.enqueue(row.organization_id, KIND, {"by": actor.label}, receiver=public_id("sec", row.id))


def _flag(row: Credential) -> bool:
    changed = count_changed(
        update(Credential)
        .where(
            Credential.organization_id == row.organization_id,
            Credential.id == row.id,
            Credential.tokens_revoked_at.is_(None),
        )
        .values(tokens_revoked_at=clock.now())
    )
    if changed == 1:
        log_ended_tokens(row)
    return changed == 1


@transaction
def _end_grants_of(actor: Actor, credential_id: UUID) -> int:
    """A batch of living grants that the secret has redeemed or refreshed is revoked; returns how many."""
    living = (
        select(Grant.id)
        .join(
            AccessToken,
            (AccessToken.organization_id == Grant.organization_id) & (AccessToken.grant_id == Grant.id),
        )
        .where(
            Grant.organization_id == actor.organization_id,
            Grant.revoked_at.is_(None),
            AccessToken.client_id
            == select(Credential.client_id)
            .where(Credential.organization_id == actor.organization_id, Credential.id == credential_id)
            .scalar_subquery(),
            AccessToken.credential_id == credential_id,
        )
        .distinct()
        .limit(BATCH)
    )
    ids = list(db.session.scalars(living))
    return end_grants(actor, Grant.id.in_(ids), reason="credential_revoked") if ids else 0


def _record(actor: Actor, client: Client, row: Credential, *, is_end: bool, is_flag: bool) -> None:
    audit.record(
        actor,
        "credential.revoked" if is_end else "credential.tokens_revoked",
        target_type="credential",
        target_id=public_id("sec", row.id),
        after={
            "client_id": format_client_id(client.organization_id, client.id),
            "name": row.name,
            "tokens_revoked": is_flag,
        },
    )
