"""Client metadata (RFC 7591 and OpenID Connect Registration): the fields of a client, declared once.

Requests, the JSON of the API and the OpenAPI document all come from ``ClientMetadata``. To add a field, add it there.
Rules between several fields are in ``client_coherence``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Struct

from app.rules.clients import client_assertions
from app.rules.clients.app_claims import MAX_APP_ROLES, MAX_MAPPINGS, AppRole, ClaimMapping, check_mappings
from app.rules.clients.client_coherence import ClientPolicy, check_coherence, profile_allows_auth_method
from app.rules.clients.client_types import (
    APPROVALS,
    AUTH_METHODS,
    AUTHORIZATION_CODE,
    CLIENT_TYPES,
    FULL,
    GRANT_TYPES,
    ID_TOKEN_CLAIM_SETS,
    MAX_AGE_SECONDS,
    NONE,
    POLICIES,
    SECRET_METHODS,
    SECURITY_PROFILES,
    SIGNING_ALGORITHMS,
    STATUS,
    SUBJECT_TYPES,
    TOKEN_FORMATS,
    TRUST,
    UNVERIFIED,
    Contact,
    ContextClass,
    Jwks,
    Metadata,
    RedirectUri,
    ResourceIdentifier,
    Scope,
    WebUrl,
    derive_type,
)
from app.rules.clients.redirect_uris import redirect_uri_problem
from app.rules.clients.resource_indicators import MAX_RESOURCES, is_service_url
from app.rules.fields import ValidationErrors
from app.rules.scopes import MAX_SCOPES
from app.rules.shapes import (
    Between,
    Items,
    ObjectOf,
    OneOf,
    Shape,
    Text,
    check_shape,
    create_shape,
    described,
)

_SYNONYMS = {
    "client_name": "name",
    "application_name": "name",
    "application_type": "type",
    "scope": "scopes",
    "redirect_uri": "redirect_uris",
    "callback_urls": "redirect_uris",
    "auth_method": "token_endpoint_auth_method",
    "enabled": "status",
}
READ_ONLY = frozenset(
    {
        "client_id",
        "client_secret",
        "organization_id",
        "created_at",
        "created_by",
        "owner_id",
        "updated_at",
        "last_used_at",
        "pkce_used_at",
        "pkce_omitted_at",
        "source",
        "metadata_document_uri",
    }
)
_URI_LISTS = ("redirect_uris", "post_logout_redirect_uris")

# Lists of objects, which are stored and compared as JSON, complete.
_NESTED: Mapping[str, type[Shape]] = {"app_roles": AppRole, "claim_mappings": ClaimMapping}
_SigningAlgorithm = Annotated[str, OneOf(SIGNING_ALGORITHMS)]
_ClientAlgorithm = Annotated[str, OneOf(client_assertions.ALGORITHMS)]
_Scopes = Annotated[tuple[Scope, ...], Items(MAX_SCOPES)]
_RedirectUris = Annotated[tuple[RedirectUri, ...], Items(100)]
_NAME_REQUIRED = {"name": "Enter a name for the client."}


class ClientMetadata(Struct, frozen=True, kw_only=True):
    """The metadata of a client, complete: every default is filled in."""

    name: Annotated[str, Text(100), described("The name that users see when they are asked for consent.")]
    type: Annotated[
        str, OneOf(tuple(CLIENT_TYPES)), described("Determines the defaults. Derived if omitted.")
    ]
    redirect_uris: Annotated[_RedirectUris, described("Compared exactly, character by character.")] = ()
    post_logout_redirect_uris: Annotated[
        _RedirectUris, described("URIs that users can return to after they sign out, compared exactly.")
    ] = ()
    scopes: Annotated[_Scopes, described("All scopes that the client may request.")] = ()
    optional_scopes: Annotated[_Scopes, described("Scopes that users may deselect when they consent.")] = ()
    grant_types: Annotated[
        tuple[Annotated[str, OneOf(GRANT_TYPES)], ...],
        Items(len(GRANT_TYPES)),
        described("The grant types that the client can use, among those that the organization allows."),
    ] = ()
    response_types: Annotated[
        tuple[Annotated[str, OneOf(("code",))], ...],
        Items(1),
        described("Always `code`, or empty for a client without redirects."),
    ] = ()
    token_endpoint_auth_method: Annotated[
        str, OneOf(AUTH_METHODS), described("How the client authenticates. `none` makes it a public client.")
    ] = NONE
    any_secret_method: Annotated[
        bool,
        described(
            "The secret may be sent by `client_secret_basic` or by `client_secret_post`, if the organization allows "
            "both. True by default if no `token_endpoint_auth_method` was chosen."
        ),
    ] = False
    jwks: Annotated[Jwks, described("Public keys, for private_key_jwt.")] | None = None
    jwks_uri: Annotated[
        WebUrl | None, described("The URL of the client's public keys. Null if it has none, or sent `jwks`.")
    ] = None
    client_uri: Annotated[
        WebUrl | None, described("The home page of the client, linked on the consent page.")
    ] = None
    logo_uri: (
        Annotated[
            WebUrl,
            described(
                "PNG, JPEG, GIF or WebP, at most 256 KiB and four million pixels. The service fetches it after each "
                "change and shows its own copy. Until then, pages show initials."
            ),
        ]
        | None
    ) = None
    policy_uri: Annotated[
        WebUrl | None, described("The client's privacy policy, linked on the consent page.")
    ] = None
    tos_uri: Annotated[
        WebUrl | None, described("The client's terms of service, linked on the consent page.")
    ] = None
    contacts: Annotated[tuple[Contact, ...], Items(10), described("Email addresses.")] = ()
    backchannel_logout_uri: Annotated[
        WebUrl | None,
        described("Receives a logout token when a session ends (OpenID Connect Back-Channel Logout)."),
    ] = None
    backchannel_logout_session_required: Annotated[
        bool, described("Whether logout tokens must name the session in `sid`.")
    ] = False
    initiate_login_uri: Annotated[
        WebUrl | None,
        described("An HTTPS URL that starts a sign-in at the client (OpenID Connect Core section 4)."),
    ] = None
    subject_type: Annotated[
        str,
        OneOf(SUBJECT_TYPES),
        described(
            "With pairwise, each sector gets a different `sub` (OpenID Connect Core section 8). A change of this, or "
            "of the sector by other redirect URIs, ends the client's tokens."
        ),
    ] = "public"
    sector_identifier_uri: Annotated[
        WebUrl | None,
        described(
            "A list of redirect URIs that share pairwise `sub` values (OpenID Connect Core section 8.1)."
        ),
    ] = None
    default_max_age: (
        Annotated[
            int,
            Between(0, MAX_AGE_SECONDS, "seconds"),
            described("The `max_age` of requests without one, in seconds."),
        ]
        | None
    ) = None
    require_auth_time: Annotated[bool, described("Whether ID tokens always contain `auth_time`.")] = False
    default_acr_values: Annotated[
        tuple[ContextClass, ...],
        Items(10),
        described("The `acr_values` of requests without any, the preferred one first. None is required."),
    ] = ()
    id_token_signed_response_alg: (
        Annotated[_SigningAlgorithm, described("If null, the organization's algorithm.")] | None
    ) = None
    id_token_claims: Annotated[
        str,
        OneOf(ID_TOKEN_CLAIM_SETS),
        described(
            "With `full`, ID tokens contain the name and email claims that the scopes `profile` and `email` release. "
            "With `minimal`, they are only in userinfo, which always has all claims, and only clients with a "
            "`backchannel_logout_uri` get a `sid`."
        ),
    ] = FULL
    userinfo_signed_response_alg: Annotated[_SigningAlgorithm, described("If null, plain JSON.")] | None = (
        None
    )
    introspection_signed_response_alg: (
        Annotated[_SigningAlgorithm, described("For JWT introspection responses (RFC 9701).")] | None
    ) = None
    request_object_signing_alg: (
        Annotated[_ClientAlgorithm, described("If null, any supported algorithm.")] | None
    ) = None
    require_signed_request_object: Annotated[
        bool, described("Rejects authorization requests without a signed request object (RFC 9101).")
    ] = False
    token_endpoint_auth_signing_alg: (
        Annotated[_ClientAlgorithm, described("For client assertions. If null, any supported algorithm.")]
        | None
    ) = None
    access_token_format: (
        Annotated[str, OneOf(TOKEN_FORMATS), described("If null, the organization's format.")] | None
    ) = None
    dpop_bound_access_tokens: Annotated[
        bool, described("Rejects token requests without a DPoP proof (RFC 9449 section 5.2).")
    ] = False
    require_pushed_authorization_requests: Annotated[
        bool, described("Rejects authorization requests that were not pushed (RFC 9126).")
    ] = False
    require_pkce: Annotated[
        bool,
        described(
            "Rejects authorization requests without PKCE, also where the setting `oauth.pkce` allows them (RFC 7636)."
        ),
    ] = False
    security_profile: (
        Annotated[
            str,
            OneOf(SECURITY_PROFILES),
            described(
                "`fapi2` enforces the requirements of the FAPI 2.0 Security Profile for clients: private_key_jwt, "
                "pushed authorization requests, DPoP proofs with a nonce, no RS256, HTTPS redirect URIs only, and "
                "refresh tokens that are not rotated."
            ),
        ]
        | None
    ) = None
    resources: Annotated[
        tuple[ResourceIdentifier, ...], Items(MAX_RESOURCES), described("Audiences of its tokens (RFC 8707).")
    ] = ()
    token_exchange: (
        Annotated[
            str,
            OneOf(POLICIES),
            described("What the token exchange grant may do. Requires `clients:trust`."),
        ]
        | None
    ) = None
    app_roles: Annotated[
        tuple[Annotated[Mapping[str, Any], ObjectOf(AppRole)], ...],
        Items(MAX_APP_ROLES, unique=False),
        described(
            "Roles of the app, which are assigned to users and groups and released by the scope `roles`."
        ),
    ] = ()
    claim_mappings: Annotated[
        tuple[Annotated[Mapping[str, Any], ObjectOf(ClaimMapping)], ...],
        Items(MAX_MAPPINGS, unique=False),
        described("Claims about users that the client receives in addition to the standard ones."),
    ] = ()
    software_id: Annotated[
        Annotated[str, Text(100)] | None,
        described("Identifies the client software, the same in all its installations (RFC 7591)."),
    ] = None
    software_version: Annotated[
        Annotated[str, Text(100)] | None, described("The version of the client software (RFC 7591).")
    ] = None
    trust: Annotated[
        str, OneOf(TRUST), described("Values other than `unverified` require `clients:trust`.")
    ] = UNVERIFIED
    approval: (
        Annotated[
            str,
            OneOf(APPROVALS),
            described(
                "The administrators' decision: `review` (members must ask an administrator first), `allowed` (members "
                "may consent), `pre_approved` (users are not asked about `approved_scopes`, only for confidential "
                "clients that are verified), `blocked` (all requests are rejected, and its tokens stay revoked). If "
                "null, the setting `oauth.consent.members_may_allow` decides. Requires `clients:trust`."
            ),
        ]
        | None
    ) = None
    approved_scopes: Annotated[
        _Scopes,
        described("Scopes that need no consent if `approval` is `pre_approved`. Requires `clients:trust`."),
    ] = ()
    status: Annotated[
        str, OneOf(STATUS), described("A disabled client can't get tokens, and its tokens are rejected.")
    ] = "active"
    description: Annotated[
        str,
        Text(1000, min_length=0, multiline=True),
        described("A note for administrators. Users don't see it."),
    ] = ""
    metadata: Annotated[Metadata | None, described("Custom attributes by key. Not shown to users.")] = None

    @property
    def is_public(self) -> bool:
        """Return whether the client has no credentials (RFC 6749 section 2.1)."""
        return self.token_endpoint_auth_method == NONE

    @property
    def uses_secret(self) -> bool:
        """Return whether the client authenticates with a client secret."""
        return self.token_endpoint_auth_method in SECRET_METHODS


FIELDS = ClientMetadata.__struct_fields__
NewClient = create_shape("NewClient", ClientMetadata, required=("name",), without=("status",))
ClientChange = create_shape("ClientChange", ClientMetadata, not_null=("name",))


def complete(sent: Mapping[str, Any], policy: ClientPolicy) -> ClientMetadata:
    """Return the metadata of a new client. Raises InvalidInput with every invalid field."""
    errors = ValidationErrors()
    check_shape(
        errors,
        NewClient,
        sent,
        synonyms=_SYNONYMS,
        read_only=READ_ONLY | {"status"},
        required=_NAME_REQUIRED,
    )
    return _checked(errors, {}, sent, policy)


def change(current: ClientMetadata, sent: Mapping[str, Any], policy: ClientPolicy) -> ClientMetadata:
    """Return the metadata after a change: fields in ``sent`` are replaced, and ``null`` restores the default.

    Raises InvalidInput with every invalid field. Values that the organization no longer allows are accepted as long
    as they are not sent again: a stricter setting must not prevent renaming a client.
    """
    errors = ValidationErrors()
    check_shape(errors, ClientChange, sent, synonyms=_SYNONYMS, read_only=READ_ONLY, required=_NAME_REQUIRED)
    unchanged = {name: getattr(current, name) for name in FIELDS if name not in sent}
    return _checked(errors, unchanged, sent, policy)


def changed_fields(before: ClientMetadata, after: ClientMetadata) -> list[str]:
    """Return the names of the fields that differ."""
    return [name for name in FIELDS if getattr(before, name) != getattr(after, name)]


def _checked(
    errors: ValidationErrors, unchanged: Mapping[str, Any], sent: Mapping[str, Any], policy: ClientPolicy
) -> ClientMetadata:
    given = {name: value for name, value in sent.items() if name in FIELDS and value is not None}
    merged = {**unchanged, **given}
    is_typed = not errors.has_error("type")
    if "type" not in merged or not is_typed:
        # With an invalid type, the other fields are checked as the type that they look like, so that every error is
        # reported at once.
        merged["type"] = derive_type({name: value for name, value in merged.items() if name != "type"})
    _check_uris(errors, merged, given, policy)
    _check_resources(errors, given, policy)
    _check_unique(errors, given, "app_roles", "key")
    _check_unique(errors, given, "claim_mappings", "claim")
    if given.get("claim_mappings") and not errors.has_error("claim_mappings"):
        check_mappings(errors, given["claim_mappings"], policy.attributes)
    _check_approved(errors, merged, given)
    if is_typed:
        _fill_defaults(errors, merged, sent, policy)
        check_coherence(errors, merged)
        _check_policy(errors, merged, frozenset(sent) if unchanged else frozenset(FIELDS), policy)
    errors.raise_if_any()
    for name, shape in _NESTED.items():
        merged[name] = tuple(
            shape.model_validate(entry).model_dump(mode="json") for entry in merged.get(name, ())
        )
    return ClientMetadata(**{name: _frozen(value) for name, value in merged.items()})


def _check_uris(
    errors: ValidationErrors, merged: Mapping[str, Any], given: Mapping[str, Any], policy: ClientPolicy
) -> None:
    for name in _URI_LISTS:
        # The type decides which URIs are valid, so a new type requires a check of the existing URIs.
        if name not in given and not ("type" in given and name in merged):
            continue
        uris = merged[name] if isinstance(merged[name], (list, tuple)) else ()
        if len(uris) > policy.max_redirect_uris:
            message = f"There are {len(uris)} entries, but at most {policy.max_redirect_uris} are allowed."
            errors.add(name, "too_many", message)
            continue
        for position, uri in enumerate(uris):
            problem = redirect_uri_problem(
                uri, client_type=merged["type"], allowed_hosts=policy.redirect_hosts
            )
            errors.add_problem(f"{name}[{position}]", problem)


def _check_resources(errors: ValidationErrors, given: Mapping[str, Any], policy: ClientPolicy) -> None:
    if not policy.base_url or errors.has_error("resources"):
        return
    for position, resource in enumerate(given.get("resources", ())):
        if is_service_url(resource, policy.base_url):
            message = "This URL belongs to this service. Enter the identifier of another API."
            errors.add(f"resources[{position}]", "own_resource", message)


def _check_unique(errors: ValidationErrors, given: Mapping[str, Any], name: str, key: str) -> None:
    seen: set[str] = set()
    if errors.has_error(name):
        return
    for position, entry in enumerate(given.get(name, ())):
        value = entry.get(key) if isinstance(entry, Mapping) else None
        if isinstance(value, str) and value in seen:
            errors.add(f"{name}[{position}].{key}", "duplicate", "Duplicate entry.")
        elif isinstance(value, str):
            seen.add(value)


def _check_approved(errors: ValidationErrors, merged: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    # Only new values are checked: a scope that the client loses later has no effect anyway.
    if errors.has_error("approved_scopes") or errors.has_error("scopes") or "scopes" not in merged:
        return
    for position, name in enumerate(given.get("approved_scopes", ())):
        if name not in merged["scopes"]:
            message = "Not among the client's scopes."
            errors.add(f"approved_scopes[{position}]", "inconsistent", message)


def _fill_defaults(
    errors: ValidationErrors, merged: dict[str, Any], sent: Mapping[str, Any], policy: ClientPolicy
) -> None:
    kind = CLIENT_TYPES[merged["type"]]
    is_default = "token_endpoint_auth_method" not in merged
    is_chosen_now = is_default or "token_endpoint_auth_method" in sent
    is_method_unsettled = is_chosen_now and sent.get("any_secret_method") is None
    if "grant_types" not in merged:
        allowed = tuple(grant for grant in kind.grant_types if grant in policy.grant_types)
        # If the organization forbids the main grant of the type, the error must say so.
        merged["grant_types"] = allowed if kind.grant_types[0] in allowed else kind.grant_types
    if "token_endpoint_auth_method" not in merged:
        fitting = [
            method for method in kind.auth_methods if profile_allows_auth_method(method, merged)
        ] or kind.auth_methods
        usable = [method for method in fitting if method in policy.auth_methods]
        merged["token_endpoint_auth_method"] = (usable or fitting)[0]
    if is_method_unsettled:
        # Nobody chose the method, so libraries may use their own default.
        merged["any_secret_method"] = is_default and merged["token_endpoint_auth_method"] in SECRET_METHODS
    if "response_types" not in merged and not errors.has_error("grant_types"):
        merged["response_types"] = ("code",) if AUTHORIZATION_CODE in merged["grant_types"] else ()
    merged.setdefault("scopes", kind.scopes)


def _check_policy(
    errors: ValidationErrors, merged: Mapping[str, Any], sent: frozenset[str], policy: ClientPolicy
) -> None:
    if "grant_types" in sent and not errors.has_error("grant_types"):
        refused = [grant for grant in merged["grant_types"] if grant not in policy.grant_types]
        if refused:
            errors.add(
                "grant_types", "not_allowed", f"This organization does not allow {', '.join(refused)}."
            )
    method = merged["token_endpoint_auth_method"]
    if "token_endpoint_auth_method" in sent and method not in policy.auth_methods:
        message = f"This organization allows: {', '.join(policy.auth_methods)}."
        errors.add("token_endpoint_auth_method", "not_allowed", message)


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
