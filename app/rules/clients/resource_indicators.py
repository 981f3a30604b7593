"""Resource indicators (RFC 8707): the resources of a token, which scopes it can have for them, and their metadata.

A scope belongs to one resource, to the issuer (OpenID Connect scopes), to the management API, or to no
resource. A token has a resource's scope only if the resource is in its audience, so that no resource gets
more than was meant for it (TK-6).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from msgspec import Struct, field

from app.rules.directory.permissions import ALL_PERMISSIONS
from app.rules.errors import InvalidScope, InvalidTarget, OAuthError
from app.rules.fields import FieldProblem, type_name
from app.rules.scopes import IDENTITY_SCOPES

MAX_IDENTIFIER_LENGTH = 255
MAX_RESOURCES = 10
# Who may get tokens for a resource: every client, clients with access for tokens without a user's consent, or only
# clients with access.
OPEN, APPROVAL, LISTED = "open", "approval", "listed"
ACCESS_POLICIES = (OPEN, APPROVAL, LISTED)
# How the JWT access tokens of a resource are kept: as rows, or not, so that revocation reaches the resource by a status
# list, or never and the token only expires.
STORED, STATUS_LIST, NOT_STORED = "stored", "status_list", "none"
TOKEN_STORAGES = (STORED, STATUS_LIST, NOT_STORED)
# The lifetime of tokens whose revocation a resource does not learn of.
MAX_UNLISTED_SECONDS = 600
_IDENTIFIER = re.compile(r"[a-z][a-z0-9+.-]*:[\x21\x24-\x5b\x5d-\x7e]+")


class KnownResource(Struct, frozen=True):
    """A resource of the organization with its token settings.

    None leaves the choice to client or organization.
    """

    identifier: str
    is_active: bool = True
    access_token_format: str | None = None
    access_token_ttl_seconds: int | None = None
    access_policy: str = APPROVAL
    access_token_storage: str = STORED


class ResourceAccess(Struct, frozen=True):
    """A client's access to a resource.

    ``scopes`` is None once access was withdrawn. Tokens issued before ``not_before`` ended with an earlier withdrawal.
    """

    scopes: frozenset[str] | None
    not_before: datetime | None = None


class Catalog(Struct, frozen=True):
    """The resources of an organization by identifier, the resource of each scope, and when each scope was created."""

    resources: Mapping[str, KnownResource] = field(default_factory=dict)
    owners: Mapping[str, str] = field(default_factory=dict)
    created: Mapping[str, datetime] = field(default_factory=dict)

    def is_disabled(self, identifier: str) -> bool:
        """Return whether the organization has the resource and disabled it."""
        known = self.resources.get(identifier)
        return known is not None and not known.is_active

    def is_offered(self, identifier: str) -> bool:
        """Return whether any client of the organization can request the resource."""
        known = self.resources.get(identifier)
        return known is not None and known.is_active

    def requires_access(self, identifier: str, *, is_consented: bool) -> bool:
        """Return whether only clients with access get tokens for the resource."""
        known = self.resources.get(identifier)
        return known is not None and requires_access(known.access_policy, is_consented=is_consented)

    def select_allowed(self, scopes: Iterable[str], allowed_at: datetime) -> tuple[str, ...]:
        """Return those of the scopes that a user allowed then, in their order.

        A scope that was deleted and created again has the same name, but not what the user was told about it.
        """
        return tuple(scope for scope in scopes if self.created.get(scope, allowed_at) <= allowed_at)

    @property
    def has_jwt(self) -> bool:
        """Return whether a resource uses JWT access tokens."""
        return any(known.access_token_format == "jwt" for known in self.resources.values())

    @property
    def has_status_list(self) -> bool:
        """Return whether a resource learns of revocations by a status list."""
        return any(known.access_token_storage == STATUS_LIST for known in self.resources.values())


class TokenRequester(Struct, frozen=True):
    """The requesting client's resources, scopes and access, with the issuer and the management API.

    ``is_consented`` is False for tokens that no user allowed the client: client credentials and token exchange.
    """

    issuer: str
    management: str
    defaults: Sequence[str] = ()
    client_scopes: Collection[str] = ()
    access: Mapping[str, ResourceAccess] = field(default_factory=dict)
    is_consented: bool = True

    def has_access(self, resource: str, catalog: Catalog) -> bool:
        """Return whether the client can get tokens for the resource, with whatever scopes."""
        if not catalog.requires_access(resource, is_consented=self.is_consented):
            return True
        access = self.access.get(resource)
        return access is not None and access.scopes is not None

    def has_scope_access(self, scope: str, owner: str | None, catalog: Catalog) -> bool:
        """Return whether the client can get tokens with the scope of the resource ``owner``."""
        if owner is None or not catalog.requires_access(owner, is_consented=self.is_consented):
            return True
        access = self.access.get(owner)
        return access is not None and access.scopes is not None and scope in access.scopes


class TokenTarget(Struct, frozen=True):
    """The scopes of a token, in the requested order, and its audience."""

    scopes: tuple[str, ...]
    audience: tuple[str, ...]


def requires_access(policy: str, *, is_consented: bool) -> bool:
    """Return whether only clients with access get tokens for a resource with this policy."""
    return policy == LISTED or (policy == APPROVAL and not is_consented)


def identifier_problem(value: object) -> FieldProblem | None:
    """Return what is wrong with a resource indicator, or None.

    It must be an absolute URI without fragment (RFC 8707 section 2).
    """
    if not isinstance(value, str):
        return FieldProblem("wrong_type", f"A resource must be a string, not {type_name(value)}.")
    if len(value) > MAX_IDENTIFIER_LENGTH or _IDENTIFIER.fullmatch(value) is None:
        limit = f"at most {MAX_IDENTIFIER_LENGTH} characters"
        message = f"A resource must be an absolute URI of {limit} without a fragment (RFC 8707)."
        return FieldProblem("invalid_resource", message)
    return None


def is_service_url(identifier: str, base_url: str) -> bool:
    """Return whether the identifier is a URL of this service, which only its own tokens may have."""
    own, named = base_url.lower(), identifier.lower()
    return named == own or named.startswith((f"{own}/", f"{own}?"))


def parse_resources(text: str) -> tuple[str, ...]:
    """Parse the ``resource`` parameters of a request, separated by spaces. Raises InvalidTarget."""
    asked = tuple(dict.fromkeys(text.split()))
    if len(asked) > MAX_RESOURCES:
        raise InvalidTarget(f"At most {MAX_RESOURCES} resources can be requested at once.")
    if any(identifier_problem(resource) is not None for resource in asked):
        raise InvalidTarget("A resource must be an absolute URI without fragment.")
    return asked


def require_available_resources(asked: Iterable[str], requester: TokenRequester, catalog: Catalog) -> None:
    """Raise InvalidTarget unless the client can request every one of the resources (DC-5).

    It can request the active resources of its organization that it has access to, its own, the issuer, whose resource
    is userinfo, and the management API if it has a scope of it.
    """
    for resource in asked:
        if resource == requester.issuer:
            continue
        if not requester.has_access(resource, catalog):
            raise _without_access(
                InvalidTarget("This client cannot get tokens for a requested resource."),
                resource,
                "resource_not_allowed",
                catalog,
                received=resource,
            )
        if catalog.is_offered(resource):
            continue
        if resource in requester.defaults and not catalog.is_disabled(resource):
            continue
        if resource == requester.management and any(
            name in ALL_PERMISSIONS for name in requester.client_scopes
        ):
            continue
        raise InvalidTarget("This client cannot get tokens for a requested resource.").with_cause(
            "resource_not_allowed", received=resource, expected=requester.defaults
        )


def resolve_target(
    scopes: Iterable[str], asked: Sequence[str], requester: TokenRequester, catalog: Catalog
) -> TokenTarget:
    """Return the scopes that fit the requested resources, and the audience. Raises InvalidTarget, InvalidScope.

    Without requested resources, the audience consists of the resources of the requested scopes, and the
    client's default ones for scopes without a resource. For ``openid`` the issuer is always in the audience,
    because userinfo is its resource.
    """
    require_available_resources(asked, requester, catalog)
    owned = [(scope, find_scope_owner(scope, requester, catalog)) for scope in scopes]
    if asked:
        granted = [(scope, owner) for scope, owner in owned if owner in {None, requester.issuer, *asked}]
        audience = list(asked)
    else:
        granted = [
            (scope, owner) for scope, owner in owned if owner is None or not catalog.is_disabled(owner)
        ]
        audience = _implied([owner for _, owner in granted], requester, catalog)
    for scope, owner in granted:
        if owner is not None and not requester.has_scope_access(scope, owner, catalog):
            raise _without_access(
                InvalidScope("The client does not have access to one of these scopes."),
                owner,
                "scope_not_allowed",
                catalog,
                received=scope,
            )
    if any(scope == "openid" for scope, _ in granted):
        audience.append(requester.issuer)
    audience = list(dict.fromkeys(audience))
    if len(audience) > MAX_RESOURCES + 2:
        raise InvalidTarget(
            "These scopes belong to too many resources for one token. Request a specific resource."
        )
    return TokenTarget(tuple(scope for scope, _ in granted), tuple(audience))


def exclude_declined(
    resources: Iterable[str],
    requested: Iterable[str],
    allowed: Iterable[str],
    requester: TokenRequester,
    catalog: Catalog,
) -> tuple[str, ...]:
    """Return the resources of a token without those whose every requested scope the user declined.

    ``allowed`` are the scopes that remain of ``requested``. If none of the resources remains, the audience that the
    allowed scopes imply is returned where a default resource in it was declined: the issuer alone if that was all.
    """
    owners = [find_scope_owner(scope, requester, catalog) for scope in allowed]
    declined = {find_scope_owner(scope, requester, catalog) for scope in requested}
    declined -= {*owners, requester.issuer}
    kept = tuple(resource for resource in resources if resource not in declined)
    implied = [] if kept else _implied(owners, requester, catalog)
    if declined.isdisjoint(implied):
        return kept
    return tuple(resource for resource in implied if resource not in declined) or (requester.issuer,)


def accessible_scopes(scopes: Iterable[str], requester: TokenRequester, catalog: Catalog) -> tuple[str, ...]:
    """Return the scopes that the client has access to, in their order."""
    return tuple(
        scope
        for scope in scopes
        if requester.has_scope_access(scope, find_scope_owner(scope, requester, catalog), catalog)
    )


def access_of_token(
    scopes: Collection[str], audience: Iterable[str], requester: TokenRequester, catalog: Catalog
) -> tuple[bool, datetime | None]:
    """Return whether the client still has the access that a token was issued with, and since when.

    A token that was issued before that time is revoked. None means that the time does not matter.
    """
    cutoffs = []
    for resource in audience:
        if not catalog.requires_access(resource, is_consented=requester.is_consented):
            continue
        access = requester.access.get(resource)
        owned = {scope for scope in scopes if catalog.owners.get(scope) == resource}
        if access is None or access.scopes is None or not owned <= access.scopes:
            return False, None
        if access.not_before is not None:
            cutoffs.append(access.not_before)
    return True, max(cutoffs, default=None)


def require_some_access(
    scopes: Sequence[str], accessible: Sequence[str], requester: TokenRequester, catalog: Catalog
) -> None:
    """Raise InvalidScope if the client has scopes, but access to none of them."""
    if scopes and not accessible:
        raise _without_access(
            InvalidScope("The client does not have access to any of its scopes."),
            find_scope_owner(scopes[0], requester, catalog) or "",
            "scope_not_allowed",
            catalog,
            received=" ".join(scopes),
        )


def _without_access(
    error: OAuthError, resource: str, otherwise: str, catalog: Catalog, *, received: str
) -> OAuthError:
    """Return the error with its cause. A resource for listed clients is unknown to all others."""
    known = catalog.resources.get(resource)
    cause = otherwise if known is None or known.access_policy == LISTED else "access_not_granted"
    return error.with_cause(cause, received=received)


def find_scope_owner(scope: str, requester: TokenRequester, catalog: Catalog) -> str | None:
    """Return the resource of the scope, or None for a scope that is valid at any resource."""
    if scope in ALL_PERMISSIONS:
        return requester.management
    if scope in IDENTITY_SCOPES:
        # Older organizations may have an API with a scope of the name ``groups`` or ``roles``.
        return catalog.owners.get(scope, requester.issuer)
    return catalog.owners.get(scope)


def require_authorized_resources(asked: Iterable[str], authorized: Collection[str]) -> None:
    """Raise InvalidTarget if a token request exceeds the authorized resources (RFC 8707 section 2.2)."""
    if any(resource not in authorized for resource in asked):
        raise InvalidTarget("A requested resource was not authorized.")


def choose_token_format(audience: Iterable[str], catalog: Catalog, otherwise: str) -> str:
    """Return ``opaque`` or ``jwt`` as the resources require, opaque if they differ, or else ``otherwise``."""
    wanted = [known.access_token_format for known in _known(audience, catalog) if known.access_token_format]
    if not wanted:
        return otherwise
    return "jwt" if all(chosen == "jwt" for chosen in wanted) else "opaque"


def choose_token_lifetime(
    audience: Iterable[str], catalog: Catalog, otherwise: int, *, max_seconds: int
) -> int:
    """Return the shortest token lifetime that a resource requires, in seconds.

    It is ``otherwise`` if none does, and at most ``max_seconds``.
    """
    wanted = [
        known.access_token_ttl_seconds
        for known in _known(audience, catalog)
        if known.access_token_ttl_seconds
    ]
    return min([*wanted, max_seconds]) if wanted else otherwise


def choose_token_storage(audience: Collection[str], catalog: Catalog) -> tuple[str, bool]:
    """Return how a JWT for the audience is kept, and whether it is in a status list.

    It is stored if any of the audience needs that, such as userinfo, and listed if any of it reads status lists.
    """
    known = _known(audience, catalog)
    wanted = {resource.access_token_storage for resource in known}
    if len(known) < len(audience):
        wanted.add(STORED)
    storage = next((name for name in TOKEN_STORAGES if name in wanted), STORED)
    return storage, STATUS_LIST in wanted


def has_unlisted(audience: Iterable[str], catalog: Catalog) -> bool:
    """Return whether any of the audience learns of no revocation, whatever the others do."""
    return any(known.access_token_storage == NOT_STORED for known in _known(audience, catalog))


def _implied(owners: list[str | None], requester: TokenRequester, catalog: Catalog) -> list[str]:
    if owners and all(owner == requester.management for owner in owners):
        return [requester.management]
    named = [owner for owner in owners if owner is not None and owner != requester.issuer]
    is_for_others = any(owner != requester.management for owner in named)
    # A default resource is added only for scopes that may be meant for it, not for scopes of another resource.
    if None in owners or not is_for_others:
        defaults = [
            resource
            for resource in requester.defaults
            if not catalog.is_disabled(resource) and requester.has_access(resource, catalog)
        ]
        named += defaults or ([] if is_for_others else [requester.issuer])
    return named


def _known(audience: Iterable[str], catalog: Catalog) -> list[KnownResource]:
    return [catalog.resources[resource] for resource in audience if resource in catalog.resources]


WELL_KNOWN = "/.well-known/oauth-protected-resource"


def build_metadata(
    resource: str, *, issuer: str, scopes: Iterable[str], name: str | None = None
) -> dict[str, Any]:
    """Return the document that the resource serves at ``metadata_url`` (RFC 9728 section 2)."""
    document: dict[str, Any] = {
        "resource": resource,
        "authorization_servers": [issuer],
        "scopes_supported": list(scopes),
        "bearer_methods_supported": ["header"],
    }
    if not document["scopes_supported"]:
        del document["scopes_supported"]
    if name is not None:
        document["resource_name"] = name
    return document


def metadata_url(resource: str) -> str | None:
    """Return the URL of the document (RFC 9728 section 3.1), or None if the resource is not a web URL.

    ``http`` is accepted for local development.
    """
    parts = urlsplit(resource)
    if parts.scheme not in {"https", "http"} or not parts.netloc:
        return None
    path = "" if parts.path == "/" else parts.path
    return urlunsplit((parts.scheme, parts.netloc, WELL_KNOWN + path, parts.query, ""))


def build_challenge(url: str) -> str:
    """Return the WWW-Authenticate header of the resource's 401 responses (RFC 9728 section 5.1)."""
    return f'Bearer resource_metadata="{url}"'
