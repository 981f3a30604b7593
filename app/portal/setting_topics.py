"""Topics of the settings: which page shows which paths, under which label.

What a setting may be, its default and its reason come from the table in ``rules/organizations/settings_table``; here are
only the words of pages.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Topic:
    """One page of settings: groups of (heading, ((path, label), …))."""

    key: str
    title: str
    sentence: str
    icon: str
    groups: tuple[tuple[str, tuple[tuple[str, str], ...]], ...]

    @property
    def paths(self) -> tuple[str, ...]:
        """Its paths, in order."""
        return tuple(path for _, rows in self.groups for path, _ in rows)

    @property
    def labels(self) -> dict[str, str]:
        """Path to label."""
        return {path: label for _, rows in self.groups for path, label in rows}


def _rows(head: str, **labels: str) -> tuple[tuple[str, str], ...]:
    return tuple((f"{head}.{name}", label) for name, label in labels.items())


_TOPICS = (
    Topic(
        "sign-in",
        "Sign-in",
        "Passwords, passkeys, and what happens after wrong tries.",
        "key",
        (
            (
                "Ways in",
                (
                    *_rows("authentication.password", enabled="A password signs people in"),
                    *_rows(
                        "authentication.passkeys",
                        passwordless="A passkey signs people in, without a password",
                        enabled="People may register passkeys",
                    ),
                ),
            ),
            (
                "Passwords",
                _rows(
                    "authentication.password",
                    min_length="Shortest password",
                    block_common="Refuse common passwords",
                    block_personal="Refuse passwords made of names",
                ),
            ),
            (
                "Wrong passwords",
                _rows(
                    "authentication.lockout",
                    max_failures="Wrong passwords before a wait",
                    window_seconds="A wrong password counts for",
                    delay_seconds="First wait",
                    max_delay_seconds="Longest wait",
                ),
            ),
            (
                "Forgotten passwords",
                (
                    ("authentication.recovery.password_reset", "People may reset a password by e-mail"),
                    ("authentication.recovery.reset_ttl_seconds", "A reset link works for"),
                ),
            ),
        ),
    ),
    Topic(
        "mfa",
        "Second factors",
        "Who needs more than a password, and what counts.",
        "shield",
        (
            (
                "Demand",
                _rows(
                    "authentication.mfa",
                    policy="Who needs a second factor",
                    grace_period_seconds="May be put off for",
                ),
            ),
            (
                "What counts",
                _rows(
                    "authentication.mfa", methods="Second factors", recovery_codes="Recovery codes per person"
                ),
            ),
        ),
    ),
    Topic(
        "sessions",
        "Sessions",
        "How long a sign-in lasts.",
        "clock",
        (
            (
                "Sign-ins",
                _rows(
                    "authentication.sessions",
                    idle_timeout_seconds="Ends when unused for",
                    absolute_timeout_seconds="Ends in any case after",
                    reauthentication_seconds="Counts as fresh for",
                    max_per_user="Sign-ins per person",
                ),
            ),
        ),
    ),
    Topic(
        "registration",
        "People",
        "How people come in.",
        "people",
        (
            (
                "Accounts that people make",
                _rows(
                    "authentication.registration",
                    mode="New people come",
                    verify_email="They prove their address first",
                    allowed_email_domains="E-mail domains",
                    default_roles="Roles of those who sign up",
                ),
            ),
            (
                "Invitations",
                _rows("authentication.registration", invitation_ttl_seconds="An invitation is good for"),
            ),
            (
                "Own account",
                _rows(
                    "user_permissions",
                    members_can_edit_profile="Members may change their profile",
                    members_can_delete_account="Members may delete their account",
                ),
            ),
        ),
    ),
    Topic(
        "tokens",
        "Tokens and consent",
        "How long tokens live, how they look, and who is asked.",
        "shield",
        (
            (
                "Access tokens",
                _rows(
                    "oauth.access_token",
                    format="Form",
                    ttl_seconds="Opaque ones live for",
                    jwt_ttl_seconds="JWTs live for",
                ),
            ),
            (
                "Refresh tokens",
                _rows(
                    "oauth.refresh_token",
                    ttl_seconds="End in any case after",
                    idle_ttl_seconds="End when unused for",
                    rotation="Change at each use",
                    reuse_grace_seconds="A lost answer can be had again for",
                ),
            ),
            (
                "Sign-in with OpenID Connect",
                (
                    ("oauth.id_token_ttl_seconds", "ID tokens live for"),
                    ("oauth.authorization_code_ttl_seconds", "Authorization codes live for"),
                    ("oauth.device_code_ttl_seconds", "Device codes live for"),
                    ("oauth.device_poll_interval_seconds", "Devices may ask every"),
                    ("oauth.signing.algorithm", "Signature"),
                    ("oauth.signing.rotation_seconds", "A signing key is succeeded after"),
                ),
            ),
            (
                "Consent",
                _rows(
                    "oauth.consent",
                    policy="Who asks people",
                    members_may_allow="What members may allow by themselves",
                    ttl_seconds="A consent is good for",
                ),
            ),
        ),
    ),
    Topic(
        "clients",
        "Clients and secrets",
        "What clients may do, and how their secrets are kept.",
        "apps",
        (
            (
                "Secrets",
                (
                    ("oauth.clients.secret_display", "Viewing secrets"),
                    ("oauth.clients.max_secrets", "Secrets per client"),
                    ("oauth.clients.secret_ttl_seconds", "A new secret ends after"),
                    ("oauth.clients.rotation_overlap_seconds", "After a rotation the old one works for"),
                ),
            ),
            (
                "Registration",
                (
                    ("oauth.grant_types", "Grant types"),
                    ("oauth.clients.token_endpoint_auth_methods", "How clients authenticate"),
                    ("oauth.redirect_uris.allowed_hosts", "Hosts of redirect URIs"),
                    ("oauth.redirect_uris.max_per_client", "Redirect URIs per client"),
                    ("user_permissions.members_can_register_clients", "Members may register clients"),
                ),
            ),
            (
                "Demanded of every client",
                (
                    ("oauth.require_par", "Requests are pushed first (PAR)"),
                    ("oauth.require_dpop", "Tokens are bound to a key (DPoP)"),
                ),
            ),
        ),
    ),
    Topic(
        "self-registration",
        "Apps that register themselves",
        "AI agents (MCP) and other apps that nobody here registers first. People see that such an app is not reviewed.",
        "apps",
        (
            (
                "AI agents and MCP clients",
                _rows(
                    "oauth.dynamic_registration",
                    client_id_metadata_documents="Apps may bring an id of their own",
                ),
            ),
            (
                "Dynamic registration (RFC 7591)",
                _rows(
                    "oauth.dynamic_registration",
                    mode="Who may register apps",
                    idle_ttl_seconds="An app that nobody uses ends after",
                ),
            ),
        ),
    ),
    Topic(
        "branding",
        "Branding",
        "Name, colour and words of the sign-in page.",
        "brush",
        (
            (
                "Sign-in page",
                _rows(
                    "branding",
                    display_name="Name",
                    accent_color="Colour",
                    theme="Light or dark",
                    login_message="Message",
                ),
            ),
            ("Help", _rows("branding", support_email="E-mail address", support_uri="Web address")),
            ("Language", _rows("localization", default_locale="Language of pages and mails")),
        ),
    ),
    Topic(
        "audit",
        "Audit",
        "How long evidence is kept, and who hears of root.",
        "book",
        (
            (
                "Evidence",
                _rows(
                    "audit",
                    retention_days="Audit events are kept for",
                    failed_requests="Keep refused requests of clients",
                    log_retention_days="Refused requests are kept for",
                ),
            ),
            (
                "Help from outside",
                _rows("audit", notify_root_access="Tell administrators when root acts here"),
            ),
        ),
    ),
)
TOPICS: dict[str, Topic] = {topic.key: topic for topic in _TOPICS}
