"""Labels of the portal: what client types, grants and events are called on its pages."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TypeLabel:
    """A type of client, for the card that chooses it and the badge that names it."""

    title: str
    description: str
    result: str
    icon: str


CLIENT_TYPE_LABELS: dict[str, TypeLabel] = {
    "web": TypeLabel(
        "Web app",
        "Runs on a server that can store a secret, such as Flask, Django, Rails or Next.js.",
        "Uses the authorization code flow with PKCE, a client secret and refresh tokens.",
        "server",
    ),
    "spa": TypeLabel(
        "Single-page app",
        "Runs only in the browser and can't store a secret, such as React, Vue or Svelte.",
        "Uses the authorization code flow with PKCE and rotating refresh tokens, without a secret.",
        "browser",
    ),
    "native": TypeLabel(
        "Mobile, desktop or CLI app",
        "Installed on the user's device and redirects to a loopback or custom-scheme URI.",
        "Uses the authorization code flow with PKCE, without a secret. Loopback redirects work on any port.",
        "phone",
    ),
    "machine": TypeLabel(
        "Service without users",
        "A job, daemon or API that calls another API on its own behalf.",
        "Uses the client credentials flow and a client secret.",
        "machine",
    ),
    "device": TypeLabel(
        "TV or limited device",
        "Has no browser or keyboard. Users confirm a code on another device.",
        "Uses the device flow (RFC 8628).",
        "screen",
    ),
}
# Not client types of their own: clients request tokens for an API, and an agent is a native client.
API_TYPE = TypeLabel(
    "API or MCP server",
    "Accepts access tokens from apps and agents.",
    "Has an identifier, scopes, and metadata that helps clients find this organization.",
    "server",
)
AGENT_TYPE = TypeLabel(
    "AI agent or MCP client",
    "Acts for users from their device and redirects to a loopback URI.",
    "Uses the authorization code flow with PKCE, without a secret. Tokens are valid for the APIs you choose.",
    "person",
)

# Permissions are grouped by their first word; these groups have another name on pages.
PERMISSION_GROUPS: dict[str, str] = {
    "admins": "Administrators",
    "audit": "Audit log",
    "credentials": "Client secrets",
    "logs": "Failed requests",
    "resources": "APIs",
}
GRANT_TYPES: dict[str, str] = {
    "authorization_code": "Authorization code (users sign in)",
    "refresh_token": "Refresh token (users stay signed in)",
    "client_credentials": "Client credentials (no user)",
    "urn:ietf:params:oauth:grant-type:device_code": "Device code",
    "urn:ietf:params:oauth:grant-type:token-exchange": "Token exchange (call another API for a user)",
}
SECURITY_PROFILES: dict[str, str] = {"fapi2": "FAPI 2.0 (banking, health, government)"}
TOKEN_EXCHANGE: dict[str, str] = {
    "delegation": "Delegation: tokens name the client",
    "impersonation": "Impersonation: tokens don't name the client",
}
AUTH_METHODS: dict[str, str] = {
    "client_secret_basic": "Secret in the Authorization header (client_secret_basic)",
    "client_secret_post": "Secret in the body (client_secret_post)",
    "private_key_jwt": "Signed assertion, no secret (private_key_jwt)",
    "none": "None, public client (none)",
}
TRUST_LEVELS: dict[str, str] = {
    "first_party": "First party",
    "verified": "Reviewed",
    "unverified": "Not reviewed",
}
APPROVALS: dict[str, str] = {
    "": "Organization's default",
    "review": "Requires administrator approval",
    "allowed": "Members can allow it",
    "pre_approved": "Pre-approved for everyone",
    "blocked": "Blocked",
}
CLIENT_SOURCES: dict[str, str] = {
    "person": "Registered here",
    "dynamic": "Self-registered",
    "metadata_document": "Client ID metadata document",
}
CLAIM_TARGETS: dict[str, str] = {
    "id_token": "ID token",
    "userinfo": "Userinfo",
    "access_token": "JWT access token",
    "introspection": "Introspection",
}
ATTRIBUTE_TYPES: dict[str, str] = {
    "string": "Text",
    "integer": "Whole number",
    "boolean": "Yes or no",
    "date": "Date",
    "list": "List of texts",
}
ATTRIBUTE_EDITORS: dict[str, str] = {"administrator": "Administrators", "user": "The user and administrators"}
REQUEST_STATUSES: dict[str, str] = {"open": "Open", "approved": "Approved", "declined": "Declined"}
AUDIT_ACTIONS: dict[str, str] = {
    "administrator.added": "added an administrator",
    "administrator.removed": "removed an administrator",
    "app_role.assigned": "assigned a role in a client",
    "app_role.removed": "removed a role in a client",
    "browser.forgotten": "removed a recognized browser",
    "client.deleted": "deleted a client",
    "client.registered": "registered a client",
    "client.updated": "updated a client",
    "client_access.cancelled": "cancelled a request for access to an API",
    "client_access.declined": "declined a request for access to an API",
    "client_access.granted": "gave a client access to an API",
    "client_access.requested": "requested access to an API",
    "client_access.withdrawn": "withdrew a client’s access to an API",
    "client_request.approved": "approved a request for a client",
    "client_request.created": "requested approval of a client",
    "client_request.declined": "declined a request for a client",
    "code.issued": "received an authorization code",
    "code.replayed": "used an authorization code twice",
    "consent.denied": "denied access to a client",
    "consent.given": "allowed access to a client",
    "consent.withdrawn": "removed a client's access",
    "credential.confirmed": "confirmed a secret",
    "credential.created": "created a secret",
    "credential.kept": "kept a secret",
    "credential.retired": "scheduled a secret to expire",
    "credential.revealed": "viewed a secret",
    "credential.revoked": "revoked a secret",
    "credential.tokens_revoked": "revoked the tokens of an expired secret",
    "delivery.given_up": "gave up a webhook delivery",
    "device_code.allowed": "allowed a device",
    "device_code.denied": "denied a device",
    "grant.created": "signed in to a client",
    "grant.revoked": "revoked a user's grant to a client",
    "instance.ceilings_updated": "updated the instance limits",
    "instance.set_up": "set up this instance",
    "group.created": "created a group",
    "group.deleted": "deleted a group",
    "group.member_added": "added a user to a group",
    "group.member_removed": "removed a user from a group",
    "group.updated": "updated a group",
    "invitation.accepted": "accepted an invitation",
    "invitation.created": "invited a user",
    "invitation.revoked": "revoked an invitation",
    "mail.refused": "failed to deliver an email",
    "mail.tested": "sent a test email",
    "tokens.revoked": "revoked tokens in bulk",
    "organization.created": "created the organization",
    "organization.deleted": "deleted the organization",
    "organization.exported": "exported the organization",
    "organization.imported": "imported the organization",
    "organization.purged": "purged an organization",
    "organization.restored": "restored the organization",
    "organization.resumed": "resumed the organization",
    "organization.suspended": "suspended the organization",
    "organization.updated": "renamed the organization",
    "passkey.counter_went_back": "used a passkey that may be a copy",
    "passkey.registered": "added a passkey",
    "passkey.removed": "removed a passkey",
    "passkey.renamed": "renamed a passkey",
    "playground.request_sent": "sent a request as a client in the playground",
    "playground.started": "began to try a client in the playground",
    "recovery_code.used": "used a recovery code",
    "recovery_codes.renewed": "generated new recovery codes",
    "refresh_token.reused": "reused a refresh token",
    "registration.asked": "requested an account",
    "registration.refused": "rejected a sign-up",
    "registration_token.created": "created an initial access token",
    "registration_token.revoked": "revoked an initial access token",
    "resource.defined": "created an API",
    "resource.deleted": "deleted an API",
    "resource.updated": "updated an API",
    "scope.added": "added a scope",
    "scope.updated": "updated a scope",
    "second_factor.added": "added a verification method",
    "second_factor.failed": "failed two-step verification",
    "second_factor.removed": "removed a verification method",
    "second_factors.ended": "verified an email address, which removed earlier verification methods",
    "second_factors.reset": "reset a user's two-step verification",
    "secret.leak_reported": "reported a leaked secret, which was revoked",
    "session.ended": "signed out",
    "session.others_ended": "signed out everywhere else",
    "session.started": "signed in",
    "settings.updated": "updated the settings",
    "sign_in.failed": "failed to sign in",
    "sign_in.first_proof_given": "passed the first step of a sign-in",
    "signing_key.activated": "activated a signing key",
    "signing_key.created": "created a signing key",
    "signing_key.removed": "removed a signing key",
    "signing_key.retired": "retired a signing key",
    "token.exchanged": "exchanged a token",
    "token.revoked": "revoked a token",
    "user.created": "created a user",
    "user.imported": "imported a user",
    "user.deleted": "deleted a user",
    "user.disabled": "disabled a user",
    "user.enabled": "enabled a user",
    "user.email_changed": "changed an email address",
    "user.email_proof_requested": "requested an email verification link",
    "user.email_verified": "verified an email address",
    "user.password_changed": "changed the password",
    "user.password_reset": "reset the password",
    "user.password_reset_requested": "requested a password reset",
    "user.registered": "signed up",
    "user.registration_refused": "tried to sign up with an existing email address",
    "user.signed_out": "signed a user out everywhere",
    "user.updated": "updated a profile",
    "user_import.checked": "checked an import of users",
    "user_import.started": "started an import of users",
    "user_import.ended": "finished an import of users",
    "user_import.cancelled": "cancelled an import of users",
    "user_import.failed": "stopped an import of users",
    "webhook.created": "added a webhook",
    "webhook.deleted": "deleted a webhook",
    "webhook.disabled": "disabled a webhook",
    "webhook.redelivered": "resent an event to a webhook",
    "webhook.secret_rotated": "rotated a webhook's signing secret",
    "webhook.tested": "tested a webhook",
    "webhook.updated": "updated a webhook",
}
ACCESS_STATUSES: dict[str, str] = {
    "requested": "Requested",
    "granted": "Has access",
    "declined": "Declined",
    "withdrawn": "Withdrawn",
}


@dataclass(frozen=True, slots=True)
class ChoiceLabel:
    """A choice, and what it means."""

    title: str
    help: str


ACCESS_POLICIES: dict[str, ChoiceLabel] = {
    "open": ChoiceLabel("Open to all clients", "Every client of the organization can get tokens."),
    "approval": ChoiceLabel(
        "On approval",
        "Clients can request the scopes from users. Without a user’s consent, only clients with access get tokens.",
    ),
    "listed": ChoiceLabel(
        "Listed clients", "Only clients with access get tokens. Other developers don’t see the API."
    ),
}
TOKEN_STORAGES: dict[str, ChoiceLabel] = {
    "stored": ChoiceLabel(
        "By introspection",
        "All tokens are stored. Without introspection, a revoked JWT is accepted until it expires.",
    ),
    "status_list": ChoiceLabel(
        "By status list",
        "Your API reads a list of revoked JWTs every ten seconds. Issuing a JWT to a client takes no database access.",
    ),
    "none": ChoiceLabel(
        "By expiry",
        "JWTs are not stored and expire after ten minutes at most. Only introspection knows revoked ones.",
    ),
}
# Groups of events that a webhook can receive.
EVENT_GROUPS: dict[str, str] = {
    "*": "Everything",
    "administrator.*": "Administrators",
    "app_role.*": "Roles in clients",
    "browser.*": "Recognized browsers",
    "client.*": "Clients",
    "client_access.*": "Client access to APIs",
    "client_request.*": "Client requests",
    "code.*": "Authorization codes",
    "consent.*": "Consents",
    "credential.*": "Client secrets",
    "device_code.*": "Device codes",
    "grant.*": "Grants",
    "group.*": "Groups",
    "invitation.*": "Invitations",
    "mail.*": "Emails",
    "organization.*": "Organization",
    "passkey.*": "Passkeys",
    "playground.*": "Playground",
    "recovery_code.*": "Recovery codes",
    "recovery_codes.*": "Recovery code sets",
    "refresh_token.*": "Refresh tokens",
    "registration_token.*": "Initial access tokens",
    "resource.*": "APIs",
    "scope.*": "Scopes",
    "second_factor.*": "Verification methods",
    "second_factors.*": "Two-step verification resets",
    "session.*": "Sessions",
    "settings.*": "Settings",
    "sign_in.*": "Sign-in attempts",
    "signing_key.*": "Signing keys",
    "token.*": "Tokens",
    "tokens.*": "Bulk revocations",
    "user.*": "Users",
    "user_import.*": "User imports",
    "webhook.*": "Webhooks",
}
WEBHOOK_DISABLED_REASONS: dict[str, str] = {
    "person": "An administrator disabled it.",
    "gone": "The receiver responded with 410 Gone.",
    "failing": "Deliveries failed for several days.",
    "backlog": "The receiver was too slow to keep up with the events.",
}
