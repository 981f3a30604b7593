"""Two organizations of its own that the isolation check lets loose on each other, and what it could have changed."""

from __future__ import annotations

import hashlib
import io
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID, uuid4

from sqlalchemy import select, update

from app.extensions import db
from app.models.base import Base
from app.models.event import OutboxMessage
from app.models.organization import DELETED, Organization
from app.operations.audit import webhook_deliveries, webhooks
from app.operations.authorization import approval_requests, connected_apps, consents
from app.operations.clients import clients, credentials, initial_access_tokens, resources, scopes
from app.operations.clients.clients import RegisteredClient
from app.operations.directory import lookups
from app.operations.directory.lookups import OrganizationSnapshot, get_organization_by_id
from app.operations.directory.users import create_user
from app.operations.mail.sealed_payloads import seal_payload
from app.operations.organizations import organizations, roles
from app.operations.organizations.administrators import add_administrator
from app.operations.organizations.organizations import insert_organization
from app.operations.sign_in.passwords import hash_new_password
from app.operations.sign_in.sessions import find_session
from app.operations.sign_in.sign_in import SignedIn, sign_in
from app.operations.store import clock
from app.operations.store.outbox import Message
from app.operations.store.transactions import read, transaction
from app.operations.tokens.bulk_revocation import revoke_widely
from app.operations.users import import_uploads, registrations
from app.operations.users import registrations as waiting
from app.operations.users.email_verification import REGISTRATION_MESSAGE
from app.operations.users.invitations import create_invitation
from app.rules.actor import Actor
from app.rules.directory.permissions import PERMISSIONS
from app.rules.errors import NotFound, Unavailable
from app.rules.identifiers import public_id

# Longer than any check lasts; the organization is purged after it.
_LATER = timedelta(days=1)


def build_waiting(
    actor: Actor,
    organization: OrganizationSnapshot,
    client_id: str,
    session_token: str,
    *,
    marker: str,
    password_hash: str,
) -> dict[str, str]:
    """One of each stands; returns their ids by the names that the paths of the API have for them.

    ``session_token`` is of an administrator, ``client_id`` of the app whom they allow. Audit: as each of them.
    """
    session, client = find_session(session_token), lookups.find_client(client_id, fresh=True)
    if session is None or client is None:
        raise Unavailable("The isolation check could not sign in.")
    person = session.actor()
    approval_requests.ask_for_client(person, client, ("openid",), marker)
    _allow(person, session.user_id, client_id)
    _ask_for_account(organization, marker, password_hash)
    receipt = revoke_widely(
        actor,
        organization.slug,
        # Before anything of it was issued: nothing ends.
        {"client_id": client_id, "issued_before": "2020-01-01T00:00:00Z", "reason": marker},
    ).receipt
    file = io.BytesIO(f"email,name\n{marker}@import.invalid,{marker}\n".encode())
    # In the foreground of nobody: no worker takes it up, and it waits.
    upload = import_uploads.receive_upload(
        actor, file.read, file_format="csv", name=marker, is_foreground=True
    )
    import_uploads.confirm_upload(actor, upload, is_dry_run=True)
    webhook_id, delivery_id = _tell(actor, marker)
    return {
        "userId": public_id("usr", session.user_id),
        "sessionId": public_id("ses", session.id),
        "clientRequestId": approval_requests.list_client_requests(actor).items[0].public_id,
        "consentId": connected_apps.list_given_consents(actor).items[0].public_id,
        "registrationId": waiting.list_registrations(actor).items[0].public_id,
        "revocationId": receipt.public_id or "",
        "importId": public_id("imp", upload.id),
        "webhookId": webhook_id,
        "deliveryId": delivery_id,
    }


@transaction
def _allow(person: Actor, user_id: UUID, client_id: str) -> None:
    client = lookups.find_client(client_id, fresh=True)
    if client is None:
        raise NotFound("There is no such client.")
    consents.remember(person, client, user_id, ("openid", "email"))


def _ask_for_account(organization: OrganizationSnapshot, marker: str, password_hash: str) -> None:
    """As if the outbox had got to it: somebody waits for an account."""
    asked = {
        "email": f"waiting-{marker}@isolation.invalid",
        "name": marker,
        "password_hash": password_hash,
        "address": None,
        "request_id": None,
    }
    now = clock.now()
    payload = seal_payload(organization.id, REGISTRATION_MESSAGE, asked)
    registrations.answer(
        Message(organization.id, uuid4(), REGISTRATION_MESSAGE, "isolation check", payload, 1, now, now)
    )


@transaction
def _tell(actor: Actor, marker: str) -> tuple[str, str]:
    """A webhook that was told of one event; its message, and what else waits to leave, stays here."""
    made = webhooks.create_webhook(
        actor,
        {"url": "https://isolation.invalid/hook", "event_types": ["user.deleted"], "description": marker},
    )
    delivery = webhook_deliveries.send_test(actor, made.record.public_id)
    db.session.execute(
        update(OutboxMessage)
        .where(OutboxMessage.organization_id == actor.organization_id, OutboxMessage.done_at.is_(None))
        .values(available_at=clock.now() + _LATER)
        .execution_options(synchronize_session=False)
    )
    return made.record.public_id, delivery.public_id


REDIRECT_URI = "https://isolation.invalid/callback"
_OPEN = {"authentication": {"registration": {"mode": "open"}}}
# What strangers may write at an organization by knocking, and what follows by itself.
_OPEN_TO_STRANGERS = frozenset(
    {"attempts", "failed_requests", "authorization_requests", "audit_links", "audit_chains", "view_changes"}
)


@dataclass(frozen=True, slots=True)
class Corner:
    """An organization with one of everything; ``marker`` stands in all that only its own people may see.

    ``ids`` are those that no list of the API shows by itself, by the names that its paths have for them.
    """

    organization: OrganizationSnapshot
    marker: str
    app: RegisteredClient
    machine: RegisteredClient
    session_token: str
    user_id: str
    user_email: str
    ids: Mapping[str, str]


def build_corner(actor: Actor) -> Corner:
    """A fresh organization stands, with people, clients, secrets, APIs and a sign-in. Audit: as each of them."""
    actor.require("instance:write")
    marker = f"mark{secrets.token_hex(12)}"
    slug = f"isolation-{secrets.token_hex(8)}"
    key = insert_organization(actor, slug=slug, name="Isolation check", overrides=_OPEN)
    organization = get_organization_by_id(key)
    system = Actor.system(key, actor.label)
    password = secrets.token_urlsafe(24)
    hashed = hash_new_password(organization.settings, password)
    people = [
        create_user(key, email=email, name=marker, password_hash=hashed, email_verified=True)
        for email in (f"{marker}@isolation.invalid", f"other-{marker}@isolation.invalid")
    ]
    for user_id in people:
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
    credentials.create_credential(system, app.client.client_id, name=marker)
    resources.define_resource(
        system, {"identifier": f"urn:{marker}", "name": marker, "scopes": [{"name": f"{marker}:read"}]}
    )
    scopes.add_scopes(system, [f"{marker}/plain"])
    initial_access_tokens.create_registration_token(system, {"name": marker})
    roles.create_role(system, {"id": f"r{marker[:20]}", "name": marker, "permissions": []})
    outcome = sign_in(key, f"{marker}@isolation.invalid", password, user_agent="isolation check")
    if not isinstance(outcome, SignedIn):
        raise Unavailable("The isolation check could not sign in.")
    return Corner(
        organization,
        marker,
        app,
        machine,
        outcome.token,
        public_id("usr", outcome.user_id),
        f"{marker}@isolation.invalid",
        build_waiting(
            system, organization, app.client.client_id, outcome.token, marker=marker, password_hash=hashed
        ),
    )


@read
def fingerprint(actor: Actor, organization_id: str) -> dict[str, str]:
    """A digest of the organization's rows in each table, but for what strangers may write by knocking (TN-3)."""
    actor.require("instance:write")
    found = {}
    for table in Base.metadata.sorted_tables:
        column = table.c.get("organization_id", table.c.get("id") if table.name == "organizations" else None)
        if column is None or table.name in _OPEN_TO_STRANGERS:
            continue
        digest = hashlib.sha256()
        statement = select(table).where(column == organization_id).order_by(*table.primary_key)
        for row in db.session.execute(statement.execution_options(yield_per=500)):
            digest.update(repr(tuple(row)).encode())
        found[table.name] = digest.hexdigest()
    return found


def remove_corner(actor: Actor, corner: Corner) -> None:
    """The organization is deleted, and purged at the janitor's next turn. Audit: ``organization.deleted``."""
    organizations.delete_organization(actor, corner.organization.slug)
    _hasten(corner.organization.id)


@transaction
def _hasten(organization_id: str) -> None:
    db.session.execute(
        update(Organization)
        .where(Organization.id == organization_id, Organization.status == DELETED)
        .values(purge_at=clock.now())
    )
