"""Fields of a resource (an API) and of its scopes, declared once for requests, JSON and the OpenAPI document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from msgspec import Struct

from app.rules.clients.client_types import TOKEN_FORMATS, scope_problem
from app.rules.clients.resource_indicators import (
    ACCESS_POLICIES,
    APPROVAL,
    MAX_IDENTIFIER_LENGTH,
    MAX_UNLISTED_SECONDS,
    NOT_STORED,
    STORED,
    TOKEN_STORAGES,
    identifier_problem,
    is_service_url,
)
from app.rules.directory.permissions import ALL_PERMISSIONS
from app.rules.fields import ValidationErrors
from app.rules.languages.translation import lazy_gettext
from app.rules.scopes import IDENTITY_SCOPES, MAX_SCOPE_LENGTH
from app.rules.shapes import (
    Between,
    Items,
    OneOf,
    Rule,
    Shape,
    Text,
    check_shape,
    create_shape,
    described,
)

STATUS = ("active", "disabled")
MIN_TTL_SECONDS, MAX_TTL_SECONDS, MAX_JWT_TTL_SECONDS = 60, 86_400, 3_600
MAX_SCOPES = 100
READ_ONLY = frozenset({"id", "organization_id", "created_at", "created_by", "owner_id", "updated_at"})
_SYNONYMS = {
    "uri": "identifier",
    "audience": "identifier",
    "resource": "identifier",
    "scope": "scopes",
    "permissions": "scopes",
    "access_token_ttl": "access_token_ttl_seconds",
    "enabled": "status",
}
_REQUIRED = {
    "identifier": "Enter an identifier for the API, such as https://api.example.com.",
    "name": "Enter a name for the API.",
}
ScopeTitle = Annotated[str, Text(200), described("A verb and its object, in the user's words.")]
ScopeDescription = Annotated[str, Text(1000), described("What the scope allows, for users.")]


def missing_title_warning(name: str) -> str:
    """Return the warning for a scope that has no title."""
    return f'The scope "{name}" has no title. The consent page shows its name instead.'


_ScopeName = Annotated[str, Rule(scope_problem, (("minLength", 1), ("maxLength", MAX_SCOPE_LENGTH)))]


class ResourceScope(Shape):
    """A scope of a resource."""

    name: Annotated[
        _ScopeName,
        described("The scope value in requests and tokens."),
    ]
    title: ScopeTitle | None = None
    description: ScopeDescription | None = None


class ScopeText(Shape):
    """The text that the consent page shows for a scope."""

    title: ScopeTitle | None = None
    description: ScopeDescription | None = None


class ScopeWords(Struct, frozen=True):
    """A scope of a resource; without a title, the consent page shows its name."""

    name: str
    title: str | None = None
    description: str | None = None


class ResourceFields(Struct, frozen=True, kw_only=True):
    """The fields of a resource. With None, the client or the organization decides about format and lifetime."""

    identifier: Annotated[
        str,
        Rule(identifier_problem, (("minLength", 1), ("maxLength", MAX_IDENTIFIER_LENGTH))),
        described("The resource indicator (RFC 8707) and audience of its tokens. It can't be changed."),
    ]
    name: Annotated[str, Text(100), described("The name that users see when they are asked for consent.")]
    description: Annotated[
        str,
        Text(1000, min_length=0, multiline=True),
        described("A note for administrators. Users don't see it."),
    ] = ""
    access_token_format: (
        Annotated[str, OneOf(TOKEN_FORMATS), described("If null, the client's or organization's format.")]
        | None
    ) = None
    access_token_ttl_seconds: (
        Annotated[
            int,
            Between(MIN_TTL_SECONDS, MAX_TTL_SECONDS, "seconds"),
            described(f"If null, the organization's lifetime. For JWTs, at most {MAX_JWT_TTL_SECONDS}."),
        ]
        | None
    ) = None
    access_token_storage: Annotated[
        str,
        OneOf(TOKEN_STORAGES),
        described(
            "How JWT access tokens are kept: `stored`; not stored, with revocation by a `status_list`; or with `none` "
            f"not stored and valid until they expire, after at most {MAX_UNLISTED_SECONDS} seconds. Introspection "
            "always knows. Other than `stored` needs the format `jwt` and the setting "
            "`oauth.access_token.allow_unstored`."
        ),
    ] = STORED
    scopes: Annotated[tuple[ScopeWords, ...], described("All scopes of the resource.")] = ()
    status: Annotated[str, OneOf(STATUS), described("No tokens are issued for a disabled resource.")] = (
        "active"
    )
    access_policy: Annotated[
        str,
        OneOf(ACCESS_POLICIES),
        described(
            "Which clients can get tokens: with `open` all of them, with `approval` all of them with a user's "
            "consent, but only those with access by client credentials and token exchange, with `listed` only "
            "those with access. Others can't see a resource for listed clients."
        ),
    ] = APPROVAL

    @property
    def warnings(self) -> list[str]:
        """A warning for each scope without a title."""
        return [missing_title_warning(scope.name) for scope in self.scopes if scope.title is None]


FIELDS = ResourceFields.__struct_fields__
_SentScopes = (
    Annotated[
        tuple[ResourceScope, ...],
        Items(MAX_SCOPES, unique=False),
        described("All scopes of the resource. Scopes that are left out are deleted."),
    ]
    | None
)
NewResource = create_shape(
    "NewResource",
    ResourceFields,
    required=("identifier", "name"),
    without=("scopes",),
    extra={"scopes": _SentScopes},
)
ResourceChange = create_shape(
    "ResourceChange",
    ResourceFields,
    not_null=("identifier", "name"),
    without=("scopes",),
    extra={"scopes": _SentScopes},
)


def complete(sent: Mapping[str, Any], base_url: str, *, allow_unstored: bool = False) -> ResourceFields:
    """Return the fields of a new resource. Raises InvalidInput with every invalid field.

    ``allow_unstored`` is whether the organization lets resources keep their tokens unstored.
    """
    errors = ValidationErrors()
    check_shape(errors, NewResource, sent, synonyms=_SYNONYMS, read_only=READ_ONLY, required=_REQUIRED)
    return _checked(errors, None, sent, base_url, allow_unstored=allow_unstored)


def change(
    current: ResourceFields, sent: Mapping[str, Any], base_url: str, *, allow_unstored: bool = False
) -> ResourceFields:
    """Return the fields after a change: fields in ``sent`` are replaced, and ``null`` restores the default.

    The identifier can't change: it is in tokens and in the configuration of APIs. ``allow_unstored`` is whether the
    organization lets resources keep their tokens unstored; one that already does can keep it. So can one of an earlier
    release its scopes whose names are reserved since. Raises InvalidInput with every invalid field.
    """
    errors = ValidationErrors()
    if sent.get("identifier", current.identifier) != current.identifier:
        message = "The identifier can't be changed. Create another API instead."
        errors.add("identifier", "immutable", message)
    check_shape(errors, ResourceChange, sent, synonyms=_SYNONYMS, read_only=READ_ONLY, required=_REQUIRED)
    changes = {name: value for name, value in sent.items() if name != "identifier"}
    allowed = allow_unstored or current.access_token_storage == sent.get("access_token_storage")
    return _checked(errors, current, changes, base_url, allow_unstored=allowed)


def changed_fields(before: ResourceFields, after: ResourceFields) -> list[str]:
    """Return the names of the fields that differ. The order of scopes has no meaning."""
    return [name for name in FIELDS if _compared(before, name) != _compared(after, name)]


def _compared(fields: ResourceFields, name: str) -> Any:
    return frozenset(fields.scopes) if name == "scopes" else getattr(fields, name)


def _checked(
    errors: ValidationErrors,
    current: ResourceFields | None,
    sent: Mapping[str, Any],
    base_url: str,
    *,
    allow_unstored: bool,
) -> ResourceFields:
    unchanged = (
        {} if current is None else {name: getattr(current, name) for name in FIELDS if name not in sent}
    )
    given = {name: value for name, value in sent.items() if name in FIELDS and value is not None}
    identifier = given.get("identifier")
    if isinstance(identifier, str) and is_service_url(identifier, base_url):
        message = "This URL belongs to this service. Enter the identifier of another API."
        errors.add("identifier", "own_resource", message)
    if "scopes" in given:
        given["scopes"] = _scopes(errors, given["scopes"], () if current is None else current.scopes)
    merged = {**unchanged, **given}
    if not errors.has_error("access_token_ttl_seconds"):
        _check_jwt_lifetime(errors, merged)
    if not errors.has_error("access_token_storage"):
        _check_storage(errors, merged, is_allowed=allow_unstored or "access_token_storage" not in given)
    errors.raise_if_any()
    return ResourceFields(**merged)


def _check_jwt_lifetime(errors: ValidationErrors, merged: Mapping[str, Any]) -> None:
    seconds = merged.get("access_token_ttl_seconds")
    if merged.get("access_token_format") == "jwt" and seconds is not None and seconds > MAX_JWT_TTL_SECONDS:
        # An API that does not use introspection accepts a revoked JWT until it expires.
        message = lazy_gettext(
            "JWT access tokens can be valid for at most %(max)s seconds.", max=MAX_JWT_TTL_SECONDS
        )
        errors.add("access_token_ttl_seconds", "out_of_range", message)


def _check_storage(errors: ValidationErrors, merged: Mapping[str, Any], *, is_allowed: bool) -> None:
    storage, seconds = merged.get("access_token_storage", STORED), merged.get("access_token_ttl_seconds")
    if storage == STORED:
        return
    if not is_allowed:
        message = (
            "The organization stores all access tokens. Allow APIs not to store JWTs in its settings first."
        )
        errors.add("access_token_storage", "not_allowed", message)
    elif merged.get("access_token_format") != "jwt":
        errors.add(
            "access_token_storage", "not_allowed", "Only JWTs can be kept like this. Choose the format jwt."
        )
    elif storage == NOT_STORED and seconds is not None and seconds > MAX_UNLISTED_SECONDS:
        message = lazy_gettext(
            "Tokens that are neither stored nor listed are valid for at most %(max)s seconds.",
            max=MAX_UNLISTED_SECONDS,
        )
        errors.add("access_token_ttl_seconds", "out_of_range", message)


def _scopes(errors: ValidationErrors, sent: Any, current: Sequence[ScopeWords]) -> tuple[ScopeWords, ...]:
    reserved = {*ALL_PERMISSIONS, *IDENTITY_SCOPES}.difference(scope.name for scope in current)
    found: dict[str, ScopeWords] = {}
    for position, entry in enumerate(sent if isinstance(sent, (list, tuple)) else ()):
        name = entry.get("name") if isinstance(entry, dict) else None
        if not isinstance(name, str):
            continue
        if name in found:
            errors.add(f"scopes[{position}].name", "duplicate", "Duplicate entry.")
        if name in reserved:
            errors.add(f"scopes[{position}].name", "reserved", "This scope is reserved for the service.")
        found[name] = ScopeWords(name, entry.get("title"), entry.get("description"))
    return tuple(found.values())
