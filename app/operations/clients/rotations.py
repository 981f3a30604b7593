"""Secret rotations in progress: show, update and cancel them, and remind administrators of expiring secrets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from msgspec import Struct
from sqlalchemy import literal, select, true, tuple_, update

from app.database import ACROSS
from app.extensions import db
from app.models.base import has_key, is_same
from app.models.client import ACTIVE, Client, Credential
from app.operations.clients.client_permissions import require_client_within_permissions
from app.operations.clients.client_records import get_client_row, update_client_row
from app.operations.clients.credential_revocation import (
    require_fresh_sign_in_for_last_secrets,
    revoke_credentials,
)
from app.operations.clients.credential_rows import (
    CredentialRecord,
    list_active_rows,
    to_credential_records,
)
from app.operations.clients.credentials import restore_retiring_secrets
from app.operations.directory.lookups import get_organization_by_id, is_served_here
from app.operations.mail import emails
from app.operations.mail.notices import notify_administrators
from app.operations.store import audit, clock
from app.operations.store.containment import contained
from app.operations.store.transactions import count_changed, read, transaction
from app.rules.actor import Actor
from app.rules.clients.credentials import (
    MAX_REMINDER_LEAD,
    NewRotation,
    SecretUse,
    assess_rotation,
    is_reminder_due,
    validate_rotation_terms,
)
from app.rules.errors import Conflict, NotFound, OrganizationMoving
from app.rules.identifiers import format_client_id, public_id

BATCH_SIZE = 200
_Position = tuple[datetime, str, UUID]
_POSITION_TYPES = (Credential.expires_at.type, Credential.organization_id.type, Credential.id.type)


class _RemindLater(Exception):
    """The organization's administrators got as many reminders as they may in an hour."""


class Rotation(Struct, frozen=True):
    """A rotation in progress. Without ``old`` secrets there is none, and everything else is empty.

    ``new`` is the newest active secret that is not retiring. ``is_safe`` says whether the old ones can be
    revoked now, and ``verdict`` explains why.
    """

    old: tuple[CredentialRecord, ...]
    new: CredentialRecord | None
    started_at: datetime | None
    ends_at: datetime | None
    is_safe: bool
    verdict: str | None

    @property
    def is_under_way(self) -> bool:
        """Return whether a rotation retires at least one secret."""
        return bool(self.old)


@read
def get_rotation(actor: Actor, client_id: str) -> Rotation:
    """Return the client's rotation. Raises NotFound, Forbidden."""
    return load_rotation(get_client_row(actor, client_id, "credentials:read"))


def update_rotation(actor: Actor, client_id: str, fields: Mapping[str, Any]) -> Rotation:
    """Change when the old secrets expire, and whether their tokens expire with them.

    Omitted fields are unchanged, and ``expires_in_seconds`` 0 revokes the old secrets now. None is valid longer than it
    would be without the rotation. Raises InvalidInput naming every wrong field, Conflict if no rotation is in progress,
    NotFound, Forbidden, and FreshSignInRequired for another expiry of the client's last secrets if the user signed in
    too long ago (PO-4). Audit: ``credential.retired`` for each that changes, ``credential.revoked`` for each that is
    revoked.
    """
    terms = validate_rotation_terms(fields)
    rotation = _update_terms(actor, client_id, terms)
    if terms.expires_in_seconds != 0:
        return rotation
    for record in rotation.old:
        revoke_credentials(
            actor, client_id, credential_id=record.public_id, revoke_tokens=record.takes_tokens
        )
    return get_rotation(actor, client_id)


@transaction
def cancel_rotation(actor: Actor, client_id: str, *, revoke_new: bool = False) -> list[CredentialRecord]:
    """Restore the previous expiry of the old secrets. With ``revoke_new`` also revoke the new secret.

    Returns the active secrets. Raises Conflict if no rotation is in progress, NotFound, Forbidden. Audit:
    ``credential.kept`` for each old one, ``credential.revoked`` for the new one.
    """
    new = _require_in_progress(load_rotation(get_client_row(actor, client_id, "credentials:write"))).new
    active = restore_retiring_secrets(actor, client_id)
    if not revoke_new or new is None:
        return active
    revoke_credentials(actor, client_id, credential_id=new.public_id)
    return [record for record in active if record.id != new.id]


@read
def load_rotation(client: Client) -> Rotation:
    """Return the rotation of a client whose row the caller can see."""
    organization = get_organization_by_id(client.organization_id)
    live = [
        record for record in to_credential_records(list_active_rows(client), organization) if record.is_live
    ]
    old = tuple(record for record in live if record.is_retiring)
    if not old:
        return Rotation((), None, None, None, False, None)
    started = max(record.retiring_since for record in old if record.retiring_since is not None)
    new = _find_new_secret(live, started)
    verdict = assess_rotation(
        clock.now(),
        new=None if new is None else _to_secret_use(new),
        old=[_to_secret_use(record) for record in old],
    )
    return Rotation(
        old=old,
        new=new,
        started_at=started,
        ends_at=min(record.expires_at for record in old if record.expires_at is not None),
        is_safe=verdict.is_safe,
        verdict=verdict.words,
    )


def send_expiry_reminders(actor: Actor, batch: int = BATCH_SIZE) -> Iterator[int]:
    """Send reminders for secrets that expire soon and are still in use. Yield 1 for each reminder sent, or 0.

    ``actor`` is the janitor. Each secret gets one reminder per expiry. It stays due while none can be sent: without
    a mail server, and once the administrators got as many as they may in an hour.
    """
    if not emails.is_possible():
        return
    after: _Position | None = None
    waiting: set[str] = set()
    while True:
        due, after = _load_due_secrets(batch, after)
        for organization_id, credential_id in due:
            is_sent = False
            if organization_id not in waiting:
                with contained("the reminder of an expiring secret", organization_id):
                    try:
                        is_sent = _send_reminder(Actor.system(organization_id, actor.label), credential_id)
                    except _RemindLater:
                        waiting.add(organization_id)
            yield int(is_sent)
        if after is None:
            return


def _find_new_secret(live: Sequence[CredentialRecord], started: datetime) -> CredentialRecord | None:
    made_since = [record for record in live if not record.is_retiring and record.created_at >= started]
    return made_since[0] if made_since else None


def _to_secret_use(record: CredentialRecord) -> SecretUse:
    return SecretUse(record.first_used_at, record.last_used_at, len(record.addresses))


@transaction
def _update_terms(actor: Actor, client_id: str, terms: NewRotation) -> Rotation:
    """Apply the new terms. The caller revokes secrets that end immediately."""
    client = get_client_row(actor, client_id, "credentials:write")
    require_client_within_permissions(actor, client)
    rotation = _require_in_progress(load_rotation(client))
    update_client_row(client)
    if terms.expires_in_seconds is not None:
        require_fresh_sign_in_for_last_secrets(actor, client, [record.id for record in rotation.old])
    for record in rotation.old:
        _update_secret(actor, client, record, terms)
    return load_rotation(client)


def _update_secret(actor: Actor, client: Client, record: CredentialRecord, terms: NewRotation) -> None:
    expires_at = record.expires_at
    if terms.expires_in_seconds:
        expires_at = clock.now() + timedelta(seconds=terms.expires_in_seconds)
        if record.previous_expires_at is not None:
            # Otherwise a secret could be kept for longer than the organization allows.
            expires_at = min(expires_at, record.previous_expires_at)
    takes = record.takes_tokens if terms.revoke_tokens is None else terms.revoke_tokens
    if (expires_at, takes) == (record.expires_at, record.takes_tokens):
        return
    changed = count_changed(
        update(Credential)
        .where(has_key(Credential, client.organization_id, record.id), Credential.revoked_at.is_(None))
        .values(expires_at=expires_at, takes_tokens=takes, notified_at=None)
    )
    if changed:
        audit.record(
            actor,
            "credential.retired",
            "credential",
            record.public_id,
            before=_audit_values(record.expires_at, record.takes_tokens),
            after={
                "client_id": format_client_id(client.organization_id, client.id),
                **_audit_values(expires_at, takes),
            },
        )


def _audit_values(ends: datetime | None, takes_tokens: bool) -> dict[str, Any]:
    return {"expires_at": ends.isoformat() if ends else None, "revokes_tokens": takes_tokens}


def _require_in_progress(rotation: Rotation) -> Rotation:
    if not rotation.is_under_way:
        raise Conflict("No rotation is in progress.", code="no_rotation")
    return rotation


@read
def _load_due_secrets(batch: int, after: _Position | None) -> tuple[list[tuple[str, UUID]], _Position | None]:
    """Return the due secrets of a page, and the position of the next page."""
    now = clock.now()
    position = tuple_(Credential.expires_at, Credential.organization_id, Credential.id)
    begin = true() if after is None else position > tuple_(*map(literal, after, _POSITION_TYPES))
    rows = db.session.execute(
        select(
            Credential.organization_id,
            Credential.id,
            Credential.created_at,
            Credential.retiring_since,
            Credential.expires_at,
            Credential.last_used_at,
        )
        .where(
            Credential.expires_at > now,
            Credential.expires_at < now + MAX_REMINDER_LEAD,
            Credential.revoked_at.is_(None),
            Credential.notified_at.is_(None),
            Credential.last_used_at > now - MAX_REMINDER_LEAD,
            is_served_here(Credential.organization_id),
            begin,
        )
        .order_by(Credential.expires_at, Credential.organization_id, Credential.id)
        .limit(batch)
        .execution_options(**ACROSS)
    ).all()
    due = [
        (row.organization_id, row.id)
        for row in rows
        if is_reminder_due(
            now,
            began_at=row.retiring_since or row.created_at,
            ends_at=row.expires_at,
            last_used_at=row.last_used_at,
        )
    ]
    last = rows[-1] if len(rows) == batch else None
    return due, None if last is None else (last.expires_at, last.organization_id, last.id)


@transaction
def _send_reminder(actor: Actor, credential_id: UUID) -> bool:
    """Send the reminder, unless another janitor has. It is still due once a client that can't be used can be again.

    Raises _RemindLater.
    """
    organization_id = actor.organization_id
    try:
        organization = get_organization_by_id(organization_id)
    except (NotFound, OrganizationMoving):
        return False
    is_due = (
        has_key(Credential, organization_id, credential_id),
        Credential.notified_at.is_(None),
        Credential.revoked_at.is_(None),
        Credential.expires_at > clock.now(),
    )
    row = db.session.execute(
        select(
            Credential.name,
            Credential.expires_at,
            Credential.last_used_at,
            Client.name.label("client"),
            Client.id,
        )
        .join(Client, is_same(Client.id, Credential.client_id))
        .where(*is_due, Client.status == ACTIVE)
    ).first()
    if row is None or not organization.is_active:
        return False
    claim = update(Credential).where(*is_due, Credential.expires_at == row.expires_at)
    if count_changed(claim.values(notified_at=clock.now())) != 1:
        return False
    client_id = format_client_id(organization_id, row.id)
    email_fields = {
        "client": row.client,
        "secret": row.name,
        "ends": row.expires_at.isoformat(),
        "used": row.last_used_at.isoformat(),
        "link": f"{organization.base_url}/portal/{organization.slug}/clients/{client_id}/credentials",
    }
    # A new expiry gets a reminder of its own.
    subject = f"{public_id('sec', credential_id)} {email_fields['ends']}"
    if not notify_administrators(actor, "secret_ends", subject, email_fields):
        raise _RemindLater
    return True
