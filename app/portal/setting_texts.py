"""Texts of the settings pages: topics, labels, and what the values of a choice mean.

The kind of a setting, its default and its reason come from the table in ``rules/organizations/settings_table``.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from app.web.languages import lazy_gettext


class Topic(Struct, frozen=True):
    """One page of settings: ``groups`` maps each heading to the labels of its settings by path."""

    key: str
    title: str
    description: str
    icon: str
    groups: Mapping[str, Mapping[str, str]]
    is_of_instance: bool = False
    """Only administrators of the instance can change them."""

    @property
    def paths(self) -> tuple[str, ...]:
        """Its paths, in order."""
        return tuple(self.labels)

    @property
    def labels(self) -> dict[str, str]:
        """Path to label."""
        return {path: label for labels in self.groups.values() for path, label in labels.items()}


_TOPICS = (
    Topic(
        "sign-in",
        lazy_gettext("Sign-in"),
        lazy_gettext("Passwords, passkeys and failed attempts."),
        "key",
        {
            lazy_gettext("Sign-in methods"): {
                "authentication.password.enabled": lazy_gettext("Password sign-in"),
                "authentication.passkeys.passwordless": lazy_gettext("Passkey sign-in without a password"),
                "authentication.passkeys.enabled": lazy_gettext("Users can add passkeys"),
            },
            lazy_gettext("Passwords"): {
                "authentication.password.min_length": lazy_gettext("Minimum password length"),
                "authentication.password.block_common": lazy_gettext("Block common passwords"),
                "authentication.password.block_personal": lazy_gettext("Block passwords that contain names"),
            },
            lazy_gettext("Failed attempts"): {
                "authentication.lockout.max_failures": lazy_gettext("Failed attempts before a delay"),
                "authentication.lockout.window_seconds": lazy_gettext("Count failed attempts for"),
                "authentication.lockout.delay_seconds": lazy_gettext("First delay"),
                "authentication.lockout.max_delay_seconds": lazy_gettext("Maximum delay"),
            },
            lazy_gettext("Password reset"): {
                "authentication.recovery.password_reset": lazy_gettext(
                    "Users can reset a forgotten password by email"
                ),
                "authentication.recovery.reset_ttl_seconds": lazy_gettext("Reset link lifetime"),
            },
        },
    ),
    Topic(
        "mfa",
        lazy_gettext("Two-step verification"),
        lazy_gettext("Who needs two-step verification, and which methods are accepted."),
        "shield",
        {
            lazy_gettext("Requirement"): {
                "authentication.mfa.policy": lazy_gettext("Who needs two-step verification"),
                "authentication.mfa.grace_period_seconds": lazy_gettext("Grace period"),
            },
            lazy_gettext("Methods"): {
                "authentication.mfa.methods": lazy_gettext("Accepted verification methods"),
                "authentication.mfa.recovery_codes": lazy_gettext("Recovery codes per user"),
            },
        },
    ),
    Topic(
        "sessions",
        lazy_gettext("Sessions"),
        lazy_gettext("How long users stay signed in."),
        "clock",
        {
            lazy_gettext("Sessions"): {
                "authentication.sessions.idle_timeout_seconds": lazy_gettext("Idle timeout"),
                "authentication.sessions.absolute_timeout_seconds": lazy_gettext("Maximum session lifetime"),
                "authentication.sessions.reauthentication_seconds": lazy_gettext(
                    "Sign in again for sensitive actions after"
                ),
                "authentication.sessions.max_per_user": lazy_gettext("Sessions per user"),
            },
        },
    ),
    Topic(
        "registration",
        lazy_gettext("Users"),
        lazy_gettext("How users join, and what they can change in their account."),
        "people",
        {
            lazy_gettext("Joining"): {
                "authentication.registration.mode": lazy_gettext("Who can join"),
                "authentication.registration.verify_email": lazy_gettext("Require email verification"),
                "authentication.registration.allowed_email_domains": lazy_gettext("Allowed email domains"),
                "authentication.registration.default_roles": lazy_gettext("Roles of users who sign up"),
            },
            lazy_gettext("Invitations"): {
                "authentication.registration.invitation_ttl_seconds": lazy_gettext("Invitation lifetime"),
            },
            lazy_gettext("Members' own accounts"): {
                "user_permissions.members_can_edit_profile": lazy_gettext(
                    "Members can edit their name and profile"
                ),
                "user_permissions.members_can_delete_account": lazy_gettext(
                    "Members can delete their own account"
                ),
            },
        },
    ),
    Topic(
        "tokens",
        lazy_gettext("Tokens and consent"),
        lazy_gettext("Token formats and lifetimes, and when users are asked for consent."),
        "shield",
        {
            lazy_gettext("Access tokens"): {
                "oauth.access_token.format": lazy_gettext("Format"),
                "oauth.access_token.ttl_seconds": lazy_gettext("Opaque token lifetime"),
                "oauth.access_token.jwt_ttl_seconds": lazy_gettext("JWT lifetime"),
                "oauth.access_token.allow_unstored": lazy_gettext("APIs may choose not to store JWTs"),
            },
            lazy_gettext("Refresh tokens"): {
                "oauth.refresh_token.ttl_seconds": lazy_gettext("Maximum lifetime"),
                "oauth.refresh_token.idle_ttl_seconds": lazy_gettext("Idle timeout"),
                "oauth.refresh_token.rotation": lazy_gettext("Rotation"),
                "oauth.refresh_token.reuse_grace_seconds": lazy_gettext("Retry period after a lost response"),
            },
            lazy_gettext("OpenID Connect"): {
                "oauth.id_token_ttl_seconds": lazy_gettext("ID token lifetime"),
                "oauth.authorization_code_ttl_seconds": lazy_gettext("Authorization code lifetime"),
                "oauth.device_code_ttl_seconds": lazy_gettext("Device code lifetime"),
                "oauth.device_poll_interval_seconds": lazy_gettext("Device polling interval"),
                "oauth.signing.algorithm": lazy_gettext("Signing algorithm"),
                "oauth.signing.rotation_seconds": lazy_gettext("Rotate signing keys after"),
            },
            lazy_gettext("Consent"): {
                "oauth.consent.policy": lazy_gettext("Clients that ask for consent"),
                "oauth.consent.members_may_allow": lazy_gettext("Clients that members can allow"),
                "oauth.consent.remember_self_registered": lazy_gettext(
                    "Remember consent to self-registered clients"
                ),
                "oauth.consent.ttl_seconds": lazy_gettext("Consent lifetime"),
            },
        },
    ),
    Topic(
        "clients",
        lazy_gettext("Clients and secrets"),
        lazy_gettext("What clients can use, and how their secrets are stored."),
        "apps",
        {
            lazy_gettext("Secrets"): {
                "oauth.clients.secret_display": lazy_gettext("Viewing secrets"),
                "oauth.clients.max_secrets": lazy_gettext("Secrets per client"),
                "oauth.clients.secret_ttl_seconds": lazy_gettext("Secret lifetime"),
                "oauth.clients.rotation_overlap_seconds": lazy_gettext(
                    "Old secrets keep working after a rotation for"
                ),
            },
            lazy_gettext("Registration"): {
                "oauth.grant_types": lazy_gettext("Grant types"),
                "oauth.clients.token_endpoint_auth_methods": lazy_gettext("Client authentication methods"),
                "oauth.redirect_uris.allowed_hosts": lazy_gettext("Allowed redirect hosts"),
                "oauth.redirect_uris.max_per_client": lazy_gettext("Redirect URIs per client"),
                "user_permissions.members_can_register_clients": lazy_gettext("Members can register clients"),
            },
            lazy_gettext("Management API"): {
                "management_api.allowed_origins": lazy_gettext(
                    "Web origins that may call the management API"
                ),
            },
            lazy_gettext("Requirements for all clients"): {
                "oauth.pkce": lazy_gettext("Require PKCE"),
                "oauth.require_par": lazy_gettext("Require pushed authorization requests (PAR)"),
                "oauth.require_dpop": lazy_gettext("Require DPoP"),
            },
        },
    ),
    Topic(
        "self-registration",
        lazy_gettext("Self-registration"),
        lazy_gettext(
            "AI agents (MCP) and other clients that register themselves. Users see that such a client is not reviewed."
        ),
        "apps",
        {
            lazy_gettext("AI agents and MCP clients"): {
                "oauth.dynamic_registration.client_id_metadata_documents": lazy_gettext(
                    "Allow client ID metadata documents"
                ),
            },
            lazy_gettext("Dynamic client registration (RFC 7591)"): {
                "oauth.dynamic_registration.mode": lazy_gettext("Who can register clients"),
                "oauth.dynamic_registration.max_per_hour": lazy_gettext("Registrations per hour and network"),
                "oauth.dynamic_registration.idle_ttl_seconds": lazy_gettext("Delete unused clients after"),
            },
        },
    ),
    Topic(
        "branding",
        lazy_gettext("Branding"),
        lazy_gettext("Name, color and texts of the sign-in page."),
        "brush",
        {
            lazy_gettext("Sign-in page"): {
                "branding.display_name": lazy_gettext("Display name"),
                "branding.accent_color": lazy_gettext("Accent color"),
                "branding.theme": lazy_gettext("Theme"),
                "branding.login_message": lazy_gettext("Message"),
            },
            lazy_gettext("Support"): {
                "branding.support_email": lazy_gettext("Support email"),
                "branding.support_uri": lazy_gettext("Support URL"),
            },
            lazy_gettext("Language"): {
                "localization.default_locale": lazy_gettext("Default language of pages and emails"),
            },
        },
    ),
    Topic(
        "audit",
        lazy_gettext("Audit"),
        lazy_gettext("How long logs are stored, and notifications about instance administrators."),
        "book",
        {
            lazy_gettext("Logs"): {
                "audit.retention_days": lazy_gettext("Keep audit events for"),
                "audit.failed_requests": lazy_gettext("Log requests of clients"),
                "audit.log_retention_days": lazy_gettext("Keep failed requests for"),
            },
            lazy_gettext("Instance administrators"): {
                "audit.notify_root_access": lazy_gettext(
                    "Email administrators when an instance administrator makes changes"
                ),
            },
        },
    ),
    Topic(
        "limits",
        lazy_gettext("Limits"),
        lazy_gettext("Set by administrators of the instance."),
        "pulse",
        {
            lazy_gettext("Requests in a minute"): {
                "limits.client_requests_per_minute": lazy_gettext("Of each client"),
                "limits.network_requests_per_minute": lazy_gettext("From each network"),
                "limits.organization_requests_per_minute": lazy_gettext("Of all clients together"),
            },
            lazy_gettext("Size"): {
                "limits.max_users": lazy_gettext("Users"),
                "limits.max_clients": lazy_gettext("Clients"),
            },
            lazy_gettext("Emails"): {"limits.emails_per_hour": lazy_gettext("Emails in an hour")},
        },
        is_of_instance=True,
    ),
)

TOPICS: dict[str, Topic] = {topic.key: topic for topic in _TOPICS}
SETTING_LABELS: dict[str, str] = {path: label for topic in _TOPICS for path, label in topic.labels.items()}

# Label and help of each value of a choice.
CHOICE_TEXTS: dict[str, tuple[str, str]] = {
    "opaque": (
        lazy_gettext("Opaque"),
        lazy_gettext("Can be revoked instantly. APIs check tokens by introspection."),
    ),
    "jwt": (
        lazy_gettext("JWT (RFC 9068)"),
        lazy_gettext("APIs verify tokens themselves. A token stays valid until it expires."),
    ),
    "always": (lazy_gettext("Always"), ""),
    "public_clients": (lazy_gettext("Only for public clients"), ""),
    "third_party": (
        lazy_gettext("Third-party clients"),
        lazy_gettext("First-party clients skip the consent page, except public ones."),
    ),
    "reveal": (
        lazy_gettext("Can be revealed"),
        lazy_gettext("Requires a fresh sign-in and is recorded in the audit log."),
    ),
    "once": (
        lazy_gettext("Shown once"),
        lazy_gettext("Secrets can't be viewed again. Choosing this erases the stored copies."),
    ),
    "auto": (lazy_gettext("Follow the user's device"), ""),
    "light": (lazy_gettext("Light"), ""),
    "dark": (lazy_gettext("Dark"), ""),
    "en": (lazy_gettext("English"), ""),
    "de": (lazy_gettext("German (Deutsch)"), ""),
    "authorization_code": (lazy_gettext("Authorization code"), ""),
    "refresh_token": (lazy_gettext("Refresh token"), ""),
    "client_credentials": (lazy_gettext("Client credentials"), ""),
    "urn:ietf:params:oauth:grant-type:device_code": (lazy_gettext("Device code"), ""),
    "urn:ietf:params:oauth:grant-type:token-exchange": (lazy_gettext("Token exchange"), ""),
    "initial_access_token": (lazy_gettext("Anyone with an initial access token"), ""),
    "client_secret_basic": (lazy_gettext("Secret in the header (client_secret_basic)"), ""),
    "client_secret_post": (lazy_gettext("Secret in the body (client_secret_post)"), ""),
    "private_key_jwt": (lazy_gettext("Signed assertion (private_key_jwt)"), ""),
    "none": (lazy_gettext("None, for public clients (none)"), ""),
}
# Values that mean different things in different settings.
CHOICE_TEXTS_BY_PATH: dict[tuple[str, str], tuple[str, str]] = {
    ("authentication.mfa.policy", "off"): (
        lazy_gettext("Nobody"),
        lazy_gettext("Two-step verification is disabled."),
    ),
    ("authentication.mfa.policy", "optional"): (
        lazy_gettext("Optional"),
        lazy_gettext("Users decide for themselves."),
    ),
    ("authentication.mfa.policy", "required_for_admins"): (
        lazy_gettext("Administrators"),
        lazy_gettext("Optional for all other users."),
    ),
    ("authentication.mfa.policy", "required"): (lazy_gettext("Everyone"), ""),
    ("authentication.mfa.methods", "totp"): (lazy_gettext("Authenticator app"), ""),
    ("authentication.mfa.methods", "passkey"): (lazy_gettext("Passkey"), ""),
    ("oauth.pkce", "required"): (lazy_gettext("For all clients"), ""),
    ("oauth.pkce", "required_or_nonce"): (
        lazy_gettext("For all clients without a nonce"),
        lazy_gettext("Confidential clients may send an OpenID Connect nonce instead."),
    ),
    ("oauth.pkce", "public_clients"): (
        lazy_gettext("Only for public clients"),
        lazy_gettext("Codes of confidential clients may be unprotected against injection."),
    ),
    ("oauth.consent.policy", "always"): (
        lazy_gettext("All clients"),
        lazy_gettext("Including first-party clients."),
    ),
    ("oauth.consent.members_may_allow", "all"): (
        lazy_gettext("All clients"),
        lazy_gettext("Except those that require approval."),
    ),
    ("oauth.consent.members_may_allow", "verified"): (
        lazy_gettext("Reviewed clients"),
        lazy_gettext("Other clients require administrator approval."),
    ),
    ("oauth.consent.members_may_allow", "none"): (
        lazy_gettext("First-party clients"),
        lazy_gettext("All other clients require administrator approval."),
    ),
    ("oauth.dynamic_registration.mode", "off"): (lazy_gettext("Nobody"), ""),
    ("oauth.dynamic_registration.mode", "open"): (
        lazy_gettext("Anyone"),
        lazy_gettext("Agents that don't support client ID metadata documents need this."),
    ),
    ("authentication.registration.mode", "closed"): (lazy_gettext("Nobody"), ""),
    ("authentication.registration.mode", "invite"): (lazy_gettext("Invited users"), ""),
    ("authentication.registration.mode", "open"): (
        lazy_gettext("Anyone"),
        lazy_gettext("Users can sign up or be invited."),
    ),
}
# What an empty field means where the default is null.
EMPTY_TEXTS: dict[str, str] = {
    "authentication.sessions.max_per_user": lazy_gettext("unlimited"),
    "authentication.registration.allowed_email_domains": lazy_gettext("any domain"),
    "oauth.consent.ttl_seconds": lazy_gettext("never expires"),
    "oauth.clients.secret_ttl_seconds": lazy_gettext("never expires"),
    "oauth.redirect_uris.allowed_hosts": lazy_gettext("any host"),
    "management_api.allowed_origins": lazy_gettext("no web page of another origin"),
    "branding.display_name": lazy_gettext("the organization's name"),
    "limits.client_requests_per_minute": lazy_gettext("no limit"),
    "limits.network_requests_per_minute": lazy_gettext("no limit"),
    "limits.organization_requests_per_minute": lazy_gettext("no limit"),
    "limits.max_users": lazy_gettext("no limit"),
    "limits.max_clients": "50,000",
}
