"""Revocation of single tokens (RFC 7009), and the receipts of bulk revocations.

A revoked token is rejected by every worker from the COMMIT on, because validating a token reads its row and the state
of everything that it depends on. There is no list of revoked tokens to distribute.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from msgspec import Struct
from sqlalchemy import bindparam, or_, select, update

from app.config import current
from app.extensions import db
from app.fast_path.compiled_query import CompiledQuery
from app.models.audit import RevocationReceipt
from app.models.base import has_key, is_same
from app.models.client import Client, Credential
from app.models.grant import Grant
from app.models.token import AccessToken
from app.operations.clients.client_records import find_client_owner
from app.operations.directory.snapshots import ClientSnapshot, OrganizationSnapshot
from app.operations.grants import grants
from app.operations.grants.grants import UnstoredRows
from app.operations.sign_in.actor_access import enter_organization
from app.operations.store import audit, clock, idempotency, keyring
from app.operations.store.audit import actor_public_id
from app.operations.store.rows import Page, PageRequest, get_row, make_record, read_page
from app.operations.store.transactions import OutdatedRead, current_unit_of_work, read, transaction
from app.operations.tokens import tokens
from app.operations.tokens.revocation_subjects import Subject
from app.rules.actor import Actor
from app.rules.errors import InvalidInput, NotFound
from app.rules.identifiers import (
    REFRESH_TOKEN,
    digest,
    format_client_id,
    has_valid_tag,
    new_id,
    parse_client_id,
    parse_public_id,
    parse_token,
    public_id,
)
from app.rules.tokens.revocation import (
    CLIENT,
    CREDENTIAL,
    ORGANIZATION,
    SESSION,
    USER,
    RevocationOrder,
    revocation_request,
)

ACCESS, REFRESH = "access_token", "refresh_token"
_FIND_FAMILY = CompiledQuery(
    select(Grant.client_id, Grant.user_id).where(
        has_key(Grant, bindparam("of_organization"), bindparam("of_grant"))
    )
)
# The row stays as it is found until the transaction ends, so that revoking it can travel with COMMIT.
_LOCK_ACCESS_TOKEN = CompiledQuery(
    select(
        AccessToken.id,
        AccessToken.client_id,
        AccessToken.revoked_at,
        AccessToken.expires_at,
        # Not a join, which would lock the grant too.
        select(Grant.user_id)
        .where(is_same(Grant.id, AccessToken.grant_id))
        .scalar_subquery()
        .label("user_id"),
    )
    .where(
        AccessToken.organization_id == bindparam("of_organization"),
        AccessToken.digest == bindparam("of_digest"),
    )
    .with_for_update()
)
_REVOKE_ACCESS_TOKEN = CompiledQuery(
    update(AccessToken)
    .where(
        has_key(AccessToken, bindparam("of_organization"), bindparam("of_token")),
        AccessToken.revoked_at.is_(None),
        AccessToken.expires_at > bindparam("now", type_=AccessToken.expires_at.type),
    )
    .values(revoked_at=bindparam("now", type_=AccessToken.revoked_at.type))
)
_LOOKED = "token to revoke"


class RevokedToken(Struct, frozen=True):
    """A token that was valid until it was revoked."""

    kind: str
    public_id: str
    client_id: UUID
    user_id: UUID | None


class RevocableToken(Struct, frozen=True):
    """A stored token, whether it is still valid or not; ``id`` is its own or, for a refresh token, its grant's.

    ``unstored`` are the rows of an access token that has none. ``is_active`` says whether an access token is valid, and
    nothing changes that until the transaction ends; None if only the statement that revokes it shows that.
    """

    kind: str
    id: UUID
    client_id: UUID
    user_id: UUID | None
    unstored: UnstoredRows | None = None
    is_active: bool | None = None


@transaction
def revoke_token(actor: Actor, token: str) -> RevokedToken | None:
    """Revoke a token of the actor's organization; return what was valid until now (RFC 7009 section 2).

    Unknown, expired, revoked and other organizations' tokens change nothing and raise nothing. An actor without
    ``tokens:revoke`` may name only tokens of its own client: InvalidInput otherwise. Audit: ``token.revoked``, once.
    """
    found = find_token(actor, token)
    if found is None:
        return None
    _require_own(actor, found.client_id)
    return revoke_found(actor, found)


def find_token(actor: Actor, token: str) -> RevocableToken | None:
    """Return the stored token of the actor's organization. The string itself tells its kind (RV-3).

    A node of a cluster may not have applied yet that another one issued the token. So when nothing is found, a row is
    committed first: it takes its place behind everything acknowledged before, and the transaction then looks again.
    """
    parsed = parse_token(token)
    if parsed is not None and parsed.kind == REFRESH_TOKEN and parsed.grant_id is not None:
        if parsed.organization_id != actor.organization_id:
            return None
        found = _find_family(actor, token, parsed.grant_id)
    elif tokens.owner_of(token) == actor.organization_id:
        found = _find_access_token(actor, token)
    else:
        return None
    if found is None:
        _look_again_behind_a_commit(actor.organization_id)
    return found


def _look_again_behind_a_commit(organization_id: str) -> None:
    """Commit a row and raise OutdatedRead, once in a transaction. SQLite has one node and nothing to wait for."""
    values = current_unit_of_work().values
    if current().is_sqlite or _LOOKED in values:
        return
    values[_LOOKED] = True
    expires_at = clock.now() + timedelta(minutes=1)
    idempotency.claim(organization_id, _LOOKED, "", new_id().hex, expires_at=expires_at)
    raise OutdatedRead


def revoke_found(actor: Actor, found: RevocableToken) -> RevokedToken | None:
    """Revoke the token in the current transaction, a refresh token with its grant; None if it was not valid.

    The caller has checked that the actor may revoke it. Audit: ``token.revoked``.
    """
    if found.unstored is not None:
        tokens.store_unstored(actor.organization_id, found.unstored)
    if found.is_active is not None:
        return _revoke_locked(actor, found) if found.is_active else None
    if found.kind == ACCESS:
        return revoke_access_token(actor, found.id, found.client_id, found.user_id)
    if not grants.revoke_grant_by_id(actor, found.id, reason="revoked"):
        return None
    return _record(
        actor, RevokedToken(found.kind, public_id("grt", found.id), found.client_id, found.user_id)
    )


def _find_family(actor: Actor, token: str, grant_id: UUID) -> RevocableToken | None:
    if not has_valid_tag(token, keyring.refresh_tag_key(actor.organization_id)):
        return None
    row = _FIND_FAMILY.first(of_organization=actor.organization_id, of_grant=grant_id)
    return None if row is None else RevocableToken(REFRESH, grant_id, row.client_id, row.user_id)


def _find_access_token(actor: Actor, token: str) -> RevocableToken | None:
    row = _LOCK_ACCESS_TOKEN.first(of_organization=actor.organization_id, of_digest=digest(token))
    if row is not None:
        is_active = row.revoked_at is None and row.expires_at > clock.now()
        return RevocableToken(ACCESS, row.id, row.client_id, row.user_id, is_active=is_active)
    rows = tokens.read_unstored_rows(actor.organization_id, token)
    if rows is None:
        return None
    family = _FIND_FAMILY.first(of_organization=actor.organization_id, of_grant=rows.token["grant_id"])
    user_id = None if family is None else family.user_id
    return RevocableToken(ACCESS, rows.token["id"], rows.token["client_id"], user_id, rows)


def revoke_access_token(
    actor: Actor, token_id: UUID, client_id: UUID, user_id: UUID | None = None
) -> RevokedToken | None:
    """Revoke the access token in the current transaction; return None if it was not valid.

    The caller has checked that the actor may revoke it. Audit: ``token.revoked``.
    """
    revoked = _REVOKE_ACCESS_TOKEN.write(
        of_organization=actor.organization_id, of_token=token_id, now=clock.now()
    )
    return _log(actor, token_id, client_id, user_id) if revoked == 1 else None


def _revoke_locked(actor: Actor, found: RevocableToken) -> RevokedToken:
    _REVOKE_ACCESS_TOKEN.write_later(
        of_organization=actor.organization_id, of_token=found.id, now=clock.now()
    )
    return _log(actor, found.id, found.client_id, found.user_id)


def _log(actor: Actor, token_id: UUID, client_id: UUID, user_id: UUID | None) -> RevokedToken:
    grants.log_revocation(actor.organization_id, "token", token_id.bytes)
    return _record(actor, RevokedToken(ACCESS, public_id("tok", token_id), client_id, user_id))


def _require_own(actor: Actor, client_id: UUID) -> None:
    if actor.client_id == client_id or actor.has_permission("tokens:revoke"):
        return
    owner = find_client_owner(actor.organization_id, client_id)
    if not actor.has_permission("tokens:revoke", owner_id=owner):
        raise InvalidInput("The token was not issued to this client.", field="token")


def _record(actor: Actor, revoked: RevokedToken) -> RevokedToken:
    audit.record(
        actor,
        "token.revoked",
        revoked.kind,
        revoked.public_id,
        after={"client_id": format_client_id(actor.organization_id, revoked.client_id)},
    )
    return revoked


def revoke_by_request(actor: Actor, fields: Mapping[str, Any], *, client: ClientSnapshot | None) -> None:
    """Revoke the token in the body of a request. An unknown token changes nothing and raises nothing.

    ``client`` is set if a client authenticated with its secret. It may revoke its own tokens; all other callers need
    ``tokens:revoke``. Raises Forbidden, and InvalidInput with every invalid field. Another organization gets the same
    error as one that does not exist (RV-1). Audit: ``token.revoked``, once.
    """
    if client is None:
        actor.require_for_own("tokens:revoke")
    request = revocation_request(fields)
    try:
        scoped_actor, _ = enter_organization(actor, request.organization_id)
    except NotFound as unknown:
        words = "There is no such organization." if actor.is_root else "This is not your organization."
        raise InvalidInput(words, field="organization_id", code="unknown_organization") from unknown
    revoke_token(scoped_actor, request.token)


PREFIX = "rev"


class Receipt(Struct, frozen=True):
    """The result of a bulk revocation; ``public_id`` is None for a dry run.

    ``counts`` are the revoked objects by kind; 10,000 means "10,000 or more".
    """

    public_id: str | None
    organization_slug: str
    kind: str
    subject: str
    issued_before: datetime
    sessions: bool
    reason: str | None
    counts: Mapping[str, int]
    created_at: datetime
    created_by: str | None
    created_by_id: str | None


def draft_receipt(
    actor: Actor,
    organization: OrganizationSnapshot,
    subject: Subject,
    order: RevocationOrder,
    counts: Mapping[str, int],
    cutoff: datetime,
) -> Receipt:
    """Return a receipt without storing it."""
    return Receipt(
        public_id=None,
        organization_slug=organization.slug,
        kind=subject.kind,
        subject=subject.public_id,
        issued_before=cutoff,
        sessions=order.sessions,
        reason=order.reason,
        counts=counts,
        created_at=clock.now(),
        created_by=actor.author,
        created_by_id=actor_public_id(actor),
    )


def write_receipt(organization: OrganizationSnapshot, draft: Receipt) -> Receipt:
    """Store the receipt in the current transaction."""
    receipt_id = current_unit_of_work().stable_value(f"receipt {draft.kind} {draft.subject}", new_id)
    # The sessions of an organization are invalid immediately. Their rows are deleted, and clients notified, in batches.
    is_complete = not (draft.kind == ORGANIZATION and draft.sessions)
    row = RevocationReceipt(
        organization_id=organization.id,
        id=receipt_id,
        kind=draft.kind,
        subject=draft.subject,
        issued_before=draft.issued_before,
        sessions=draft.sessions,
        reason=draft.reason,
        counts=dict(draft.counts),
        created_at=draft.created_at,
        created_by=draft.created_by,
        created_by_id=draft.created_by_id,
        settled_at=draft.created_at if is_complete else None,
        expires_at=draft.created_at + timedelta(days=organization.settings["audit"]["retention_days"]),
    )
    db.session.add(row)
    db.session.flush()
    return _receipt(row, organization)


@read
def list_receipts(actor: Actor, slug: str, page_request: PageRequest = PageRequest()) -> Page[Receipt]:
    """Return a page of the organization's bulk revocations, newest first. Raises NotFound, Forbidden."""
    scoped_actor, organization = enter_organization(actor, slug)
    scoped_actor.require("tokens:read")
    statement = select(RevocationReceipt).where(RevocationReceipt.organization_id == organization.id)
    return read_page(statement, (RevocationReceipt.id,), page_request).map(
        lambda row: _receipt(row, organization)
    )


@read
def get_receipt(actor: Actor, slug: str, receipt_id: str) -> Receipt:
    """Return one bulk revocation. Raises NotFound, Forbidden."""
    scoped_actor, organization = enter_organization(actor, slug)
    scoped_actor.require("tokens:read")
    key = has_key(RevocationReceipt, organization.id, parse_public_id(PREFIX, receipt_id))
    return _receipt(
        get_row(select(RevocationReceipt).where(key), "There is no such revocation."), organization
    )


class AffectedClient(Struct, frozen=True):
    """A client that lost tokens by a bulk revocation."""

    client_id: str
    name: str


@read
def list_affected_clients(actor: Actor, slug: str, receipt: Receipt) -> list[AffectedClient]:
    """List up to 20 clients that lost tokens, by name; none if everything of the organization was revoked.

    Raises NotFound, and Forbidden without ``clients:read``.
    """
    scoped_actor, organization = enter_organization(actor, slug)
    scoped_actor.require("clients:read")
    here, subject = organization.id, receipt.subject
    if receipt.kind == ORGANIZATION:
        return []
    if receipt.kind == CLIENT:
        found = parse_client_id(subject)
        condition: Any = Client.id == (found[1] if found else None)
    elif receipt.kind == CREDENTIAL:
        row_id = parse_public_id("sec", subject)
        secrets = select(Credential.client_id).where(has_key(Credential, here, row_id))
        condition = Client.id.in_(secrets)
    else:
        # Grants that were valid then. Those of a user or a session are revoked by a cutoff, without being changed.
        prefix, column = {USER: ("usr", Grant.user_id), SESSION: ("ses", Grant.session_id)}.get(
            receipt.kind, ("grt", Grant.id)
        )
        held = select(Grant.client_id).where(
            Grant.organization_id == here,
            column == parse_public_id(prefix, subject),
            Grant.created_at < receipt.issued_before,
            Grant.expires_at > receipt.created_at,
            or_(Grant.revoked_at.is_(None), Grant.revoked_at >= receipt.created_at),
        )
        condition = Client.id.in_(held)
    rows = db.session.execute(
        select(Client.id, Client.name)
        .where(Client.organization_id == here, condition)
        .order_by(Client.name)
        .limit(20)
    )
    return [AffectedClient(format_client_id(here, row.id), row.name) for row in rows]


def _receipt(row: RevocationReceipt, organization: OrganizationSnapshot) -> Receipt:
    return make_record(Receipt, row, public_id=public_id(PREFIX, row.id), organization_slug=organization.slug)
