"""Words of the portal: what types of clients, grants and events are called on its pages."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TypeWords:
    """A type of client, for the card that chooses it and the badge that names it."""

    title: str
    sentence: str
    gets: str
    icon: str


TYPES: dict[str, TypeWords] = {
    "web": TypeWords(
        "Web app",
        "Runs on a server and can keep a secret: Flask, Django, Rails, Next.js.",
        "Authorization code flow with PKCE, a client secret, refresh tokens.",
        "server",
    ),
    "spa": TypeWords(
        "Single-page app",
        "Runs in the browser alone, where no secret is safe: React, Vue, Svelte.",
        "Authorization code flow with PKCE, no secret, refresh tokens that change at each use.",
        "browser",
    ),
    "native": TypeWords(
        "Mobile, desktop or command line",
        "Is installed on people's devices and returns to a loopback address or its own scheme.",
        "Authorization code flow with PKCE, no secret, loopback redirects on any port.",
        "phone",
    ),
    "machine": TypeWords(
        "Service without users",
        "A job, a daemon or an API that calls another one in its own name.",
        "Client credentials flow and a client secret.",
        "machine",
    ),
    "device": TypeWords(
        "TV or limited device",
        "Has no browser or keyboard; people confirm a code on their phone.",
        "Device flow (RFC 8628).",
        "screen",
    ),
}
REGISTRABLE = ("web", "spa", "native", "machine", "device")
# What people build that is no type of its own: an API is what clients ask for, an agent is a client of one.
API_WORDS = TypeWords(
    "API or MCP server",
    "Is what apps and agents call: it takes access tokens and issues none.",
    "An API with an identifier and scopes, and the documents by which clients find this organization.",
    "server",
)
AGENT_WORDS = TypeWords(
    "AI agent or MCP client",
    "Acts for people at APIs, from their own device, and returns to a loopback address.",
    "Authorization code flow with PKCE, no secret, tokens for the APIs that you choose.",
    "person",
)

GRANTS: dict[str, str] = {
    "authorization_code": "Authorization code (people sign in)",
    "refresh_token": "Refresh token (stay signed in)",
    "client_credentials": "Client credentials (in its own name)",
    "urn:ietf:params:oauth:grant-type:device_code": "Device code",
    "urn:ietf:params:oauth:grant-type:token-exchange": "Token exchange (for another API, in a user’s name)",
}
SECURITY_PROFILE_WORDS: dict[str, str] = {"fapi2": "FAPI 2.0 (banking, health, government)"}
EXCHANGE: dict[str, str] = {
    "delegation": "Delegation: its tokens say who acts",
    "impersonation": "Impersonation: its tokens say nothing of it",
}
AUTH_METHODS: dict[str, str] = {
    "client_secret_basic": "Secret in the Authorization header (client_secret_basic)",
    "client_secret_post": "Secret in the body (client_secret_post)",
    "private_key_jwt": "Signed assertion, no secret (private_key_jwt)",
    "none": "None: a public client",
}
TRUST: dict[str, str] = {
    "first_party": "First party",
    "verified": "Reviewed",
    "unverified": "Not reviewed",
}
APPROVAL: dict[str, str] = {
    "": "As the organization decides",
    "review": "Ask an administrator first",
    "allowed": "Members may allow it",
    "pre_approved": "Approved for everybody: nobody is asked",
    "blocked": "Blocked",
}
REQUEST_STATUS: dict[str, str] = {"open": "Waiting", "approved": "Approved", "declined": "Declined"}
HAPPENINGS: dict[str, str] = {
    "administrator.added": "added an administrator",
    "administrator.removed": "removed an administrator",
    "browser.forgotten": "forgot a known browser",
    "client.deleted": "deleted a client",
    "client.registered": "registered a client",
    "client.updated": "changed a client",
    "client_request.approved": "approved a request for a client",
    "client_request.created": "asked for a client",
    "client_request.declined": "declined a request for a client",
    "code.issued": "was sent back to a client",
    "code.replayed": "used an authorization code twice",
    "consent.denied": "denied a client access",
    "consent.given": "allowed a client access",
    "consent.withdrawn": "took a client’s access away",
    "credential.created": "made a secret",
    "credential.kept": "kept a secret",
    "credential.retired": "set the end of a secret",
    "credential.revealed": "viewed a secret",
    "credential.revoked": "revoked a secret",
    "credential.tokens_revoked": "revoked the tokens of an ended secret",
    "delivery.given_up": "gave up on telling a receiver",
    "device_code.allowed": "let a device in",
    "device_code.denied": "turned a device away",
    "grant.created": "signed in to a client",
    "grant.revoked": "ended a person’s grant to a client",
    "instance.ceilings_updated": "changed the ceilings",
    "instance.set_up": "set up this installation",
    "invitation.accepted": "accepted an invitation",
    "invitation.created": "invited somebody",
    "invitation.revoked": "withdrew an invitation",
    "mail.refused": "could not send a letter",
    "tokens.revoked": "revoked tokens widely",
    "organization.created": "created the organization",
    "organization.deleted": "deleted the organization",
    "organization.exported": "wrote the organization into a file",
    "organization.imported": "brought the organization in from a file",
    "organization.purged": "purged an organization",
    "organization.restored": "restored the organization",
    "organization.resumed": "resumed the organization",
    "organization.suspended": "suspended the organization",
    "organization.updated": "renamed the organization",
    "passkey.counter_went_back": "used a passkey that looks like a copy",
    "passkey.registered": "added a passkey",
    "passkey.removed": "removed a passkey",
    "passkey.renamed": "renamed a passkey",
    "recovery_code.used": "used a recovery code",
    "recovery_codes.renewed": "made new recovery codes",
    "refresh_token.reused": "used a refresh token twice",
    "registration.asked": "asked for an account",
    "registration.refused": "refused somebody an account",
    "registration_token.created": "made an initial access token",
    "registration_token.revoked": "revoked an initial access token",
    "resource.defined": "defined an API",
    "resource.deleted": "deleted an API",
    "resource.updated": "changed an API",
    "scope.added": "added a scope",
    "scope.updated": "changed the words of a scope",
    "second_factor.added": "added a second factor",
    "second_factor.failed": "failed at the second factor",
    "second_factor.removed": "removed a second factor",
    "second_factors.ended": "proved an address first, which ended the second factors from before",
    "second_factors.reset": "reset a user’s second factors",
    "secret.leak_reported": "reported a leaked secret, which is dead",
    "session.ended": "signed out",
    "session.others_ended": "signed out everywhere else",
    "session.started": "signed in",
    "settings.updated": "changed the settings",
    "sign_in.failed": "failed to sign in",
    "sign_in.first_proof_given": "passed the first step of a sign-in",
    "signing_key.activated": "began to sign with a key",
    "signing_key.created": "made a signing key",
    "signing_key.removed": "removed a signing key",
    "signing_key.retired": "retired a signing key",
    "token.exchanged": "exchanged a token",
    "token.revoked": "revoked a token",
    "user.created": "created a user",
    "user.imported": "imported a user",
    "user.deleted": "deleted a user",
    "user.disabled": "disabled a user",
    "user.enabled": "enabled a user",
    "user.email_changed": "changed an e-mail address",
    "user.email_proof_requested": "asked for a link that proves an e-mail address",
    "user.email_verified": "proved an e-mail address",
    "user.password_changed": "changed the password",
    "user.password_reset": "chose a new password by a link",
    "user.password_reset_requested": "asked for a link for a new password",
    "user.registered": "made an account",
    "user.registration_refused": "asked for an account with a taken address",
    "user.signed_out": "signed a user out everywhere",
    "user.updated": "changed a profile",
    "user_import.checked": "checked a file of people",
    "user_import.started": "began an import of people",
    "user_import.ended": "brought people in",
    "user_import.cancelled": "cancelled an import of people",
    "user_import.failed": "stopped an import of people",
    "webhook.created": "added a webhook",
    "webhook.deleted": "deleted a webhook",
    "webhook.disabled": "disabled a webhook",
    "webhook.redelivered": "sent an event to a webhook again",
    "webhook.secret_rotated": "made a new signing secret for a webhook",
    "webhook.tested": "tried a webhook out",
    "webhook.updated": "changed a webhook",
}

# What a webhook may be told of, by group.
WEBHOOK_GROUPS: dict[str, str] = {
    "*": "Everything",
    "administrator.*": "Administrators",
    "browser.*": "Browsers",
    "client.*": "Clients",
    "client_request.*": "Requests for apps",
    "code.*": "Authorization codes",
    "consent.*": "Consents",
    "credential.*": "Secrets of clients",
    "device_code.*": "Devices",
    "grant.*": "Grants",
    "invitation.*": "Invitations",
    "mail.*": "Mail",
    "organization.*": "The organization",
    "passkey.*": "Passkeys",
    "recovery_code.*": "Recovery codes",
    "recovery_codes.*": "Sets of recovery codes",
    "refresh_token.*": "Refresh tokens",
    "registration_token.*": "Initial access tokens",
    "resource.*": "APIs",
    "scope.*": "Scopes",
    "second_factor.*": "Second factors",
    "second_factors.*": "All second factors of a person",
    "session.*": "Sign-ins",
    "settings.*": "Settings",
    "sign_in.*": "Tries to sign in",
    "signing_key.*": "Signing keys",
    "token.*": "Tokens",
    "tokens.*": "Many tokens at once",
    "user.*": "Users",
    "user_import.*": "Imports of users",
    "webhook.*": "Webhooks",
}
# Why a webhook is disabled.
WEBHOOK_FAULTS: dict[str, str] = {
    "person": "Somebody disabled it.",
    "gone": "It answered 410: it is gone for good.",
    "failing": "It took nothing for days.",
    "backlog": "It took events more slowly than they happened.",
}

# Who registered a client.
SOURCE_WORDS: dict[str, str] = {
    "person": "Registered here",
    "dynamic": "Registered itself",
    "metadata_document": "Has an id of its own",
}
