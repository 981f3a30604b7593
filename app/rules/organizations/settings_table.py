"""The table of settings: path, type with its range, default, and description."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from app.rules.clients.redirect_uris import get_web_origin, redirect_uri_problem
from app.rules.directory import attributes
from app.rules.directory.permissions import ORGANIZATION_PERMISSIONS, ROOT_ONLY, is_permission_name
from app.rules.errors import FieldError
from app.rules.fields import suggestion, text_problem, type_name
from app.rules.languages.translation import ENGLISH, LANGUAGES, lazy_gettext
from app.rules.mail.email_addresses import is_email
from app.rules.scopes import is_scope

_DOMAIN = re.compile(
    r"(?=.{1,253}\Z)(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z](?:[a-z0-9-]{0,61}[a-z0-9])"
)
_HTTPS = re.compile(r"https://[^\s\"'<>\\^`{|}@\x00-\x20]{1,500}")
_COLOR = re.compile(r"#[0-9a-fA-F]{6}")
MINUTE, HOUR, DAY = 60, 3600, 86_400
DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
TOKEN_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
# The grant types of a new organization. Others must be enabled.
GRANT_TYPES = ("authorization_code", "refresh_token", "client_credentials", DEVICE_GRANT)
AUTH_METHODS = ("client_secret_basic", "client_secret_post", "private_key_jwt", "none")
ROLE_KEY_PATTERN = "[a-z][a-z0-9_-]{0,39}"
# The routing key of the organization and the digest of the image.
LOGO_PATH = r"/logos/organizations/[0-9a-z]{8}/[0-9a-f]{64}\.png"


def wrong_type(path: str, wanted: str, value: Any) -> FieldError:
    """Return the error for a value of another JSON type. Values are never converted."""
    return FieldError(path, "wrong_type", f"Must be {wanted}, not {type_name(value)}.")


class SettingKind(Struct, frozen=True):
    """The type of a setting. ``check`` never receives ``null``, which means the default."""

    def check(self, path: str, value: Any) -> Iterator[FieldError]:
        """Find every problem of the value."""
        raise NotImplementedError

    def schema(self) -> dict[str, Any]:
        """Return the type as JSON Schema 2020-12."""
        raise NotImplementedError


class Boolean(SettingKind, frozen=True):
    """A boolean."""

    def check(self, path: str, value: Any) -> Iterator[FieldError]:
        if not isinstance(value, bool):
            yield wrong_type(path, "true or false", value)

    def schema(self) -> dict[str, Any]:
        return {"type": "boolean"}


class Number(SettingKind, frozen=True):
    """An integer in a range that includes both bounds."""

    minimum: int
    maximum: int

    def check(self, path: str, value: Any) -> Iterator[FieldError]:
        if isinstance(value, bool) or not isinstance(value, int):
            yield wrong_type(path, "an integer", value)
        elif not self.minimum <= value <= self.maximum:
            code = "too_small" if value < self.minimum else "too_large"
            yield FieldError(
                path,
                code,
                lazy_gettext(
                    "Must be %(minimum)s to %(maximum)s.", minimum=self.minimum, maximum=self.maximum
                ),
            )

    def schema(self) -> dict[str, Any]:
        return {"type": "integer", "minimum": self.minimum, "maximum": self.maximum}


class Choice(SettingKind, frozen=True):
    """One of a few values."""

    values: tuple[str, ...]

    def check(self, path: str, value: Any) -> Iterator[FieldError]:
        if not isinstance(value, str):
            yield wrong_type(path, "a string", value)
        elif value not in self.values:
            yield FieldError(
                path,
                "not_allowed",
                lazy_gettext("Must be one of: %(values)s.", values=", ".join(self.values)),
            )

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "enum": list(self.values)}


class Text(SettingKind, frozen=True):
    """A text, or a string of one format."""

    max_length: int
    format: str = "text"
    multiline: bool = False

    def check(self, path: str, value: Any) -> Iterator[FieldError]:
        if found := text_problem(value, max_length=self.max_length, multiline=self.multiline):
            yield FieldError(path, found.code, found.message)
        elif wrong := _FORMATS[self.format](value):
            yield FieldError(path, "invalid_format", wrong)

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "minLength": 1, "maxLength": self.max_length}


class StringList(SettingKind, frozen=True):
    """A list of distinct strings of one type."""

    item: SettingKind
    max_items: int
    min_items: int = 0

    def check(self, path: str, value: Any) -> Iterator[FieldError]:
        if not isinstance(value, list):
            yield wrong_type(path, "a list", value)
            return
        if not self.min_items <= len(value) <= self.max_items:
            code = "too_few" if len(value) < self.min_items else "too_many"
            yield FieldError(
                path,
                code,
                lazy_gettext(
                    "Must have %(min)s to %(max)s entries, not %(count)s.",
                    min=self.min_items,
                    max=self.max_items,
                    count=len(value),
                ),
            )
            return
        for position, entry in enumerate(value):
            yield from self.item.check(f"{path}[{position}]", entry)
            if entry in value[:position]:
                yield FieldError(f"{path}[{position}]", "duplicate", "Duplicate entry.")

    def schema(self) -> dict[str, Any]:
        return {
            "type": "array",
            "items": self.item.schema(),
            "minItems": self.min_items,
            "maxItems": self.max_items,
            "uniqueItems": True,
        }


_REQUIRED_OF_ATTRIBUTE = ("key", "name", "type")


class AttributeList(SettingKind, frozen=True):
    """The definitions of custom attributes, which are replaced together."""

    def check(self, path: str, value: Any) -> Iterator[FieldError]:
        if not isinstance(value, list):
            yield wrong_type(path, "a list", value)
            return
        if len(value) > attributes.MAX_ATTRIBUTES:
            yield FieldError(
                path, "too_many", lazy_gettext("At most %(max)s attributes.", max=attributes.MAX_ATTRIBUTES)
            )
            return
        keys: set[Any] = set()
        for position, entry in enumerate(value):
            field = f"{path}[{position}]"
            if not isinstance(entry, dict):
                yield wrong_type(field, "an object", entry)
                continue
            yield from self._check_entry(field, entry)
            key = entry.get("key")
            if isinstance(key, str) and key in keys:
                yield FieldError(f"{field}.key", "duplicate", "Duplicate entry.")
            keys |= {key} if isinstance(key, str) else set()

    def _check_entry(self, path: str, entry: dict[str, Any]) -> Iterator[FieldError]:
        for name, value in entry.items():
            if name not in ATTRIBUTE_FIELDS:
                meant = suggestion(name, ATTRIBUTE_FIELDS)
                yield FieldError(
                    f"{path}.{name}"[:200], "unknown_field", f"An attribute has no such field.{meant}"
                )
            else:
                yield from ATTRIBUTE_FIELDS[name].check(f"{path}.{name}", value)
        for name in _REQUIRED_OF_ATTRIBUTE:
            if name not in entry:
                yield FieldError(f"{path}.{name}", "required", "This field is required.")
        if entry.get("choices") and entry.get("type") not in (attributes.STRING, attributes.LIST):
            message = lazy_gettext("Only strings and lists can have choices.")
            yield FieldError(f"{path}.choices", "contradiction", message)

    def schema(self) -> dict[str, Any]:
        entry = {
            "type": "object",
            "description": "A custom attribute of users.",
            "properties": fields_schema(ATTRIBUTE_FIELDS),
            "required": list(_REQUIRED_OF_ATTRIBUTE),
            "additionalProperties": False,
        }
        return {
            "type": "array",
            "items": {"component": "UserAttribute", "schema": entry},
            "maxItems": attributes.MAX_ATTRIBUTES,
        }


class ServerManaged(SettingKind, frozen=True):
    """A value that this service generates. It can be sent back unchanged or removed, but not set."""

    pattern: str
    reason: str

    def check(self, path: str, value: Any) -> Iterator[FieldError]:
        # Merging the request compares a well-formed value with the stored one.
        if not isinstance(value, str) or re.fullmatch(self.pattern, value) is None:
            yield self.error(path)

    def error(self, path: str) -> FieldError:
        """Return the error for a value that this service did not generate."""
        return FieldError(path, "read_only", self.reason)

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "pattern": f"^{self.pattern}$"}


def _is_host(value: str) -> bool:
    plain = value.removeprefix("*.")
    return plain == "localhost" or _DOMAIN.fullmatch(plain) is not None


def _is_origin(value: str) -> bool:
    url = f"{value}/"
    return redirect_uri_problem(url, client_type="web") is None and get_web_origin(url) == value


def _permission(value: str) -> str | None:
    if is_permission_name(value):
        return None
    if value in ROOT_ONLY:
        return lazy_gettext("This permission is reserved for the root organization.")
    return f"There is no such permission.{suggestion(value, sorted(ORGANIZATION_PERMISSIONS))}"


def _require(is_valid: Callable[[str], object], message: str) -> Callable[[str], str | None]:
    return lambda value: None if is_valid(value) else message


# What is wrong with a text of each format, or None.
_FORMATS: dict[str, Callable[[str], str | None]] = {
    "text": lambda value: None,
    "permission": _permission,
    "attribute": attributes.key_problem,
    "domain": _require(
        _DOMAIN.fullmatch, lazy_gettext("Must be a domain name in lowercase, such as example.com.")
    ),
    "host": _require(_is_host, lazy_gettext("Must be a host such as app.example.com or *.example.com.")),
    "origin": _require(
        _is_origin, lazy_gettext("Must be an origin: https:// and a host in lowercase, without a path.")
    ),
    "color": _require(_COLOR.fullmatch, lazy_gettext("Must be a color such as #3347c9.")),
    "email": _require(is_email, lazy_gettext("Must be an email address.")),
    "uri": _require(_HTTPS.fullmatch, lazy_gettext("Must be an https URL.")),
    "role": _require(
        re.compile(ROLE_KEY_PATTERN).fullmatch,
        lazy_gettext("Must be the ID of a role: lowercase letters, digits, _ and -."),
    ),
    "scope": _require(is_scope, lazy_gettext("Must be the name of a scope.")),
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
    ("authentication.sessions.reauthentication_seconds", Number(MINUTE, DAY), 600, lazy_gettext("How recent a sign-in must be for sensitive actions, such as viewing a secret or adding an administrator.")),
    ("authentication.sessions.max_per_user", Number(1, 1000), None, lazy_gettext("Maximum number of sessions per user. null means no limit.")),
    ("authentication.registration.mode", _choice("closed", "invite", "open"), "invite", lazy_gettext("How users join: not at all, by invitation, or also by signing up.")),
    ("authentication.registration.allowed_email_domains", StringList(Text(253, "domain"), 100), [], lazy_gettext("Email domains that may sign up. Empty means any.")),
    ("authentication.registration.verify_email", Boolean(), True, lazy_gettext("Users who sign up must verify their email address before they can sign in.")),
    ("authentication.registration.default_roles", StringList(Text(40, "role"), 10), ["member"], lazy_gettext("Roles of users who sign up.")),
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
    ("oauth.redirect_uris.allowed_hosts", StringList(Text(255, "host"), 100), [], lazy_gettext("Allowed hosts of redirect URIs. Empty means any.")),
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
    ("management_api.allowed_origins", StringList(Text(255, "origin"), 20), [], lazy_gettext("Web origins whose pages may call the management API (CORS), such as https://admin.example.com.")),
    ("user_permissions.members_can_register_clients", Boolean(), False, lazy_gettext("Members can register and manage their own clients.")),
    ("user_permissions.members_can_edit_profile", Boolean(), True, lazy_gettext("Members can edit their name and profile.")),
    ("user_permissions.members_can_delete_account", Boolean(), False, lazy_gettext("Members can delete their own account.")),
    ("user_profile.attributes", AttributeList(), [], lazy_gettext("Custom attributes of users, which clients can receive as claims. The list is replaced as a whole.")),
    ("branding.display_name", Text(100), None, lazy_gettext("Name on pages and in emails for users. null means the organization's name.")),
    ("branding.logo", ServerManaged(LOGO_PATH, "Images are not loaded from a URL. Upload the image with PUT /organizations/{id}/logo, or send null to remove it."), None, lazy_gettext("Path of the logo on the sign-in page, which is uploaded and converted here.")),
    ("branding.accent_color", Text(7, "color"), "#3347c9", lazy_gettext("Color of buttons on the sign-in page.")),
    ("branding.theme", _choice("auto", "light", "dark"), "auto", lazy_gettext("Whether pages are light or dark.")),
    ("branding.support_email", Text(254, "email"), None, lazy_gettext("Email address for support.")),
    ("branding.support_uri", Text(500, "uri"), None, lazy_gettext("URL of the support page.")),
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
    ("audit.log_retention_days", Number(1, 90), 14, lazy_gettext("How long failed requests are stored.")),
    ("audit.notify_root_access", Boolean(), True, lazy_gettext("Email administrators when an instance administrator makes changes.")),
)
# fmt: on

LIMITS = "limits."
"""The beginning of the paths that only instance administrators can change."""
SETTINGS: dict[str, Setting] = {row[0]: Setting(*row) for row in _ROWS}

# The fields of one role under user_permissions.roles.
ROLE_FIELDS: dict[str, SettingKind] = {
    "name": Text(60),
    "description": Text(300),
    "permissions": StringList(Text(165, "permission"), 100),
}

# The fields of one entry of user_profile.attributes.
ATTRIBUTE_FIELDS: dict[str, SettingKind] = {
    "key": Text(40, "attribute"),
    "name": Text(100),
    "type": Choice(attributes.TYPES),
    "choices": StringList(Text(attributes.MAX_ITEM), 100),
    "required": Boolean(),
    "editable_by": Choice(attributes.EDITORS),
    "scope": Text(128, "scope"),
}
_FIELD_DESCRIPTIONS = {
    "key": "The permanent ID of the attribute, as in `attributes` of a user.",
    "name": "The name that people see.",
    "description": "What the role is for.",
    "permissions": "Scopes of the management API that the role grants.",
    "type": "The type of its values.",
    "choices": "The only values that are allowed. Of strings and lists.",
    "required": "Whether users are asked for it.",
    "editable_by": "Who can change it.",
    "scope": "The scope that releases it to clients.",
}


def fields_schema(fields: Mapping[str, SettingKind]) -> dict[str, Any]:
    """Return the properties of a role or an attribute as JSON Schema."""
    return {name: kind.schema() | {"description": _FIELD_DESCRIPTIONS[name]} for name, kind in fields.items()}
