"""Who an import acts for: kept with it, and asked anew at each part what they may do now."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from app.models.user_import import UserImport
from app.operations.directory import client_of_row, organization_by_id
from app.operations.people.rights import rights_of_user
from app.operations.people.users import get_user
from app.rules.actor import Actor
from app.rules.errors import Forbidden, NotFound
from app.rules.people.permissions import cut_down


def document_of(actor: Actor) -> dict[str, Any]:
    """The actor, to be kept."""
    return {
        "kind": actor.kind,
        "home": actor.home_organization_id,
        "is_root": actor.is_root,
        "user_id": str(actor.user_id) if actor.user_id else None,
        "client_id": str(actor.client_id) if actor.client_id else None,
        "permissions": sorted(actor.permissions),
        "label": actor.label,
        "address": actor.address,
        "request_id": actor.request_id,
    }


def importer_of(row: UserImport) -> Actor:
    """Who the import acts for, with what both they might do when it began and may do now.

    Raises Forbidden when they are gone, or may not administer users any more.
    """
    kept = row.importer
    held = frozenset(kept["permissions"])
    user_id, client_id = (UUID(kept[name]) if kept[name] else None for name in ("user_id", "client_id"))
    if kept["kind"] != "system":
        held = cut_down(held, _rights_now(row.organization_id, kept["home"], user_id, client_id))
    actor = Actor(
        kept["kind"],
        row.organization_id,
        kept["home"],
        permissions=held,
        is_root=kept["is_root"],
        user_id=user_id,
        client_id=client_id,
        label=kept["label"],
        address=kept["address"],
        request_id=kept["request_id"],
    )
    actor.require("users:write")
    return actor


def _rights_now(
    organization_id: str, home: str, user_id: UUID | None, client_id: UUID | None
) -> frozenset[str]:
    rights: frozenset[str] | None = None
    try:
        if user_id is not None and get_user(home, user_id).is_active:
            rights = rights_of_user(organization_by_id(organization_id), home, user_id)
        if client_id is not None:
            client = client_of_row(home, client_id, fresh=True)
            scopes = frozenset(client.document["scopes"] if client and client.is_active else ())
            rights = scopes if user_id is None else cut_down(scopes, rights or ())
    except NotFound:
        rights = None
    if rights is None:
        raise Forbidden("Whoever began this import may not do it any more.", permission="users:write")
    return rights
