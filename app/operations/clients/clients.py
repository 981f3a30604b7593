"""Clients: registered, listed, changed and deleted; every face calls these."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

from sqlalchemy import Select, func, select, update

from app.extensions import db
from app.models.client import DELETED, PERSON, Client, ClientRegistration
from app.models.grant import Consent, Grant
from app.operations.clients import logos, sector_documents
from app.operations.clients.client_blocks import follow_block, moment_of_block
from app.operations.clients.client_records import (
    ClientRecord,
    change_row,
    columns_of,
    find_row,
    get_row,
    list_clients,
    metadata_of,
    record_of,
    require_approval,
    require_document_agrees,
    require_exchange,
    require_keeping_trust,
    require_not_above,
    require_resources,
    require_trust,
    require_version,
    settle_scopes,
    still_changing,
)
from app.operations.clients.credential_rows import (
    CredentialRecord,
    add_credential,
    living_tokens,
    revoke_all_secrets,
)
from app.operations.directory.lookups import OrganizationSnapshot, get_organization_by_id
from app.operations.grants import signing_keys
from app.operations.grants.revocation import revoke_grants_of_client
from app.operations.sign_in.reauthentication import require_fresh_user_sign_in
from app.operations.store import audit, clock
from app.operations.store.transactions import count_changed, on_commit, read, transaction
from app.rules.actor import Actor
from app.rules.clients.client_metadata import ClientMetadata, ClientPolicy, change, changed_fields, complete
from app.rules.errors import Conflict
from app.rules.identifiers import format_client_id, new_id


def publish_chosen(organization: OrganizationSnapshot, metadata: ClientMetadata) -> None:
    """A key for each algorithm that the client chose stands once the unit under way is committed (KY-2).

    Not before: making an RSA key takes its time, and rows would wait for it.
    """
    chosen = {
        metadata.id_token_signed_response_alg,
        metadata.userinfo_signed_response_alg,
        metadata.introspection_signed_response_alg,
    }
    for algorithm in sorted(chosen - {None}, key=str):
        on_commit(partial(_stand, organization, str(algorithm)))


def _stand(organization: OrganizationSnapshot, algorithm: str) -> None:
    signing_keys.active_key(organization, algorithm)


CEILING = 1000


@dataclass(frozen=True, slots=True)
class DeletedClient:
    """How much ended with a client; each figure stops at 1,000, which then means "or more"."""

    access_tokens: int
    grants: int
    consents: int
    credentials: int


def end_everything_of(actor: Actor, row: Client) -> DeletedClient:
    """Part of the transaction under way. Access tokens and consents end with the client's status, which every
    look-up asks; the janitor removes their rows in batches."""
    here, now = row.organization_id, clock.now()
    tokens = _count(living_tokens(here, row.id, now))
    consents = _count(select(Consent.id).where(Consent.organization_id == here, Consent.client_id == row.id))
    grants = _count(
        select(Grant.id).where(
            Grant.organization_id == here,
            Grant.client_id == row.id,
            Grant.revoked_at.is_(None),
            Grant.expires_at > now,
        )
    )
    credentials = revoke_all_secrets(actor, row)
    _release(row)
    logos.forget(row)
    revoke_grants_of_client(actor, row.id, reason="client_deleted")
    return DeletedClient(tokens, grants, consents, credentials)


def _release(row: Client) -> None:
    """Its registration access token is dead, and the address of its metadata may be registered anew."""
    count_changed(
        update(ClientRegistration)
        .where(ClientRegistration.organization_id == row.organization_id, ClientRegistration.id == row.id)
        .values(access_digest=None, address_digest=None, idle_check_at=None)
    )


def _count(rows: Select[Any]) -> int:
    bounded = rows.limit(CEILING).subquery()
    return int(db.session.scalar(select(func.count()).select_from(bounded)) or 0)


# Deleted clients count until their rows are gone: making and deleting must not fill the table either.
MOST_CLIENTS = 50_000
MOST_SELF_REGISTERED = 10_000
# No client that registered itself ends sooner; the janitor looks at each one once in this time.
FIRST_IDLE_CHECK = timedelta(days=1)


class NoRoom(Conflict):
    """The organization has as many clients as it may have."""

    code = "too_many_clients"


@dataclass(frozen=True, slots=True)
class Origin:
    """Who registers a client; ``metadata_document_uri`` is its ``client_id`` on the wire where it has such a one."""

    source: str = PERSON
    metadata_document_uri: str | None = None


def require_room(organization_id: str, origin: Origin) -> None:
    """Raise NoRoom when one more client would be too many; two at the same moment may pass it by one."""
    if origin.source != PERSON and _reached(
        select(ClientRegistration.id).where(
            ClientRegistration.organization_id == organization_id,
            ClientRegistration.idle_check_at.is_not(None),
        ),
        MOST_SELF_REGISTERED,
    ):
        raise NoRoom("Too many clients have registered themselves here. Idle ones end by themselves.")
    if _reached(select(Client.id).where(Client.organization_id == organization_id), MOST_CLIENTS):
        raise NoRoom(f"An organization has at most {MOST_CLIENTS} clients. Delete some that nobody uses.")


def _reached(rows: Select[Any], most: int) -> bool:
    bounded = rows.limit(most).subquery()
    return int(db.session.scalar(select(func.count()).select_from(bounded)) or 0) >= most


__all__ = [
    "ClientRecord",
    "DeletedClient",
    "RegisteredClient",
    "Updated",
    "delete_client",
    "get_client",
    "list_clients",
    "register_client",
    "update_client",
]

_MOST_RACES = 10
_BY_A_PERSON = Origin()


@dataclass(frozen=True, slots=True)
class RegisteredClient:
    """A new client; ``secret`` in clear, here and never again unless revealed. None for one that keeps none."""

    client: ClientRecord
    credential: CredentialRecord | None
    secret: str | None
    warnings: list[str]


@dataclass(frozen=True, slots=True)
class Updated:
    """The client after a change, and the names of the fields that differ."""

    client: ClientRecord
    changed: list[str]
    warnings: list[str]


def register_client(
    actor: Actor, fields: Mapping[str, Any], *, origin: Origin = _BY_A_PERSON
) -> RegisteredClient:
    """The client stands in the actor's organization, with its first secret if it authenticates by one.

    ``fields`` are client metadata as the API takes it (RFC 7591 names, ``scopes`` a list). Raises InvalidInput
    naming every wrong field, Forbidden, NoRoom. Audit: ``client.registered``.
    """
    actor.require_for_own("clients:write")
    sector_documents.read_ahead(actor, fields.get(sector_documents.FIELD))
    # Judged before the unit begins: a document full of URIs is read once, however often the unit runs.
    metadata = complete(fields, _policy_of(_acting_organization(actor)))
    return _register(actor, metadata, origin)


@transaction
def _register(actor: Actor, metadata: ClientMetadata, origin: Origin) -> RegisteredClient:
    require_room(actor.organization_id, origin)
    organization = _acting_organization(actor)
    sector_documents.require_vouched(actor.organization_id, None, metadata)
    require_trust(actor, _NOTHING.trust, metadata.trust)
    require_exchange(actor, None, metadata.token_exchange)
    require_approval(actor, _NOTHING, metadata)
    require_resources(actor, _NOTHING.resources, metadata.resources)
    warnings = settle_scopes(actor, metadata, before=(), is_root=organization.is_root)
    now = clock.now()
    row = Client(
        organization_id=actor.organization_id,
        id=new_id(),
        version=1,
        created_at=now,
        created_by=actor.label[:200] or None,
        created_by_user_id=actor.user_id,
        updated_at=now,
        source=origin.source,
        metadata_document_uri=origin.metadata_document_uri,
        **columns_of(metadata),
    )
    db.session.add(row)
    db.session.flush()
    logos.follow(row, None, metadata.logo_uri)
    credential, secret = None, None
    if metadata.uses_secret:
        credential, secret = add_credential(actor, row, organization.settings, name=None, expires_at=None)
    publish_chosen(organization, metadata)
    _record(actor, "client.registered", row, after=_facts(metadata, changed_fields(_NOTHING, metadata)))
    return RegisteredClient(record_of(row), credential, secret, warnings)


@read
def get_client(actor: Actor, client_id: str) -> ClientRecord:
    """The client. Raises NotFound, Forbidden."""
    return record_of(get_row(actor, client_id, "clients:read"))


def update_client(
    actor: Actor, client_id: str, fields: Mapping[str, Any], *, expected_version: int | None = None
) -> Updated:
    """The fields sent are replaced, ``null`` returns to the default, the others keep their value.

    A client that no longer authenticates by secret loses those it had. Raises InvalidInput naming every wrong
    field, NotFound, Forbidden, Conflict for what its metadata document says, PreconditionFailed. Audit:
    ``client.updated`` with the changed fields.
    """
    if sector_documents.FIELD in fields or "redirect_uris" in fields:
        standing = _sector_document_of(actor, client_id)
        sector_documents.read_ahead(actor, fields.get(sector_documents.FIELD, standing))
    return _update(actor, client_id, fields, expected_version)


@transaction
def _update(actor: Actor, client_id: str, fields: Mapping[str, Any], expected_version: int | None) -> Updated:
    for _ in range(_MOST_RACES):
        row = get_row(actor, client_id, "clients:write")
        require_version(row, expected_version)
        organization = _acting_organization(actor)
        before = metadata_of(row)
        after = change(before, fields, _policy_of(organization))
        changed = changed_fields(before, after)
        if not changed:
            return Updated(record_of(row), [], [])
        require_not_above(actor, row)
        sector_documents.require_vouched(actor.organization_id, before, after)
        require_trust(actor, before.trust, after.trust)
        require_exchange(actor, before.token_exchange, after.token_exchange)
        require_keeping_trust(actor, before, after)
        require_approval(actor, before, after)
        require_document_agrees(actor, row, changed)
        require_resources(actor, before.resources, after.resources)
        warnings = settle_scopes(actor, after, before=before.scopes, is_root=organization.is_root)
        moment = moment_of_block(before, after)
        if change_row(row, {**columns_of(after), **moment, "updated_at": clock.now()}):
            follow_block(actor, row, before, after)
            logos.follow(row, before.logo_uri, after.logo_uri)
            if before.uses_secret and not after.uses_secret:
                revoke_all_secrets(actor, row)
            publish_chosen(organization, after)
            _record(actor, "client.updated", row, _facts(before, changed), _facts(after, changed))
            return Updated(record_of(find_row(actor, client_id)), changed, warnings)
    raise still_changing()


@transaction
def delete_client(actor: Actor, client_id: str, *, expected_version: int | None = None) -> DeletedClient:
    """The client is gone; its tokens, codes, consents and secrets are dead at once. Returns what that were.

    Raises NotFound, Forbidden, PreconditionFailed; FreshSignInRequired when a person signed in too long ago (PO-4).
    Audit: ``client.deleted``.
    """
    for _ in range(_MOST_RACES):
        row = get_row(actor, client_id, "clients:write")
        require_version(row, expected_version)
        require_not_above(actor, row)
        require_fresh_user_sign_in(actor)
        if actor.kind == "client" and actor.client_id == row.id:
            raise Conflict(
                "A client cannot delete itself: nobody would be left to say so.", code="own_client"
            )
        now = clock.now()
        if change_row(row, {"status": DELETED, "deleted_at": now, "updated_at": now}):
            counts = end_everything_of(actor, row)
            after = {name: getattr(counts, name) for name in counts.__dataclass_fields__}
            _record(actor, "client.deleted", row, {"name": row.name}, after)
            return counts
    raise still_changing()


@read
def _sector_document_of(actor: Actor, client_id: str) -> str | None:
    return metadata_of(get_row(actor, client_id, "clients:write")).sector_identifier_uri


_NOTHING = ClientMetadata(name="", type="")


def _acting_organization(actor: Actor) -> OrganizationSnapshot:
    return get_organization_by_id(actor.organization_id)


def _policy_of(organization: OrganizationSnapshot) -> ClientPolicy:
    return ClientPolicy.of_settings(organization.settings, organization.base_url)


def _facts(metadata: ClientMetadata, names: list[str]) -> dict[str, Any]:
    values = {name: getattr(metadata, name) for name in names}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def _record(
    actor: Actor,
    action: str,
    row: Client,
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
) -> None:
    audit.record(
        actor,
        action,
        target_type="client",
        target_id=format_client_id(row.organization_id, row.id),
        before=before,
        after=after,
    )
