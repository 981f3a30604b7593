"""Types of clients with their defaults, the values of their fields, and the scopes and grant types they may use."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Annotated, Any

from msgspec import Struct

from app.rules.clients.public_keys import jwks_problem
from app.rules.clients.redirect_uris import is_private_scheme, web_url_problem
from app.rules.clients.resource_indicators import identifier_problem, requires_access
from app.rules.errors import InvalidScope
from app.rules.fields import FieldProblem
from app.rules.languages.translation import lazy_gettext
from app.rules.mail.email_addresses import is_email
from app.rules.scopes import (
    DEFAULT_SCOPES,
    MAX_SCOPE_LENGTH,
    OPENID_SCOPES,
    disallowed_scopes,
    is_scope,
    parse_scope,
)
from app.rules.shapes import Check, Rule, Text

REVIEW, ALLOWED, PRE_APPROVED, BLOCKED = "review", "allowed", "pre_approved", "blocked"
APPROVALS = (REVIEW, ALLOWED, PRE_APPROVED, BLOCKED)
ALL, NO_APPROVAL = "all", "none"
FIRST_PARTY, VERIFIED, UNVERIFIED = "first_party", "verified", "unverified"
TRUST = (FIRST_PARTY, VERIFIED, UNVERIFIED)


def can_user_allow(*, approval: str | None, trust: str, setting: str, decides: bool) -> bool:
    """Return whether the user may allow the client without administrator approval.

    ``approval`` is the decision about this client; without one, the organization's ``setting`` applies. ``decides``:
    the user may decide about clients. First-party apps need no approval.
    """
    if approval == BLOCKED:
        return False
    if decides or trust == FIRST_PARTY or approval in (ALLOWED, PRE_APPROVED):
        return True
    if approval == REVIEW or setting == NO_APPROVAL:
        return False
    return setting == ALL or trust != UNVERIFIED


def is_pre_approved(
    requested: Collection[str], *, approval: str | None, approved_scopes: Collection[str], trust: str
) -> bool:
    """Return whether administrators approved all requested scopes for all users (CO-2)."""
    return approval == PRE_APPROVED and trust != UNVERIFIED and set(requested) <= set(approved_scopes)


IMPERSONATION, DELEGATION = "impersonation", "delegation"


# Token exchange policies: tokens with the acting client in the act claim, or without it.
POLICIES = (DELEGATION, IMPERSONATION)


AUTHORIZATION_CODE = "authorization_code"
REFRESH_TOKEN = "refresh_token"
CLIENT_CREDENTIALS = "client_credentials"
DEVICE_CODE = "urn:ietf:params:oauth:grant-type:device_code"
TOKEN_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
GRANT_TYPES = (AUTHORIZATION_CODE, REFRESH_TOKEN, CLIENT_CREDENTIALS, DEVICE_CODE, TOKEN_EXCHANGE)

BASIC, POST, PRIVATE_KEY_JWT, NONE = "client_secret_basic", "client_secret_post", "private_key_jwt", "none"
AUTH_METHODS = (BASIC, POST, PRIVATE_KEY_JWT, NONE)
SECRET_METHODS = frozenset({BASIC, POST})


class ClientType(Struct, frozen=True):
    """One type: ``grant_types`` and the first of ``auth_methods`` are its defaults."""

    title: str
    grant_types: tuple[str, ...]
    possible_grant_types: tuple[str, ...]
    auth_methods: tuple[str, ...]
    scopes: tuple[str, ...]


WEB, SPA, NATIVE, MACHINE, DEVICE = "web", "spa", "native", "machine", "device"
CLIENT_TYPES: Mapping[str, ClientType] = {
    WEB: ClientType(
        "a web application on a server",
        (AUTHORIZATION_CODE, REFRESH_TOKEN),
        GRANT_TYPES,
        (BASIC, POST, PRIVATE_KEY_JWT),
        DEFAULT_SCOPES,
    ),
    SPA: ClientType(
        "a single-page application",
        (AUTHORIZATION_CODE, REFRESH_TOKEN),
        (AUTHORIZATION_CODE, REFRESH_TOKEN),
        (NONE,),
        DEFAULT_SCOPES,
    ),
    NATIVE: ClientType(
        "a mobile, desktop or command line application",
        (AUTHORIZATION_CODE, REFRESH_TOKEN),
        (AUTHORIZATION_CODE, REFRESH_TOKEN, DEVICE_CODE),
        (NONE,),
        DEFAULT_SCOPES,
    ),
    MACHINE: ClientType(
        "a service without users",
        (CLIENT_CREDENTIALS,),
        (CLIENT_CREDENTIALS, TOKEN_EXCHANGE),
        (BASIC, POST, PRIVATE_KEY_JWT),
        (),
    ),
    DEVICE: ClientType(
        "a television or other limited device",
        (DEVICE_CODE, REFRESH_TOKEN),
        (DEVICE_CODE, REFRESH_TOKEN),
        (NONE, BASIC, POST, PRIVATE_KEY_JWT),
        DEFAULT_SCOPES,
    ),
}


def derive_type(fields: Mapping[str, Any]) -> str:
    """Return the type of a client from its other fields. Values with a wrong JSON type are ignored."""
    grants = _texts(fields.get("grant_types"))
    if grants and AUTHORIZATION_CODE not in grants:
        return DEVICE if DEVICE_CODE in grants else MACHINE
    uris = _texts(fields.get("redirect_uris"))
    if any(is_private_scheme(uri) for uri in uris):
        return NATIVE
    if fields.get("token_endpoint_auth_method") == NONE:
        return NATIVE if uris and all(uri.startswith("http://") for uri in uris) else SPA
    return WEB


def _texts(value: Any) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, (list, tuple)) else []


STATUS = ("active", "disabled")
# How a client was registered: by a user, by itself (RFC 7591), or from its metadata document.
PERSON, DYNAMIC, METADATA_DOCUMENT = "person", "dynamic", "metadata_document"
SOURCES = (PERSON, DYNAMIC, METADATA_DOCUMENT)
SIGNING_ALGORITHMS = ("RS256", "PS256", "ES256", "EdDSA")
TOKEN_FORMATS = ("opaque", "jwt")
SUBJECT_TYPES = ("public", "pairwise")
FULL, MINIMAL = "full", "minimal"
ID_TOKEN_CLAIM_SETS = (FULL, MINIMAL)
SECURITY_PROFILES = ("fapi2",)
MAX_AGE_SECONDS = 10 * 365 * 86_400
MAX_METADATA_ENTRIES = 50

_METADATA_KEY = re.compile(r"[A-Za-z0-9_.-]{1,64}")


def scope_problem(value: str) -> FieldProblem | None:
    """Return what is wrong with the name of a scope (RFC 6749 section 3.3), or None."""
    if is_scope(value):
        return None
    return FieldProblem(
        "invalid_scope",
        lazy_gettext(
            "Enter 1 to %(max_scope_length)s printable ASCII characters, without spaces, quotes and backslashes.",
            max_scope_length=MAX_SCOPE_LENGTH,
        ),
    )


def _contact_problem(value: str) -> FieldProblem | None:
    if is_email(value) and len(value) <= 254:
        return None
    return FieldProblem("not_an_email", "Enter an email address, such as name@example.com.")


def _context_class_problem(value: str) -> FieldProblem | None:
    if 1 <= len(value) <= 128 and value.isascii() and value.isprintable() and " " not in value:
        return None
    return FieldProblem("not_allowed", "Enter 1 to 128 printable ASCII characters, without spaces.")


class _Entries(Check, Struct, frozen=True):
    """At most 50 entries of metadata: a short key and a text each."""

    def problem(self, value: Mapping[str, str]) -> FieldProblem | None:
        if len(value) <= MAX_METADATA_ENTRIES:
            return None
        return FieldProblem(
            "too_many",
            lazy_gettext(
                "At most %(max_metadata_entries)s entries are allowed.",
                max_metadata_entries=MAX_METADATA_ENTRIES,
            ),
        )

    def json_schema(self) -> dict[str, Any]:
        return {
            "maxProperties": MAX_METADATA_ENTRIES,
            "propertyNames": {"pattern": f"^{_METADATA_KEY.pattern}$"},
        }


def _key_problem(key: str) -> FieldProblem | None:
    if _METADATA_KEY.fullmatch(key):
        return None
    return FieldProblem(
        "invalid_key", "Use 1 to 64 letters, digits, dots, hyphens and underscores as the key."
    )


_URL_LENGTH = (("minLength", 1), ("maxLength", 2000))
WebUrl = Annotated[str, Rule(web_url_problem, _URL_LENGTH)]
# What a redirect URI may be depends on the client's type and on the organization: client_metadata checks it.
RedirectUri = Annotated[str, Rule(lambda value: None, _URL_LENGTH)]
Scope = Annotated[str, Rule(scope_problem, (("minLength", 1), ("maxLength", MAX_SCOPE_LENGTH)))]
Contact = Annotated[str, Rule(_contact_problem, (("minLength", 3), ("maxLength", 254)))]
ContextClass = Annotated[str, Rule(_context_class_problem, (("minLength", 1), ("maxLength", 128)))]
ResourceIdentifier = Annotated[str, Rule(identifier_problem, (("minLength", 1), ("maxLength", 255)))]
Jwks = Annotated[Mapping[str, Any], Rule(jwks_problem)]
Metadata = Annotated[
    Mapping[Annotated[str, Rule(_key_problem)], Annotated[str, Text(500, min_length=0, multiline=True)]],
    _Entries(),
]


def scopes_for_itself(requested: str, registered: Collection[str]) -> tuple[str, ...]:
    """Return the scopes of a client_credentials token: the requested ones, or all that the client may have.

    Identity scopes are omitted, because there is no user. Raises InvalidScope for scopes that are not registered.
    """
    own = tuple(scope for scope in registered if scope not in OPENID_SCOPES)
    scopes = parse_scope(requested)
    if scopes is None:
        raise InvalidScope("The parameter scope is malformed.").with_cause(
            "parameter_malformed", received="scope"
        )
    refused = disallowed_scopes(scopes, own)
    if refused:
        raise InvalidScope("The client is not allowed to request one of these scopes for itself.").with_cause(
            "scope_not_allowed", received=" ".join(refused), expected=own
        )
    return scopes or own


def scopes_for_a_user(requested: str, registered: Collection[str]) -> tuple[str, ...]:
    """Return the scopes that a client requests from a user: the requested ones, or all that it is registered for.

    RFC 6749 section 3.3 lets a request without ``scope`` have default scopes. Raises InvalidScope for a malformed
    parameter, scopes that are not registered, and a client without scopes.
    """
    scopes = parse_scope(requested) if requested else tuple(registered)
    if scopes is None:
        raise InvalidScope("The parameter scope is malformed.").with_cause(
            "parameter_malformed", received="scope"
        )
    if not scopes:
        raise InvalidScope("The client is not registered for any scope.").with_cause("scope_not_allowed")
    refused = disallowed_scopes(scopes, registered)
    if refused:
        raise InvalidScope("The client is not registered for one of these scopes.").with_cause(
            "scope_not_allowed", received=" ".join(refused), expected=tuple(registered)
        )
    return scopes


# Grants that rely on the client's own identity, which a public client cannot authenticate (CC-1).
GRANTS_WITHOUT_CONSENT = frozenset({CLIENT_CREDENTIALS, TOKEN_EXCHANGE})


def uses_grants_without_consent(grant_types: Collection[str]) -> bool:
    """Return whether a client with these grant types can get tokens that no user allowed it."""
    return not GRANTS_WITHOUT_CONSENT.isdisjoint(grant_types)


def accepts_auth_method(method: str, *, document: Mapping[str, Any], settings: Mapping[str, Any]) -> bool:
    """Return whether the client may authenticate by the method: its registered one, or any for its secret."""
    registered = document["token_endpoint_auth_method"]
    if method == registered:
        return True
    return (
        bool(document.get("any_secret_method"))
        and {method, registered} <= SECRET_METHODS
        and method in settings["oauth"]["clients"]["token_endpoint_auth_methods"]
    )


def begins_to_require_access(before: str, after: str, grant_types: Collection[str]) -> bool:
    """Return whether a change of an API's policy takes tokens from clients with these grant types and no access."""
    ways = set()
    if uses_grants_without_consent(grant_types):
        ways.add(False)
    if not GRANTS_WITHOUT_CONSENT.issuperset(grant_types):
        ways.add(True)
    return any(
        requires_access(after, is_consented=way) and not requires_access(before, is_consented=way)
        for way in ways
    )


def can_use_grant(
    grant_type: str, *, document: Mapping[str, Any], settings: Mapping[str, Any], is_public: bool
) -> bool:
    """Return whether client and organization allow the grant type and it suits the client."""
    if is_public and grant_type in GRANTS_WITHOUT_CONSENT:
        return False
    return grant_type in document["grant_types"] and grant_type in settings["oauth"]["grant_types"]
