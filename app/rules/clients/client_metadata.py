"""Client metadata (RFC 7591 and OpenID Connect Registration): defaults, cross-checks, one message a field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import fields as fields_of
from typing import Any

from app.rules.clients.client_coherence import check_coherence
from app.rules.clients.client_fields import CHECKS, check_list
from app.rules.clients.client_requirements import profile_allows_auth_method
from app.rules.clients.client_types import AUTHORIZATION_CODE, CLIENT_TYPES, NONE, SECRET_METHODS, derive_type
from app.rules.clients.redirect_uris import redirect_uri_problem
from app.rules.clients.resource_indicators import is_service_url
from app.rules.fields import Findings, Problem, find_unknown

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
        "updated_at",
        "last_used_at",
        "source",
        "metadata_document_uri",
    }
)
_URI_LISTS = ("redirect_uris", "post_logout_redirect_uris")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientMetadata:
    """What a client says of itself and what the organization decided about it; complete, every default filled in.

    ``scopes`` is all it may ask for; ``optional_scopes`` are those of them that a user may leave out at consent.
    ``approval`` is what administrators decided about it, and ``approved_scopes`` what of it nobody is asked about
    where that is "pre_approved".
    None in ``id_token_signed_response_alg`` and ``access_token_format`` means the organization's own choice.
    """

    name: str
    type: str
    redirect_uris: tuple[str, ...] = ()
    post_logout_redirect_uris: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()
    optional_scopes: tuple[str, ...] = ()
    grant_types: tuple[str, ...] = ()
    response_types: tuple[str, ...] = ()
    token_endpoint_auth_method: str = NONE
    jwks: Mapping[str, Any] | None = None
    jwks_uri: str | None = None
    client_uri: str | None = None
    logo_uri: str | None = None
    policy_uri: str | None = None
    tos_uri: str | None = None
    contacts: tuple[str, ...] = ()
    backchannel_logout_uri: str | None = None
    backchannel_logout_session_required: bool = False
    initiate_login_uri: str | None = None
    subject_type: str = "public"
    sector_identifier_uri: str | None = None
    default_max_age: int | None = None
    require_auth_time: bool = False
    default_acr_values: tuple[str, ...] = ()
    id_token_signed_response_alg: str | None = None
    userinfo_signed_response_alg: str | None = None
    introspection_signed_response_alg: str | None = None
    request_object_signing_alg: str | None = None
    require_signed_request_object: bool = False
    token_endpoint_auth_signing_alg: str | None = None
    access_token_format: str | None = None
    dpop_bound_access_tokens: bool = False
    require_pushed_authorization_requests: bool = False
    security_profile: str | None = None
    resources: tuple[str, ...] = ()
    token_exchange: str | None = None
    software_id: str | None = None
    software_version: str | None = None
    trust: str = "unverified"
    approval: str | None = None
    approved_scopes: tuple[str, ...] = ()
    status: str = "active"
    description: str = ""
    metadata: Mapping[str, str] | None = None

    @property
    def is_public(self) -> bool:
        """It keeps no secret (RFC 6749 section 2.1)."""
        return self.token_endpoint_auth_method == NONE

    @property
    def uses_secret(self) -> bool:
        """It authenticates by a client secret."""
        return self.token_endpoint_auth_method in SECRET_METHODS


FIELDS = tuple(field.name for field in fields_of(ClientMetadata))


@dataclass(frozen=True, slots=True)
class ClientPolicy:
    """What the organization's settings allow its clients."""

    grant_types: tuple[str, ...]
    auth_methods: tuple[str, ...]
    redirect_hosts: tuple[str, ...] = ()
    most_redirect_uris: int = 50
    base_url: str = ""

    @classmethod
    def of_settings(cls, settings: Mapping[str, Any], base_url: str = "") -> ClientPolicy:
        """The part of an effective settings document that is about clients; ``base_url`` is the service's own."""
        oauth = settings["oauth"]
        return cls(
            grant_types=tuple(oauth["grant_types"]),
            auth_methods=tuple(oauth["clients"]["token_endpoint_auth_methods"]),
            redirect_hosts=tuple(oauth["redirect_uris"]["allowed_hosts"]),
            most_redirect_uris=oauth["redirect_uris"]["max_per_client"],
            base_url=base_url,
        )


def complete(sent: Mapping[str, Any], policy: ClientPolicy) -> ClientMetadata:
    """The metadata of a new client. Raises InvalidInput naming every wrong field at once."""
    findings = Findings()
    find_unknown(findings, sent, FIELDS, synonyms=_SYNONYMS, read_only=READ_ONLY | {"status"})
    if sent.get("name") is None:
        findings.add("name", "required", "A client needs a name.")
    return _checked(findings, {}, sent, policy)


def change(current: ClientMetadata, sent: Mapping[str, Any], policy: ClientPolicy) -> ClientMetadata:
    """The metadata after a change: what is sent is replaced, ``null`` returns to the default, the rest stays.

    Raises InvalidInput naming every wrong field at once. What the organization no longer allows stays where it
    is not sent: a tightened setting must not stop a client from being renamed.
    """
    findings = Findings()
    find_unknown(findings, sent, FIELDS, synonyms=_SYNONYMS, read_only=READ_ONLY)
    if "name" in sent and sent["name"] is None:
        findings.add("name", "required", "A client needs a name.")
    kept = {name: getattr(current, name) for name in FIELDS if name not in sent}
    return _checked(findings, kept, sent, policy)


def changed_fields(before: ClientMetadata, after: ClientMetadata) -> list[str]:
    """The names of the fields that differ, in their order."""
    return [name for name in FIELDS if getattr(before, name) != getattr(after, name)]


def to_document(client: ClientMetadata) -> dict[str, Any]:
    """What is stored beside name, type, trust and status."""
    values = {
        name: getattr(client, name) for name in FIELDS if name not in ("name", "type", "trust", "status")
    }
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def from_document(document: Mapping[str, Any], **columns: str) -> ClientMetadata:
    """The metadata as it was stored; ``columns`` are name, type, trust and status.

    A field that an older release did not know has its default.
    """
    values = {key: _frozen(document[key]) for key in FIELDS if key in document}
    return ClientMetadata(**{**values, **columns})


def _checked(
    findings: Findings, kept: Mapping[str, Any], sent: Mapping[str, Any], policy: ClientPolicy
) -> ClientMetadata:
    given = {name: value for name, value in sent.items() if name in FIELDS and value is not None}
    for name, value in given.items():
        if name in CHECKS:
            CHECKS[name](findings, name, value)
    merged = {**kept, **given}
    is_typed = not findings.touches("type")
    if "type" not in merged or not is_typed:
        # Under a type that is none, the rest is judged as what it looks like: every wrong field is named at once.
        merged["type"] = derive_type({name: value for name, value in merged.items() if name != "type"})
    _check_uris(findings, merged, given, policy)
    _check_resources(findings, given, policy)
    _check_approved(findings, merged, given)
    if is_typed:
        _fill_defaults(findings, merged, policy)
        check_coherence(findings, merged)
        _check_policy(findings, merged, frozenset(sent) if kept else frozenset(FIELDS), policy)
    findings.raise_if_any()
    return ClientMetadata(**{name: _frozen(value) for name, value in merged.items()})


def _check_uris(
    findings: Findings, merged: Mapping[str, Any], given: Mapping[str, Any], policy: ClientPolicy
) -> None:
    def problem(item: Any) -> Problem | None:
        return redirect_uri_problem(item, client_type=merged["type"], allowed_hosts=policy.redirect_hosts)

    for name in _URI_LISTS:
        if name in given or ("type" in given and name in merged):
            check_list(findings, name, merged[name], problem, most=policy.most_redirect_uris)


def _check_resources(findings: Findings, given: Mapping[str, Any], policy: ClientPolicy) -> None:
    if not policy.base_url or findings.touches("resources"):
        return
    for position, resource in enumerate(given.get("resources", ())):
        if is_service_url(resource, policy.base_url):
            message = "This is an address of the service itself: its tokens are for it alone."
            findings.add(f"resources[{position}]", "own_resource", message)


def _check_approved(findings: Findings, merged: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    # What stands is not judged again: a scope that the client loses later is lost to everybody anyway.
    if findings.touches("approved_scopes") or findings.touches("scopes") or "scopes" not in merged:
        return
    for position, name in enumerate(given.get("approved_scopes", ())):
        if name not in merged["scopes"]:
            message = "This is not among the client's scopes."
            findings.add(f"approved_scopes[{position}]", "inconsistent", message)


def _fill_defaults(findings: Findings, merged: dict[str, Any], policy: ClientPolicy) -> None:
    kind = CLIENT_TYPES[merged["type"]]
    if "grant_types" not in merged:
        allowed = tuple(grant for grant in kind.grant_types if grant in policy.grant_types)
        # Where the organization forbids what the type lives by, the refusal must say so.
        merged["grant_types"] = allowed if kind.grant_types[0] in allowed else kind.grant_types
    if "token_endpoint_auth_method" not in merged:
        fitting = [
            method for method in kind.auth_methods if profile_allows_auth_method(method, merged)
        ] or kind.auth_methods
        usable = [method for method in fitting if method in policy.auth_methods]
        merged["token_endpoint_auth_method"] = (usable or fitting)[0]
    if "response_types" not in merged and not findings.touches("grant_types"):
        merged["response_types"] = ("code",) if AUTHORIZATION_CODE in merged["grant_types"] else ()
    merged.setdefault("scopes", kind.scopes)


def _check_policy(
    findings: Findings, merged: Mapping[str, Any], sent: frozenset[str], policy: ClientPolicy
) -> None:
    if "grant_types" in sent and not findings.touches("grant_types"):
        refused = [grant for grant in merged["grant_types"] if grant not in policy.grant_types]
        if refused:
            findings.add(
                "grant_types", "not_allowed", f"This organization does not allow {', '.join(refused)}."
            )
    method = merged["token_endpoint_auth_method"]
    if "token_endpoint_auth_method" in sent and method not in policy.auth_methods:
        message = f"This organization allows: {', '.join(policy.auth_methods)}."
        findings.add("token_endpoint_auth_method", "not_allowed", message)


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
