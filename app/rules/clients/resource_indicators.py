"""Resource indicators (RFC 8707): which resources a token is for, and what that leaves of its scopes.

A scope belongs to one resource, to the issuer (OpenID Connect's own), to the management API, or to none. A token holds
a resource's scope only with that resource in its audience, so that no resource gets more than was meant for it (TK-6).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from app.rules.directory.permissions import ALL_PERMISSIONS
from app.rules.fields import Problem, type_name
from app.rules.oauth_errors import InvalidTarget
from app.rules.scopes import IDENTITY_SCOPES

LONGEST = 255
MOST = 10
_IDENTIFIER = re.compile(r"[a-z][a-z0-9+.-]*:[\x21\x24-\x5b\x5d-\x7e]+")


@dataclass(frozen=True, slots=True)
class KnownResource:
    """A resource of the organization, as far as its tokens are concerned; None leaves the choice to others."""

    identifier: str
    is_active: bool = True
    access_token_format: str | None = None
    access_token_ttl_seconds: int | None = None


@dataclass(frozen=True, slots=True)
class Catalog:
    """The resources of an organization by identifier, and to which of them a scope belongs."""

    resources: Mapping[str, KnownResource] = field(default_factory=dict)
    owners: Mapping[str, str] = field(default_factory=dict)

    def is_disabled(self, identifier: str) -> bool:
        """Whether the organization knows the resource and gives no tokens for it now."""
        known = self.resources.get(identifier)
        return known is not None and not known.is_active

    def is_offered(self, identifier: str) -> bool:
        """Whether any client of the organization may ask for the resource."""
        known = self.resources.get(identifier)
        return known is not None and known.is_active

    @property
    def has_jwt(self) -> bool:
        """Whether some resource wants JWT access tokens."""
        return any(known.access_token_format == "jwt" for known in self.resources.values())


@dataclass(frozen=True, slots=True)
class Asking:
    """Who asks for a token: its own resources, the issuer, the management API, and what it was registered for."""

    issuer: str
    management: str
    defaults: Sequence[str] = ()
    client_scopes: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Target:
    """What a token will hold: scopes in the order asked for, and its audience."""

    scopes: tuple[str, ...]
    audience: tuple[str, ...]


def identifier_problem(value: object) -> Problem | None:
    """What is wrong with a resource indicator: an absolute URI without fragment (RFC 8707 section 2)."""
    if not isinstance(value, str):
        return Problem("wrong_type", f"A resource must be a string, not {type_name(value)}.")
    if len(value) > LONGEST or _IDENTIFIER.fullmatch(value) is None:
        message = (
            f"A resource is an absolute URI of at most {LONGEST} characters without fragment (RFC 8707)."
        )
        return Problem("invalid_resource", message)
    return None


def is_own_address(identifier: str, base_url: str) -> bool:
    """Whether it names the service itself, whose tokens are for it alone."""
    own, named = base_url.lower(), identifier.lower()
    return named == own or named.startswith((f"{own}/", f"{own}?"))


def parse_resources(text: str) -> tuple[str, ...]:
    """The ``resource`` parameters of a request, as ``wire`` hands them on; each once. Raises InvalidTarget."""
    asked = tuple(dict.fromkeys(text.split()))
    if len(asked) > MOST:
        raise InvalidTarget(f"At most {MOST} resources can be asked for at once.")
    if any(identifier_problem(resource) is not None for resource in asked):
        raise InvalidTarget("A resource is an absolute URI without fragment.")
    return asked


def require_known(asked: Iterable[str], asking: Asking, catalog: Catalog) -> None:
    """Raise InvalidTarget unless every resource asked for is one that this client may ask for (DC-5).

    Those are the active ones of its organization, its own, and the management API where it holds a scope of it.
    """
    for resource in asked:
        if catalog.is_offered(resource):
            continue
        if resource in asking.defaults and not catalog.is_disabled(resource):
            continue
        if resource == asking.management and any(name in ALL_PERMISSIONS for name in asking.client_scopes):
            continue
        raise InvalidTarget("A resource was asked for that this client cannot have tokens for.")


def settle(scopes: Iterable[str], asked: Sequence[str], asking: Asking, catalog: Catalog) -> Target:
    """The scopes that fit the resources asked for, and the audience. Raises InvalidTarget.

    Without any asked for, the resources are those whose scopes are asked for, and the client's default ones for
    scopes that belong to none. The issuer is in the audience for ``openid``, whatever else the token is for:
    userinfo is its own resource.
    """
    require_known(asked, asking, catalog)
    owned = [(scope, owner_of(scope, asking, catalog)) for scope in scopes]
    if asked:
        kept = [(scope, owner) for scope, owner in owned if owner in {None, asking.issuer, *asked}]
        audience = list(asked)
    else:
        kept = [(scope, owner) for scope, owner in owned if owner is None or not catalog.is_disabled(owner)]
        audience = _implied([owner for _, owner in kept], asking, catalog)
    if any(scope == "openid" for scope, _ in kept):
        audience.append(asking.issuer)
    audience = list(dict.fromkeys(audience))
    if len(audience) > MOST + 2:
        raise InvalidTarget("These scopes belong to too many resources for one token: name the resource.")
    return Target(tuple(scope for scope, _ in kept), tuple(audience))


def owner_of(scope: str, asking: Asking, catalog: Catalog) -> str | None:
    """The resource that the scope belongs to; None for one that means something at any."""
    if scope in ALL_PERMISSIONS:
        return asking.management
    if scope in IDENTITY_SCOPES:
        return asking.issuer
    return catalog.owners.get(scope)


def require_within(asked: Iterable[str], authorized: Collection[str]) -> None:
    """Raise InvalidTarget when a token request asks for more than was authorized (RFC 8707 section 2.2)."""
    if any(resource not in authorized for resource in asked):
        raise InvalidTarget("A resource was asked for that was not authorized.")


def format_of(audience: Iterable[str], catalog: Catalog, otherwise: str) -> str:
    """``opaque`` or ``jwt``: what the resources want, opaque where they differ; ``otherwise`` where none says."""
    wanted = [known.access_token_format for known in _known(audience, catalog) if known.access_token_format]
    if not wanted:
        return otherwise
    return "jwt" if all(chosen == "jwt" for chosen in wanted) else "opaque"


def seconds_of(audience: Iterable[str], catalog: Catalog, otherwise: int, *, most: int) -> int:
    """The shortest life that a resource of the audience wants, ``otherwise`` where none says; at most ``most``."""
    wanted = [
        known.access_token_ttl_seconds
        for known in _known(audience, catalog)
        if known.access_token_ttl_seconds
    ]
    return min([*wanted, most]) if wanted else otherwise


def _implied(owners: list[str | None], asking: Asking, catalog: Catalog) -> list[str]:
    if owners and all(owner == asking.management for owner in owners):
        return [asking.management]
    named = [owner for owner in owners if owner is not None and owner != asking.issuer]
    is_for_others = any(owner != asking.management for owner in named)
    # A default resource gets scopes that may be meant for it, and never those of another alone.
    if None in owners or not is_for_others:
        defaults = [resource for resource in asking.defaults if not catalog.is_disabled(resource)]
        named += defaults or ([] if is_for_others else [asking.issuer])
    return named


def _known(audience: Iterable[str], catalog: Catalog) -> list[KnownResource]:
    return [catalog.resources[resource] for resource in audience if resource in catalog.resources]
