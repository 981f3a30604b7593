"""Identity providers of an organization: list, create, update and delete them.

Whoever defines a provider decides who can sign in as whom, so this requires the permissions to change settings and
users and, for a user, a recent sign-in.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from msgspec import Struct
from sqlalchemy import delete, select, update

from app.config import current
from app.extensions import db
from app.fast_path import cache_invalidation
from app.models.base import has_key
from app.models.identity_provider import IdentityProvider, LinkedIdentity, ProvisioningToken
from app.operations.directory.lookups import get_organization_by_id, touch_organization
from app.operations.directory.snapshots import OrganizationSnapshot
from app.operations.sign_in.offered_providers import forget_offered_providers
from app.operations.sign_in.passkeys import (
    any_user_has_passwordless_passkey,
    is_passkey_sign_in_available,
)
from app.operations.sign_in.pending_sign_ins import delete_pending_sign_ins_with_provider
from app.operations.sign_in.provider_metadata import require_usable_issuer
from app.operations.sign_in.reauthentication import require_fresh_user_sign_in
from app.operations.sign_in.usable_identities import any_user_has_usable_identity, has_linked_identities
from app.operations.store import audit, clock, keyring
from app.operations.store.rows import Page, PageRequest, Updated, count_where, get_row, make_record, read_page
from app.operations.store.transactions import (
    count_changed,
    current_unit_of_work,
    read,
    savepoint,
    transaction,
)
from app.rules.actor import Actor
from app.rules.errors import Conflict, InvalidInput
from app.rules.identifiers import HasPublicId, encode_uuid, new_id, parse_public_id, public_id
from app.rules.languages.translation import lazy_gettext
from app.rules.sign_in.identity_providers import (
    DISABLED,
    ENABLED,
    MAX_PROVIDERS_PER_ORGANIZATION,
    validate_provider_fields,
)
from app.rules.versions import ExpectedVersion, require_version

PREFIX = "idp"
_BATCH = 1000


class IdentityProviderRecord(HasPublicId, Struct, frozen=True):
    """An identity provider without its client secret."""

    id_prefix = PREFIX
    organization_id: str
    id: UUID
    slug: str
    name: str
    issuer: str
    client_id: str
    scopes: tuple[str, ...]
    create_users: bool
    link_users: bool
    trust_emails: bool
    groups_claim: str
    status: str
    version: int
    created_at: datetime
    created_by: str | None
    updated_at: datetime

    @property
    def is_enabled(self) -> bool:
        """Return whether users can sign in with it."""
        return self.status == ENABLED

    @property
    def redirect_uri(self) -> str:
        """Return the redirect URI to register at the provider."""
        organization = get_organization_by_id(self.organization_id, fresh=False)
        return redirect_uri_of(organization.base_url, organization.slug, self.slug)

    @property
    def backchannel_logout_uri(self) -> str:
        """Return the URL to register at the provider, where it says that a user has signed out there."""
        organization = get_organization_by_id(self.organization_id, fresh=False)
        return (
            f"{organization.base_url}/organizations/{organization.slug}/oauth/backchannel-logout/{self.slug}"
        )

    @property
    def scim_url(self) -> str:
        """Return the URL below which the provider creates and changes users and groups (RFC 7644)."""
        organization = get_organization_by_id(self.organization_id, fresh=False)
        return scim_url_of(organization)


def scim_url_of(organization: OrganizationSnapshot) -> str:
    """Return the URL below which the organization's identity providers create and change users and groups."""
    return f"{organization.base_url}/organizations/{organization.slug}/scim/v2"


def redirect_uri_of(base_url: str, organization_slug: str, provider_slug: str) -> str:
    """Return the URL at which a provider of the organization returns the user."""
    return f"{base_url}/organizations/{organization_slug}/login/with/{provider_slug}/callback"


@read
def list_identity_providers(
    actor: Actor, page_request: PageRequest = PageRequest()
) -> Page[IdentityProviderRecord]:
    """Return a page of the organization's identity providers, newest first. Raises Forbidden."""
    actor.require("settings:read")
    statement = select(IdentityProvider).where(IdentityProvider.organization_id == actor.organization_id)
    return read_page(statement, (IdentityProvider.id,), page_request).map(provider_record)


@read
def get_identity_provider(actor: Actor, provider_id: str) -> IdentityProviderRecord:
    """Return one identity provider. Raises NotFound, Forbidden."""
    actor.require("settings:read")
    return provider_record(_get_row(actor, provider_id))


@read
def find_provider_names(organization_id: str) -> dict[str, str]:
    """Return the names of the organization's providers, by public id, in alphabetical order."""
    rows = db.session.execute(
        select(IdentityProvider.id, IdentityProvider.name)
        .where(IdentityProvider.organization_id == organization_id)
        .order_by(IdentityProvider.name, IdentityProvider.id)
    )
    return {public_id(PREFIX, row_id): name for row_id, name in rows}


@read
def find_enabled_provider(organization_id: str, slug: str) -> IdentityProviderRecord | None:
    """Find the enabled provider of the organization with this name in URLs."""
    row = db.session.scalar(
        select(IdentityProvider).where(
            IdentityProvider.organization_id == organization_id,
            IdentityProvider.slug == slug,
            IdentityProvider.status == ENABLED,
        )
    )
    return None if row is None else provider_record(row)


@transaction
def hold_provider(provider: IdentityProviderRecord) -> None:
    """Lock the provider's row until the current transaction ends, so that it is not changed meanwhile.

    Call it while the user is held. Raises Conflict if it was changed, disabled or deleted since the record was read.
    """
    row = db.session.execute(
        select(IdentityProvider.version, IdentityProvider.status)
        .where(has_key(IdentityProvider, provider.organization_id, provider.id))
        .with_for_update(read=True)
    ).first()
    if row is None or (row.version, row.status) != (provider.version, provider.status):
        raise Conflict(
            "The identity provider was changed by another request. Try again.", code="changed_meanwhile"
        )


@read
def read_client_secret(provider: IdentityProviderRecord) -> str:
    """Return the client secret for a request to the provider."""
    sealed = db.session.scalar(
        select(IdentityProvider.sealed_secret).where(
            has_key(IdentityProvider, provider.organization_id, provider.id)
        )
    )
    if sealed is None:
        raise Conflict("The identity provider was deleted.", code="changed_meanwhile")
    return keyring.unseal(provider.organization_id, sealed, _sealing_context(provider.id)).decode()


def check_issuer(actor: Actor, sent: Mapping[str, Any]) -> None:
    """Read the metadata of the issuer that ``sent`` names, so that a transaction within the next minute can store it.

    Does nothing if a field is invalid, which the transaction reports. Raises Forbidden, FreshSignInRequired, and
    InvalidInput naming ``issuer`` if the metadata cannot be used.
    """
    require_provider_permission(actor)
    try:
        values = validate_provider_fields(sent, is_new=True, allowed_hosts=current().outgoing_allowed_hosts)
    except InvalidInput:
        return
    require_usable_issuer(actor.organization_id, values["issuer"])


def create_identity_provider(actor: Actor, sent: Mapping[str, Any]) -> IdentityProviderRecord:
    """Create an identity provider after reading its metadata and keys.

    ``sent`` has the fields of ``NewIdentityProvider``. Within a transaction, call ``check_issuer`` before it. Raises
    InvalidInput naming every invalid field, or ``issuer`` if the provider's metadata cannot be used, Forbidden,
    FreshSignInRequired, and Conflict if the slug is taken or the organization has the maximum number of providers.
    Audit: ``identity_provider.created``.
    """
    require_provider_permission(actor)
    values = validate_provider_fields(sent, is_new=True, allowed_hosts=current().outgoing_allowed_hosts)
    require_usable_issuer(actor.organization_id, values["issuer"])
    return store_identity_provider(actor, values)


@transaction
def store_identity_provider(actor: Actor, values: Mapping[str, Any]) -> IdentityProviderRecord:
    """Store a provider with validated values, without reading its metadata.

    The caller checks permissions. Raises Conflict as ``create_identity_provider`` does. Audit:
    ``identity_provider.created``.
    """
    # Lock the organization's row first, so that a concurrent request waits here and counts this provider too.
    touch_organization(actor.organization_id)
    existing = count_where(IdentityProvider.organization_id == actor.organization_id)
    if existing >= MAX_PROVIDERS_PER_ORGANIZATION:
        message = lazy_gettext(
            "An organization can have at most %(max)s identity providers. Delete one first.",
            max=MAX_PROVIDERS_PER_ORGANIZATION,
        )
        raise Conflict(message, code="too_many_identity_providers")
    now = clock.now()
    row_id: UUID = current_unit_of_work().stable_value("identity provider", new_id)
    row = IdentityProvider(
        organization_id=actor.organization_id,
        id=row_id,
        sealed_secret=_seal(actor.organization_id, row_id, values["client_secret"]),
        **{name: value for name, value in values.items() if name != "client_secret"},
        version=1,
        created_at=now,
        created_by=actor.author,
        updated_at=now,
    )
    taken = Conflict("There is already an identity provider with this name.", field="slug", code="slug_taken")
    with savepoint(on_duplicate=taken):
        db.session.add(row)
    _invalidate(actor.organization_id)
    _record(actor, "identity_provider.created", row_id, after=_audit_fields(row))
    return provider_record(row)


def update_identity_provider(
    actor: Actor, provider_id: str, sent: Mapping[str, Any], *, expected_version: ExpectedVersion = None
) -> Updated[IdentityProviderRecord]:
    """Update the given fields and return the provider with the names of the changed fields.

    Another issuer is one whose users are others, so it is rejected as long as users have linked accounts of the old
    one. Call it outside of a transaction. Raises NotFound, InvalidInput, Forbidden, FreshSignInRequired,
    PreconditionFailed, Conflict, also if no user could sign in then. Audit: ``identity_provider.updated``, if anything
    changed.
    """
    require_provider_permission(actor)
    values = validate_provider_fields(sent, is_new=False, allowed_hosts=current().outgoing_allowed_hosts)
    before = get_identity_provider(actor, provider_id)
    if "issuer" in values and values["issuer"] != before.issuer:
        require_usable_issuer(actor.organization_id, values["issuer"])
    return _update(actor, provider_id, values, expected_version)


@transaction
def _update(
    actor: Actor, provider_id: str, sent: Mapping[str, Any], expected_version: ExpectedVersion
) -> Updated[IdentityProviderRecord]:
    # Locked by its key, as where it is deleted: MariaDB may look for the row to update by another index.
    row = _get_row(actor, provider_id, hold=True)
    require_version(row.version, expected_version)
    secret = sent.get("client_secret")
    values = {
        name: value for name, value in sent.items() if name != "client_secret" and getattr(row, name) != value
    }
    if "slug" in values:
        raise InvalidInput("The name in URLs can't be changed.", field="slug", code="read_only")
    if not values and secret is None:
        return Updated(provider_record(row), ())
    changed = (*sorted(values), *(("client_secret",) if secret is not None else ()))
    before = _audit_fields(row)
    if secret is not None:
        values["sealed_secret"] = _seal(row.organization_id, row.id, secret)
    db.session.execute(
        update(IdentityProvider)
        .where(has_key(IdentityProvider, row.organization_id, row.id))
        .values(version=row.version + 1, updated_at=clock.now(), **values)
    )
    # A sign-in that links an account holds the row, which is locked here.
    if "issuer" in values and has_linked_identities(row.organization_id, row.id):
        raise InvalidInput(
            "Users have linked accounts of this issuer. Add another identity provider instead.",
            field="issuer",
            code="in_use",
        )
    _invalidate(row.organization_id)
    if values.get("status") == DISABLED:
        delete_pending_sign_ins_with_provider(row.organization_id, row.id)
    _require_another_way(row.organization_id)
    row = _get_row(actor, provider_id)
    after = _audit_fields(row)
    facts = {name: after[name] for name in changed if name in after}
    if secret is not None:
        facts["client_secret"] = "changed"
    _record(
        actor,
        "identity_provider.updated",
        row.id,
        before={name: before[name] for name in changed if name in before},
        after=facts,
    )
    return Updated(provider_record(row), changed)


def delete_identity_provider(
    actor: Actor, provider_id: str, *, expected_version: ExpectedVersion = None
) -> IdentityProviderRecord:
    """Delete an identity provider and the links of users to their accounts there.

    Users who signed in with it or were provisioned by it stay, and so do their sessions. The links of many users are
    deleted in parts, after the provider was disabled. If that is interrupted, it remains disabled and can be deleted
    again. Call it outside of a transaction. Raises NotFound, Forbidden, FreshSignInRequired, PreconditionFailed, and
    Conflict if no user could sign in then. Audit: ``identity_provider.deleted``, with many links after
    ``identity_provider.updated``.
    """
    require_provider_permission(actor)
    if _has_many_links(actor, provider_id):
        provider = _disable_for_deletion(actor, provider_id, expected_version)
        expected_version = None
        while _delete_some_links(provider) == _BATCH:
            pass
    return _delete(actor, provider_id, expected_version)


@read
def _has_many_links(actor: Actor, provider_id: str) -> bool:
    row = _get_row(actor, provider_id)
    of_provider = select(LinkedIdentity.id).where(
        LinkedIdentity.organization_id == row.organization_id, LinkedIdentity.provider_id == row.id
    )
    return db.session.scalar(of_provider.order_by(LinkedIdentity.id).offset(_BATCH).limit(1)) is not None


@transaction
def _disable_for_deletion(
    actor: Actor, provider_id: str, expected_version: ExpectedVersion
) -> IdentityProviderRecord:
    row = _get_row(actor, provider_id, hold=True)
    require_version(row.version, expected_version)
    if row.status == ENABLED:
        count_changed(
            update(IdentityProvider)
            .where(has_key(IdentityProvider, row.organization_id, row.id))
            .values(status=DISABLED, version=IdentityProvider.version + 1, updated_at=clock.now())
        )
        _invalidate(row.organization_id)
        delete_pending_sign_ins_with_provider(row.organization_id, row.id)
        _require_another_way(row.organization_id)
        changes = {"before": {"status": ENABLED}, "after": {"status": DISABLED}}
        _record(actor, "identity_provider.updated", row.id, **changes)
    return provider_record(row)


@transaction
def _delete_some_links(provider: IdentityProviderRecord) -> int:
    of_provider = select(LinkedIdentity.id).where(
        LinkedIdentity.organization_id == provider.organization_id, LinkedIdentity.provider_id == provider.id
    )
    ids = db.session.scalars(of_provider.order_by(LinkedIdentity.id).limit(_BATCH)).all()
    if not ids:
        return 0
    return count_changed(
        delete(LinkedIdentity).where(
            LinkedIdentity.organization_id == provider.organization_id, LinkedIdentity.id.in_(ids)
        )
    )


@transaction
def _delete(actor: Actor, provider_id: str, expected_version: ExpectedVersion) -> IdentityProviderRecord:
    # A sign-in holds the provider before it writes the link, so the provider is locked first here, too.
    row = _get_row(actor, provider_id, hold=True)
    require_version(row.version, expected_version)
    record, before = provider_record(row), _audit_fields(row)
    # Before the links, as where a user is deleted or a link removed.
    if record.is_enabled:
        delete_pending_sign_ins_with_provider(record.organization_id, record.id)
    for model in (LinkedIdentity, ProvisioningToken):
        count_changed(
            delete(model).where(model.organization_id == row.organization_id, model.provider_id == row.id)
        )
    count_changed(delete(IdentityProvider).where(has_key(IdentityProvider, row.organization_id, row.id)))
    _invalidate(record.organization_id)
    if record.is_enabled:
        _require_another_way(record.organization_id)
    _record(actor, "identity_provider.deleted", record.id, before=before)
    return record


def provider_record(row: IdentityProvider) -> IdentityProviderRecord:
    """Return the record of a row."""
    return make_record(IdentityProviderRecord, row, scopes=tuple(row.scopes))


def require_provider_permission(actor: Actor) -> None:
    """Raise Forbidden or FreshSignInRequired unless the actor may define identity providers now."""
    actor.require("settings:write")
    actor.require("users:write")
    require_fresh_user_sign_in(actor)


def _get_row(actor: Actor, provider_id: str, *, hold: bool = False) -> IdentityProvider:
    key = has_key(IdentityProvider, actor.organization_id, parse_public_id(PREFIX, provider_id))
    statement = select(IdentityProvider).where(key)
    row: IdentityProvider = get_row(
        statement.with_for_update() if hold else statement, "There is no such identity provider."
    )
    return row


def _invalidate(organization_id: str) -> None:
    """Make every worker read the organization's providers again after the current transaction has committed."""
    forget_offered_providers(organization_id)
    cache_invalidation.invalidate(organization_id)


def _require_another_way(organization_id: str) -> None:
    """Raise Conflict if no user could sign in any more, which only matters where passwords are disabled."""
    organization = get_organization_by_id(organization_id)
    if organization.settings["authentication"]["password"]["enabled"] or any_user_has_usable_identity(
        organization_id
    ):
        return
    if is_passkey_sign_in_available(organization) and any_user_has_passwordless_passkey(organization_id):
        return
    raise Conflict(
        "This identity provider is the only way to sign in. Allow passwords or passkeys first.",
        code="would_lock_out",
    )


def _seal(organization_id: str, provider_id: UUID, secret: str) -> bytes:
    return keyring.seal(organization_id, secret.encode(), _sealing_context(provider_id))


def _sealing_context(provider_id: UUID) -> str:
    return f"identity provider|{encode_uuid(provider_id)}"


def _audit_fields(row: IdentityProvider) -> dict[str, Any]:
    names = (
        "slug", "name", "issuer", "client_id", "scopes", "create_users", "link_users", "trust_emails",
        "groups_claim", "status",
    )  # fmt: skip
    return {name: getattr(row, name) for name in names}


def _record(actor: Actor, action: str, provider_id: UUID, **facts: Any) -> None:
    audit.record(actor, action, "identity_provider", public_id(PREFIX, provider_id), **facts)
