"""Identity providers of an organization (OpenID Connect Core 1.0): their fields, metadata and requests."""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import Annotated, Any, Literal
from urllib.parse import quote, urlencode, urlsplit

from joserfc.errors import JoseError
from joserfc.jwk import import_key
from msgspec import Struct

from app.rules.errors import DomainError
from app.rules.fields import FieldProblem, ValidationErrors
from app.rules.languages.translation import lazy_gettext
from app.rules.shapes import Items, OneOf, Rule, SchemaOnly, Shape, Text, check_shape, create_shape, described
from app.rules.store.outgoing_http import OutgoingRequestBlocked, parse_target, require_web_port

FIELDS = (
    "slug", "name", "issuer", "client_id", "client_secret", "scopes", "create_users", "link_users", "trust_emails",
    "groups_claim", "status",
)  # fmt: skip
READ_ONLY = (
    "id", "redirect_uri", "backchannel_logout_uri", "authorization_endpoint", "created_at", "created_by", "updated_at",
)  # fmt: skip
ENABLED, DISABLED = "enabled", "disabled"
STATUSES = (ENABLED, DISABLED)
MAX_PROVIDERS_PER_ORGANIZATION = 20
MAX_LENGTH = 255
DEFAULT_SCOPES = ("openid", "email", "profile")
DEFAULT_GROUPS_CLAIM = "groups"
AMR = "fed"
"""A sign-in with an identity provider. RFC 8176 has no name for it; this one is in wide use."""

REQUEST_LIFETIME = timedelta(minutes=15)
METADATA_LIFETIME = timedelta(days=1)
KEY_REFRESH_INTERVAL = timedelta(minutes=1)
"""How often keys may be read again because an ID token names an unknown one."""
RETRY_INTERVAL = timedelta(seconds=15)
"""How often metadata may be read again after that failed: anyone can press the button to sign in."""
LEEWAY = timedelta(minutes=2)
"""How far the clock of a provider may differ."""
MAX_DOCUMENT_BYTES = 200_000

ALGORITHMS = (
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
    "Ed25519",
    "EdDSA",
)
KEY_TYPES: Mapping[str, str] = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}
"""Types of the keys of an algorithm, by its first two letters."""
_KEY_MEMBERS = ("kty", "kid", "alg", "crv", "x", "y", "n", "e")
_SLUG_PATTERN = r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?"
_SLUG = re.compile(_SLUG_PATTERN)
_ACCESS_TOKEN = re.compile(r"[\x21-\x7e]+")
_ERROR_CODE = re.compile(r"[a-z_]{1,40}")
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,100}")


class MetadataInvalid(DomainError):
    """The provider's configuration does not say what is needed to sign in. The message says what is wrong."""

    code = "invalid_metadata"


class ProviderMetadata(Struct, frozen=True):
    """The part of a provider's metadata that is used (OpenID Connect Discovery 1.0 section 3)."""

    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    userinfo_endpoint: str | None = None
    token_auth: Literal["client_secret_basic", "client_secret_post"] = "client_secret_basic"
    sends_issuer: bool = False


def is_provider_slug(text: str) -> bool:
    """Return whether the text can be a provider's name in URLs."""
    return _SLUG.fullmatch(text) is not None


def _slug_problem(value: str) -> FieldProblem | None:
    if is_provider_slug(value):
        return None
    return FieldProblem(
        "invalid_slug",
        "Use 1 to 40 lowercase letters, digits and hyphens, with a letter or digit at both ends.",
    )


def _scope_problem(value: str) -> FieldProblem | None:
    if _SCOPE.fullmatch(value) is not None:
        return None
    return FieldProblem(
        "invalid_scope", "A scope has no spaces, quotes or backslashes (RFC 6749 section 3.3)."
    )


def _identifier_problem(value: str) -> FieldProblem | None:
    if re.fullmatch(r"[\x21-\x7e]{1,255}", value) is not None:
        return None
    return FieldProblem(
        "invalid_client_id", "Enter the client ID: up to 255 ASCII characters without spaces."
    )


def _secret_problem(value: str) -> FieldProblem | None:
    if re.fullmatch(r"[\x20-\x7e]{1,1000}", value) is not None:
        return None
    return FieldProblem("invalid_secret", "Enter the client secret: up to 1,000 ASCII characters.")


class NewIdentityProvider(Shape):
    """A new identity provider."""

    slug: Annotated[
        Annotated[str, Rule(_slug_problem, (("pattern", f"^{_SLUG_PATTERN}$"),))],
        described("Its name in URLs, such as `google`. It is part of the redirect URI and can't be changed."),
    ]
    name: Annotated[
        Annotated[str, Text(60)], described("The name on the sign-in button: “Continue with Google”.")
    ]
    issuer: Annotated[
        str,
        SchemaOnly(minLength=1, maxLength=MAX_LENGTH),
        described(
            "The provider's issuer, an HTTPS URL. Its metadata is read from `/.well-known/openid-configuration`"
            " below it."
        ),
    ]
    client_id: Annotated[
        Annotated[str, Rule(_identifier_problem, (("minLength", 1), ("maxLength", MAX_LENGTH)))],
        described("The client ID that the provider issued."),
    ]
    client_secret: Annotated[
        Annotated[str, Rule(_secret_problem, (("minLength", 1), ("maxLength", 1000)))],
        described("The client secret that the provider issued. It is never returned."),
    ]
    scopes: Annotated[
        Annotated[tuple[Annotated[str, Rule(_scope_problem)], ...], Items(20)] | None,
        described(
            "The scopes to request. `openid` is always requested. The default adds `email` and `profile`."
        ),
    ] = None
    create_users: Annotated[
        bool | None,
        described(
            "Whether people who sign in for the first time get an account. They need a verified email whose domain"
            " `authentication.registration.allowed_email_domains` allows."
        ),
    ] = None
    link_users: Annotated[
        bool | None,
        described(
            "Whether people whose verified email is that of an existing user sign in as that user. Otherwise, users"
            " link their account themselves, as users with a role always do."
        ),
    ] = None
    trust_emails: Annotated[
        bool | None,
        described(
            "Whether emails count as verified if the provider doesn't say so. Only for a provider that controls all"
            " its emails, such as the one of your own company."
        ),
    ] = None
    groups_claim: Annotated[
        Annotated[str, Text(100)] | None,
        described(
            "The claim of ID tokens or of userinfo with the user's groups at the provider. `provider_groups` of a group"
            " refers to its values. The default is `groups`."
        ),
    ] = None
    status: Annotated[
        Annotated[str, OneOf(STATUSES)] | None, described("Nobody can sign in with a disabled provider.")
    ] = None


IdentityProviderChange = create_shape(
    "IdentityProviderChange",
    NewIdentityProvider,
    not_null=("slug", "name", "issuer", "client_id", "client_secret"),
)
_DEFAULTS: Mapping[str, Any] = {
    "scopes": list(DEFAULT_SCOPES),
    "create_users": False,
    "link_users": False,
    "trust_emails": False,
    "groups_claim": DEFAULT_GROUPS_CLAIM,
    "status": ENABLED,
}
_REQUIRED = {
    "slug": "Enter a name for URLs, such as google.",
    "name": "Enter the name for the sign-in button.",
    "issuer": "Enter the provider's issuer, such as https://accounts.google.com.",
    "client_id": "Enter the client ID that the provider issued.",
    "client_secret": "Enter the client secret that the provider issued.",
}


def validate_provider_fields(
    sent: Mapping[str, Any], *, is_new: bool, allowed_hosts: frozenset[str]
) -> dict[str, Any]:
    """Return the values to store: every field of a new provider, or those to change; null restores the default.

    ``allowed_hosts`` are private hosts that the operator allows. Raises InvalidInput with every invalid field.
    """
    errors = ValidationErrors()
    shape = NewIdentityProvider if is_new else IdentityProviderChange
    check_shape(errors, shape, sent, read_only=READ_ONLY, required=_REQUIRED)
    if isinstance(sent.get("issuer"), str):
        problem = _issuer_problem(sent["issuer"], allowed_hosts)
        if problem is not None:
            errors.add_problem("issuer", problem)
    errors.raise_if_any()
    values = dict(_DEFAULTS) if is_new else {}
    values |= {name: sent[name] for name in FIELDS if name in sent}
    for name, default in _DEFAULTS.items():
        if name in values and values[name] is None:
            values[name] = default
    if "scopes" in values:
        values["scopes"] = list(dict.fromkeys(("openid", *values["scopes"])))
    return values


def _issuer_problem(issuer: str, allowed_hosts: Collection[str]) -> FieldProblem | None:
    if len(issuer) > MAX_LENGTH or urlsplit(issuer).query or "?" in issuer:
        return FieldProblem("invalid_issuer", "Enter an https URL without user name, query and fragment.")
    try:
        require_web_port(parse_target(issuer), allowed_hosts)
    except OutgoingRequestBlocked as error:
        return FieldProblem("invalid_issuer", str(error))
    return None


def metadata_url(issuer: str) -> str:
    """Return where the issuer publishes its metadata (OpenID Connect Discovery 1.0 section 4)."""
    return f"{issuer.rstrip('/')}/.well-known/openid-configuration"


def parse_metadata(document: Mapping[str, Any], issuer: str) -> ProviderMetadata:
    """Return the used part of the metadata. Raises MetadataInvalid.

    The issuer in the document must be the configured one (section 4.3), or another provider could sign in for it.
    """
    if document.get("issuer") != issuer:
        raise MetadataInvalid(
            lazy_gettext(
                "Its metadata names another issuer: %(issuer)s. Enter that one, if it is right.",
                issuer=str(document.get("issuer"))[:MAX_LENGTH],
            )
        )
    urls = {
        name: _read_url(document, name) for name in ("authorization_endpoint", "token_endpoint", "jwks_uri")
    }
    userinfo = _read_url(document, "userinfo_endpoint") if document.get("userinfo_endpoint") else None
    methods = document.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
    if not isinstance(methods, list):
        raise MetadataInvalid("Its token_endpoint_auth_methods_supported is not a list.")
    if "client_secret_basic" not in methods and "client_secret_post" not in methods:
        raise MetadataInvalid(
            "It accepts no client secret: neither client_secret_basic nor client_secret_post."
        )
    return ProviderMetadata(
        **urls,
        userinfo_endpoint=userinfo,
        token_auth="client_secret_basic" if "client_secret_basic" in methods else "client_secret_post",
        sends_issuer=document.get("authorization_response_iss_parameter_supported") is True,
    )


def _read_url(document: Mapping[str, Any], name: str) -> str:
    value = document.get(name)
    if not isinstance(value, str):
        raise MetadataInvalid(lazy_gettext("Its metadata has no %(name)s.", name=name))
    try:
        parse_target(value)
    except OutgoingRequestBlocked as error:
        message = lazy_gettext("Its metadata has an unusable %(name)s: it must be an https URL.", name=name)
        raise MetadataInvalid(message) from error
    return value


def parse_keys(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the public keys for signatures as a JWK Set; others are left out. Raises MetadataInvalid without any."""
    keys = document.get("keys")
    usable = [key for key in keys if _is_usable(key)] if isinstance(keys, list) else []
    usable = [{name: key[name] for name in _KEY_MEMBERS if name in key} for key in usable]
    if not usable:
        raise MetadataInvalid("Its jwks_uri has no key for signatures.")
    return {"keys": usable}


def _is_usable(key: Any) -> bool:
    if not isinstance(key, dict) or key.get("use") not in (None, "sig"):
        return False
    if key.get("kty") not in ("RSA", "EC", "OKP") or key.get("crv") in ("X25519", "X448"):
        return False
    try:
        return not import_key(key).is_private
    except (JoseError, ValueError, TypeError, KeyError):
        return False


def authorization_url(
    metadata: ProviderMetadata,
    *,
    client_id: str,
    redirect_uri: str,
    scopes: Collection[str],
    state: str,
    nonce: str,
    code_verifier: str,
    login_hint: str = "",
    prompt: str = "",
) -> str:
    """Return the URL of the authentication request (section 3.1.2.1) with PKCE (RFC 7636)."""
    parameters = {
        "response_type": "code",
        "client_id": client_id,
        "redirect_uri": redirect_uri,
        "scope": " ".join(scopes),
        "state": state,
        "nonce": nonce,
        "code_challenge": code_challenge(code_verifier),
        "code_challenge_method": "S256",
    }
    if login_hint:
        parameters["login_hint"] = login_hint
    if prompt:
        parameters["prompt"] = prompt
    if prompt == "login":
        parameters["max_age"] = "0"
    separator = "&" if "?" in metadata.authorization_endpoint else "?"
    return f"{metadata.authorization_endpoint}{separator}{urlencode(parameters)}"


def code_challenge(code_verifier: str) -> str:
    """Return the S256 challenge of the verifier (RFC 7636 section 4.2)."""
    return urlsafe_b64encode(hashlib.sha256(code_verifier.encode()).digest()).rstrip(b"=").decode()


def token_request(
    metadata: ProviderMetadata,
    *,
    client_id: str,
    client_secret: str,
    code: str,
    redirect_uri: str,
    code_verifier: str,
) -> tuple[bytes, dict[str, str]]:
    """Return body and headers of the token request (section 3.1.3.1, RFC 6749 section 2.3.1)."""
    fields = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": redirect_uri,
        "code_verifier": code_verifier,
    }
    headers = {}
    if metadata.token_auth == "client_secret_basic":
        pair = f"{quote(client_id, safe='')}:{quote(client_secret, safe='')}"
        headers["Authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
    else:
        fields |= {"client_id": client_id, "client_secret": client_secret}
    return urlencode(fields).encode(), headers


def is_access_token(value: object) -> bool:
    """Return whether a request can carry the value as a bearer token (RFC 6750 section 2.1)."""
    return isinstance(value, str) and _ACCESS_TOKEN.fullmatch(value) is not None


def is_error_code(value: str) -> bool:
    """Return whether an error looks like those of section 3.1.2.6. The browser carries it, so it may be any text."""
    return _ERROR_CODE.fullmatch(value) is not None
