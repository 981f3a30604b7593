"""Words of the settings pages: what a choice means to people, and an empty field."""

from __future__ import annotations

# What the words of a choice mean to people.
CHOICE_WORDS: dict[str, str] = {
    "opaque": "Opaque: can be revoked at once everywhere",
    "jwt": "JWT (RFC 9068): others check it without asking us, until it expires",
    "always": "Always",
    "public_clients": "Only those of public clients",
    "third_party": "Only clients of others: first-party clients do not ask",
    "reveal": "Can be viewed again, by a fresh sign-in; each view is in the audit log",
    "once": "Are shown once and never kept. Choosing this wipes the copies there are.",
    "auto": "As the visitor’s device says",
    "light": "Light",
    "dark": "Dark",
    "en": "English",
    "de": "German (Deutsch)",
    "authorization_code": "Authorization code",
    "refresh_token": "Refresh token",
    "client_credentials": "Client credentials",
    "urn:ietf:params:oauth:grant-type:device_code": "Device code",
    "urn:ietf:params:oauth:grant-type:token-exchange": "Token exchange",
    "initial_access_token": "Whoever holds an initial access token of yours",
    "client_secret_basic": "Secret in the header (client_secret_basic)",
    "client_secret_post": "Secret in the body (client_secret_post)",
    "private_key_jwt": "Signed assertion (private_key_jwt)",
    "none": "Not at all: public clients (none)",
}
# Where one word means different things.
PATH_WORDS: dict[tuple[str, str], str] = {
    ("authentication.mfa.policy", "off"): "Nobody: they cannot be set up, and those there are not asked for",
    ("authentication.mfa.policy", "optional"): "Whoever sets one up",
    ("authentication.mfa.policy", "required_for_admins"): "Administrators, and whoever sets one up",
    ("authentication.mfa.policy", "required"): "Everybody",
    ("authentication.mfa.methods", "totp"): "Authenticator apps",
    ("authentication.mfa.methods", "passkey"): "Passkeys",
    ("oauth.consent.policy", "always"): "All clients, first-party ones too",
    ("oauth.consent.members_may_allow", "all"): "Every client, except those that need leave",
    ("oauth.consent.members_may_allow", "verified"): "Reviewed clients; for others they ask an administrator",
    ("oauth.consent.members_may_allow", "none"): "First-party clients alone; for all others they ask",
    ("oauth.dynamic_registration.mode", "off"): "Nobody",
    ("oauth.dynamic_registration.mode", "open"): "Everybody; agents without an id of their own need this",
    ("authentication.registration.mode", "closed"): "Nobody new",
    ("authentication.registration.mode", "invite"): "By invitation",
    ("authentication.registration.mode", "open"): "By invitation, or by making an account themselves",
}
# What leaving a field empty means where null is a value.
NOTHING_WORDS: dict[str, str] = {
    "authentication.sessions.max_per_user": "no bound",
    "authentication.registration.allowed_email_domains": "any domain",
    "oauth.consent.ttl_seconds": "for ever",
    "oauth.clients.secret_ttl_seconds": "never",
    "oauth.redirect_uris.allowed_hosts": "any host",
    "branding.display_name": "the organization’s name",
}
