"""Actor: who asks, in which organization, with which permissions. Always an argument, never fetched."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal
from uuid import UUID

from app.rules.errors import Forbidden

ActorKind = Literal["user", "client", "system", "anonymous"]


@dataclass(frozen=True, slots=True)
class Actor:
    """Who asks.

    ``organization_id`` is the organization acted in (its routing key), ``home_organization_id`` the one the
    user or client belongs to; they differ only for root. ``permissions`` are what the actor may do *now* in
    ``organization_id``: for a token, its scopes cut down to its subject's rights. ``amr`` is how the person signed in.
    ``session_id`` is the sign-in of a browser, ``token_id`` the access token by which somebody acts: work that goes on
    after the answer asks whether it still stands.
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
    address: str | None = None
    request_id: str | None = None
    authenticated_at: datetime | None = None
    amr: tuple[str, ...] = ()
    token_id: UUID | None = None
    token_expires_at: datetime | None = None

    @classmethod
    def system(cls, organization_id: str, label: str = "gatehouse") -> Actor:
        """The service itself: set-up, janitor, command line. It holds every permission."""
        return cls("system", organization_id, organization_id, label=label)

    @classmethod
    def anonymous(
        cls, organization_id: str, address: str | None = None, request_id: str | None = None
    ) -> Actor:
        """Somebody who has not signed in."""
        return cls("anonymous", organization_id, organization_id, address=address, request_id=request_id)

    def acting_in(self, organization_id: str, permissions: frozenset[str]) -> Actor:
        """The same person, acting in another organization that was named explicitly (root alone)."""
        return replace(self, organization_id=organization_id, permissions=permissions)

    def own_account(self) -> UUID:
        """The id of the person whose account it is: one is reached from its own sign-in alone. Raises Forbidden."""
        if self.user_id is None or self.organization_id != self.home_organization_id:
            raise Forbidden("This is a page of one's own account.")
        return self.user_id

    def may(self, permission: str, *, owner_id: UUID | None = None) -> bool:
        """Whether the permission is held, or its ``:own`` form for a thing that ``owner_id`` registered."""
        if self.kind == "system" or permission in self.permissions:
            return True
        return owner_id is not None and owner_id == self.user_id and f"{permission}:own" in self.permissions

    def may_some(self, permission: str) -> bool:
        """Whether the permission is held at least for the actor's own things."""
        return self.may(permission) or f"{permission}:own" in self.permissions

    def require(self, permission: str, *, owner_id: UUID | None = None) -> None:
        """Raise Forbidden, naming the permission, unless ``may`` says yes."""
        if not self.may(permission, owner_id=owner_id):
            raise Forbidden(f"This needs the permission {permission}.", permission=permission)

    def require_some(self, permission: str) -> None:
        """Raise Forbidden unless the permission is held at least for own things."""
        if not self.may_some(permission):
            raise Forbidden(f"This needs the permission {permission}.", permission=permission)
