"""Texts of the settings pages: topics, labels, and what the values of a choice mean.

The kind of a setting, its default and its reason come from the table in ``rules/organizations/settings_table``.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Topic:
    """One page of settings: groups of (heading, ((path, label), …))."""

    key: str
    title: str
    description: str
    icon: str
    groups: tuple[tuple[str, tuple[tuple[str, str], ...]], ...]
    is_of_instance: bool = False
    """Only administrators of the instance can change them."""

    @property
    def paths(self) -> tuple[str, ...]:
        """Its paths, in order."""
        return tuple(path for _, rows in self.groups for path, _ in rows)

    @property
    def labels(self) -> dict[str, str]:
        """Path to label."""
        return {path: label for _, rows in self.groups for path, label in rows}


def _rows(prefix: str, **labels: str) -> tuple[tuple[str, str], ...]:
    return tuple((f"{prefix}.{name}", label) for name, label in labels.items())


_TOPICS = (
    Topic(
        "sign-in",
        "Sign-in",
        "Passwords, passkeys and failed attempts.",
        "key",
        (
            (
                "Sign-in methods",
                (
                    *_rows("authentication.password", enabled="Password sign-in"),
                    *_rows(
                        "authentication.passkeys",
                        passwordless="Passkey sign-in without a password",
                        enabled="Users can add passkeys",
                    ),
                ),
            ),
            (
                "Passwords",
                _rows(
                    "authentication.password",
                    min_length="Minimum password length",
                    block_common="Block common passwords",
                    block_personal="Block passwords that contain names",
                ),
            ),
            (
                "Failed attempts",
                _rows(
                    "authentication.lockout",
                    max_failures="Failed attempts before a delay",
                    window_seconds="Count failed attempts for",
                    delay_seconds="First delay",
                    max_delay_seconds="Maximum delay",
                ),
            ),
            (
                "Password reset",
                (
                    (
                        "authentication.recovery.password_reset",
                        "Users can reset a forgotten password by email",
                    ),
                    ("authentication.recovery.reset_ttl_seconds", "Reset link lifetime"),
                ),
            ),
        ),
    ),
    Topic(
        "mfa",
        "Two-step verification",
        "Who needs two-step verification, and which methods are accepted.",
        "shield",
        (
            (
                "Requirement",
                _rows(
                    "authentication.mfa",
                    policy="Who needs two-step verification",
                    grace_period_seconds="Grace period",
                ),
            ),
            (
                "Methods",
                _rows(
                    "authentication.mfa",
                    methods="Accepted verification methods",
                    recovery_codes="Recovery codes per user",
                ),
            ),
        ),
    ),
    Topic(
        "sessions",
        "Sessions",
        "How long users stay signed in.",
        "clock",
        (
            (
                "Sessions",
                _rows(
                    "authentication.sessions",
                    idle_timeout_seconds="Idle timeout",
                    absolute_timeout_seconds="Maximum session lifetime",
                    reauthentication_seconds="Sign in again for sensitive actions after",
                    max_per_user="Sessions per user",
                ),
            ),
        ),
    ),
    Topic(
        "registration",
        "Users",
        "How users join, and what they can change in their account.",
        "people",
        (
            (
                "Joining",
                _rows(
                    "authentication.registration",
                    mode="Who can join",
                    verify_email="Require email verification",
                    allowed_email_domains="Allowed email domains",
                    default_roles="Roles of users who sign up",
                ),
            ),
            (
                "Invitations",
                _rows("authentication.registration", invitation_ttl_seconds="Invitation lifetime"),
            ),
            (
                "Members' own accounts",
                _rows(
                    "user_permissions",
                    members_can_edit_profile="Members can edit their name and profile",
                    members_can_delete_account="Members can delete their own account",
                ),
            ),
        ),
    ),
    Topic(
        "tokens",
        "Tokens and consent",
        "Token formats and lifetimes, and when users are asked for consent.",
        "shield",
        (
            (
                "Access tokens",
                _rows(
                    "oauth.access_token",
                    format="Format",
                    ttl_seconds="Opaque token lifetime",
                    jwt_ttl_seconds="JWT lifetime",
                    allow_unstored="APIs may choose not to store JWTs",
                ),
            ),
            (
                "Refresh tokens",
                _rows(
                    "oauth.refresh_token",
                    ttl_seconds="Maximum lifetime",
                    idle_ttl_seconds="Idle timeout",
                    rotation="Rotation",
                    reuse_grace_seconds="Retry period after a lost response",
                ),
            ),
            (
                "OpenID Connect",
                (
                    ("oauth.id_token_ttl_seconds", "ID token lifetime"),
                    ("oauth.authorization_code_ttl_seconds", "Authorization code lifetime"),
                    ("oauth.device_code_ttl_seconds", "Device code lifetime"),
                    ("oauth.device_poll_interval_seconds", "Device polling interval"),
                    ("oauth.signing.algorithm", "Signing algorithm"),
                    ("oauth.signing.rotation_seconds", "Rotate signing keys after"),
                ),
            ),
            (
                "Consent",
                _rows(
                    "oauth.consent",
                    policy="Clients that ask for consent",
                    members_may_allow="Clients that members can allow",
                    remember_self_registered="Remember consent to self-registered clients",
                    ttl_seconds="Consent lifetime",
                ),
            ),
        ),
    ),
    Topic(
        "clients",
        "Clients and secrets",
        "What clients can use, and how their secrets are stored.",
        "apps",
        (
            (
                "Secrets",
                (
                    ("oauth.clients.secret_display", "Viewing secrets"),
                    ("oauth.clients.max_secrets", "Secrets per client"),
                    ("oauth.clients.secret_ttl_seconds", "Secret lifetime"),
                    (
                        "oauth.clients.rotation_overlap_seconds",
                        "Old secrets keep working after a rotation for",
                    ),
                ),
            ),
            (
                "Registration",
                (
                    ("oauth.grant_types", "Grant types"),
                    ("oauth.clients.token_endpoint_auth_methods", "Client authentication methods"),
                    ("oauth.redirect_uris.allowed_hosts", "Allowed redirect hosts"),
                    ("oauth.redirect_uris.max_per_client", "Redirect URIs per client"),
                    ("user_permissions.members_can_register_clients", "Members can register clients"),
                ),
            ),
            (
                "Management API",
                (("management_api.allowed_origins", "Web origins that may call the management API"),),
            ),
            (
                "Requirements for all clients",
                (
                    ("oauth.pkce", "Require PKCE"),
                    ("oauth.require_par", "Require pushed authorization requests (PAR)"),
                    ("oauth.require_dpop", "Require DPoP"),
                ),
            ),
        ),
    ),
    Topic(
        "self-registration",
        "Self-registration",
        "AI agents (MCP) and other clients that register themselves. Users see that such a client is not reviewed.",
        "apps",
        (
            (
                "AI agents and MCP clients",
                _rows(
                    "oauth.dynamic_registration",
                    client_id_metadata_documents="Allow client ID metadata documents",
                ),
            ),
            (
                "Dynamic client registration (RFC 7591)",
                _rows(
                    "oauth.dynamic_registration",
                    mode="Who can register clients",
                    max_per_hour="Registrations per hour and network",
                    idle_ttl_seconds="Delete unused clients after",
                ),
            ),
        ),
    ),
    Topic(
        "branding",
        "Branding",
        "Name, color and texts of the sign-in page.",
        "brush",
        (
            (
                "Sign-in page",
                _rows(
                    "branding",
                    display_name="Display name",
                    accent_color="Accent color",
                    theme="Theme",
                    login_message="Message",
                ),
            ),
            ("Support", _rows("branding", support_email="Support email", support_uri="Support URL")),
            ("Language", _rows("localization", default_locale="Default language of pages and emails")),
        ),
    ),
    Topic(
        "audit",
        "Audit",
        "How long logs are stored, and notifications about instance administrators.",
        "book",
        (
            (
                "Logs",
                _rows(
                    "audit",
                    retention_days="Keep audit events for",
                    failed_requests="Log requests of clients",
                    log_retention_days="Keep failed requests for",
                ),
            ),
            (
                "Instance administrators",
                _rows(
                    "audit",
                    notify_root_access="Email administrators when an instance administrator makes changes",
                ),
            ),
        ),
    ),
    Topic(
        "limits",
        "Limits",
        "Set by administrators of the instance.",
        "pulse",
        (
            (
                "Requests in a minute",
                _rows(
                    "limits",
                    client_requests_per_minute="Of each client",
                    address_requests_per_minute="From each IP address",
                    organization_requests_per_minute="Of all clients together",
                ),
            ),
            ("Size", _rows("limits", max_users="Users", max_clients="Clients")),
        ),
        is_of_instance=True,
    ),
)
TOPICS: dict[str, Topic] = {topic.key: topic for topic in _TOPICS}

# Label and help of each value of a choice.
CHOICE_TEXTS: dict[str, tuple[str, str]] = {
    "opaque": ("Opaque", "Can be revoked instantly. APIs check tokens by introspection."),
    "jwt": ("JWT (RFC 9068)", "APIs verify tokens themselves. A token stays valid until it expires."),
    "always": ("Always", ""),
    "public_clients": ("Only for public clients", ""),
    "third_party": ("Third-party clients", "First-party clients skip the consent page."),
    "reveal": ("Can be revealed", "Requires a fresh sign-in and is recorded in the audit log."),
    "once": ("Shown once", "Secrets can't be viewed again. Choosing this erases the stored copies."),
    "auto": ("Follow the user's device", ""),
    "light": ("Light", ""),
    "dark": ("Dark", ""),
    "en": ("English", ""),
    "de": ("German (Deutsch)", ""),
    "authorization_code": ("Authorization code", ""),
    "refresh_token": ("Refresh token", ""),
    "client_credentials": ("Client credentials", ""),
    "urn:ietf:params:oauth:grant-type:device_code": ("Device code", ""),
    "urn:ietf:params:oauth:grant-type:token-exchange": ("Token exchange", ""),
    "initial_access_token": ("Anyone with an initial access token", ""),
    "client_secret_basic": ("Secret in the header (client_secret_basic)", ""),
    "client_secret_post": ("Secret in the body (client_secret_post)", ""),
    "private_key_jwt": ("Signed assertion (private_key_jwt)", ""),
    "none": ("None, for public clients (none)", ""),
}
# Values that mean different things in different settings.
CHOICE_TEXTS_BY_PATH: dict[tuple[str, str], tuple[str, str]] = {
    ("authentication.mfa.policy", "off"): ("Nobody", "Two-step verification is disabled."),
    ("authentication.mfa.policy", "optional"): ("Optional", "Users decide for themselves."),
    ("authentication.mfa.policy", "required_for_admins"): (
        "Administrators",
        "Optional for all other users.",
    ),
    ("authentication.mfa.policy", "required"): ("Everyone", ""),
    ("authentication.mfa.methods", "totp"): ("Authenticator app", ""),
    ("authentication.mfa.methods", "passkey"): ("Passkey", ""),
    ("oauth.pkce", "required"): ("For all clients", ""),
    ("oauth.pkce", "required_or_nonce"): (
        "For all clients without a nonce",
        "Confidential clients may send an OpenID Connect nonce instead.",
    ),
    ("oauth.pkce", "public_clients"): (
        "Only for public clients",
        "Codes of confidential clients may be unprotected against injection.",
    ),
    ("oauth.consent.policy", "always"): ("All clients", "Including first-party clients."),
    ("oauth.consent.members_may_allow", "all"): ("All clients", "Except those that require approval."),
    ("oauth.consent.members_may_allow", "verified"): (
        "Reviewed clients",
        "Other clients require administrator approval.",
    ),
    ("oauth.consent.members_may_allow", "none"): (
        "First-party clients",
        "All other clients require administrator approval.",
    ),
    ("oauth.dynamic_registration.mode", "off"): ("Nobody", ""),
    ("oauth.dynamic_registration.mode", "open"): (
        "Anyone",
        "Agents that don't support client ID metadata documents need this.",
    ),
    ("authentication.registration.mode", "closed"): ("Nobody", ""),
    ("authentication.registration.mode", "invite"): ("Invited users", ""),
    ("authentication.registration.mode", "open"): ("Anyone", "Users can sign up or be invited."),
}
# What an empty field means where the default is null.
EMPTY_TEXTS: dict[str, str] = {
    "authentication.sessions.max_per_user": "unlimited",
    "authentication.registration.allowed_email_domains": "any domain",
    "oauth.consent.ttl_seconds": "never expires",
    "oauth.clients.secret_ttl_seconds": "never expires",
    "oauth.redirect_uris.allowed_hosts": "any host",
    "management_api.allowed_origins": "no web page of another origin",
    "branding.display_name": "the organization's name",
    "limits.client_requests_per_minute": "no limit",
    "limits.address_requests_per_minute": "no limit",
    "limits.organization_requests_per_minute": "no limit",
    "limits.max_users": "no limit",
    "limits.max_clients": "50,000",
}
