"""Two organizations of its own that the isolation check lets loose on each other, and what it could have changed."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import select, update

from app.extensions import db
from app.models.base import Base
from app.models.organization import DELETED, Organization
from app.operations import clock
from app.operations.directory import OrganizationView, organization_by_id
from app.operations.people.administrators import add_administrator
from app.operations.people.invitations import invite
from app.operations.people.passwords import new_password_hash
from app.operations.people.sign_in import SignedIn, sign_in
from app.operations.people.users import create_user
from app.operations.registration import clients, credentials, resources, scopes
from app.operations.registration.clients import RegisteredClient
from app.operations.self_registration import initial_access
from app.operations.tenancy import organizations, roles
from app.operations.tenancy.founding import found_organization
from app.operations.transaction import read, transaction
from app.operations.upkeep.isolation_waiting import build_waiting
from app.rules.actor import Actor
from app.rules.errors import Unavailable
from app.rules.identifiers import public_id
from app.rules.people.permissions import PERMISSIONS

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

    organization: OrganizationView
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
    key = found_organization(actor, slug=slug, name="Isolation check", overrides=_OPEN)
    organization = organization_by_id(key)
    system = Actor.system(key, actor.label)
    password = secrets.token_urlsafe(24)
    hashed = new_password_hash(organization.settings, password)
    people = [
        create_user(key, email=email, name=marker, password_hash=hashed, email_verified=True)
        for email in (f"{marker}@isolation.invalid", f"other-{marker}@isolation.invalid")
    ]
    for user_id in people:
        add_administrator(system, slug, user_id=public_id("usr", user_id), role="admin")
    invite(system, slug, email=f"new-{marker}@isolation.invalid", name=marker)
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
    initial_access.create_registration_token(system, {"name": marker})
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
