"""Register, read, update and delete clients."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

from msgspec import Struct
from sqlalchemy import delete, select, update

from app.extensions import db
from app.models.base import has_key
from app.models.client import DELETED, Client, ClientRegistration, ClientRequest
from app.models.grant import Consent, Grant
from app.models.user import AppRoleAssignment
from app.operations.clients import logos, sector_documents
from app.operations.clients.client_access import (
    delete_access_requests,
    find_granted_scopes,
    find_inaccessible_scopes,
    grant_access,
)
from app.operations.clients.client_permissions import (
    hold_managed_resources,
    require_approval_permission,
    require_client_within_permissions,
    require_fresh_sign_in_for_authentication,
    require_fresh_sign_in_for_management_scopes,
    require_known_scopes,
    require_not_in_metadata_document,
    require_resources_permission,
    require_shared_scope_permission,
    require_token_exchange_permission,
    require_trust_permission,
    require_trusted_client_permission,
    resolve_client_scopes,
)
from app.operations.clients.client_records import (
    ClientRecord,
    count_clients,
    get_client_record,
    get_client_row,
    load_client_row,
    to_client_columns,
    to_client_metadata,
    to_client_record,
    update_client_row,
)
from app.operations.clients.credential_revocation import revoke_unused_secrets
from app.operations.clients.credential_rows import (
    CredentialRecord,
    active_tokens_of_client,
    add_credential,
    revoke_all_secrets,
)
from app.operations.directory.lookups import get_organization_by_id, hold_organization
from app.operations.directory.snapshots import OrganizationSnapshot
from app.operations.grants import signing_keys
from app.operations.grants.grants import grant_issued_after_cutoffs
from app.operations.grants.revocation import expire_codes_of_client
from app.operations.sign_in.reauthentication import require_fresh_user_sign_in
from app.operations.store import audit, clock
from app.operations.store.rows import count_rows
from app.operations.store.transactions import count_changed, on_commit, read, transaction
from app.rules.actor import Actor
from app.rules.authorization.consents import DECIDED_RETENTION, DECLINED
from app.rules.clients.app_claims import role_keys
from app.rules.clients.client_coherence import ClientPolicy, signing_algorithm_for
from app.rules.clients.client_documents import to_document
from app.rules.clients.client_metadata import ClientMetadata, change, changed_fields, complete
from app.rules.clients.client_types import BLOCKED, PERSON, uses_grants_without_consent
from app.rules.clients.redirect_uris import PAIRWISE, find_sector
from app.rules.errors import Conflict
from app.rules.identifiers import format_client_id, new_id
from app.rules.languages.translation import lazy_gettext
from app.rules.versions import ExpectedVersion, require_version

MAX_COUNTED = 1000
# Deleted clients count until their rows are purged, so that creating and deleting cannot fill the table either.
MAX_CLIENTS = 50_000
MAX_SELF_REGISTERED_CLIENTS = 10_000
# Self-registered clients exist at least this long. The janitor checks each one once in this interval.
FIRST_IDLE_CHECK = timedelta(days=1)
_EMPTY_METADATA = ClientMetadata(name="", type="")


class DeletedClient(Struct, frozen=True):
    """Numbers of items revoked with a deleted client. Each stops at 1,000, which means "or more"."""

    access_tokens: int
    grants: int
    consents: int
    credentials: int


class TooManyClients(Conflict):
    """The organization has reached its limit of clients."""

    code = "too_many_clients"


class RegisteredClient(Struct, frozen=True):
    """A new client. ``secret`` is in clear, only in this response, or None if the client has no secret."""

    client: ClientRecord
    credential: CredentialRecord | None
    secret: str | None
    warnings: list[str]


class UpdatedClient(Struct, frozen=True):
    """The client after an update, and the names of the fields that changed."""

    client: ClientRecord
    changed: list[str]
    warnings: list[str]


def register_client(
    actor: Actor,
    fields: Mapping[str, Any],
    *,
    source: str = PERSON,
    metadata_document_uri: str | None = None,
) -> RegisteredClient:
    """Register a client in the actor's organization, with a first secret if it authenticates by secret.

    ``fields`` are client metadata in the API's form (RFC 7591 names, ``scopes`` a list). ``source`` says who registers
    it, and ``metadata_document_uri`` is its ``client_id`` if it is identified by a URL. Raises InvalidInput naming
    every wrong field, Forbidden, TooManyClients, and FreshSignInRequired for management scopes if the user signed in
    too long ago. Audit: ``client.registered``.
    """
    actor.require_for_own("clients:write")
    if fields.get(sector_documents.FIELD) is not None:
        sector_documents.prefetch_sector_document(actor, fields[sector_documents.FIELD])
    # Validated before the transaction, which may be retried: a document full of URIs is then parsed only once.
    metadata = complete(fields, _client_policy(_acting_organization(actor)))
    return _register(actor, metadata, source, metadata_document_uri)


def get_client(actor: Actor, client_id: str) -> ClientRecord:
    """Return the client. Raises NotFound, Forbidden."""
    return get_client_record(actor, client_id)


def update_client(
    actor: Actor, client_id: str, fields: Mapping[str, Any], *, expected_version: ExpectedVersion = None
) -> UpdatedClient:
    """Replace the given fields. ``null`` restores a default, and fields not given keep their value.

    Revokes the secrets of a client that no longer authenticates by secret. Raises InvalidInput naming every
    wrong field, NotFound, Forbidden, Conflict for a field that its metadata document sets,
    PreconditionFailed, and FreshSignInRequired if a user who signed in too long ago gives it management scopes or
    changes how it authenticates. Audit: ``client.updated`` with the changed fields, and ``credential.revoked`` for each
    secret.
    """
    if sector_documents.FIELD in fields or "redirect_uris" in fields:
        current_uri = _sector_identifier_uri(actor, client_id)
        sector_documents.prefetch_sector_document(actor, fields.get(sector_documents.FIELD, current_uri))
    return _update(actor, client_id, fields, expected_version)


@read
def check_client_update(actor: Actor, client_id: str, fields: Mapping[str, Any]) -> None:
    """Raise what ``update_client`` would raise for these fields, except FreshSignInRequired, and change nothing.

    Unlike there, a scope that the organization does not know is invalid for every actor, because the actor did not
    enter it.
    """
    row = get_client_row(actor, client_id, "clients:write")
    before = to_client_metadata(row)
    after = change(before, fields, _client_policy(_acting_organization(actor)))
    _require_allowed_change(actor, row, before, after)
    require_known_scopes(actor, after, before=before.scopes, granted=find_granted_scopes(row))
    require_shared_scope_permission(actor, before, after)


@transaction
def delete_client(actor: Actor, client_id: str, *, expected_version: ExpectedVersion = None) -> DeletedClient:
    """Delete a client and revoke its tokens, codes, consents and secrets. Return how many there were.

    Pending requests for its approval, and for its access to APIs, are closed. Raises NotFound, Forbidden,
    PreconditionFailed, and FreshSignInRequired if the user signed in too long ago (PO-4). Audit: ``client.deleted``.
    """
    row = get_client_row(actor, client_id, "clients:write")
    require_version(row.version, expected_version)
    require_client_within_permissions(actor, row)
    require_fresh_user_sign_in(actor)
    if actor.kind == "client" and actor.client_id == row.id:
        raise Conflict("A client cannot delete itself.", code="own_client")
    now = clock.now()
    tokens, grants, consents = _count_client_state(row)
    # Before the client, in the order of locks.
    expire_codes_of_client(actor, row.id)
    update_client_row(row, status=DELETED, deleted_at=now, tokens_not_before=now, updated_at=now)
    close_client_requests(actor, row.id, DECLINED)
    delete_access_requests(row)
    counts = DeletedClient(tokens, grants, consents, revoke_all_secrets(actor, row))
    _delete_registration_keys(row)
    logos.delete_logo(row)
    after = {name: getattr(counts, name) for name in counts.__struct_fields__}
    _record_event(actor, "client.deleted", row, before={"name": row.name}, after=after)
    return counts


def _count_client_state(row: Client) -> tuple[int, int, int]:
    """Count the access tokens, grants and consents of a client that is about to be deleted.

    Access tokens, grants and consents become invalid by the client's status or cutoff, which every look-up checks. The
    janitor deletes their rows in batches.
    """
    organization_id, now = row.organization_id, clock.now()
    tokens = active_tokens_of_client(organization_id, row.id, now)
    grants = select(Grant.id).where(
        Grant.organization_id == organization_id,
        Grant.client_id == row.id,
        Grant.revoked_at.is_(None),
        Grant.expires_at > now,
        grant_issued_after_cutoffs(),
    )
    own = (Consent.organization_id == organization_id) & (Consent.client_id == row.id)
    consents = select(Consent.id).where(own)
    return count_rows(tokens, MAX_COUNTED), count_rows(grants, MAX_COUNTED), count_rows(consents, MAX_COUNTED)


def enforce_client_limit(organization: OrganizationSnapshot, source: str) -> None:
    """Raise TooManyClients if the organization has reached its limit.

    Concurrent calls may exceed it slightly.
    """
    registered = select(ClientRegistration.id).where(
        ClientRegistration.organization_id == organization.id, ClientRegistration.idle_check_at.is_not(None)
    )
    most = MAX_SELF_REGISTERED_CLIENTS
    if source != PERSON and count_rows(registered, most) == most:
        raise TooManyClients(
            "This organization has too many self-registered clients. Idle ones are deleted automatically."
        )
    limit = organization.settings["limits"]["max_clients"] or MAX_CLIENTS
    if count_clients(organization.id, limit) == limit:
        raise TooManyClients(
            lazy_gettext(
                "This organization has at most %(limit)s clients. Delete unused ones first.", limit=limit
            )
        )


def ensure_chosen_keys(organization: OrganizationSnapshot, metadata: ClientMetadata) -> None:
    """Create a signing key for each algorithm that the client chose or its profile implies (KY-2).

    The key set then has it before anything is signed for the client. This happens after the current transaction:
    generating an RSA key takes a second, during which the transaction would hold its locks.
    """
    default = organization.settings["oauth"]["signing"]["algorithm"]
    implied = signing_algorithm_for({"security_profile": metadata.security_profile}, organization.settings)
    chosen = {
        # The key set always has a key of the organization's algorithm.
        None if implied == default else implied,
        metadata.id_token_signed_response_alg,
        metadata.userinfo_signed_response_alg,
        metadata.introspection_signed_response_alg,
    }
    for algorithm in sorted(chosen - {None}, key=str):
        on_commit(partial(signing_keys.get_active_key, organization, str(algorithm)))


def _delete_registration_keys(row: Client) -> None:
    """Revoke the registration access token, and let the metadata document's URL be registered again."""
    count_changed(
        update(ClientRegistration)
        .where(has_key(ClientRegistration, row.organization_id, row.id))
        .values(access_digest=None, address_digest=None, idle_check_at=None)
    )


@transaction
def _register(
    actor: Actor, metadata: ClientMetadata, source: str, metadata_document_uri: str | None
) -> RegisteredClient:
    organization = hold_organization(actor.organization_id)
    enforce_client_limit(organization, source)
    if metadata.sector_identifier_uri is not None:
        sector_documents.require_listed_redirect_uris(actor.organization_id, None, metadata)
    require_trust_permission(actor, _EMPTY_METADATA.trust, metadata.trust)
    require_token_exchange_permission(actor, None, metadata.token_exchange)
    require_approval_permission(actor, _EMPTY_METADATA, metadata)
    require_resources_permission(actor, _EMPTY_METADATA.resources, metadata.resources)
    managed = hold_managed_resources(actor, metadata.scopes, metadata.resources)
    warnings = resolve_client_scopes(actor, metadata, before=(), is_root=organization.is_root)
    require_shared_scope_permission(actor, _EMPTY_METADATA, metadata)
    require_fresh_sign_in_for_management_scopes(actor, _EMPTY_METADATA, metadata)
    now = clock.now()
    row = Client(
        organization_id=actor.organization_id,
        id=new_id(),
        version=1,
        created_at=now,
        created_by=actor.author,
        owner_id=actor.user_id,
        updated_at=now,
        source=source,
        metadata_document_uri=metadata_document_uri,
        **to_client_columns(metadata),
    )
    db.session.add(row)
    db.session.flush()
    for resource, names in managed:
        grant_access(actor, row, resource, names)
    if metadata.logo_uri is not None:
        logos.sync_logo(row, None, metadata.logo_uri)
    credential, secret = None, None
    if metadata.uses_secret:
        credential, secret = add_credential(
            actor, row, organization, name=None, expires_at=None, is_first=True
        )
    ensure_chosen_keys(organization, metadata)
    _record_event(
        actor,
        "client.registered",
        row,
        after=_audit_values(metadata, changed_fields(_EMPTY_METADATA, metadata)),
    )
    warnings += _access_warnings(row, metadata)
    return RegisteredClient(to_client_record(row), credential, secret, warnings)


@transaction
def _update(
    actor: Actor, client_id: str, fields: Mapping[str, Any], expected_version: ExpectedVersion
) -> UpdatedClient:
    row = get_client_row(actor, client_id, "clients:write")
    require_version(row.version, expected_version)
    organization = _acting_organization(actor)
    before = to_client_metadata(row)
    after = change(before, fields, _client_policy(organization))
    changed = changed_fields(before, after)
    if not changed:
        return UpdatedClient(to_client_record(row), [], [])
    _require_allowed_change(actor, row, before, after)
    managed = hold_managed_resources(
        actor,
        [scope for scope in after.scopes if scope not in before.scopes],
        [identifier for identifier in after.resources if identifier not in before.resources],
    )
    warnings = resolve_client_scopes(
        actor,
        after,
        before=before.scopes,
        is_root=organization.is_root,
        granted=find_granted_scopes(row),
    )
    require_shared_scope_permission(actor, before, after)
    require_fresh_sign_in_for_management_scopes(actor, before, after)
    require_fresh_sign_in_for_authentication(actor, changed)
    cutoff = _token_cutoff(before, after)
    is_blocked = after.approval == BLOCKED and before.approval != BLOCKED
    if cutoff:
        # Before the client, as in ``delete_client``. The cutoff revokes its grants.
        expire_codes_of_client(actor, row.id)
    update_client_row(row, **to_client_columns(after, row.document), **cutoff, updated_at=clock.now())
    if is_blocked:
        close_client_requests(actor, row.id, DECLINED)
    for resource, names in managed:
        grant_access(actor, row, resource, names)
    logos.sync_logo(row, before.logo_uri, after.logo_uri)
    _delete_removed_roles(row, before, after)
    ensure_chosen_keys(organization, after)
    _record_event(
        actor,
        "client.updated",
        row,
        before=_audit_values(before, changed),
        after=_audit_values(after, changed),
    )
    if before.uses_secret and not after.uses_secret:
        revoke_unused_secrets(actor, row)
    if "scopes" in changed or "grant_types" in changed:
        warnings += _access_warnings(row, after)
    return UpdatedClient(to_client_record(load_client_row(actor, client_id)), changed, warnings)


def _require_allowed_change(actor: Actor, row: Client, before: ClientMetadata, after: ClientMetadata) -> None:
    require_client_within_permissions(actor, row)
    sector_documents.require_listed_redirect_uris(actor.organization_id, before, after)
    require_trust_permission(actor, before.trust, after.trust)
    require_token_exchange_permission(actor, before.token_exchange, after.token_exchange)
    require_trusted_client_permission(actor, before, after)
    require_approval_permission(actor, before, after)
    require_not_in_metadata_document(actor, row, changed_fields(before, after))
    require_resources_permission(actor, before.resources, after.resources)


@read
def _sector_identifier_uri(actor: Actor, client_id: str) -> str | None:
    return to_client_metadata(get_client_row(actor, client_id, "clients:write")).sector_identifier_uri


def _access_warnings(row: Client, metadata: ClientMetadata) -> list[str]:
    """Warn about scopes that the client does not get without a user's consent until access is approved."""
    if not uses_grants_without_consent(metadata.grant_types):
        return []
    return [
        f"The client has no access to {', '.join(names)} yet. Request access to {api}."
        for api, names in find_inaccessible_scopes(row, metadata.scopes).items()
    ]


def _acting_organization(actor: Actor) -> OrganizationSnapshot:
    return get_organization_by_id(actor.organization_id)


def _client_policy(organization: OrganizationSnapshot) -> ClientPolicy:
    return ClientPolicy.of_settings(organization.settings, organization.base_url)


def _audit_values(metadata: ClientMetadata, names: list[str]) -> dict[str, Any]:
    values = {name: getattr(metadata, name) for name in names}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def _record_event(actor: Actor, action: str, row: Client, **values: Any) -> None:
    audit.record(actor, action, "client", format_client_id(row.organization_id, row.id), **values)


def _delete_removed_roles(row: Client, before: ClientMetadata, after: ClientMetadata) -> None:
    """Delete the assignments of roles that the client no longer declares, so that a new role of the name has none."""
    removed = set(role_keys(to_document(before))).difference(role_keys(to_document(after)))
    if removed:
        count_changed(
            delete(AppRoleAssignment).where(
                AppRoleAssignment.organization_id == row.organization_id,
                AppRoleAssignment.client_id == row.id,
                AppRoleAssignment.role.in_(removed),
            )
        )


def _token_cutoff(before: ClientMetadata, after: ClientMetadata) -> dict[str, Any]:
    """Return the columns that change when a client is blocked or unblocked, or its sector changes: a token cutoff.

    Unblocking sets a cutoff too, because another worker may have issued tokens while the block began. With another
    sector, the subjects of users change, and only redirects to its host show that the client belongs there.
    """
    if (before.approval == BLOCKED) == (after.approval == BLOCKED) and _sector(before) == _sector(after):
        return {}
    return {"tokens_not_before": clock.now()}


def _sector(metadata: ClientMetadata) -> str | None:
    return find_sector(to_document(metadata)) if metadata.subject_type == PAIRWISE else None


def close_client_requests(actor: Actor, client_id: UUID, status: str) -> None:
    """Approve or decline every open request for approval of the client, in the current transaction."""
    count_changed(
        update(ClientRequest)
        .where(
            ClientRequest.organization_id == actor.organization_id,
            ClientRequest.client_id == client_id,
            ClientRequest.is_open.is_(True),
        )
        .values(decision_columns(actor, status))
    )


def decision_columns(actor: Actor, status: str) -> dict[str, Any]:
    """Return the columns of a request that the actor decides."""
    now = clock.now()
    return {
        "status": status,
        "is_open": None,
        "decided_at": now,
        "decided_by": actor.author,
        "expires_at": now + DECIDED_RETENTION,
    }
