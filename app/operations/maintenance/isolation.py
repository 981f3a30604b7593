"""The organizations of the isolation check: create two of them with one of everything, compare their rows, and delete
them.
"""

from __future__ import annotations

import hashlib
import io
import secrets
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from uuid import UUID, uuid4

from msgspec import Struct
from sqlalchemy import select, update

from app.extensions import db
from app.models.audit import OutboxMessage
from app.models.base import Base
from app.models.identity_provider import LinkedIdentity
from app.models.organization import DELETED, Organization
from app.operations.audit import webhook_deliveries, webhooks
from app.operations.authorization import approval_requests, connected_apps, consents
from app.operations.clients import (
    access_decisions,
    clients,
    credentials,
    initial_access_tokens,
    resources,
    scopes,
)
from app.operations.clients.clients import RegisteredClient
from app.operations.directory import lookups
from app.operations.directory.lookups import get_organization_by_id
from app.operations.directory.snapshots import ClientSnapshot, OrganizationSnapshot
from app.operations.directory.users import create_user
from app.operations.mail.emails import seal_payload
from app.operations.organizations import organizations, roles
from app.operations.organizations.administrators import add_administrator
from app.operations.organizations.organizations import insert_organization
from app.operations.sign_in import identity_providers
from app.operations.sign_in.password_sign_in import sign_in
from app.operations.sign_in.passwords import hash_new_password
from app.operations.sign_in.provisioning_tokens import create_provisioning_token
from app.operations.sign_in.sessions import find_session
from app.operations.sign_in.sign_in import Browser, SignedIn
from app.operations.store import clock
from app.operations.store.outbox import Message
from app.operations.store.transactions import count_changed, read, transaction
from app.operations.tokens.bulk_revocation import bulk_revoke
from app.operations.users import app_roles, groups, import_uploads, registrations
from app.operations.users.invitations import create_invitation
from app.operations.users.sign_up import REGISTRATION_MESSAGE
from app.rules.actor import Actor
from app.rules.directory.permissions import PERMISSIONS
from app.rules.errors import DomainError, Unavailable
from app.rules.identifiers import new_id, public_id
from app.rules.sign_in.identity_providers import validate_provider_fields

# Longer than any check takes. The organization is purged afterwards.
_POSTPONEMENT = timedelta(days=1)
REDIRECT_URI = "https://isolation.invalid/callback"
_OPEN_REGISTRATION = {"authentication": {"registration": {"mode": "open"}}}
# Tables that unauthenticated requests or background jobs may change.
_WRITABLE_BY_ANYONE = frozenset(
    {
        "attempts",
        "request_counts",
        "failed_requests",
        "usage_counters",
        "sampled_requests",
        "authorization_requests",
        "audit_links",
        "audit_chains",
        "view_changes",
    }
)


def create_pending_items(
    actor: Actor,
    organization: OrganizationSnapshot,
    client_id: str,
    session_token: str,
    *,
    marker: str,
    password_hash: str,
) -> dict[str, str]:
    """Create one pending item of each kind, and return their ids by the parameter names of the API paths.

    ``session_token`` belongs to an administrator, ``client_id`` to the app that they allow. Audit: that of each item.
    """
    session, client = find_session(session_token), lookups.find_client(client_id, fresh=True)
    if session is None or client is None:
        raise Unavailable("The isolation check could not sign in.")
    administrator = session.actor()
    approval_requests.create_client_request(administrator, client, ("openid",), marker)
    _allow(administrator, client, session.user_id)
    _create_registration(organization, marker, password_hash)
    receipt = bulk_revoke(
        actor,
        organization.slug,
        # Earlier than any token, so that nothing is revoked.
        {"client_id": client_id, "issued_before": "2020-01-01T00:00:00Z", "reason": marker},
    ).receipt
    file = io.BytesIO(f"email,name\n{marker}@import.invalid,{marker}\n".encode())
    # No worker processes a foreground upload, so it stays pending.
    upload = import_uploads.receive_upload(
        actor, file.read, file_format="csv", name=marker, is_foreground=True
    )
    import_uploads.confirm_upload(actor, upload, is_dry_run=True)
    provider_id, identity_id = _create_identity(actor, marker, session.user_id)
    token = create_provisioning_token(actor, provider_id)
    webhook_id, delivery_id = _create_webhook(actor, marker)
    holder = {"user_id": public_id("usr", session.user_id)}
    group = groups.create_group(actor, organization.slug, {"name": marker})
    groups.add_member(actor, organization.slug, group.public_id, holder)
    clients.update_client(actor, client_id, {"app_roles": [{"key": "editor", "name": marker}]})
    assignment = app_roles.assign_app_role(actor, client_id, {"role": "editor", **holder})
    return {
        "groupId": group.public_id,
        "assignmentId": assignment.public_id,
        "userId": public_id("usr", session.user_id),
        "sessionId": public_id("ses", session.id),
        "clientRequestId": approval_requests.list_client_requests(actor).items[0].public_id,
        "consentId": connected_apps.list_user_consents(actor).items[0].public_id,
        "registrationId": registrations.list_registrations(actor).items[0].public_id,
        "revocationId": receipt.public_id or "",
        "providerId": provider_id,
        "identityId": identity_id,
        "provisioningTokenId": token.record.public_id,
        "importId": public_id("imp", upload.id),
        "webhookId": webhook_id,
        "deliveryId": delivery_id,
    }


@transaction
def _allow(actor: Actor, client: ClientSnapshot, user_id: UUID) -> None:
    consents.store_consent(actor, client, user_id, ("openid", "email"))


def _create_registration(organization: OrganizationSnapshot, marker: str, password_hash: str) -> None:
    """Create a registration, as if the outbox had processed it."""
    asked = {
        "email": f"waiting-{marker}@isolation.invalid",
        "name": marker,
        "password_hash": password_hash,
        "address": None,
        "request_id": None,
    }
    now = clock.now()
    payload = seal_payload(organization.id, REGISTRATION_MESSAGE, asked)
    registrations.process_registration(
        Message(organization.id, uuid4(), REGISTRATION_MESSAGE, "isolation check", payload, 1, now, now, now)
    )


@transaction
def _create_identity(actor: Actor, marker: str, user_id: UUID) -> tuple[str, str]:
    """Create an identity provider, which no one can reach, and an account there that is linked to the user."""
    fields = {
        "slug": "isolation",
        # Its button is on a public page.
        "name": "Isolation check",
        "issuer": "https://isolation.invalid",
        "client_id": marker,
        "client_secret": marker,
    }
    values = validate_provider_fields(fields, is_new=True, allowed_hosts=frozenset())
    provider = identity_providers.store_identity_provider(actor, values)
    identity_id = new_id()
    db.session.add(
        LinkedIdentity(
            organization_id=actor.organization_id,
            id=identity_id,
            provider_id=provider.id,
            user_id=user_id,
            subject=marker,
            email=f"{marker}@isolation.invalid",
            created_at=clock.now(),
        )
    )
    return provider.public_id, public_id("idn", identity_id)


@transaction
def _create_webhook(actor: Actor, marker: str) -> tuple[str, str]:
    """Create a webhook with one delivery. Its outbox messages are postponed, so that nothing is sent."""
    made = webhooks.create_webhook(
        actor,
        {"url": "https://isolation.invalid/hook", "event_types": ["user.deleted"], "description": marker},
    )
    delivery = webhook_deliveries.send_test(actor, made.record.public_id)
    count_changed(
        update(OutboxMessage)
        .where(OutboxMessage.organization_id == actor.organization_id, OutboxMessage.done_at.is_(None))
        .values(available_at=clock.now() + _POSTPONEMENT)
    )
    return made.record.public_id, delivery.public_id


class IsolationOrganization(Struct, frozen=True):
    """An organization with one of everything; ``marker`` is part of all data that only its own users may see.

    ``ids`` are those that no list of the API contains, by the parameter names of its paths.
    """

    organization: OrganizationSnapshot
    marker: str
    app: RegisteredClient
    machine: RegisteredClient
    session_token: str
    ids: Mapping[str, str]


def create_isolation_organization(actor: Actor) -> IsolationOrganization:
    """Create an organization with users, clients, secrets, APIs and a session. Audit: that of each object.

    It is deleted again if that fails.
    """
    actor.require("instance:write")
    slug = f"isolation-{secrets.token_hex(8)}"
    key = insert_organization(actor, slug=slug, name="Isolation check", overrides=_OPEN_REGISTRATION)
    try:
        return _fill(actor, slug, key)
    except BaseException:
        # Its users and secrets must not stay; the error that is raised says more than one of this.
        with suppress(DomainError):
            _delete(actor, slug, key)
        raise


def _fill(actor: Actor, slug: str, key: str) -> IsolationOrganization:
    marker = f"mark{secrets.token_hex(12)}"
    organization = get_organization_by_id(key)
    system = Actor.system(key, actor.label)
    password = secrets.token_urlsafe(24)
    hashed = hash_new_password(organization.settings, password)
    user_ids = [
        create_user(key, email=email, name=marker, password_hash=hashed, email_verified=True)
        for email in (f"{marker}@isolation.invalid", f"other-{marker}@isolation.invalid")
    ]
    for user_id in user_ids:
        add_administrator(system, slug, user_id=public_id("usr", user_id), role="admin")
    create_invitation(system, slug, email=f"new-{marker}@isolation.invalid", name=marker)
    app = clients.register_client(
        system,
        {
            "name": marker,
            "type": "web",
            "trust": "first_party",
            "redirect_uris": [REDIRECT_URI],
            "scopes": ["openid", "email", "offline_access"],
        },
    )
    machine = clients.register_client(
        system,
        {
            "name": marker,
            "type": "machine",
            "grant_types": ["client_credentials"],
            "scopes": sorted(PERMISSIONS),
        },
    )
    credentials.create_credential(system, app.client.client_id, {"name": marker})
    resource = resources.define_resource(
        system, {"identifier": f"urn:{marker}", "name": marker, "scopes": [{"name": f"{marker}:read"}]}
    )
    access_decisions.give_access(system, resource.public_id, app.client.client_id, {"scopes": []})
    scopes.add_scopes(system, [f"{marker}/plain"])
    initial_access_tokens.create_registration_token(system, {"name": marker})
    roles.create_role(system, {"id": f"r{marker[:20]}", "name": marker, "permissions": []})
    outcome = sign_in(
        key, f"{marker}@isolation.invalid", password, browser=Browser(user_agent="isolation check")
    )
    if not isinstance(outcome, SignedIn):
        raise Unavailable("The isolation check could not sign in.")
    return IsolationOrganization(
        organization,
        marker,
        app,
        machine,
        outcome.token,
        create_pending_items(
            system, organization, app.client.client_id, outcome.token, marker=marker, password_hash=hashed
        ),
    )


@read
def table_digests(actor: Actor, organization_id: str) -> dict[str, str]:
    """Return a digest of the organization's rows in each table, except for those that anyone may create (TN-3)."""
    actor.require("instance:write")
    found = {}
    for table in Base.metadata.sorted_tables:
        column = table.c.get("organization_id", table.c.get("id") if table.name == "organizations" else None)
        if column is None or table.name in _WRITABLE_BY_ANYONE:
            continue
        digest = hashlib.sha256()
        statement = select(table).where(column == organization_id).order_by(*table.primary_key)
        for row in db.session.execute(statement.execution_options(yield_per=500)):
            digest.update(repr(tuple(row)).encode())
        found[table.name] = digest.hexdigest()
    return found


def delete_isolation_organization(actor: Actor, corner: IsolationOrganization) -> None:
    """Delete the organization, so that the janitor purges it at its next run. Audit: ``organization.deleted``."""
    _delete(actor, corner.organization.slug, corner.organization.id)


def _delete(actor: Actor, slug: str, organization_id: str) -> None:
    organizations.delete_organization(actor, slug)
    _purge_soon(organization_id)


@transaction
def _purge_soon(organization_id: str) -> None:
    db.session.execute(
        update(Organization)
        .where(Organization.id == organization_id, Organization.status == DELETED)
        .values(purge_at=clock.now())
    )
