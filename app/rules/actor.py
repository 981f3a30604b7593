"""Actor: the caller of an operation, the organization it acts in, and its permissions there."""

from __future__ import annotations

from datetime import datetime
from typing import Literal
from uuid import UUID

from msgspec import Struct, field
from msgspec.structs import replace

from app.rules.errors import Forbidden
from app.rules.languages.translation import lazy_gettext

ActorKind = Literal["user", "client", "provider", "system", "anonymous"]


class Actor(Struct, frozen=True):
    """The caller of an operation. It is always passed as an argument.

    ``organization_id`` is the routing key of the organization it acts in, ``home_organization_id`` the one that the
    user or client belongs to. They differ only for root. ``permissions`` are the actor's current permissions in
    ``organization_id``; for a token these are its scopes limited to the permissions of its subject. ``amr`` lists how
    the user authenticated. ``session_id`` is the sign-in session of a browser and ``token_id`` the access token, so
    that work that continues after the response can check whether they are still valid. ``provider_id`` is the identity
    provider that provisions users.
    """

    kind: ActorKind
    organization_id: str
    home_organization_id: str
    permissions: frozenset[str] = field(default_factory=frozenset)
    is_root: bool = False
    user_id: UUID | None = None
    client_id: UUID | None = None
    session_id: UUID | None = None
    label: str = ""
    ip_address: str | None = None
    request_id: str | None = None
    authenticated_at: datetime | None = None
    amr: tuple[str, ...] = ()
    token_id: UUID | None = None
    token_expires_at: datetime | None = None
    provider_id: UUID | None = None

    @classmethod
    def system(cls, organization_id: str, label: str = "gatehouse") -> Actor:
        """Return an actor for the service itself: setup, janitor, command line. It has every permission."""
        return cls("system", organization_id, organization_id, label=label)

    @classmethod
    def anonymous(
        cls, organization_id: str, ip_address: str | None = None, request_id: str | None = None
    ) -> Actor:
        """Return an actor for a caller who is not signed in."""
        return cls(
            "anonymous", organization_id, organization_id, ip_address=ip_address, request_id=request_id
        )

    @property
    def author(self) -> str | None:
        """Who made or changed a row, for its column of 200 characters: the label, or None if there is none."""
        return self.label[:200] or None

    def acting_in(self, organization_id: str, permissions: frozenset[str]) -> Actor:
        """Return the same actor in another organization that was named explicitly. Only root may do this."""
        return replace(self, organization_id=organization_id, permissions=permissions)

    def as_user(self, user_id: UUID, label: str) -> Actor:
        """Return the user of an anonymous caller's organization as an actor with the caller's request."""
        return replace(self, kind="user", user_id=user_id, label=label)

    def as_system(self, label: str) -> Actor:
        """Return the service itself as an actor with an anonymous caller's request."""
        return replace(self, kind="system", label=label)

    def require_own_account(self) -> UUID:
        """Return the id of the signed-in user for pages of their own account. Raises Forbidden."""
        if self.user_id is None or self.organization_id != self.home_organization_id:
            raise Forbidden("Only a user can open their account pages.")
        return self.user_id

    def has_permission(self, permission: str, *, owner_id: UUID | None = None) -> bool:
        """Return whether the actor has the permission, or its ``:own`` form for an object of ``owner_id``."""
        if self.kind == "system" or permission in self.permissions:
            return True
        return owner_id is not None and owner_id == self.user_id and f"{permission}:own" in self.permissions

    def has_permission_for_own(self, permission: str) -> bool:
        """Return whether the actor has the permission at least for objects that it owns."""
        return self.has_permission(permission) or f"{permission}:own" in self.permissions

    def require(self, permission: str, *, owner_id: UUID | None = None) -> None:
        """Raise Forbidden, naming the permission, unless the actor has it."""
        if not self.has_permission(permission, owner_id=owner_id):
            raise _lacks(permission)

    def require_for_own(self, permission: str) -> None:
        """Raise Forbidden unless the actor has the permission at least for objects that it owns."""
        if not self.has_permission_for_own(permission):
            raise _lacks(permission)


def _lacks(permission: str) -> Forbidden:
    return Forbidden(
        lazy_gettext("You need the permission %(permission)s.", permission=permission), permission=permission
    )
