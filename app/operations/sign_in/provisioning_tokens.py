"""Provisioning tokens, with which an identity provider creates and changes users and groups by SCIM (RFC 7644)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from msgspec import Struct
from sqlalchemy import ColumnElement, delete, select, update

from app.extensions import db
from app.models.base import has_key, is_same
from app.models.identity_provider import IdentityProvider, ProvisioningToken
from app.operations.directory.lookups import (
    created_after_restore,
    get_organization_by_id,
    touch_organization,
)
from app.operations.directory.snapshots import OrganizationSnapshot
from app.operations.sign_in.identity_providers import (
    IdentityProviderRecord,
    get_identity_provider,
    hold_provider,
    require_provider_permission,
)
from app.operations.store import audit, clock
from app.operations.store.request_limits import require_request_allowed
from app.operations.store.rows import make_record
from app.operations.store.transactions import count_changed, current_unit_of_work, read, transaction
from app.rules.actor import Actor
from app.rules.directory.permissions import MEMBER, permissions_of_role
from app.rules.errors import Conflict, NotFound, Unauthenticated
from app.rules.identifiers import (
    PROVISIONING,
    HasPublicId,
    digest,
    hint,
    is_token_of,
    new_id,
    new_token,
    parse_public_id,
    public_id,
)
from app.rules.languages.translation import lazy_gettext
from app.rules.sign_in.identity_providers import ENABLED

PREFIX = "pvt"
MAX_TOKENS_PER_PROVIDER = 2
"""One in use, and one that replaces it."""
_PRECISION = timedelta(minutes=1)


class ProvisioningTokenRecord(HasPublicId, Struct, frozen=True):
    """A provisioning token without its value."""

    id_prefix = PREFIX
    id: UUID
    provider_id: UUID
    hint: str
    created_at: datetime
    created_by: str | None
    last_used_at: datetime | None


class NewProvisioningToken(Struct, frozen=True):
    """A new token. ``token`` is its value, returned only once."""

    record: ProvisioningTokenRecord
    token: str


@read
def list_provisioning_tokens(actor: Actor, provider_id: str) -> list[ProvisioningTokenRecord]:
    """List the tokens of the provider with the id ``idp_…``, the oldest first. Raises Forbidden, NotFound."""
    return _list_usable(get_identity_provider(actor, provider_id))


@transaction
def create_provisioning_token(actor: Actor, provider_id: str) -> NewProvisioningToken:
    """Create a token for the provider with the id ``idp_…``. Returns it in clear, this once.

    Raises NotFound, Forbidden, FreshSignInRequired, and Conflict if the provider has two tokens. Audit:
    ``provisioning_token.created``.
    """
    require_provider_permission(actor)
    provider = get_identity_provider(actor, provider_id)
    # Of two requests, the second one waits here and counts the token of the first.
    touch_organization(provider.organization_id)
    hold_provider(provider)
    if len(_list_usable(provider)) >= MAX_TOKENS_PER_PROVIDER:
        message = lazy_gettext(
            "An identity provider has at most %(max)s provisioning tokens. Delete one first.",
            max=MAX_TOKENS_PER_PROVIDER,
        )
        raise Conflict(message, code="too_many_tokens")
    unit = current_unit_of_work()
    token = unit.stable_value("provisioning", lambda: new_token(PROVISIONING, provider.organization_id))
    row = ProvisioningToken(
        organization_id=provider.organization_id,
        id=unit.stable_value("provisioning id", new_id),
        provider_id=provider.id,
        digest=digest(token),
        hint=hint(token),
        created_at=clock.now(),
        created_by=actor.author,
    )
    db.session.add(row)
    record = make_record(ProvisioningTokenRecord, row)
    _record(actor, "provisioning_token.created", record, after={"hint": record.hint})
    return NewProvisioningToken(record, token)


@transaction
def delete_provisioning_token(actor: Actor, provider_id: str, token_id: str) -> ProvisioningTokenRecord:
    """Delete a token of the provider, which is rejected from now on, and return it.

    Users and groups stay. Raises NotFound, Forbidden, FreshSignInRequired. Audit: ``provisioning_token.deleted``.
    """
    require_provider_permission(actor)
    provider = get_identity_provider(actor, provider_id)
    key = has_key(ProvisioningToken, provider.organization_id, parse_public_id(PREFIX, token_id))
    row = db.session.scalar(select(ProvisioningToken).where(key, *_of_provider(provider)))
    if row is None:
        raise NotFound("There is no such provisioning token.")
    record = make_record(ProvisioningTokenRecord, row)
    if count_changed(delete(ProvisioningToken).where(key)) != 1:
        raise NotFound("There is no such provisioning token.")
    _record(actor, "provisioning_token.deleted", record, before={"hint": record.hint})
    return record


def authenticate_provisioning(
    organization: OrganizationSnapshot, token: str | None, *, ip_address: str | None, request_id: str | None
) -> Actor:
    """Return the identity provider that a token belongs to, as an actor that may read and change users.

    It may change those who have no more permissions than a member. Raises Unauthenticated without a valid token of an
    enabled provider of the organization, and TooManyRequests if the provider exceeds the organization's limits for
    clients.
    """
    found = None
    if token is not None and organization.is_active and is_token_of(token, PROVISIONING, organization.id):
        found = _find(organization.id, token)
    if found is None:
        raise Unauthenticated("Send a provisioning token of an enabled identity provider as a Bearer token.")
    provider_id = public_id("idp", found.provider_id)
    require_request_allowed(organization.id, organization.settings["limits"], provider_id, ip_address)
    now = clock.now()
    if found.last_used_at is None or now - found.last_used_at >= _PRECISION:
        _record_use(organization.id, found.id, now)
    of_member = permissions_of_role(MEMBER, organization.settings, is_root=organization.is_root)
    return Actor(
        "provider",
        organization.id,
        organization.id,
        permissions=frozenset({*of_member, "users:read", "users:write"}),
        label=found.name,
        ip_address=ip_address,
        request_id=request_id,
        provider_id=found.provider_id,
    )


@read
def _find(organization_id: str, token: str) -> Any:
    return db.session.execute(
        select(
            ProvisioningToken.id,
            ProvisioningToken.provider_id,
            ProvisioningToken.last_used_at,
            IdentityProvider.name,
        )
        .join(IdentityProvider, is_same(IdentityProvider.id, ProvisioningToken.provider_id))
        .where(
            ProvisioningToken.organization_id == organization_id,
            IdentityProvider.organization_id == organization_id,
            ProvisioningToken.digest == digest(token),
            IdentityProvider.status == ENABLED,
            created_after_restore(ProvisioningToken.created_at, organization_id),
        )
    ).first()


@transaction
def _record_use(organization_id: str, token_id: UUID, now: datetime) -> None:
    count_changed(
        update(ProvisioningToken)
        .where(has_key(ProvisioningToken, organization_id, token_id))
        .values(last_used_at=now)
    )


def _of_provider(provider: IdentityProviderRecord) -> tuple[ColumnElement[bool], ...]:
    return (
        ProvisioningToken.organization_id == provider.organization_id,
        ProvisioningToken.provider_id == provider.id,
    )


def _list_usable(provider: IdentityProviderRecord) -> list[ProvisioningTokenRecord]:
    organization = get_organization_by_id(provider.organization_id, fresh=False)
    rows = db.session.scalars(
        select(ProvisioningToken).where(*_of_provider(provider)).order_by(ProvisioningToken.id)
    )
    return [
        make_record(ProvisioningTokenRecord, row)
        for row in rows
        if not organization.is_before_restore(row.created_at)
    ]


def _record(actor: Actor, action: str, record: ProvisioningTokenRecord, **facts: Mapping[str, Any]) -> None:
    provider = {"provider": public_id("idp", record.provider_id)}
    audit.record(
        actor,
        action,
        "provisioning_token",
        record.public_id,
        **{name: {**provider, **values} for name, values in facts.items()},
    )
