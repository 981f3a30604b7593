"""Users of each role, and things that they own."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from flask import Flask
from sqlalchemy import insert

from app.extensions import db
from app.models.second_factor import AuthenticatorApp
from app.operations.clients import credentials, resources
from app.operations.organizations import roles
from app.operations.sign_in import sessions
from app.operations.store import clock
from app.operations.users import import_runner
from app.rules.identifiers import new_id, public_id
from tests.factories import Factory, MadeUser
from tests.support.importing import begin
from tests.support.rights import ROOT, SUPPORT, SUPPORT_PERMISSIONS
from tests.support.user_tokens import user_token
from tests.support.world import Corner, group_with, role_given
from tests.support.world_rows import (
    access_requested,
    consented,
    granted,
    issued,
    linked,
    provisioning_token,
    refused,
    registered,
    wanted,
)

# With ``:own``, users can access only those that they registered.
OWNED = (
    "clientId",
    "credentialId",
    "resourceId",
    "clientAccessId",
    "failedRequestId",
    "grantId",
    "tokenId",
    "consentId",
)


@dataclass(frozen=True, slots=True)
class RoleUser:
    """A user with a role and a token with every scope."""

    role: str
    user: MadeUser
    token: str
    query: dict[str, str]


def user_with_role(app: Flask, make: Factory, corner: Corner, role: str) -> RoleUser:
    """Return a user with the role in the corner's organization; a root role gets a root user."""
    if role == ROOT:
        user = make.user(make.root(), role="admin")
        return RoleUser(
            role, user, user_token(app, make, user), {"organization_id": corner.organization.slug}
        )
    if role == SUPPORT:
        with app.app_context():
            fields = {"id": SUPPORT, "permissions": list(SUPPORT_PERMISSIONS)}
            roles.create_role(make.actor(corner.organization), fields)
    user = make.user(corner.organization, role=None if role == "member" else role)
    return RoleUser(role, user, user_token(app, make, user), {})


def things_of(app: Flask, make: Factory, corner: Corner, owner: MadeUser) -> dict[str, str]:
    """Return ids of things that the owner registered; things without an owner are new or the corner's."""
    with app.app_context():
        actor = make.actor(corner.organization, user=owner)
        client = make.client(corner.organization, by=actor)
        secret = credentials.create_credential(actor, client.client_id).credential
        fields = {"identifier": f"urn:{owner.public_id}", "name": "Own", "scopes": []}
        resource = resources.define_resource(actor, fields)

        def requested_by_another(status: str = "requested") -> str:
            other = make.client(corner.organization)
            return access_requested(other, resource.public_id, status=status)

        cancelling = make.client(corner.organization, by=actor)
        access_requested(cancelling, resource.public_id)
        member = make.user(corner.organization)
        _with_app(member)
        _, session = sessions.start_session(corner.organization, member.id)
        provider, identity = linked(make.actor(corner.organization), new_id().hex, member.public_id)
        token = provisioning_token(make.actor(corner.organization), provider)
        given_away = make.client(corner.organization, by=actor).client_id
        api = {"identifier": f"urn:{owner.public_id}:given", "name": "Given away", "scopes": []}
        leaving = make.user(corner.organization, role="developer")
        make.client(corner.organization, by=make.actor(corner.organization, user=leaving))
        given_api = resources.define_resource(actor, api).public_id
        return {
            **corner.ids,
            "clientId": client.client_id,
            "changeClientOwner.clientId": given_away,
            "portal.client_owner.clientId": make.client(corner.organization, by=actor).client_id,
            "changeResourceOwner.resourceId": given_api,
            "transferOwnership.userId": leaving.public_id,
            "portal.user_transfer.userId": leaving.public_id,
            "credentialId": secret.public_id,
            "resourceId": resource.public_id,
            "clientAccessId": access_requested(client, resource.public_id),
            "cancelAccessRequest.clientId": cancelling.client_id,
            "portal.cancel_access_request.clientId": cancelling.client_id,
            "declineClientAccess.clientAccessId": requested_by_another(),
            "withdrawClientAccess.clientAccessId": requested_by_another(status="granted"),
            "portal.decline_access_request.clientAccessId": requested_by_another(),
            "portal.withdraw_client_access.clientAccessId": requested_by_another(status="granted"),
            "failedRequestId": refused(client, datetime.now(UTC)),
            "grantId": granted(client, make.user(corner.organization)),
            "tokenId": issued(client),
            "consentId": consented(client, make.user(corner.organization)),
            "userId": member.public_id,
            "assignmentId": role_given(actor, client.client_id, member.public_id),
            "groupId": group_with(actor, corner.organization.slug, member.public_id),
            "deleteGroup.groupId": group_with(actor, corner.organization.slug, member.public_id),
            "portal.group_delete.groupId": group_with(actor, corner.organization.slug, member.public_id),
            "sessionId": public_id("ses", session),
            "providerId": provider,
            "identityId": identity,
            "provisioningTokenId": token,
        }


def spare_of(app: Flask, make: Factory, corner: Corner) -> dict[str, dict[str, str]]:
    """Return separate ids for operations that would otherwise delete what others need."""
    with app.app_context():
        actor = make.actor(corner.organization)
        # A decision about a client applies to every user who requested it.
        asked = wanted(make.client(corner.organization), make.user(corner.organization))
        waiting = registered(corner.organization, "another@waiting.example")
        imported = begin(actor, "email\nother@example.com\n", dry=True).public_id
        administrator = make.actor(corner.organization, user=make.user(corner.organization, role="admin"))
        checked = begin(administrator, "email\nchecked@example.com\n", dry=True).public_id
        import_runner.run_import(administrator, checked)
    return {
        "declineClientRequest": {"clientRequestId": asked},
        "rejectRegistration": {"registrationId": waiting},
        "cancelUserImport": {"importId": imported},
        "startUserImport": {"importId": checked},
    }


def _with_app(user: MadeUser) -> None:
    """Give the user an authenticator app, whose key is not needed here."""
    now = clock.now()
    db.session.execute(
        insert(AuthenticatorApp).values(
            organization_id=user.organization.id,
            user_id=user.id,
            sealed_secret=b"sealed",
            last_step=0,
            created_at=now,
        )
    )
    db.session.commit()
