"""The table of settings: path, type with its range, default, and description."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, ClassVar

from msgspec import Struct

from app.rules import shapes
from app.rules.clients.redirect_uris import get_web_origin, redirect_uri_problem
from app.rules.directory import attributes
from app.rules.directory.permissions import ORGANIZATION_PERMISSIONS, ROOT_ONLY, is_permission_name
from app.rules.errors import FieldError
from app.rules.fields import FieldProblem, ValidationErrors, suggestion, wrong_type
from app.rules.languages.translation import ENGLISH, LANGUAGES, lazy_gettext
from app.rules.mail.email_addresses import is_email

_DOMAIN = re.compile(
    r"(?=.{1,253}\Z)(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z](?:[a-z0-9-]{0,61}[a-z0-9])"
)
_HTTPS = re.compile(r"https://[^\s\"'<>\\^`{|}@\x00-\x20]{1,500}")
_COLOR = re.compile(r"#[0-9a-fA-F]{6}")
MINUTE, HOUR, DAY = 60, 3600, 86_400
MAX_REAUTHENTICATION_SECONDS = DAY
DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
TOKEN_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
# The grant types of a new organization. Others must be enabled.
GRANT_TYPES = ("authorization_code", "refresh_token", "client_credentials", DEVICE_GRANT)
AUTH_METHODS = ("client_secret_basic", "client_secret_post", "private_key_jwt", "none")
ROLE_KEY_PATTERN = "[a-z][a-z0-9_-]{0,39}"
# The routing key of the organization and the digest of the image.
LOGO_PATH = r"/logos/organizations/[0-9a-z]{8}/[0-9a-f]{64}\.png"


_NOUNS = {bool: "true or false", int: "a whole number", str: "a string", list: "an array"}
_JSON_TYPES = {bool: "boolean", int: "integer", str: "string", list: "array"}


class SettingKind(shapes.Check, Struct, frozen=True):
    """The type of a setting: a type of Python, and the check of its values. They are never ``null``, the default."""

    type: ClassVar[type]

    def check(self, path: str, value: Any) -> Iterator[FieldError]:
        """Find every problem of the value."""
        if type(value) is not self.type:
            yield wrong_type(_NOUNS[self.type], value).at(path)
        elif problem := self.problem(value):
            yield problem.at(path)

    def schema(self) -> dict[str, Any]:
        """Return the type as JSON Schema 2020-12."""
        return {"type": _JSON_TYPES[self.type]} | self.json_schema()


class Boolean(SettingKind, frozen=True):
    """A boolean."""

    type = bool


class Number(SettingKind, shapes.Between, frozen=True):
    """An integer in a range that includes both bounds."""

    type = int

    def problem(self, value: Any) -> FieldProblem | None:
        found = shapes.Between.problem(self, value)
        code = "too_small" if value < self.minimum else "too_large"
        return found and FieldProblem(code, found.message)


class Choice(SettingKind, shapes.OneOf, frozen=True):
    """One of a few values."""

    type = str


class Text(SettingKind, shapes.Text, frozen=True):
    """A text, or a string of one format."""

    type = str
    format: str | None = None

    def problem(self, value: Any) -> FieldProblem | None:
        found = shapes.Text.problem(self, value)
        if found is None and self.format and not _FORMATS[self.format][0](value):
            return FieldProblem("invalid_format", _FORMATS[self.format][1])
        return found


class StringList(SettingKind, frozen=True):
    """A list of distinct strings of one type."""

    type = list
    item: SettingKind
    max_items: int
    min_items: int = 0

    def problem(self, value: Any) -> FieldProblem | None:
        return self._items().problem(value)

    def check(self, path: str, value: Any) -> Iterator[FieldError]:
        error = next(super().check(path, value), None)
        if error is not None:
            yield error
            return
        for position, entry in enumerate(value):
            yield from self.item.check(f"{path}[{position}]", entry)
            if entry in value[:position]:
                yield FieldError(f"{path}[{position}]", "duplicate", "Duplicate entry.")

    def json_schema(self) -> dict[str, Any]:
        return {"items": self.item.schema()} | self._items().json_schema()

    def _items(self) -> shapes.Items:
        return shapes.Items(self.max_items, self.min_items)


class AttributeList(SettingKind, frozen=True):
    """The definitions of custom attributes, which are replaced together."""

    type = list

    def problem(self, value: Any) -> FieldProblem | None:
        return _ATTRIBUTES.problem(value)

    def check(self, path: str, value: Any) -> Iterator[FieldError]:
        error = next(super().check(path, value), None)
        if error is not None:
            yield error
            return
        keys: set[Any] = set()
        for position, entry in enumerate(value):
            field = f"{path}[{position}]"
            if not isinstance(entry, dict):
                yield wrong_type("an object", entry).at(field)
                continue
            yield from shape_problems(field, attributes.UserAttribute, entry)
            if entry.get("choices") and entry.get("type") not in (attributes.STRING, attributes.LIST):
                message = lazy_gettext("Only strings and lists can have choices.")
                yield FieldError(f"{field}.choices", "contradiction", message)
            key = entry.get("key")
            if isinstance(key, str) and key in keys:
                yield FieldError(f"{field}.key", "duplicate", "Duplicate entry.")
            keys |= {key} if isinstance(key, str) else set()

    def json_schema(self) -> dict[str, Any]:
        return {"items": {"component": attributes.UserAttribute.__name__}} | _ATTRIBUTES.json_schema()


_ATTRIBUTES = shapes.Items(attributes.MAX_ATTRIBUTES, unique=False)


def shape_problems(path: str, shape: type[shapes.Shape], entry: Mapping[str, Any]) -> Iterator[FieldError]:
    """Find every problem of an object at the path."""
    errors = ValidationErrors()
    shapes.check_shape(errors, shape, entry)
    for error in errors.errors:
        yield FieldError(f"{path}.{error.field}"[:200], error.code, error.message)


class ServerManaged(SettingKind, frozen=True):
    """A value that this service generates. It can be sent back unchanged or removed, but not set."""

    type = str
    pattern: str
    reason: str

    def check(self, path: str, value: Any) -> Iterator[FieldError]:
        # Merging the request compares a well-formed value with the stored one.
        if not isinstance(value, str) or re.fullmatch(self.pattern, value) is None:
            yield self.error(path)

    def error(self, path: str) -> FieldError:
        """Return the error for a value that this service did not generate."""
        return FieldError(path, "read_only", self.reason)

    def json_schema(self) -> dict[str, Any]:
        return {"pattern": f"^{self.pattern}$"}


def _is_host(value: str) -> bool:
    plain = value.removeprefix("*.")
    return plain == "localhost" or _DOMAIN.fullmatch(plain) is not None


def _is_origin(value: str) -> bool:
    url = f"{value}/"
    return redirect_uri_problem(url, client_type="web") is None and get_web_origin(url) == value


# Whether a text has a format, and what to say if it has not.
_FORMATS: dict[str, tuple[Callable[[str], object], str]] = {
    "domain": (
        _DOMAIN.fullmatch,
        lazy_gettext("This must be a domain name in lowercase, such as example.com."),
    ),
    "host": (_is_host, lazy_gettext("This must be a host such as app.example.com or *.example.com.")),
    "origin": (
        _is_origin,
        lazy_gettext("This must be an origin: https:// and a host in lowercase, without a path."),
    ),
    "color": (_COLOR.fullmatch, lazy_gettext("This must be a color such as #3347c9.")),
    "email": (is_email, lazy_gettext("This must be an email address.")),
    "uri": (_HTTPS.fullmatch, lazy_gettext("This must be an https URL.")),
    "role": (
        re.compile(ROLE_KEY_PATTERN).fullmatch,
        lazy_gettext("This must be the ID of a role: lowercase letters, digits, _ and -."),
    ),
}


# The table is readable only with one setting in each row, however long the row is.
# ruff: noqa: E501


class Setting(Struct, frozen=True):
    """One row of the table. A default of None means that ``null`` is itself a value: unlimited or unset."""

    path: str
    kind: SettingKind
    default: Any
    description: str


def _choice(*values: str) -> Choice:
    return Choice(values)


def _choices(*values: str, min_items: int = 0) -> StringList:
    return StringList(Choice(values), max_items=len(values), min_items=min_items)


# fmt: off
_ROWS: tuple[tuple[str, SettingKind, Any, str], ...] = (
    ("authentication.password.enabled", Boolean(), True, lazy_gettext("Users can sign in with a password.")),
    ("authentication.password.min_length", Number(8, 128), 12, lazy_gettext("Minimum password length in characters. NIST SP 800-63B recommends 15.")),
    ("authentication.password.block_common", Boolean(), True, lazy_gettext("Reject passwords from lists of leaked passwords.")),
    ("authentication.password.block_personal", Boolean(), True, lazy_gettext("Reject passwords that contain the user's or organization's name.")),
    ("authentication.mfa.policy", _choice("off", "optional", "required_for_admins", "required"), "optional", lazy_gettext("Who needs two-step verification.")),
    ("authentication.mfa.methods", _choices("totp", "passkey"), ["totp", "passkey"], lazy_gettext("Accepted verification methods.")),
    ("authentication.mfa.grace_period_seconds", Number(0, 30 * DAY), 7 * DAY, lazy_gettext("How long users can postpone setting up two-step verification. 0 means they cannot.")),
    ("authentication.mfa.recovery_codes", Number(5, 20), 10, lazy_gettext("Recovery codes per user.")),
    ("authentication.passkeys.enabled", Boolean(), True, lazy_gettext("Users can add passkeys.")),
    ("authentication.passkeys.passwordless", Boolean(), True, lazy_gettext("Users can sign in with only a passkey.")),
    ("authentication.lockout.max_failures", Number(3, 100), 10, lazy_gettext("How many incorrect passwords a user can enter before further attempts are delayed.")),
    ("authentication.lockout.window_seconds", Number(MINUTE, DAY), 900, lazy_gettext("How long an incorrect password is counted.")),
    ("authentication.lockout.delay_seconds", Number(1, HOUR), 60, lazy_gettext("The delay after too many failed attempts. It doubles with each further failure.")),
    ("authentication.lockout.max_delay_seconds", Number(1, DAY), 900, lazy_gettext("The maximum delay.")),
    ("authentication.sessions.idle_timeout_seconds", Number(5 * MINUTE, 30 * DAY), DAY, lazy_gettext("Sessions expire when they are unused for this time.")),
    ("authentication.sessions.absolute_timeout_seconds", Number(5 * MINUTE, 30 * DAY), 30 * DAY, lazy_gettext("Sessions expire after this time, even if they are used.")),
    ("authentication.sessions.reauthentication_seconds", Number(MINUTE, MAX_REAUTHENTICATION_SECONDS), 600, lazy_gettext("How recent a sign-in must be for sensitive actions, such as viewing a secret or adding an administrator.")),
    ("authentication.sessions.max_per_user", Number(1, 1000), None, lazy_gettext("Maximum number of sessions per user. null means no limit.")),
    ("authentication.registration.mode", _choice("closed", "invite", "open"), "invite", lazy_gettext("How users join: not at all, by invitation, or also by signing up.")),
    ("authentication.registration.allowed_email_domains", StringList(Text(253, format="domain"), 100), [], lazy_gettext("Email domains that may sign up. Empty means any.")),
    ("authentication.registration.verify_email", Boolean(), True, lazy_gettext("Users who sign up must verify their email address before they can sign in.")),
    ("authentication.registration.default_roles", StringList(Text(40, format="role"), 10), ["member"], lazy_gettext("Roles of users who sign up.")),
    ("authentication.registration.invitation_ttl_seconds", Number(HOUR, 30 * DAY), 7 * DAY, lazy_gettext("How long an invitation can be accepted.")),
    ("authentication.recovery.password_reset", Boolean(), True, lazy_gettext("Users can reset a forgotten password by email.")),
    ("authentication.recovery.reset_ttl_seconds", Number(5 * MINUTE, DAY), 1800, lazy_gettext("Lifetime of a password reset link.")),
    ("oauth.grant_types", _choices(*GRANT_TYPES, TOKEN_EXCHANGE, min_items=1), list(GRANT_TYPES), lazy_gettext("Grant types that clients can use.")),
    ("oauth.access_token.format", _choice("opaque", "jwt"), "opaque", lazy_gettext("Format of access tokens. A resource or client may override it.")),
    ("oauth.access_token.ttl_seconds", Number(MINUTE, DAY), HOUR, lazy_gettext("Lifetime of opaque access tokens.")),
    ("oauth.access_token.jwt_ttl_seconds", Number(MINUTE, HOUR), 600, lazy_gettext("Lifetime of JWT access tokens, which APIs verify without introspection.")),
    ("oauth.access_token.allow_unstored", Boolean(), False, lazy_gettext("APIs may choose not to store their JWT access tokens. They then learn of revocations from a status list within seconds, or not before tokens expire.")),
    ("oauth.id_token_ttl_seconds", Number(MINUTE, DAY), HOUR, lazy_gettext("Lifetime of ID tokens.")),
    ("oauth.authorization_code_ttl_seconds", Number(10, 60), 60, lazy_gettext("Lifetime of authorization codes.")),
    ("oauth.device_code_ttl_seconds", Number(MINUTE, HOUR), 900, lazy_gettext("Lifetime of device codes (RFC 8628).")),
    ("oauth.device_poll_interval_seconds", Number(1, 60), 5, lazy_gettext("Polling interval for devices (RFC 8628 section 3.2).")),
    ("oauth.refresh_token.ttl_seconds", Number(HOUR, 365 * DAY), 30 * DAY, lazy_gettext("Refresh tokens of a grant expire after this time, even if they are used.")),
    ("oauth.refresh_token.idle_ttl_seconds", Number(5 * MINUTE, 365 * DAY), 14 * DAY, lazy_gettext("Refresh tokens expire when they are unused for this time.")),
    ("oauth.refresh_token.rotation", _choice("always", "public_clients"), "always", lazy_gettext("Which clients get a new refresh token at each use (RFC 9700 section 4.14).")),
    ("oauth.refresh_token.reuse_grace_seconds", Number(0, 60), 30, lazy_gettext("How long a used refresh token can be retried after a lost response. 0 means never.")),
    ("oauth.consent.policy", _choice("always", "third_party"), "third_party", lazy_gettext("Which clients ask users for consent.")),
    ("oauth.consent.members_may_allow", _choice("all", "verified", "none"), "all", lazy_gettext("Which clients members can allow without administrator approval.")),
    ("oauth.consent.remember_self_registered", Boolean(), False, lazy_gettext("Let confidential clients that registered themselves use prompt=none: consent is remembered and errors are redirected without a page. Reviewed clients don't need it.")),
    ("oauth.consent.ttl_seconds", Number(HOUR, 3650 * DAY), None, lazy_gettext("When users must consent again. null means never.")),
    ("oauth.redirect_uris.allowed_hosts", StringList(Text(255, format="host"), 100), [], lazy_gettext("Allowed hosts of redirect URIs. Empty means any.")),
    ("oauth.redirect_uris.max_per_client", Number(1, 100), 50, lazy_gettext("Maximum number of redirect URIs per client.")),
    ("oauth.clients.secret_display", _choice("reveal", "once"), "reveal", lazy_gettext("Whether secrets can be viewed again, or are shown once and not stored.")),
    ("oauth.clients.max_secrets", Number(2, 10), 5, lazy_gettext("Maximum number of active secrets per client. Rotation needs two.")),
    ("oauth.clients.secret_ttl_seconds", Number(DAY, 730 * DAY), None, lazy_gettext("Lifetime of new secrets. null means that secrets don't expire.")),
    ("oauth.clients.rotation_overlap_seconds", Number(0, 30 * DAY), DAY, lazy_gettext("How long the old secret works after a rotation. 0 means it stops immediately.")),
    ("oauth.clients.token_endpoint_auth_methods", _choices(*AUTH_METHODS, min_items=1), list(AUTH_METHODS), lazy_gettext("Allowed client authentication methods.")),
    ("oauth.dynamic_registration.mode", _choice("off", "initial_access_token", "open"), "off", lazy_gettext("Who may register clients dynamically (RFC 7591).")),
    ("oauth.dynamic_registration.client_id_metadata_documents", Boolean(), False, lazy_gettext("Accept the URL of a client metadata document as client_id, as agents (MCP) use.")),
    ("oauth.dynamic_registration.max_per_hour", Number(1, 10_000), 120, lazy_gettext("How many clients can register per hour from one network where no token is required.")),
    ("oauth.dynamic_registration.idle_ttl_seconds", Number(DAY, 365 * DAY), 30 * DAY, lazy_gettext("When an unused dynamically registered client is deleted.")),
    ("oauth.pkce", _choice("required", "required_or_nonce", "public_clients"), "required_or_nonce", lazy_gettext("Which clients must use PKCE: all of them; public ones, and confidential ones unless they send an OpenID nonce (OAuth 2.1 section 7.5.1); or only public ones.")),
    ("oauth.require_par", Boolean(), False, lazy_gettext("Require pushed authorization requests (RFC 9126).")),
    ("oauth.require_dpop", Boolean(), False, lazy_gettext("Require DPoP-bound tokens (RFC 9449).")),
    ("oauth.signing.algorithm", _choice("RS256", "PS256", "ES256", "EdDSA"), "RS256", lazy_gettext("Signing algorithm of tokens unless a client requests another.")),
    ("oauth.signing.rotation_seconds", Number(7 * DAY, 730 * DAY), 90 * DAY, lazy_gettext("How often signing keys are rotated.")),
    ("management_api.allowed_origins", StringList(Text(255, format="origin"), 20), [], lazy_gettext("Web origins whose pages may call the management API (CORS), such as https://admin.example.com.")),
    ("user_permissions.members_can_register_clients", Boolean(), False, lazy_gettext("Members can register and manage their own clients.")),
    ("user_permissions.members_can_edit_profile", Boolean(), True, lazy_gettext("Members can edit their name and profile.")),
    ("user_permissions.members_can_delete_account", Boolean(), False, lazy_gettext("Members can delete their own account.")),
    ("user_profile.attributes", AttributeList(), [], lazy_gettext("Custom attributes of users, which clients can receive as claims. The list is replaced as a whole.")),
    ("branding.display_name", Text(100), None, lazy_gettext("Name on pages and in emails for users. null means the organization's name.")),
    ("branding.logo", ServerManaged(LOGO_PATH, "Images are not loaded from a URL. Upload the image with PUT /organizations/{id}/logo, or send null to remove it."), None, lazy_gettext("Path of the logo on the sign-in page, which is uploaded and converted here.")),
    ("branding.accent_color", Text(7, format="color"), "#3347c9", lazy_gettext("Color of buttons on the sign-in page.")),
    ("branding.theme", _choice("auto", "light", "dark"), "auto", lazy_gettext("Whether pages are light or dark.")),
    ("branding.support_email", Text(254, format="email"), None, lazy_gettext("Email address for support.")),
    ("branding.support_uri", Text(500, format="uri"), None, lazy_gettext("URL of the support page.")),
    ("branding.login_message", Text(500, multiline=True), None, lazy_gettext("Message on the sign-in page.")),
    ("localization.default_locale", _choice(*LANGUAGES), ENGLISH, lazy_gettext("Default language of pages and emails.")),
    ("limits.client_requests_per_minute", Number(10, 10_000_000), None, lazy_gettext("Requests that a client may send in a minute, at its OAuth endpoints and the management API. null means no limit.")),
    ("limits.network_requests_per_minute", Number(10, 10_000_000), None, lazy_gettext("Requests of all clients from one network (IPv4 /24, IPv6 /64) in a minute. null means no limit.")),
    ("limits.organization_requests_per_minute", Number(10, 10_000_000), None, lazy_gettext("Requests of all clients together. null means no limit.")),
    ("limits.max_users", Number(1, 100_000_000), None, lazy_gettext("Maximum number of users. null means no limit.")),
    ("limits.max_clients", Number(1, 50_000), None, lazy_gettext("Maximum number of clients. null means the maximum of any organization, 50,000.")),
    ("limits.emails_per_hour", Number(10, 100_000), 2_000, lazy_gettext("Emails of all kinds that are sent in an hour. Further ones wait.")),
    ("audit.retention_days", Number(30, 3650), 365, lazy_gettext("How long audit events are stored.")),
    ("audit.failed_requests", Boolean(), True, lazy_gettext("Store rejected client requests without secrets, so that developers can see the cause, and a sample of successful ones for a day.")),
    ("audit.log_retention_days", Number(1, 90), 14, lazy_gettext("How long failed requests and webhook deliveries are stored. Deliveries are kept for at least four days.")),
    ("audit.notify_root_access", Boolean(), True, lazy_gettext("Email administrators when an instance administrator makes changes.")),
)
# fmt: on

LIMITS = "limits."
"""The beginning of the paths that only instance administrators can change."""
SETTINGS: dict[str, Setting] = {row[0]: Setting(*row) for row in _ROWS}


def _permission_problem(value: str) -> FieldProblem | None:
    if is_permission_name(value):
        return None
    if value in ROOT_ONLY:
        message = lazy_gettext("This permission is reserved for the root organization.")
    else:
        message = f"There is no such permission.{suggestion(value, sorted(ORGANIZATION_PERMISSIONS))}"
    return FieldProblem("invalid_format", message)


class RoleFields(Struct):
    """The fields of one role under ``user_permissions.roles``."""

    name: Annotated[str, shapes.Text(60), shapes.described("The name that people see.")]
    description: Annotated[str, shapes.Text(300), shapes.described("What the role is for.")]
    permissions: Annotated[
        tuple[Annotated[str, shapes.Text(165), shapes.Rule(_permission_problem)], ...],
        shapes.Items(100),
        shapes.described("Scopes of the management API that the role grants."),
    ]


RoleChange = shapes.create_shape("RoleChange", RoleFields)
ROLE_FIELDS = tuple(RoleChange.model_fields)
