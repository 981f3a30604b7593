"""The table of settings: path, kind with bounds, default, and why it is there."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from app.rules.directory.permissions import ORGANIZATION_PERMISSIONS, ROOT_ONLY, is_permission_name
from app.rules.errors import FieldError
from app.rules.fields import suggestion, text_problem, type_name
from app.rules.languages.choice import ENGLISH, LANGUAGES
from app.rules.mail.email_addresses import is_email

_DOMAIN = re.compile(
    r"(?=.{1,253}\Z)(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z](?:[a-z0-9-]{0,61}[a-z0-9])"
)
_HTTPS = re.compile(r"https://[^\s\"'<>\\^`{|}@\x00-\x20]{1,500}")


def wrong_type(path: str, wanted: str, value: Any) -> FieldError:
    """The field error for a value of another JSON type; nothing is ever coerced."""
    return FieldError(path, "wrong_type", f"Must be {wanted}, not {type_name(value)}.")


@dataclass(frozen=True, slots=True)
class Kind(ABC):
    """What a setting may hold. ``null`` never reaches ``check``: it stands for the default."""

    @abstractmethod
    def check(self, path: str, value: Any) -> Iterator[FieldError]:
        """Every reason why the value is wrong."""

    @abstractmethod
    def schema(self) -> dict[str, Any]:
        """The same as JSON Schema 2020-12."""


@dataclass(frozen=True, slots=True)
class Flag(Kind):
    """true or false."""

    def check(self, path: str, value: Any) -> Iterator[FieldError]:
        if not isinstance(value, bool):
            yield wrong_type(path, "true or false", value)

    def schema(self) -> dict[str, Any]:
        return {"type": "boolean"}


@dataclass(frozen=True, slots=True)
class Number(Kind):
    """An integer within bounds, both included."""

    minimum: int
    maximum: int

    def check(self, path: str, value: Any) -> Iterator[FieldError]:
        if isinstance(value, bool) or not isinstance(value, int):
            yield wrong_type(path, "an integer", value)
        elif not self.minimum <= value <= self.maximum:
            code = "too_small" if value < self.minimum else "too_large"
            yield FieldError(path, code, f"Must be {self.minimum} to {self.maximum}.")

    def schema(self) -> dict[str, Any]:
        return {"type": "integer", "minimum": self.minimum, "maximum": self.maximum}


@dataclass(frozen=True, slots=True)
class Choice(Kind):
    """One of a few words."""

    words: tuple[str, ...]

    def check(self, path: str, value: Any) -> Iterator[FieldError]:
        if not isinstance(value, str):
            yield wrong_type(path, "a string", value)
        elif value not in self.words:
            yield FieldError(path, "not_allowed", f"Must be one of: {', '.join(self.words)}.")

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "enum": list(self.words)}


@dataclass(frozen=True, slots=True)
class Text(Kind):
    """Words for people, or a string of one form."""

    longest: int
    form: str = "text"
    lines: bool = False

    def check(self, path: str, value: Any) -> Iterator[FieldError]:
        if found := text_problem(value, longest=self.longest, lines=self.lines):
            yield FieldError(path, found.code, found.message)
        elif wrong := _FORMS[self.form](value):
            yield FieldError(path, "invalid_format", wrong)

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "minLength": 1, "maxLength": self.longest}


@dataclass(frozen=True, slots=True)
class Listing(Kind):
    """A list of strings without repetition, each of one kind."""

    item: Kind
    most: int
    least: int = 0

    def check(self, path: str, value: Any) -> Iterator[FieldError]:
        if not isinstance(value, list):
            yield wrong_type(path, "a list", value)
            return
        if not self.least <= len(value) <= self.most:
            code = "too_few" if len(value) < self.least else "too_many"
            yield FieldError(
                path, code, f"Must hold {self.least} to {self.most} entries; these are {len(value)}."
            )
            return
        for position, entry in enumerate(value):
            yield from self.item.check(f"{path}[{position}]", entry)
            if entry in value[:position]:
                yield FieldError(f"{path}[{position}]", "duplicate", "Is in the list already.")

    def schema(self) -> dict[str, Any]:
        return {
            "type": "array",
            "items": self.item.schema(),
            "minItems": self.least,
            "maxItems": self.most,
            "uniqueItems": True,
        }


@dataclass(frozen=True, slots=True)
class Ours(Kind):
    """A value that this service makes: sent back as it stands it changes nothing, and any other is refused."""

    pattern: str
    reason: str

    def check(self, path: str, value: Any) -> Iterator[FieldError]:
        # One that has the form is held against what stands, where a request is merged.
        if not isinstance(value, str) or re.fullmatch(self.pattern, value) is None:
            yield self.refusal(path)

    def refusal(self, path: str) -> FieldError:
        """Why a value that somebody else made is not taken."""
        return FieldError(path, "read_only", self.reason)

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "pattern": f"^{self.pattern}$"}


def _domain(value: str) -> str | None:
    return None if _DOMAIN.fullmatch(value) else "Must be a domain name in lower case, such as example.com."


def _host(value: str) -> str | None:
    plain = value.removeprefix("*.")
    return (
        None
        if _DOMAIN.fullmatch(plain) or plain == "localhost"
        else "Must be a host such as app.example.com or *.example.com."
    )


def _color(value: str) -> str | None:
    return None if re.fullmatch(r"#[0-9a-fA-F]{6}", value) else "Must be a colour such as #3347c9."


def _email(value: str) -> str | None:
    return None if is_email(value) else "Must be an e-mail address."


def _uri(value: str) -> str | None:
    return None if _HTTPS.fullmatch(value) else "Must be an https address."


def _role(value: str) -> str | None:
    return (
        None
        if re.fullmatch(r"[a-z][a-z0-9_-]{0,39}", value)
        else "Must be the key of a role: lower-case letters, digits, _ and -."
    )


def _permission(value: str) -> str | None:
    if is_permission_name(value):
        return None
    if value in ROOT_ONLY:
        return "Is for root alone."
    return f"There is no such permission.{suggestion(value, sorted(ORGANIZATION_PERMISSIONS))}"


_FORMS: dict[str, Callable[[str], str | None]] = {
    "text": lambda value: None,
    "permission": _permission,
    "domain": _domain,
    "host": _host,
    "color": _color,
    "email": _email,
    "uri": _uri,
    "role": _role,
}


# One setting a row is what makes the table readable, however long a row is.
# ruff: noqa: E501


MINUTE, HOUR, DAY = 60, 3600, 86_400


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table. A default of None means that ``null`` itself is a value: for ever, no bound, nothing."""

    path: str
    kind: Kind
    default: Any
    why: str


def _words(*words: str) -> Choice:
    return Choice(words)


def _some(*words: str, least: int = 0) -> Listing:
    return Listing(Choice(words), most=len(words), least=least)


DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
TOKEN_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
# What an organization starts with; whoever wants more says so.
GRANT_TYPES = ("authorization_code", "refresh_token", "client_credentials", DEVICE_GRANT)
AUTH_METHODS = ("client_secret_basic", "client_secret_post", "private_key_jwt", "none")

# The routing key of the organization, and the picture's digest.
LOGO_PATH = r"/logos/organizations/[0-9a-z]{8}/[0-9a-f]{64}\.png"

# fmt: off
_ROWS: tuple[tuple[str, Kind, Any, str], ...] = (
    ("authentication.password.enabled", Flag(), True, "People sign in with a password."),
    ("authentication.password.min_length", Number(8, 128), 12, "Shortest password in characters; NIST SP 800-63B's own preset is 15."),
    ("authentication.password.block_common", Flag(), True, "Passwords from lists of stolen ones are refused."),
    ("authentication.password.block_personal", Flag(), True, "Passwords made of the person's or organization's name are refused."),
    ("authentication.mfa.policy", _words("off", "optional", "required_for_admins", "required"), "optional", "Who needs a second factor."),
    ("authentication.mfa.methods", _some("totp", "passkey"), ["totp", "passkey"], "What counts as a second factor."),
    ("authentication.mfa.grace_period_seconds", Number(0, 30 * DAY), 7 * DAY, "How long somebody may put off enrolling; 0 means at once."),
    ("authentication.mfa.recovery_codes", Number(5, 20), 10, "How many recovery codes each person gets."),
    ("authentication.passkeys.enabled", Flag(), True, "People may register passkeys."),
    ("authentication.passkeys.passwordless", Flag(), True, "A passkey alone signs in."),
    ("authentication.lockout.max_failures", Number(3, 100), 10, "Wrong passwords within the window before each further one must wait."),
    ("authentication.lockout.window_seconds", Number(MINUTE, DAY), 900, "For how long a wrong password counts."),
    ("authentication.lockout.delay_seconds", Number(1, HOUR), 60, "The first wait; it doubles with each further failure."),
    ("authentication.lockout.max_delay_seconds", Number(1, DAY), 900, "The longest wait."),
    ("authentication.sessions.idle_timeout_seconds", Number(5 * MINUTE, 30 * DAY), DAY, "A sign-in ends when unused for this long."),
    ("authentication.sessions.absolute_timeout_seconds", Number(5 * MINUTE, 30 * DAY), 30 * DAY, "A sign-in ends after this long in any case."),
    ("authentication.sessions.reauthentication_seconds", Number(MINUTE, DAY), 600, "How young a sign-in must be to view secrets."),
    ("authentication.sessions.max_per_user", Number(1, 1000), None, "Sign-ins one person may hold; null: no bound."),
    ("authentication.registration.mode", _words("closed", "invite", "open"), "invite", "How people come in: nobody new, by invitation, or also by making an account."),
    ("authentication.registration.allowed_email_domains", Listing(Text(253, "domain"), 100), [], "E-mail domains that may sign up; empty: any."),
    ("authentication.registration.verify_email", Flag(), True, "An address is confirmed before the account works."),
    ("authentication.registration.default_roles", Listing(Text(40, "role"), 10), ["member"], "Roles that everybody who signs up gets."),
    ("authentication.registration.invitation_ttl_seconds", Number(HOUR, 30 * DAY), 7 * DAY, "How long an invitation can be accepted."),
    ("authentication.recovery.password_reset", Flag(), True, "A forgotten password can be reset by e-mail."),
    ("authentication.recovery.reset_ttl_seconds", Number(5 * MINUTE, DAY), 1800, "How long a reset link works."),
    ("oauth.grant_types", _some(*GRANT_TYPES, TOKEN_EXCHANGE, least=1), list(GRANT_TYPES), "Grants that clients may use."),
    ("oauth.access_token.format", _words("opaque", "jwt"), "opaque", "Form of access tokens; a resource or client may choose its own."),
    ("oauth.access_token.ttl_seconds", Number(MINUTE, DAY), HOUR, "Life of an opaque access token."),
    ("oauth.access_token.jwt_ttl_seconds", Number(MINUTE, HOUR), 600, "Life of a JWT access token, which others check without asking us."),
    ("oauth.id_token_ttl_seconds", Number(MINUTE, DAY), HOUR, "Life of an ID token."),
    ("oauth.authorization_code_ttl_seconds", Number(10, 60), 60, "Life of an authorization code."),
    ("oauth.device_code_ttl_seconds", Number(MINUTE, HOUR), 900, "Life of a device code (RFC 8628)."),
    ("oauth.device_poll_interval_seconds", Number(1, 60), 5, "How often a device may ask (RFC 8628 section 3.2)."),
    ("oauth.refresh_token.ttl_seconds", Number(HOUR, 365 * DAY), 30 * DAY, "A refresh token's family ends after this long in any case."),
    ("oauth.refresh_token.idle_ttl_seconds", Number(5 * MINUTE, 365 * DAY), 14 * DAY, "A refresh token ends when unused for this long."),
    ("oauth.refresh_token.rotation", _words("always", "public_clients"), "always", "Whose refresh tokens change at each use (RFC 9700 section 4.14)."),
    ("oauth.refresh_token.reuse_grace_seconds", Number(0, 60), 30, "For how long a lost answer can be asked for again; 0: not at all."),
    ("oauth.consent.policy", _words("always", "third_party"), "third_party", "Whose clients ask people for consent."),
    ("oauth.consent.members_may_allow", _words("all", "verified", "none"), "all", "Which clients members may allow without asking an administrator: all, those that were reviewed, or none."),
    ("oauth.consent.ttl_seconds", Number(HOUR, 3650 * DAY), None, "When a consent must be given anew; null: never."),
    ("oauth.redirect_uris.allowed_hosts", Listing(Text(255, "host"), 100), [], "Hosts that redirect URIs may name; empty: any."),
    ("oauth.redirect_uris.max_per_client", Number(1, 100), 50, "Redirect URIs one client may have."),
    ("oauth.clients.secret_display", _words("reveal", "once"), "reveal", "Whether a secret can be viewed again, or is shown once and never kept."),
    ("oauth.clients.max_secrets", Number(2, 10), 5, "Live secrets one client may have; two are needed to rotate."),
    ("oauth.clients.secret_ttl_seconds", Number(DAY, 730 * DAY), None, "When a new secret ends; null: never."),
    ("oauth.clients.rotation_overlap_seconds", Number(0, 30 * DAY), DAY, "For how long the old secret still works after a rotation; 0: not at all."),
    ("oauth.clients.token_endpoint_auth_methods", _some(*AUTH_METHODS, least=1), list(AUTH_METHODS), "How clients may authenticate."),
    ("oauth.dynamic_registration.mode", _words("off", "initial_access_token", "open"), "off", "Who may register clients by RFC 7591."),
    ("oauth.dynamic_registration.client_id_metadata_documents", Flag(), False, "A client_id may be the address of the app's metadata: what agents (MCP) use first."),
    ("oauth.dynamic_registration.idle_ttl_seconds", Number(DAY, 365 * DAY), 30 * DAY, "When a client that registered itself and is unused ends."),
    ("oauth.require_par", Flag(), False, "Every authorization request is pushed first (RFC 9126); others are refused."),
    ("oauth.require_dpop", Flag(), False, "Every token is bound to a key (RFC 9449); clients that prove none get no tokens."),
    ("oauth.signing.algorithm", _words("RS256", "PS256", "ES256", "EdDSA"), "RS256", "How tokens are signed unless a client asks otherwise."),
    ("oauth.signing.rotation_seconds", Number(7 * DAY, 730 * DAY), 90 * DAY, "How old a signing key grows."),
    ("user_permissions.members_can_register_clients", Flag(), False, "Every member is a developer of own clients."),
    ("user_permissions.members_can_edit_profile", Flag(), True, "Members change their own name and profile."),
    ("user_permissions.members_can_delete_account", Flag(), False, "Members delete their own account."),
    ("branding.display_name", Text(100), None, "Name on the sign-in page; null: the organization's name."),
    ("branding.logo", Ours(LOGO_PATH, "Images are never taken from an address: send the image itself by PUT /organizations/{id}/logo. null removes it."), None, "The image on the sign-in page, at our own address: uploaded, and made anew here."),
    ("branding.accent_color", Text(7, "color"), "#3347c9", "Colour of buttons on the sign-in page."),
    ("branding.theme", _words("auto", "light", "dark"), "auto", "Whether the pages are light or dark."),
    ("branding.support_email", Text(254, "email"), None, "Where people ask for help."),
    ("branding.support_uri", Text(500, "uri"), None, "Where people find help."),
    ("branding.login_message", Text(500, lines=True), None, "A sentence on the sign-in page."),
    ("localization.default_locale", _words(*LANGUAGES), ENGLISH, "Language where the person's own is not known."),
    ("audit.retention_days", Number(30, 3650), 365, "How long audit events are kept."),
    ("audit.failed_requests", Flag(), True, "Requests of clients that were refused are kept, without secrets, so that their makers see why."),
    ("audit.log_retention_days", Number(1, 90), 14, "How long failed requests are kept, counted from each one."),
    ("audit.notify_root_access", Flag(), True, "Administrators are told when root acts here."),
)
# fmt: on

SETTINGS: dict[str, Setting] = {row[0]: Setting(*row) for row in _ROWS}

# The fields of one role under user_permissions.roles.
ROLE_FIELDS: dict[str, Kind] = {
    "name": Text(60),
    "description": Text(300),
    "permissions": Listing(Text(165, "permission"), 100),
}
