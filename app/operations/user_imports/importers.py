"""Who an import acts for: kept with it, and asked anew at each part what they may do now."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from app.models.user_import import UserImport
from app.operations import clock
from app.operations.directory import client_of_row, organization_by_id
from app.operations.people import living_sessions
from app.operations.people.rights import rights_of_user
from app.operations.people.users import get_user
from app.operations.tokens import tokens
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
        "session_id": str(actor.session_id) if actor.session_id else None,
        "token_id": str(actor.token_id) if actor.token_id else None,
        "token_expires_at": actor.token_expires_at.isoformat() if actor.token_expires_at else None,
        "permissions": sorted(actor.permissions),
        "label": actor.label,
        "address": actor.address,
        "request_id": actor.request_id,
    }


def importer_of(row: UserImport) -> Actor:
    """Who the import acts for, with what both they might do when it began and may do now.

    Raises Forbidden when they are gone, or may not administer users any more, or when the sign-in or the token that
    began it was ended: whoever ends a stolen one ends what it set going.
    """
    kept = row.importer
    _require_standing(kept)
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


def _require_standing(kept: Mapping[str, Any]) -> None:
    # Imports that a release before began kept neither.
    session_id, token_id, until = (kept.get(name) for name in ("session_id", "token_id", "token_expires_at"))
    try:
        if session_id and living_sessions.has_been_ended(organization_by_id(kept["home"]), UUID(session_id)):
            raise _over("The sign-in that began this import has ended.")
    except NotFound:
        raise _over("The sign-in that began this import has ended.") from None
    # A token that grew old while the import ran was ended by nobody.
    is_young = until is not None and datetime.fromisoformat(until) > clock.now()
    if token_id and is_young and tokens.has_been_ended(kept["home"], UUID(token_id)):
        raise _over("The access token that began this import was revoked.")


def _over(why: str) -> Forbidden:
    return Forbidden(f"{why} Who came in stays; send the file again to go on.", permission="users:write")


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
