"""Dynamic client registration (RFC 7591) and its management (RFC 7592), on the operations of every other client.

A change does not renew the registration access token, because a lost response would lock the client out.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import select, update

from app.database import ACROSS
from app.extensions import db
from app.models.base import has_key, is_same
from app.models.client import ACTIVE, Client, ClientRegistration, Credential
from app.models.organization import Organization
from app.operations.clients import scopes, sector_documents
from app.operations.clients.client_records import ClientRecord
from app.operations.clients.clients import (
    FIRST_IDLE_CHECK,
    delete_client,
    get_client,
    register_client,
    update_client,
)
from app.operations.clients.credentials import create_credential
from app.operations.clients.initial_access_tokens import require_usable_token, spend_token
from app.operations.directory.lookups import get_organization_by_id, is_served_here
from app.operations.directory.snapshots import OrganizationSnapshot
from app.operations.store import clock, rate_limits
from app.operations.store.rate_limits import network_limits
from app.operations.store.transactions import count_changed, read, transaction, transaction_part
from app.rules.actor import Actor
from app.rules.clients.client_types import BLOCKED, DYNAMIC, MINIMAL
from app.rules.clients.dynamic_metadata import Offer, as_fields, replacing
from app.rules.errors import Forbidden, InvalidInput, NotFound, Unauthenticated
from app.rules.identifiers import (
    REGISTRATION_ACCESS,
    digest,
    format_client_id,
    is_token_of,
    new_token,
    parse_client_id,
)
from app.rules.sign_in.passwords import Lockout

OFF, BY_TOKEN = "off", "initial_access_token"
_LIMIT_WINDOW, _DELAY, _MAX_DELAY = timedelta(hours=1), timedelta(minutes=1), timedelta(minutes=15)
_LABEL = "the app itself"
_READ_ONLY = (
    "client_id_issued_at",
    "client_secret_expires_at",
    "registration_access_token",
    "registration_client_uri",
)

_MAY_ADD_SECRET = frozenset({"clients:read", "credentials:read", "credentials:write"})


class RegistrationPermit(Struct, frozen=True):
    """Permission to register in the organization; ``token`` is the initial access token that it costs, if any."""

    organization: OrganizationSnapshot
    token: str | None


class Registration(Struct, frozen=True):
    """A client as its own management endpoint shows it.

    ``secret`` is set in clear text if it was generated just now; ``secret_expires_at`` is its expiry, and
    ``has_secret`` whether there is a valid one. ``access_token`` is the registration access token.
    """

    client: ClientRecord
    organization: OrganizationSnapshot
    access_token: str
    secret: str | None
    has_secret: bool
    secret_expires_at: datetime | None


def permit_registration(actor: Actor, sent: Mapping[str, Any], token: str | None) -> RegistrationPermit:
    """Check that a stranger may register a client in the actor's organization (DC-2). Call it before a transaction.

    ``token`` is the initial access token that was sent, if any. Raises Forbidden if registration is off,
    Unauthenticated without a token where one is needed, TooManyRequests.
    """
    organization = get_organization_by_id(actor.organization_id)
    mode = organization.settings["oauth"]["dynamic_registration"]["mode"]
    if mode == OFF or not organization.is_active:
        raise Forbidden("This organization does not let clients register themselves.", code="access_denied")
    if mode == BY_TOKEN:
        # First, so that strangers cannot make this service fetch a sector document.
        require_usable_token(organization.id, token or "")
    else:
        _check_registration_limit(actor, organization)
    fetch_sector_document(actor, sent)
    return RegistrationPermit(organization, (token or "") if mode == BY_TOKEN else None)


def fetch_sector_document(actor: Actor, sent: Mapping[str, Any]) -> None:
    """Fetch the document of the metadata's sector identifier, before the transaction that needs it."""
    sector_documents.prefetch_sector_document(
        registrar_actor(actor, _LABEL), sent.get(sector_documents.FIELD)
    )


def register_dynamic_client(
    actor: Actor, permit: RegistrationPermit, sent: Mapping[str, Any]
) -> Registration:
    """Register a client with the metadata that the organization allows, in the current transaction.

    Raises InvalidInput, NoRoom, Unauthenticated. Audit: ``client.registered``.
    """
    organization = permit.organization
    used_token_id = None if permit.token is None else spend_token(organization.id, permit.token)
    registrar = registrar_actor(actor, _LABEL)
    # Such clients were written for any server: scopes release claims at userinfo (OpenID Connect Core section 5.4).
    fields = {"id_token_claims": MINIMAL} | as_fields(sent, _offer(organization))
    registered = register_client(registrar, fields, source=DYNAMIC)
    access_token = new_token(REGISTRATION_ACCESS, organization.id)
    db.session.add(
        ClientRegistration(
            organization_id=organization.id,
            id=registered.client.id,
            access_digest=digest(access_token),
            registration_token_id=used_token_id,
            idle_check_at=clock.now() + FIRST_IDLE_CHECK,
        )
    )
    credential = registered.credential
    return Registration(
        registered.client,
        organization,
        access_token,
        registered.secret,
        credential is not None,
        credential.expires_at if credential is not None else None,
    )


@read
def authenticate_registrar(actor: Actor, client_id: str, access_token: str | None) -> Actor:
    """Return the actor that may manage the client's registration.

    Raises Unauthenticated, alike for a wrong token and an unknown client, and Forbidden while client or organization
    is not active.
    """
    here, token, named = actor.organization_id, access_token or "", parse_client_id(client_id)
    if is_token_of(token, REGISTRATION_ACCESS, here) and named is not None and named[0] == here:
        row = db.session.execute(
            select(ClientRegistration.access_digest, Client.status, Client.document, Client.created_at)
            .join(Client, is_same(Client.id, ClientRegistration.id))
            .where(ClientRegistration.organization_id == here, ClientRegistration.id == named[1])
        ).first()
        organization = get_organization_by_id(here)
        # The token is as old as its client. Nobody can confirm it after a restore, so such a client registers again.
        if (
            row is not None
            and not organization.is_before_restore(row.created_at)
            and hmac.compare_digest(row.access_digest or b"", digest(token))
        ):
            # A disabled client must not remove its traces or prepare for being enabled again.
            if _is_disabled(row) or not organization.is_active:
                raise Forbidden(
                    "This client or its organization is disabled or blocked.", code="access_denied"
                )
            return registrar_actor(actor, _LABEL)
    raise Unauthenticated("This is not the registration access token of the client.")


@read
def get_registration(actor: Actor, client_id: str, access_token: str) -> Registration:
    """Return the client's own registration."""
    client = get_client(registrar_actor(actor, _LABEL), client_id)
    secret = db.session.execute(
        select(Credential.id, Credential.expires_at)
        .where(
            Credential.organization_id == actor.organization_id,
            Credential.client_id == client.id,
            Credential.revoked_at.is_(None),
            Credential.expires_at.is_(None) | (Credential.expires_at > clock.now()),
        )
        .order_by(Credential.id.desc())
        .limit(1)
    ).first()
    organization = get_organization_by_id(actor.organization_id)
    return Registration(
        client, organization, access_token, None, secret is not None, secret.expires_at if secret else None
    )


def require_own_change(client_id: str, sent: Mapping[str, Any]) -> None:
    """Raise InvalidInput unless a change names its own client and nothing that the service sets."""
    if sent.get("client_id") != client_id:
        raise InvalidInput("Send the client_id of this client.", field="client_id", code="other_client")
    for name in _READ_ONLY:
        if name in sent:
            raise InvalidInput("This is set by the service and cannot be sent.", field=name, code="read_only")


@transaction
def replace_registration(
    actor: Actor, client_id: str, access_token: str, sent: Mapping[str, Any]
) -> Registration:
    """Replace the client's metadata as a whole (RFC 7592 section 2.2); generate a secret if it now needs one.

    Raises InvalidInput, and Forbidden for a client that an administrator trusted. Audit: ``client.updated``.
    """
    organization = get_organization_by_id(actor.organization_id)
    before = get_client(actor, client_id)
    fields = replacing(as_fields(sent, _offer(organization), before))
    update_client(actor, client_id, fields)
    registration = get_registration(actor, client_id, access_token)
    if registration.client.uses_secret and not registration.has_secret:
        made = create_credential(replace(actor, permissions=_MAY_ADD_SECRET), client_id)
        return replace(
            registration, secret=made.secret, has_secret=True, secret_expires_at=made.credential.expires_at
        )
    return registration


def registrar_actor(actor: Actor, label: str) -> Actor:
    """Return the actor for registrations, who may write clients, but not trust them or create scopes."""
    return replace(actor, permissions=frozenset({"clients:write", "clients:read"}), label=label)


def _check_registration_limit(actor: Actor, organization: OrganizationSnapshot) -> None:
    per_hour = organization.settings["oauth"]["dynamic_registration"]["max_per_hour"]
    lockout = Lockout(per_hour, _LIMIT_WINDOW, _DELAY, _MAX_DELAY)
    limits = network_limits(lockout, actor.ip_address, "dynamic registration")
    rate_limits.require_attempt_allowed(
        actor.organization_id,
        "Too many clients were registered from your network. Wait a few minutes, then try again.",
        *limits,
    )


def _offer(organization: OrganizationSnapshot) -> Offer:
    return Offer.of(organization.settings, scopes.list_public_scopes(organization.id))


@read
def find_clients_to_check(limit: int) -> list[tuple[str, UUID]]:
    """Return (organization id, client row id) of the clients due for an idle check, longest due first."""
    due = (
        select(ClientRegistration.organization_id, ClientRegistration.id)
        .where(
            ClientRegistration.idle_check_at < clock.now(), is_served_here(ClientRegistration.organization_id)
        )
        .order_by(ClientRegistration.idle_check_at)
        .limit(limit)
        .execution_options(**ACROSS)
    )
    return [(organization_id, row_id) for organization_id, row_id in db.session.execute(due)]


@transaction
def delete_client_if_idle(actor: Actor, row_id: UUID) -> bool:
    """Delete the client if it was not used or changed for its organization's ``idle_ttl_seconds``; return whether.

    Disabled and blocked clients are kept, so that they cannot register again. ``actor`` is the service itself in the
    organization. Audit: ``client.deleted``.
    """
    here = actor.organization_id
    row = db.session.get(Client, (here, row_id), populate_existing=True)
    if row is not None and not _is_disabled(row) and _idle_deadline(row) <= clock.now():
        delete_client(actor, format_client_id(here, row_id))
        return True
    postpone_idle_check(here, row_id)
    return False


@transaction_part
def postpone_idle_check(organization_id: str, row_id: UUID) -> None:
    """Let the next idle check of the client be due later."""
    count_changed(
        update(ClientRegistration)
        .where(has_key(ClientRegistration, organization_id, row_id))
        .values(idle_check_at=clock.now() + FIRST_IDLE_CHECK)
    )


def _is_disabled(row: Any) -> bool:
    """Return whether the client, a row with status and document, is disabled or blocked."""
    return bool(row.status != ACTIVE or row.document.get("approval") == BLOCKED)


def _idle_deadline(row: Client) -> datetime:
    try:
        organization = get_organization_by_id(row.organization_id)
    except NotFound:
        organization = None
    if organization is None or not organization.is_active:
        # A deleted organization is purged or restored as a whole, and no client of a suspended one can be used.
        return datetime.max.replace(tzinfo=row.created_at.tzinfo)
    changed_at, restored_at = db.session.execute(
        select(Organization.updated_at, Organization.restored_at).where(Organization.id == organization.id)
    ).one()
    # It could not be used while it was disabled or its organization suspended, and a restored backup may lack its last
    # use.
    times = (row.last_used_at or row.created_at, row.updated_at, changed_at, restored_at)
    seconds: int = organization.settings["oauth"]["dynamic_registration"]["idle_ttl_seconds"]
    return max(at for at in times if at is not None) + timedelta(seconds=seconds)
