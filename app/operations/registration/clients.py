"""Clients: registered, listed, changed and deleted; every face calls these."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from app.extensions import db
from app.models.client import DELETED, Client
from app.operations import audit, clock
from app.operations.consents.client_blocks import follow_block, moment_of_block
from app.operations.directory import OrganizationView, organization_by_id
from app.operations.people.freshness import require_fresh_person
from app.operations.registration import logos, sector_documents
from app.operations.registration.chosen_keys import publish_chosen
from app.operations.registration.client_endings import DeletedClient, end_everything_of
from app.operations.registration.client_lists import list_clients
from app.operations.registration.client_origin import Origin, require_room
from app.operations.registration.client_records import (
    ClientRecord,
    change_row,
    columns_of,
    find_row,
    get_row,
    metadata_of,
    record_of,
    require_version,
    still_changing,
)
from app.operations.registration.client_rights import (
    require_approval,
    require_document_agrees,
    require_exchange,
    require_keeping_trust,
    require_not_above,
    require_resources,
    require_trust,
    settle_scopes,
)
from app.operations.registration.credential_rows import CredentialRecord, add_credential, revoke_all_secrets
from app.operations.transaction import read, transaction
from app.rules.actor import Actor
from app.rules.errors import Conflict
from app.rules.identifiers import client_id_of, new_id
from app.rules.registration.client_metadata import (
    ClientMetadata,
    ClientPolicy,
    change,
    changed_fields,
    complete,
)

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
    actor.require_some("clients:write")
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
        require_fresh_person(actor)
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


def _acting_organization(actor: Actor) -> OrganizationView:
    return organization_by_id(actor.organization_id)


def _policy_of(organization: OrganizationView) -> ClientPolicy:
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
        target_id=client_id_of(row.organization_id, row.id),
        before=before,
        after=after,
    )
