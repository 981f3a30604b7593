"""Client secrets: list, create, rotate and view them.

Digests verify a secret, and sealed copies let it be viewed again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from msgspec import Struct
from sqlalchemy import select, update

from app.extensions import db
from app.models.base import has_key
from app.models.client import ACTIVE, Client, Credential
from app.operations.clients.client_permissions import require_client_within_permissions
from app.operations.clients.client_records import (
    ClientRecord,
    get_client_row,
    to_client_metadata,
    update_client_row,
)
from app.operations.clients.credential_rows import (
    CredentialRecord,
    add_credential,
    can_reveal_secrets,
    is_active_credential,
    list_active_rows,
    list_credential_rows,
    select_credentials,
    to_credential_records,
    unseal_secret,
)
from app.operations.directory.lookups import get_organization_by_id, hold_organization
from app.operations.directory.snapshots import OrganizationSnapshot
from app.operations.mail.notices import notify_administrators
from app.operations.sign_in.reauthentication import require_fresh_sign_in, require_fresh_user_sign_in
from app.operations.store import audit, clock
from app.operations.store.rate_limits import Limit, bucket_key, record_attempt, withdraw_attempts
from app.operations.store.rows import Page, PageRequest, count_where, get_row, read_page
from app.operations.store.transactions import count_changed, read, transaction
from app.rules.actor import Actor
from app.rules.clients.credentials import validate_rotation_terms, validate_secret_terms
from app.rules.errors import Conflict, DomainError, NotFound, TooManyRequests
from app.rules.identifiers import format_client_id, parse_public_id, public_id
from app.rules.languages.translation import lazy_gettext
from app.rules.sealing import UnsealError
from app.rules.sign_in.passwords import Lockout
from app.rules.versions import combine_versions

MAX_REVEALS_PER_HOUR = 10
_REVEALED = "credential.revealed"
_HOUR = timedelta(hours=1)
_REVEAL_LIMIT = Lockout(MAX_REVEALS_PER_HOUR, _HOUR, _HOUR, _HOUR)
MAX_LISTED = 50


class NotRevealable(Conflict):
    """The secret cannot be viewed: the organization shows secrets once, or the secret is no longer active."""

    code = "not_revealable"


class NewCredential(Struct, frozen=True):
    """A new secret in clear. ``retired`` are the previous secrets that now expire."""

    credential: CredentialRecord
    secret: str
    retired: tuple[CredentialRecord, ...]


@read
def list_credentials(
    actor: Actor, client_id: str, page_request: PageRequest = PageRequest()
) -> Page[CredentialRecord]:
    """List the client's secrets, newest first, revoked and expired ones included. Never in clear.

    Raises NotFound, Forbidden.
    """
    client = get_client_row(actor, client_id, "credentials:read")
    page = read_page(select_credentials(client), (Credential.id,), page_request)
    return Page(tuple(to_credential_records(page.items, _organization(actor))), page.next_cursor_key)


@read
def get_credentials_version(actor: Actor, client_id: str) -> int:
    """Return the version of the client's active secrets together. Raises NotFound, Forbidden."""
    client = get_client_row(actor, client_id, "credentials:read")
    active = to_credential_records(list_active_rows(client), _organization(actor))
    return combine_versions(record.version for record in active)


def list_credentials_of(actor: Actor, client: Client | ClientRecord) -> list[CredentialRecord]:
    """List the client's active secrets and its newest 50, newest first, without checking permissions."""
    rows = list_credential_rows(client, limit=MAX_LISTED)
    if len(rows) == MAX_LISTED:
        oldest = rows[-1].id.bytes
        rows += (row for row in list_active_rows(client) if row.id.bytes < oldest)
    return to_credential_records(rows, get_organization_by_id(actor.organization_id, fresh=False))


@read
def get_credential(actor: Actor, client_id: str, credential_id: str) -> CredentialRecord:
    """Return one secret without its value. Raises NotFound, Forbidden."""
    client = get_client_row(actor, client_id, "credentials:read")
    key = has_key(Credential, client.organization_id, parse_public_id("sec", credential_id))
    statement = select(Credential).where(key, Credential.client_id == client.id)
    row = get_row(statement, "There is no such secret.")
    return to_credential_records([row], _organization(actor))[0]


@transaction
def create_credential(
    actor: Actor, client_id: str, fields: Mapping[str, Any] | None = None, *, revoke_tokens: bool = False
) -> NewCredential:
    """Create another secret. With ``retire_others_in_seconds`` the existing ones expire then, if not earlier.

    ``fields``: ``name``, ``expires_at``, ``retire_others_in_seconds``. With ``revoke_tokens`` the tokens issued with
    the existing secrets expire together with them. Raises InvalidInput naming every wrong field, Conflict if the client
    uses no secret, is disabled or has as many active secrets as the organization allows, NotFound, Forbidden, and
    FreshSignInRequired if the user signed in too long ago. Audit: ``credential.created``, ``credential.retired`` for
    each that now expires.
    """
    client = get_client_row(actor, client_id, "credentials:write")
    require_client_within_permissions(actor, client)
    # The new secret can replace all existing ones, so a recent sign-in of the user is required (PO-4).
    require_fresh_user_sign_in(actor)
    organization = hold_organization(actor.organization_id)
    rules = organization.settings["oauth"]["clients"]
    now = clock.now()
    sent = fields or {}
    ends = validate_secret_terms(now, sent, max_seconds=rules["secret_ttl_seconds"])
    _require_uses_secret(client)
    # The version is raised first: of two callers that count the same active secrets, one has to count again.
    update_client_row(client)
    _enforce_secret_limit(client, now, rules["max_secrets"])
    seconds = sent.get("retire_others_in_seconds")
    retired = [] if seconds is None else _retire(actor, client, now, seconds, revoke_tokens)
    credential, secret = add_credential(actor, client, organization, name=sent.get("name"), expires_at=ends)
    _record_event(actor, "credential.created", credential.id, client, after=_audit_values(credential))
    return NewCredential(credential, secret, tuple(to_credential_records(retired, organization)))


@transaction
def confirm_credential(actor: Actor, client_id: str, credential_id: str) -> CredentialRecord:
    """Let a secret that a restore of a backup blocked work again; confirming any other changes nothing.

    Raises NotFound, Forbidden, and FreshSignInRequired if the user signed in too long ago. Audit:
    ``credential.confirmed``.
    """
    client = get_client_row(actor, client_id, "credentials:write")
    require_client_within_permissions(actor, client)
    require_fresh_user_sign_in(actor)
    before = get_credential(actor, client_id, credential_id)
    if not before.is_blocked:
        return before
    update_client_row(client)
    count_changed(
        update(Credential)
        .where(has_key(Credential, client.organization_id, before.id))
        .values(confirmed_at=clock.now())
    )
    db.session.expire_all()
    record = get_credential(actor, client_id, credential_id)
    _record_event(actor, "credential.confirmed", record.id, client, after=_audit_values(record))
    return record


@transaction
def rotate_credential(actor: Actor, client_id: str, fields: Mapping[str, Any] | None = None) -> NewCredential:
    """Create a new secret. The existing ones expire after ``expires_in_seconds``, or the organization's overlap.

    With ``revoke_tokens`` the tokens issued with them expire together with them. Raises InvalidInput, and as
    ``create_credential``.
    """
    terms = validate_rotation_terms(fields or {})
    overlap = _organization(actor).settings["oauth"]["clients"]["rotation_overlap_seconds"]
    seconds = overlap if terms.expires_in_seconds is None else terms.expires_in_seconds
    return create_credential(
        actor, client_id, {"retire_others_in_seconds": seconds}, revoke_tokens=bool(terms.revoke_tokens)
    )


@transaction
def restore_retiring_secrets(actor: Actor, client_id: str) -> list[CredentialRecord]:
    """Give the secrets that a rotation retires their previous expiry again. The new secret remains.

    Raises Conflict if no rotation is in progress, NotFound, Forbidden. Audit: ``credential.kept`` for each.
    """
    client = get_client_row(actor, client_id, "credentials:write")
    require_client_within_permissions(actor, client)
    retiring = [row for row in list_active_rows(client) if row.retiring_since is not None]
    if not retiring:
        raise Conflict("No rotation is in progress.", code="no_rotation")
    update_client_row(client)
    for row in retiring:
        _set_expiry(row, row.previous_expires_at, retiring_since=None, previous=None)
        _record_event(actor, "credential.kept", row.id, client)
    return to_credential_records(list_active_rows(client), _organization(actor))


def reveal_credential(actor: Actor, client_id: str, credential_id: str) -> str:
    """Return the secret in clear.

    Raises NotFound, Forbidden, NotRevealable, TooManyRequests, and from the portal FreshSignInRequired.
    Audit: ``credential.revealed``, committed before the sealed copy is opened.
    """
    return reveal_credentials(actor, client_id, [credential_id])[credential_id]


def reveal_credentials(actor: Actor, client_id: str, credential_ids: Sequence[str]) -> dict[str, str]:
    """Return the secrets in clear by their ids, all or none. See ``reveal_credential``."""
    _get_revealable(actor, client_id, credential_ids)
    claimed = _claim_reveals(actor, len(credential_ids))
    try:
        row_ids = _record_reveals(actor, client_id, credential_ids)
    except DomainError:
        withdraw_attempts(actor.organization_id, claimed)
        raise
    return _open_secrets(actor, client_id, row_ids)


def _claim_reveals(actor: Actor, wanted: int) -> list[UUID]:
    """Count the views towards the actor's hourly limit.

    They are counted before they happen, so that concurrent calls cannot exceed the limit. Returns what
    ``take_back`` needs to undo it. Raises TooManyRequests.
    """
    who = audit.actor_public_id(actor)
    claimed: list[UUID] = []
    for _ in range(wanted if who is not None else 0):
        claim = record_attempt(actor.organization_id, Limit(bucket_key(_REVEALED, who or ""), _REVEAL_LIMIT))
        if claim.retry_after:
            withdraw_attempts(actor.organization_id, claimed)
            message = f"At most {MAX_REVEALS_PER_HOUR} secrets can be viewed per hour. Try again later."
            raise TooManyRequests(message, retry_after=claim.retry_after)
        claimed += claim.attempts
    return claimed


@transaction
def _record_reveals(actor: Actor, client_id: str, credential_ids: Sequence[str]) -> dict[str, UUID]:
    client, found = _get_revealable(actor, client_id, credential_ids)
    public_client_id = format_client_id(client.organization_id, client.id)
    for row_id in found.values():
        audit.record(
            actor, _REVEALED, "credential", public_id("sec", row_id), after={"client_id": public_client_id}
        )
    notify_administrators(actor, "secret_revealed", public_client_id, {"client": client.name})
    return found


@read
def _get_revealable(
    actor: Actor, client_id: str, credential_ids: Sequence[str]
) -> tuple[Client, dict[str, UUID]]:
    client = get_client_row(actor, client_id, "credentials:read")
    require_client_within_permissions(actor, client)
    if actor.session_id is not None:
        require_fresh_sign_in(actor)
    if not can_reveal_secrets(get_organization_by_id(actor.organization_id).settings):
        raise NotRevealable("This organization shows a secret only once, when it is created.")
    found = {}
    for credential_id in credential_ids:
        row = _find_active(client, credential_id)
        if row is None:
            raise NotFound("There is no such secret.")
        if row.sealed is None:
            raise NotRevealable("No copy of this secret is stored. Create a new secret instead.")
        found[credential_id] = row.id
    return client, found


@read
def _open_secrets(actor: Actor, client_id: str, row_ids: dict[str, UUID]) -> dict[str, str]:
    client = get_client_row(actor, client_id, "credentials:read")
    secrets = {}
    for credential_id in row_ids:
        row = _find_active(client, credential_id)
        if row is None or row.sealed is None:
            raise NotFound("There is no such secret.")
        try:
            secrets[credential_id] = unseal_secret(client, row)
        except UnsealError as error:
            raise NotRevealable(
                "The copy of this secret cannot be opened. Create a new secret instead."
            ) from error
    return secrets


def _find_active(client: Client, credential_id: str) -> Credential | None:
    condition = is_active_credential(client, clock.now()) & (
        Credential.id == parse_public_id("sec", credential_id)
    )
    return db.session.scalar(
        select(Credential).where(condition), execution_options={"populate_existing": True}
    )


def _require_uses_secret(client: Client) -> None:
    metadata = to_client_metadata(client)
    if not metadata.uses_secret:
        raise Conflict(
            lazy_gettext(
                "This client authenticates with %(token_endpoint_auth_method)s and uses no secret.",
                token_endpoint_auth_method=metadata.token_endpoint_auth_method,
            ),
            code="no_secret_kept",
        )
    if client.status != ACTIVE:
        raise Conflict("The client is disabled. Enable it first.", code="client_disabled")


def _enforce_secret_limit(client: Client, now: datetime, max_secrets: int) -> None:
    live = count_where(is_active_credential(client, now))
    if live >= max_secrets:
        raise Conflict(
            lazy_gettext(
                "The client has %(live)s active secrets, the maximum of this organization. Revoke one first.",
                live=live,
            ),
            code="too_many_secrets",
            details={"max_secrets": max_secrets},
        )


def _retire(
    actor: Actor, client: Client, now: datetime, seconds: int, takes_tokens: bool
) -> list[Credential]:
    ends = now + timedelta(seconds=seconds)
    retired = []
    for row in list_active_rows(client):
        if row.expires_at is not None and row.expires_at <= ends:
            continue
        # During another rotation, cancelling still restores the expiry from before the first one.
        previous = row.expires_at if row.retiring_since is None else row.previous_expires_at
        _set_expiry(row, ends, retiring_since=now, previous=previous, takes_tokens=takes_tokens)
        _record_event(actor, "credential.retired", row.id, client, after={"expires_at": ends.isoformat()})
        retired.append(row)
    return _refresh_rows(retired)


def _set_expiry(
    row: Credential,
    expires_at: datetime | None,
    *,
    retiring_since: datetime | None,
    previous: datetime | None,
    takes_tokens: bool = False,
) -> None:
    count_changed(
        update(Credential)
        .where(has_key(Credential, row.organization_id, row.id), Credential.revoked_at.is_(None))
        .values(
            expires_at=expires_at,
            retiring_since=retiring_since,
            previous_expires_at=previous,
            takes_tokens=takes_tokens,
            notified_at=None,
        )
    )


def _refresh_rows(rows: list[Credential]) -> list[Credential]:
    for row in rows:
        db.session.refresh(row)
    return rows


def _organization(actor: Actor) -> OrganizationSnapshot:
    return get_organization_by_id(actor.organization_id)


def _audit_values(credential: CredentialRecord) -> dict[str, Any]:
    ends = credential.expires_at
    return {
        "name": credential.name,
        "hint": credential.hint,
        "expires_at": ends.isoformat() if ends else None,
    }


def _record_event(
    actor: Actor, action: str, credential_id: UUID, client: Client, after: Mapping[str, Any] | None = None
) -> None:
    audit.record(
        actor,
        action,
        "credential",
        public_id("sec", credential_id),
        after={"client_id": format_client_id(client.organization_id, client.id), **(after or {})},
    )
