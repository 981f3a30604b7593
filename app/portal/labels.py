"""Labels of the portal: what client types, grants and events are called on its pages."""

from __future__ import annotations

from msgspec import Struct

from app.web.languages import lazy_gettext


class TypeLabel(Struct, frozen=True):
    """A type of client, for the card that chooses it and the badge that names it."""

    title: str
    description: str
    result: str
    icon: str


CLIENT_TYPE_LABELS: dict[str, TypeLabel] = {
    "web": TypeLabel(
        lazy_gettext("Web app"),
        lazy_gettext("Runs on a server that can store a secret, such as Flask, Django, Rails or Next.js."),
        lazy_gettext("Uses the authorization code flow with PKCE, a client secret and refresh tokens."),
        "server",
    ),
    "spa": TypeLabel(
        lazy_gettext("Single-page app"),
        lazy_gettext("Runs only in the browser and can't store a secret, such as React, Vue or Svelte."),
        lazy_gettext(
            "Uses the authorization code flow with PKCE and rotating refresh tokens, without a secret."
        ),
        "browser",
    ),
    "native": TypeLabel(
        lazy_gettext("Mobile, desktop or CLI app"),
        lazy_gettext("Installed on the user's device and redirects to a loopback or custom-scheme URI."),
        lazy_gettext(
            "Uses the authorization code flow with PKCE, without a secret. Loopback redirects work on any port."
        ),
        "phone",
    ),
    "machine": TypeLabel(
        lazy_gettext("Service without users"),
        lazy_gettext("A job, daemon or API that calls another API on its own behalf."),
        lazy_gettext("Uses the client credentials flow and a client secret."),
        "machine",
    ),
    "device": TypeLabel(
        lazy_gettext("TV or limited device"),
        lazy_gettext("Has no browser or keyboard. Users confirm a code on another device."),
        lazy_gettext("Uses the device flow (RFC 8628)."),
        "screen",
    ),
}
# Not client types of their own: clients request tokens for an API, and an agent is a native client.
API_TYPE = TypeLabel(
    lazy_gettext("API or MCP server"),
    lazy_gettext("Accepts access tokens from apps and agents."),
    lazy_gettext("Has an identifier, scopes, and metadata that helps clients find this organization."),
    "server",
)
AGENT_TYPE = TypeLabel(
    lazy_gettext("AI agent or MCP client"),
    lazy_gettext("Acts for users from their device and redirects to a loopback URI."),
    lazy_gettext(
        "Uses the authorization code flow with PKCE, without a secret. Tokens are valid for the APIs you choose."
    ),
    "person",
)

# Permissions are grouped by their first word.
PERMISSION_GROUPS: dict[str, str] = {
    "admins": lazy_gettext("Administrators"),
    "audit": lazy_gettext("Audit log"),
    "clients": lazy_gettext("Clients"),
    "consents": lazy_gettext("Consents"),
    "credentials": lazy_gettext("Client secrets"),
    "logs": lazy_gettext("Failed requests"),
    "organization": lazy_gettext("Organization"),
    "resources": lazy_gettext("APIs"),
    "roles": lazy_gettext("Roles"),
    "settings": lazy_gettext("Settings"),
    "tokens": lazy_gettext("Tokens"),
    "users": lazy_gettext("Users"),
    "webhooks": lazy_gettext("Webhooks"),
}
GRANT_TYPES: dict[str, str] = {
    "authorization_code": lazy_gettext("Authorization code (users sign in)"),
    "refresh_token": lazy_gettext("Refresh token (users stay signed in)"),
    "client_credentials": lazy_gettext("Client credentials (no user)"),
    "urn:ietf:params:oauth:grant-type:device_code": lazy_gettext("Device code"),
    "urn:ietf:params:oauth:grant-type:token-exchange": lazy_gettext(
        "Token exchange (call another API for a user)"
    ),
}
SECURITY_PROFILES: dict[str, str] = {"fapi2": lazy_gettext("FAPI 2.0 (banking, health, government)")}
TOKEN_EXCHANGE: dict[str, str] = {
    "delegation": lazy_gettext("Delegation: tokens name the client"),
    "impersonation": lazy_gettext("Impersonation: tokens don't name the client"),
}
AUTH_METHODS: dict[str, str] = {
    "client_secret_basic": lazy_gettext("Secret in the Authorization header (client_secret_basic)"),
    "client_secret_post": lazy_gettext("Secret in the body (client_secret_post)"),
    "private_key_jwt": lazy_gettext("Signed assertion, no secret (private_key_jwt)"),
    "none": lazy_gettext("None, public client (none)"),
}
TRUST_LEVELS: dict[str, str] = {
    "first_party": lazy_gettext("First party"),
    "verified": lazy_gettext("Reviewed"),
    "unverified": lazy_gettext("Not reviewed"),
}
APPROVALS: dict[str, str] = {
    "": lazy_gettext("Organization's default"),
    "review": lazy_gettext("Requires administrator approval"),
    "allowed": lazy_gettext("Members can allow it"),
    "pre_approved": lazy_gettext("Pre-approved for everyone"),
    "blocked": lazy_gettext("Blocked"),
}
CLIENT_SOURCES: dict[str, str] = {
    "person": lazy_gettext("Registered here"),
    "dynamic": lazy_gettext("Self-registered"),
    "metadata_document": lazy_gettext("Client ID metadata document"),
}
CLAIM_TARGETS: dict[str, str] = {
    "id_token": lazy_gettext("ID token"),
    "userinfo": lazy_gettext("Userinfo"),
    "access_token": lazy_gettext("JWT access token"),
    "introspection": lazy_gettext("Introspection"),
}
ATTRIBUTE_TYPES: dict[str, str] = {
    "string": lazy_gettext("Text"),
    "integer": lazy_gettext("Whole number"),
    "boolean": lazy_gettext("Yes or no"),
    "date": lazy_gettext("Date"),
    "list": lazy_gettext("List of texts"),
}
ATTRIBUTE_EDITORS: dict[str, str] = {
    "administrator": lazy_gettext("Administrators"),
    "user": lazy_gettext("The user and administrators"),
}
REQUEST_STATUSES: dict[str, str] = {
    "open": lazy_gettext("Open"),
    "approved": lazy_gettext("Approved"),
    "declined": lazy_gettext("Declined"),
}
AUDIT_ACTIONS: dict[str, str] = {
    "administrator.added": lazy_gettext("added an administrator"),
    "administrator.removed": lazy_gettext("removed an administrator"),
    "app_role.assigned": lazy_gettext("assigned a role in a client"),
    "app_role.removed": lazy_gettext("removed a role in a client"),
    "browser.forgotten": lazy_gettext("removed a recognized browser"),
    "client.deleted": lazy_gettext("deleted a client"),
    "client.registered": lazy_gettext("registered a client"),
    "client.updated": lazy_gettext("updated a client"),
    "client_access.cancelled": lazy_gettext("cancelled a request for access to an API"),
    "client_access.declined": lazy_gettext("declined a request for access to an API"),
    "client_access.granted": lazy_gettext("gave a client access to an API"),
    "client_access.requested": lazy_gettext("requested access to an API"),
    "client_access.withdrawn": lazy_gettext("withdrew a client’s access to an API"),
    "client_request.approved": lazy_gettext("approved a request for a client"),
    "client_request.created": lazy_gettext("requested approval of a client"),
    "client_request.declined": lazy_gettext("declined a request for a client"),
    "code.issued": lazy_gettext("received an authorization code"),
    "code.replayed": lazy_gettext("used an authorization code twice"),
    "consent.denied": lazy_gettext("denied access to a client"),
    "consent.given": lazy_gettext("allowed access to a client"),
    "consent.withdrawn": lazy_gettext("removed a client's access"),
    "credential.confirmed": lazy_gettext("confirmed a secret"),
    "credential.created": lazy_gettext("created a secret"),
    "credential.kept": lazy_gettext("kept a secret"),
    "credential.retired": lazy_gettext("scheduled a secret to expire"),
    "credential.revealed": lazy_gettext("viewed a secret"),
    "credential.revoked": lazy_gettext("revoked a secret"),
    "credential.tokens_revoked": lazy_gettext("revoked the tokens of an expired secret"),
    "delivery.given_up": lazy_gettext("gave up a webhook delivery"),
    "device_code.allowed": lazy_gettext("allowed a device"),
    "device_code.denied": lazy_gettext("denied a device"),
    "grant.created": lazy_gettext("signed in to a client"),
    "grant.revoked": lazy_gettext("revoked a user's grant to a client"),
    "instance.ceilings_updated": lazy_gettext("updated the instance limits"),
    "instance.set_up": lazy_gettext("set up this instance"),
    "group.created": lazy_gettext("created a group"),
    "group.deleted": lazy_gettext("deleted a group"),
    "group.member_added": lazy_gettext("added a user to a group"),
    "group.member_removed": lazy_gettext("removed a user from a group"),
    "group.updated": lazy_gettext("updated a group"),
    "identity.linked": lazy_gettext("linked an account at an identity provider"),
    "identity.unlinked": lazy_gettext("unlinked an account at an identity provider"),
    "identity_provider.created": lazy_gettext("added an identity provider"),
    "identity_provider.deleted": lazy_gettext("deleted an identity provider"),
    "identity_provider.failed": lazy_gettext("failed to sign in with an identity provider"),
    "identity_provider.updated": lazy_gettext("updated an identity provider"),
    "invitation.accepted": lazy_gettext("accepted an invitation"),
    "invitation.created": lazy_gettext("invited a user"),
    "invitation.revoked": lazy_gettext("revoked an invitation"),
    "mail.delayed": lazy_gettext("delayed emails beyond the hourly limit"),
    "mail.refused": lazy_gettext("failed to deliver an email"),
    "mail.tested": lazy_gettext("sent a test email"),
    "tokens.revoked": lazy_gettext("revoked tokens in bulk"),
    "organization.created": lazy_gettext("created the organization"),
    "organization.deleted": lazy_gettext("deleted the organization"),
    "organization.exported": lazy_gettext("exported the organization"),
    "organization.imported": lazy_gettext("imported the organization"),
    "organization.purged": lazy_gettext("purged an organization"),
    "organization.restored": lazy_gettext("restored the organization"),
    "organization.resumed": lazy_gettext("resumed the organization"),
    "organization.suspended": lazy_gettext("suspended the organization"),
    "organization.updated": lazy_gettext("renamed the organization"),
    "passkey.counter_went_back": lazy_gettext("used a passkey that may be a copy"),
    "passkey.registered": lazy_gettext("added a passkey"),
    "passkey.removed": lazy_gettext("removed a passkey"),
    "passkey.renamed": lazy_gettext("renamed a passkey"),
    "playground.request_sent": lazy_gettext("sent a request as a client in the playground"),
    "playground.started": lazy_gettext("began to try a client in the playground"),
    "provisioning_token.created": lazy_gettext("created a provisioning token"),
    "provisioning_token.deleted": lazy_gettext("deleted a provisioning token"),
    "recovery_code.used": lazy_gettext("used a recovery code"),
    "recovery_codes.renewed": lazy_gettext("generated new recovery codes"),
    "refresh_token.reused": lazy_gettext("reused a refresh token"),
    "registration.asked": lazy_gettext("requested an account"),
    "registration.refused": lazy_gettext("rejected a sign-up"),
    "registration_token.created": lazy_gettext("created an initial access token"),
    "registration_token.revoked": lazy_gettext("revoked an initial access token"),
    "resource.defined": lazy_gettext("created an API"),
    "resource.deleted": lazy_gettext("deleted an API"),
    "resource.updated": lazy_gettext("updated an API"),
    "scope.added": lazy_gettext("added a scope"),
    "scope.deleted": lazy_gettext("deleted a scope"),
    "scope.updated": lazy_gettext("updated a scope"),
    "second_factor.added": lazy_gettext("added a verification method"),
    "second_factor.failed": lazy_gettext("failed two-step verification"),
    "second_factor.removed": lazy_gettext("removed a verification method"),
    "second_factors.ended": lazy_gettext(
        "verified an email address, which removed earlier verification methods"
    ),
    "second_factors.reset": lazy_gettext("reset a user's two-step verification"),
    "secret.leak_reported": lazy_gettext("reported a leaked secret, which was revoked"),
    "session.ended": lazy_gettext("signed out"),
    "session.ended_by_provider": lazy_gettext("signed a user out"),
    "session.others_ended": lazy_gettext("signed out everywhere else"),
    "session.started": lazy_gettext("signed in"),
    "settings.updated": lazy_gettext("updated the settings"),
    "sign_in.failed": lazy_gettext("failed to sign in"),
    "sign_in.first_proof_given": lazy_gettext("passed the first step of a sign-in"),
    "signing_key.activated": lazy_gettext("activated a signing key"),
    "signing_key.created": lazy_gettext("created a signing key"),
    "signing_key.removed": lazy_gettext("removed a signing key"),
    "signing_key.retired": lazy_gettext("retired a signing key"),
    "token.exchanged": lazy_gettext("exchanged a token"),
    "token.revoked": lazy_gettext("revoked a token"),
    "user.created": lazy_gettext("created a user"),
    "user.imported": lazy_gettext("imported a user"),
    "user.deleted": lazy_gettext("deleted a user"),
    "user.disabled": lazy_gettext("disabled a user"),
    "user.enabled": lazy_gettext("enabled a user"),
    "user.email_changed": lazy_gettext("changed an email address"),
    "user.email_proof_requested": lazy_gettext("requested an email verification link"),
    "user.email_verified": lazy_gettext("verified an email address"),
    "user.password_changed": lazy_gettext("changed the password"),
    "user.password_cleared": lazy_gettext("deleted a password that was changed after the backup"),
    "user.password_reset": lazy_gettext("reset the password"),
    "user.password_reset_requested": lazy_gettext("requested a password reset"),
    "user.registered": lazy_gettext("signed up"),
    "user.registration_refused": lazy_gettext("tried to sign up with an existing email address"),
    "user.signed_out": lazy_gettext("signed a user out everywhere"),
    "user.updated": lazy_gettext("updated a profile"),
    "user_import.checked": lazy_gettext("checked an import of users"),
    "user_import.started": lazy_gettext("started an import of users"),
    "user_import.ended": lazy_gettext("finished an import of users"),
    "user_import.cancelled": lazy_gettext("cancelled an import of users"),
    "user_import.failed": lazy_gettext("stopped an import of users"),
    "webhook.created": lazy_gettext("added a webhook"),
    "webhook.deleted": lazy_gettext("deleted a webhook"),
    "webhook.disabled": lazy_gettext("disabled a webhook"),
    "webhook.redelivered": lazy_gettext("resent an event to a webhook"),
    "webhook.secret_rotated": lazy_gettext("rotated a webhook's signing secret"),
    "webhook.tested": lazy_gettext("tested a webhook"),
    "webhook.updated": lazy_gettext("updated a webhook"),
}
# What an audit event is about.
TARGET_TYPES: dict[str, str] = {
    "administrator": lazy_gettext("administrator"),
    "browser": lazy_gettext("browser"),
    "client": lazy_gettext("client"),
    "client_access": lazy_gettext("client access"),
    "client_request": lazy_gettext("client request"),
    "credential": lazy_gettext("credential"),
    "device_code": lazy_gettext("device code"),
    "email": lazy_gettext("email"),
    "grant": lazy_gettext("grant"),
    "group": lazy_gettext("group"),
    "identity_provider": lazy_gettext("identity provider"),
    "instance": lazy_gettext("instance"),
    "invitation": lazy_gettext("invitation"),
    "mail_server": lazy_gettext("mail server"),
    "organization": lazy_gettext("organization"),
    "passkey": lazy_gettext("passkey"),
    "provisioning_token": lazy_gettext("provisioning token"),
    "registration": lazy_gettext("registration"),
    "registration_token": lazy_gettext("registration token"),
    "resource": lazy_gettext("resource"),
    "scope": lazy_gettext("scope"),
    "session": lazy_gettext("session"),
    "settings": lazy_gettext("settings"),
    "signing_key": lazy_gettext("signing key"),
    "token": lazy_gettext("token"),
    "user": lazy_gettext("user"),
    "user_import": lazy_gettext("user import"),
    "webhook": lazy_gettext("webhook"),
}
ACCESS_STATUSES: dict[str, str] = {
    "requested": lazy_gettext("Requested"),
    "granted": lazy_gettext("Has access"),
    "declined": lazy_gettext("Declined"),
    "withdrawn": lazy_gettext("Withdrawn"),
}


class ChoiceLabel(Struct, frozen=True):
    """A choice, and what it means."""

    title: str
    help: str


ACCESS_POLICIES: dict[str, ChoiceLabel] = {
    "open": ChoiceLabel(
        lazy_gettext("Open to all clients"), lazy_gettext("Every client of the organization can get tokens.")
    ),
    "approval": ChoiceLabel(
        lazy_gettext("On approval"),
        lazy_gettext(
            "Clients can request the scopes from users. Without a user’s consent, only clients with access get tokens."
        ),
    ),
    "listed": ChoiceLabel(
        lazy_gettext("Listed clients"),
        lazy_gettext("Only clients with access get tokens. Other developers don’t see the API."),
    ),
}
TOKEN_STORAGES: dict[str, ChoiceLabel] = {
    "stored": ChoiceLabel(
        lazy_gettext("By introspection"),
        lazy_gettext(
            "All tokens are stored. Without introspection, a revoked JWT is accepted until it expires."
        ),
    ),
    "status_list": ChoiceLabel(
        lazy_gettext("By status list"),
        lazy_gettext(
            "Your API reads a list of revoked JWTs every ten seconds. Issuing a JWT to a client takes no database"
            " access."
        ),
    ),
    "none": ChoiceLabel(
        lazy_gettext("By expiry"),
        lazy_gettext(
            "JWTs are not stored and expire after ten minutes at most. Only introspection knows revoked ones."
        ),
    ),
}
# Groups of events that a webhook can receive.
EVENT_GROUPS: dict[str, str] = {
    "*": lazy_gettext("Everything"),
    "administrator.*": lazy_gettext("Administrators"),
    "app_role.*": lazy_gettext("Roles in clients"),
    "browser.*": lazy_gettext("Recognized browsers"),
    "client.*": lazy_gettext("Clients"),
    "client_access.*": lazy_gettext("Client access to APIs"),
    "client_request.*": lazy_gettext("Client requests"),
    "code.*": lazy_gettext("Authorization codes"),
    "consent.*": lazy_gettext("Consents"),
    "credential.*": lazy_gettext("Client secrets"),
    "device_code.*": lazy_gettext("Device codes"),
    "grant.*": lazy_gettext("Grants"),
    "group.*": lazy_gettext("Groups"),
    "identity.*": lazy_gettext("Linked accounts"),
    "identity_provider.*": lazy_gettext("Identity providers"),
    "invitation.*": lazy_gettext("Invitations"),
    "mail.*": lazy_gettext("Emails"),
    "organization.*": lazy_gettext("Organization"),
    "passkey.*": lazy_gettext("Passkeys"),
    "playground.*": lazy_gettext("Playground"),
    "provisioning_token.*": lazy_gettext("Provisioning tokens"),
    "recovery_code.*": lazy_gettext("Recovery codes"),
    "recovery_codes.*": lazy_gettext("Recovery code sets"),
    "refresh_token.*": lazy_gettext("Refresh tokens"),
    "registration_token.*": lazy_gettext("Initial access tokens"),
    "resource.*": lazy_gettext("APIs"),
    "scope.*": lazy_gettext("Scopes"),
    "second_factor.*": lazy_gettext("Verification methods"),
    "second_factors.*": lazy_gettext("Two-step verification resets"),
    "session.*": lazy_gettext("Sessions"),
    "settings.*": lazy_gettext("Settings"),
    "sign_in.*": lazy_gettext("Sign-in attempts"),
    "signing_key.*": lazy_gettext("Signing keys"),
    "token.*": lazy_gettext("Tokens"),
    "tokens.*": lazy_gettext("Bulk revocations"),
    "user.*": lazy_gettext("Users"),
    "user_import.*": lazy_gettext("User imports"),
    "webhook.*": lazy_gettext("Webhooks"),
}
# What happened, as the names of event types say it.
# fmt: off
EVENT_WORDS: dict[str, str] = {word: word for word in (
    lazy_gettext("accepted"), lazy_gettext("activated"), lazy_gettext("added"), lazy_gettext("allowed"),
    lazy_gettext("approved"), lazy_gettext("assigned"), lazy_gettext("cancelled"), lazy_gettext("confirmed"),
    lazy_gettext("counter went back"), lazy_gettext("created"), lazy_gettext("declined"), lazy_gettext("defined"),
    lazy_gettext("delayed"), lazy_gettext("deleted"), lazy_gettext("denied"), lazy_gettext("disabled"),
    lazy_gettext("email changed"),
    lazy_gettext("email proof requested"), lazy_gettext("email verified"), lazy_gettext("enabled"),
    lazy_gettext("ended"), lazy_gettext("ended by provider"), lazy_gettext("exchanged"),
    lazy_gettext("exported"), lazy_gettext("failed"),
    lazy_gettext("first proof given"), lazy_gettext("forgotten"), lazy_gettext("given"), lazy_gettext("granted"),
    lazy_gettext("kept"), lazy_gettext("leaked"), lazy_gettext("linked"),
    lazy_gettext("member added"), lazy_gettext("member removed"),
    lazy_gettext("others ended"), lazy_gettext("password changed"), lazy_gettext("password reset"),
    lazy_gettext("password reset requested"), lazy_gettext("refused"), lazy_gettext("registered"),
    lazy_gettext("registration refused"), lazy_gettext("removed"), lazy_gettext("renamed"), lazy_gettext("renewed"),
    lazy_gettext("replayed"), lazy_gettext("request sent"), lazy_gettext("requested"), lazy_gettext("reset"),
    lazy_gettext("restored"), lazy_gettext("resumed"), lazy_gettext("retired"), lazy_gettext("reused"),
    lazy_gettext("revealed"), lazy_gettext("revoked"), lazy_gettext("secret rotated"), lazy_gettext("signed out"),
    lazy_gettext("started"), lazy_gettext("suspended"), lazy_gettext("tested"), lazy_gettext("tokens revoked"),
    lazy_gettext("unlinked"), lazy_gettext("updated"),
    lazy_gettext("used"), lazy_gettext("withdrawn"),
)}
# fmt: on
WEBHOOK_DISABLED_REASONS: dict[str, str] = {
    "person": lazy_gettext("An administrator disabled it."),
    "gone": lazy_gettext("The receiver responded with 410 Gone."),
    "failing": lazy_gettext("Deliveries failed for several days."),
    "backlog": lazy_gettext("The receiver was too slow to keep up with the events."),
}
