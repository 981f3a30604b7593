"""Two organizations side by side with one of everything."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from datetime import UTC, datetime

from flask import Flask

from app.models.session import Session
from app.operations.audit import audit_events, webhooks
from app.operations.clients import (
    clients,
    credential_revocation,
    credentials,
    initial_access_tokens,
    resources,
    scopes,
)
from app.operations.directory.lookups import OrganizationSnapshot
from app.operations.grants import signing_keys
from app.operations.organizations import administrators, organizations, roles
from app.operations.sign_in import identity_providers, linked_identities, sessions
from app.operations.tokens import signing_key_lists, status_lists
from app.operations.tokens.bulk_revocation import bulk_revoke
from app.operations.users import app_roles, deletion, groups, invitations
from app.rules.actor import Actor
from app.rules.identifiers import format_client_id, new_id, public_id
from tests.factories import Factory, MadeClient
from tests.support.importing import begin
from tests.support.world_rows import (
    access_requested,
    consented,
    granted,
    issued,
    linked,
    provisioning_token,
    refused,
    registered,
    told,
    wanted,
)

RARE, COMMON = "clients:trust", "audit:read"
"""Two permissions, either of which opens no route that asks for another."""


@dataclass(frozen=True, slots=True)
class Corner:
    """One organization's ids, by the names of path parameters."""

    organization: OrganizationSnapshot
    client: MadeClient
    ids: dict[str, str] = field(default_factory=dict)


def build(app: Flask, make: Factory) -> tuple[Corner, Corner]:
    """Create Acme and Globex, each with a client, two secrets, two administrators and an invitation."""
    return _corner(app, make, "acme-corner"), _corner(app, make, "globex-corner")


def absent(corner: Corner) -> dict[str, str]:
    """Return well-formed ids of things that never existed in the corner's organization."""
    return {
        "id": "never-was",
        "clientId": format_client_id(corner.organization.id, new_id()),
        "credentialId": public_id("sec", new_id()),
        "adminId": public_id("adm", new_id()),
        "kid": secrets.token_urlsafe(32),
        "invitationId": public_id("inv", new_id()),
        "registrationId": public_id("reg", new_id()),
        "registrationTokenId": public_id("ria", new_id()),
        "auditEventId": public_id("evt", new_id()),
        "grantId": public_id("grt", new_id()),
        "tokenId": public_id("tok", new_id()),
        "consentId": public_id("con", new_id()),
        "clientRequestId": public_id("crq", new_id()),
        "revocationId": public_id("rev", new_id()),
        "sessionId": public_id("ses", new_id()),
        "failedRequestId": public_id("flr", new_id()),
        "importId": public_id("imp", new_id()),
        "webhookId": public_id("whk", new_id()),
        "deliveryId": public_id("dlv", new_id()),
        "provider": "never-was",
        "providerId": public_id("idp", new_id()),
        "identityId": public_id("idn", new_id()),
        "provisioningTokenId": public_id("pvt", new_id()),
        "userId": public_id("usr", new_id()),
        "groupId": public_id("grp", new_id()),
        "assignmentId": public_id("ara", new_id()),
        "roleId": "never-was",
        "resourceId": public_id("res", new_id()),
        "clientAccessId": public_id("acc", new_id()),
        "scopeName": "never:was",
    }


def group_with(actor: Actor, slug: str, user_id: str) -> str:
    """Create a group with one member and return its id."""
    group = groups.create_group(actor, slug, {"name": f"Pickers {new_id()}"}).public_id
    groups.add_member(actor, slug, group, {"user_id": user_id})
    return group


def role_given(actor: Actor, client_id: str, user_id: str) -> str:
    """Give the user a role of the client and return the id of the assignment."""
    clients.update_client(actor, client_id, {"app_roles": [{"key": "editor", "name": "Editor"}]})
    return app_roles.assign_app_role(actor, client_id, {"role": "editor", "user_id": user_id}).public_id


def ended(app: Flask, make: Factory, corner: Corner) -> dict[str, str]:
    """Return ids of things of the corner that were deleted, revoked or withdrawn."""
    slug = corner.organization.slug
    with app.app_context():
        actor = make.actor(corner.organization)
        gone = make.organization(f"{slug}-gone")
        organizations.delete_organization(make.actor(gone), gone.slug)
        client = make.client(corner.organization)
        clients.delete_client(actor, client.client_id)
        other = credentials.create_credential(actor, corner.client.client_id).credential.public_id
        credential_revocation.revoke_credentials(actor, corner.client.client_id, credential_id=other)
        user = make.user(corner.organization, role="auditor")
        admin = next(a for a in administrators.list_administrators(actor, slug).items if a.user_id == user.id)
        administrators.remove_administrator(actor, slug, admin.public_id)
        departed = make.user(corner.organization).public_id
        deletion.delete_user(actor, departed)
        leaked = signing_keys.get_active_key(corner.organization, "ES256").kid
        signing_key_lists.rotate_signing_key(
            Actor.system(corner.organization.id), slug, {"algorithm": "ES256", "emergency": True}
        )
        invited = invitations.create_invitation(actor, slug, email="gone@example.com").invitation.public_id
        invitations.revoke_invitation(actor, slug, invited)
        spent = initial_access_tokens.create_registration_token(actor, {"name": "Gone"}).record.public_id
        initial_access_tokens.revoke_registration_token(actor, spent)
        fields = {"identifier": "urn:gone", "name": "Gone", "scopes": [{"name": "gone:read"}]}
        lapsed = refused(corner.client, datetime(2020, 1, 1, tzinfo=UTC))
        resource = resources.define_resource(actor, fields).public_id
        access = access_requested(corner.client, resource)
        resources.delete_resource(actor, resource)
        silent, heard = told(actor)
        webhooks.delete_webhook(actor, silent)
        removed_provider, _ = linked(actor, "gone", make.user(corner.organization).public_id)
        removed_token = provisioning_token(actor, removed_provider)
        identity_providers.delete_identity_provider(actor, removed_provider)
        unlinking = make.user(corner.organization).public_id
        left, unlinked = linked(actor, "unlinked", unlinking)
        linked_identities.unlink_user_identity(actor, unlinking, unlinked)
        identity_providers.delete_identity_provider(actor, left)
        withdrawn = consented(corner.client, make.user(corner.organization), ended=True)
        unanswered = wanted(corner.client, make.user(corner.organization), ended=True)
        dead = issued(corner.client, ended=True)
        revoked = granted(corner.client, make.user(corner.organization), revoked=True)
        _, over = sessions.start_session(corner.organization, make.user(corner.organization).id)
        sessions.end_sessions(corner.organization.id, Session.id == over)
        removed_role = role_given(actor, corner.client.client_id, make.user(corner.organization).public_id)
        app_roles.remove_app_role(actor, corner.client.client_id, removed_role)
        dissolved = groups.create_group(actor, slug, {"name": "Gone"}).public_id
        groups.delete_group(actor, slug, dissolved)
        roles.create_role(actor, {"id": "gone", "permissions": []})
        roles.delete_role(actor, "gone")
        lapsed_registration = registered(corner.organization, "gone@example.com", ended=True)
    return {
        "id": gone.slug,
        "clientId": client.client_id,
        "credentialId": other,
        "adminId": admin.public_id,
        "kid": leaked,
        "invitationId": invited,
        "registrationId": lapsed_registration,
        "registrationTokenId": spent,
        "grantId": revoked,
        "tokenId": dead,
        "consentId": withdrawn,
        "clientRequestId": unanswered,
        # Removed by retention, like the audit event below.
        "revocationId": public_id("rev", new_id()),
        "sessionId": public_id("ses", over),
        "webhookId": silent,
        "deliveryId": heard,
        "providerId": removed_provider,
        "identityId": unlinked,
        "provisioningTokenId": removed_token,
        # Removed by retention.
        "auditEventId": public_id("evt", new_id()),
        "failedRequestId": lapsed,
        "importId": public_id("imp", new_id()),
        "userId": departed,
        "groupId": dissolved,
        "assignmentId": removed_role,
        "roleId": "gone",
        "resourceId": resource,
        "clientAccessId": access,
        "scopeName": "gone:read",
    }


def _corner(app: Flask, make: Factory, slug: str) -> Corner:
    attribute = {"key": "department", "name": "Department", "type": "string"}
    organization = make.organization(slug, settings={"user_profile": {"attributes": [attribute]}})
    with app.app_context():
        client = make.client(organization, by=_admin(make, organization))
        credential = credentials.create_credential(make.actor(organization), client.client_id).credential
        make.user(organization, role="admin")
        make.user(organization, role="admin")
        member = make.user(organization)
        admins = administrators.list_administrators(make.actor(organization), slug).items
        kid = signing_keys.get_active_key(organization, "EdDSA").kid
        invited = invitations.create_invitation(
            make.actor(organization), slug, email=f"new@{slug}.example"
        ).invitation
        fields = {"identifier": "urn:api", "name": "API", "scopes": [{"name": f"{slug}:read"}]}
        failed = refused(client, datetime.now(UTC))
        resource = resources.define_resource(make.actor(organization), fields)
        scopes.add_scopes(make.actor(organization), [f"{slug}/plain"])
        initial = initial_access_tokens.create_registration_token(make.actor(organization), {"name": "CI"})
        imported = begin(make.actor(organization), "email\nwaiting@example.com\n", dry=True).public_id
        happened = audit_events.list_audit_events(make.actor(organization)).items[0].public_id
        access = access_requested(client, resource.public_id)
        allowed = granted(client, make.user(organization))
        token = issued(client)
        consent = consented(client, make.user(organization))
        request = wanted(client, make.user(organization))
        _, session = sessions.start_session(organization, member.id)
        # Older than everything here, so it revokes nothing.
        order = {"all": True, "issued_before": "2020-01-01T00:00:00Z"}
        receipt = bulk_revoke(make.actor(organization), slug, order).receipt.public_id
        assert receipt is not None
        status_list, _ = status_lists.take_index(organization)
        webhook, delivery = told(make.actor(organization))
        provider, identity = linked(make.actor(organization), "example", member.public_id)
        provisioning = provisioning_token(make.actor(organization), provider)
        waiting = registered(organization, f"waiting@{slug}.example")
        roles.create_role(make.actor(organization), {"id": slug, "permissions": []})
        make.user(organization, email="picker@example.com")
        make.user(organization, email="owner@example.com", role="developer")
        group = group_with(make.actor(organization), slug, member.public_id)
        assignment = role_given(make.actor(organization), client.client_id, member.public_id)
    ids = {
        "id": slug,
        "clientId": client.client_id,
        "registeredClientId": client.client_id,
        "credentialId": credential.public_id,
        "adminId": admins[-1].public_id,
        "kid": kid,
        "invitationId": invited.public_id,
        "registrationId": waiting,
        "registrationTokenId": initial.record.public_id,
        "auditEventId": happened,
        "grantId": allowed,
        "tokenId": token,
        "consentId": consent,
        "clientRequestId": request,
        "revocationId": receipt,
        "sessionId": public_id("ses", session),
        "statusListId": public_id(status_lists.PREFIX, status_list),
        "failedRequestId": failed,
        "importId": imported,
        "webhookId": webhook,
        "deliveryId": delivery,
        "provider": "example",
        "providerId": provider,
        "identityId": identity,
        "provisioningTokenId": provisioning,
        "userId": member.public_id,
        "groupId": group,
        "assignmentId": assignment,
        "roleId": slug,
        "resourceId": resource.public_id,
        "clientAccessId": access,
        "scopeName": f"{slug}/plain",
    }
    return Corner(organization, client, ids)


def _admin(make: Factory, organization: OrganizationSnapshot) -> Actor:
    return make.actor(organization)
