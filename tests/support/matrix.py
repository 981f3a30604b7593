"""The route matrix of the management API: two organizations, every operation, and a valid body for each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flask import Flask
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from tests.factories import Factory, bearer_header
from tests.support.openapi import Operation, operations
from tests.support.pictures import PNG
from tests.support.world import Corner, build, ended
from tests.support.world_rows import ISSUER

# A valid body for each operation, so that only the id or the token is wrong.
BODIES: dict[str, dict[str, Any] | list[dict[str, Any]] | bytes | None] = {
    "listClients": None,
    "registerClient": {"name": "New", "redirect_uris": ["https://new.example/cb"]},
    "getClient": None,
    "updateClient": {"name": "Renamed"},
    "deleteClient": None,
    "changeClientOwner": {"email": "owner@example.com"},
    "listCredentials": None,
    "getCredential": None,
    "rotateCredential": {},
    "getRotation": None,
    "updateRotation": {"expires_in_seconds": 3600},
    "cancelRotation": None,
    "createCredential": {},
    "confirmCredential": None,
    "revokeCredentials": None,
    "revokeCredential": None,
    "listOrganizations": None,
    "createOrganization": {"name": "Newly founded"},
    "getOrganization": None,
    "updateOrganization": {"name": "Renamed"},
    "deleteOrganization": None,
    "getInstanceLimits": None,
    "updateInstanceLimits": {"oauth.access_token.ttl_seconds": {"max": 3600}},
    "listRoles": None,
    "createRole": {"id": "helper", "permissions": ["clients:read"]},
    "getRole": None,
    "updateRole": {"description": "Helps"},
    "deleteRole": None,
    "getSettings": None,
    "updateSettings": {"branding": {"theme": "dark"}},
    "setLogo": PNG,
    "removeLogo": None,
    "listAdministrators": None,
    "addAdministrator": {"email": "somebody@example.com"},
    "getAdministrator": None,
    "removeAdministrator": None,
    "listUsers": None,
    "createUser": {"email": "newcomer@example.com"},
    "getUser": None,
    "updateUser": {"name": "Renamed"},
    "deleteUser": None,
    "resetUser": None,
    "transferOwnership": {"email": "owner@example.com"},
    "listUserSessions": None,
    "listUserSecondFactors": None,
    "resetUserSecondFactors": None,
    "listUserIdentities": None,
    "unlinkUserIdentity": None,
    "revokeUserSessions": None,
    "revokeUserSession": None,
    "listUserConsents": None,
    "listGroups": None,
    "createGroup": {"name": "Pickers"},
    "getGroup": None,
    "updateGroup": {"description": "Those who pick."},
    "deleteGroup": None,
    "listGroupMembers": None,
    "addGroupMember": {"email": "picker@example.com"},
    "removeGroupMember": None,
    "listRoleAssignments": None,
    "assignRole": {"role": "editor", "email": "picker@example.com"},
    "removeRoleAssignment": None,
    "listUserImports": None,
    "importUsers": [{"email": "imported@example.com"}],
    "getUserImport": None,
    "cancelUserImport": None,
    "startUserImport": None,
    "listRejectedRows": None,
    "listRegistrations": None,
    "getRegistration": None,
    "approveRegistration": None,
    "rejectRegistration": None,
    "listRegistrationTokens": None,
    "createRegistrationToken": {"name": "For the laboratory"},
    "getRegistrationToken": None,
    "revokeRegistrationToken": None,
    "listWebhooks": None,
    "createWebhook": {"url": "https://hooks.example/new", "event_types": ["user.*"]},
    "getWebhook": None,
    "updateWebhook": {"description": "Renamed"},
    "deleteWebhook": None,
    "rotateWebhookSecret": {},
    "testWebhook": None,
    "listWebhookDeliveries": None,
    "getWebhookDelivery": None,
    "redeliverWebhook": None,
    "listIdentityProviders": None,
    "createIdentityProvider": {
        "slug": "new",
        "name": "New",
        "issuer": ISSUER,
        "client_id": "new",
        "client_secret": "new",
    },
    "getIdentityProvider": None,
    "updateIdentityProvider": {"name": "Renamed"},
    "deleteIdentityProvider": None,
    "listProvisioningTokens": None,
    "createProvisioningToken": None,
    "deleteProvisioningToken": None,
    "listInvitations": None,
    "getInvitation": None,
    "revokeInvitation": None,
    "listSigningKeys": None,
    "getSigningKey": None,
    "rotateSigningKey": {"algorithm": "EdDSA"},
    "revokeToken": {"organization_id": "acme-corner", "token_type": "access_token", "token": "unknown"},
    "getMe": None,
    "listAuditEvents": None,
    "exportAuditEvents": None,
    "verifyAuditEvents": None,
    "getAuditEvent": None,
    "listRevocations": None,
    "getRevocation": None,
    "revokeTokens": {"all": True},
    "listConsents": None,
    "getConsent": None,
    "withdrawConsent": None,
    "listClientRequests": None,
    "getClientRequest": None,
    "approveClientRequest": {},
    "declineClientRequest": {},
    "listClientAccess": None,
    "getClientAccess": None,
    "giveClientAccess": {"scopes": []},
    "approveClientAccess": {},
    "declineClientAccess": {},
    "withdrawClientAccess": {},
    "listAccessOfClient": None,
    "cancelAccessRequest": None,
    "requestClientAccess": {"scopes": [], "reason": "For the harvest."},
    "listRequestableResources": None,
    "listGrants": None,
    "getGrant": None,
    "revokeGrant": None,
    "listTokens": None,
    "getToken": None,
    "revokeAccessToken": None,
    "getUsage": None,
    "listFailedRequests": None,
    "getFailedRequest": None,
    "listResources": None,
    "createResource": {"identifier": "https://new.example/api", "name": "New"},
    "changeResourceOwner": {"email": "owner@example.com"},
    "getResource": None,
    "updateResource": {"name": "Renamed"},
    "deleteResource": None,
    "getResourceMetadata": None,
    "listScopes": None,
    "getScope": None,
    "updateScope": {"title": "Read plain things"},
    "deleteScope": None,
}


@dataclass(frozen=True, slots=True)
class World:
    """The fixtures of the matrix."""

    http: FlaskClient
    acme: Corner
    globex: Corner
    ended: dict[str, str]
    operations: tuple[Operation, ...]
    token: str

    def call(
        self, operation: Operation, ids: dict[str, str], token: str | None, **query: str
    ) -> TestResponse:
        """Call the operation with these ids and a valid body."""
        path = operation.path
        for name, value in ids.items():
            path = path.replace(f"{{{name}}}", value)
        body = BODIES[operation.id]
        sent: dict[str, Any] = (
            {"data": body, "content_type": "image/png"} if isinstance(body, bytes) else {"json": body}
        )
        return self.http.open(
            path,
            method=operation.method.upper(),
            query_string=query,
            headers=bearer_header(token) if token else {},
            **sent,
        )


def world_of(app: Flask, http: FlaskClient, make: Factory) -> World:
    """Return Acme and Globex, the documented operations, and a token with every permission in Acme."""
    acme, globex = build(app, make)
    document = http.get("/openapi.json").get_json()
    managed = tuple(operation for operation in operations(document) if operation.is_management)
    return World(http, acme, globex, ended(app, make, acme), managed, make.bearer(acme.organization))
