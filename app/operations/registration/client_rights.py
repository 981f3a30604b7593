"""What a client may be given: nobody grants scopes or trust that they do not hold (TN-11)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sqlalchemy import select

from app.extensions import db
from app.models.client import ACTIVE, Client, Scope
from app.operations.registration.scopes import add_scopes, list_scopes
from app.rules.actor import Actor
from app.rules.consents.approval import ALLOWED, PRE_APPROVED
from app.rules.errors import Conflict, FieldError, Forbidden, InvalidInput
from app.rules.people.permissions import EVERY_PERMISSION, PERMISSIONS, ROOT_ONLY, lacking
from app.rules.registration.client_metadata import ClientMetadata, changed_fields
from app.rules.tokens.scopes import IDENTITY_SCOPES

UNVERIFIED = "unverified"
_APPROVAL = ("approval", "approved_scopes")
_MOST_NAMED = 30
# What a developer may change in a client that others vouched for: nobody is asked for consent by these.
_BESIDE_TRUST = frozenset({"description", "contacts", "metadata", "status", "trust"})
# What a metadata document does not speak of.
_BESIDE_DOCUMENT = frozenset(
    {
        *("description", "metadata", "status", "trust", "resources", "optional_scopes"),
        *("access_token_format", "token_exchange", "approval", "approved_scopes"),
    }
)


def settle_scopes(
    actor: Actor, metadata: ClientMetadata, *, before: Iterable[str], is_root: bool
) -> list[str]:
    """Every scope of the client is one that the organization knows; returns warnings for who registers it.

    Management scopes need ``clients:trust`` and must be held by the actor. An unknown scope is added to the
    registry for a caller with ``resources:write``; anybody else gets InvalidInput, naming those that exist.
    Scopes that the client had ``before`` stay as they are.
    """
    new = [scope for scope in metadata.scopes if scope not in frozenset(before)]
    management = [scope for scope in new if scope in EVERY_PERMISSION]
    _require_to_grant(actor, metadata, management, is_root=is_root)
    named = [scope for scope in new if scope not in EVERY_PERMISSION and scope not in IDENTITY_SCOPES]
    unknown = _unknown(actor, named)
    if not unknown:
        return []
    if not actor.may("resources:write"):
        raise InvalidInput.of(_unknown_errors(actor, metadata, unknown))
    added = add_scopes(actor, unknown)
    return [f'The scope "{name}" is new here and wants words for the consent page.' for name in added]


def grantable_permissions(actor: Actor) -> Mapping[str, str]:
    """The management scopes, with their words, that the actor is offered to give a client."""
    return PERMISSIONS if actor.may("clients:trust") else {}


def require_trust(actor: Actor, before: str, after: str) -> None:
    """Raise Forbidden when the change of ``trust`` is not the actor's to make."""
    if before != after and not actor.may("clients:trust"):
        raise Forbidden(
            "Only somebody with the permission clients:trust decides which clients are trusted.",
            permission="clients:trust",
            field="trust",
        )


def require_approval(actor: Actor, before: ClientMetadata, after: ClientMetadata) -> None:
    """Raise Forbidden when the change of what administrators decided about the client is not the actor's to make."""
    changed = [name for name in changed_fields(before, after) if name in _APPROVAL]
    if changed and not actor.may("clients:trust"):
        raise Forbidden(
            "Only somebody with the permission clients:trust decides who may allow a client.",
            permission="clients:trust",
            errors=[
                FieldError(name, "not_allowed", "This needs the permission clients:trust.")
                for name in changed
            ],
        )


def require_keeping_trust(actor: Actor, before: ClientMetadata, after: ClientMetadata) -> None:
    """Raise Forbidden when the actor changes what somebody else vouched for, or undoes somebody's stop.

    Trust was given to this name, these addresses and these scopes: with others behind it, codes would go out
    without consent to whoever wrote them. A client that was disabled is enabled by full ``clients:write`` alone.
    """
    changed = [name for name in changed_fields(before, after) if name not in _BESIDE_TRUST]
    is_trusted = before.trust != UNVERIFIED or before.approval in (ALLOWED, PRE_APPROVED)
    if is_trusted and changed and not actor.may("clients:trust"):
        raise Forbidden(
            "This client is trusted. Only somebody with the permission clients:trust changes its "
            f"{', '.join(changed)}.",
            permission="clients:trust",
            errors=[
                FieldError(name, "trusted", "This needs the permission clients:trust.") for name in changed
            ],
        )
    if before.status != ACTIVE and after.status == ACTIVE and not actor.may("clients:write"):
        raise Forbidden(
            "This client is disabled. Only somebody with the permission clients:write for all clients enables it.",
            permission="clients:write",
            field="status",
        )


def require_document_agrees(actor: Actor, row: Client, changed: Iterable[str]) -> None:
    """Raise Conflict when somebody changes what the client's own metadata document says: it would come back."""
    fixed = [name for name in changed if name not in _BESIDE_DOCUMENT]
    if row.metadata_document_uri is not None and actor.kind in ("user", "client") and fixed:
        raise Conflict(
            f"This client's metadata document says what these are: {', '.join(fixed)}.",
            code="in_metadata_document",
            errors=[
                FieldError(name, "in_metadata_document", "This stands in the client's metadata document.")
                for name in fixed
            ],
        )


def require_exchange(actor: Actor, before: str | None, after: str | None) -> None:
    """Raise Forbidden when the client is given leave to exchange tokens by somebody who decides no trust.

    It could then have tokens of users that nobody asked for consent.
    """
    if after is not None and before != after and not actor.may("clients:trust"):
        raise Forbidden(
            "Only somebody with the permission clients:trust lets a client exchange tokens.",
            permission="clients:trust",
            field="token_exchange",
        )


def require_resources(actor: Actor, before: Iterable[str], after: Iterable[str]) -> None:
    """Raise Forbidden when the actor gives the client an audience and decides neither on trust nor on resources.

    Whoever names a resource may read the tokens meant for it.
    """
    new = frozenset(after) - frozenset(before)
    if new and not actor.may("clients:trust") and not actor.may("resources:write"):
        raise Forbidden(
            "Only somebody with the permission resources:write or clients:trust gives a client resources.",
            permission="resources:write",
            field="resources",
        )


def require_not_above(actor: Actor, row: Client) -> None:
    """Raise Forbidden when the client may do in this API what the actor may not.

    Its secrets and addresses are its rights: whoever could change them would hold those, too.
    """
    scopes = [scope for scope in row.document.get("scopes", ()) if scope in EVERY_PERMISSION]
    missing = [] if actor.kind == "system" else lacking(actor.permissions, scopes)
    if missing:
        raise Forbidden(
            f"This client may do more here than you: {', '.join(missing)}.", permission=missing[0]
        )


def _require_to_grant(actor: Actor, metadata: ClientMetadata, scopes: list[str], *, is_root: bool) -> None:
    if not scopes:
        return
    if not actor.may("clients:trust"):
        raise Forbidden(
            f"To grant a client {', '.join(scopes)} you need the permission clients:trust.",
            permission="clients:trust",
            errors=[_at(metadata, scopes[0], "not_allowed", "This scope manages the organization.")],
        )
    if not is_root and any(scope in ROOT_ONLY for scope in scopes):
        errors = [
            _at(
                metadata, scope, "invalid_scope", "Only clients of the root organization can have this scope."
            )
            for scope in scopes
            if scope in ROOT_ONLY
        ]
        raise InvalidInput.of(errors)
    missing = [] if actor.kind == "system" else lacking(actor.permissions, scopes)
    if missing:
        raise Forbidden(
            f"You cannot grant what you do not hold: {', '.join(missing)}.",
            permission=missing[0],
            errors=[_at(metadata, missing[0], "not_allowed", "You do not hold this permission yourself.")],
        )


def _unknown(actor: Actor, names: list[str]) -> list[str]:
    if not names:
        return []
    known = db.session.scalars(
        select(Scope.name).where(Scope.organization_id == actor.organization_id, Scope.name.in_(names))
    )
    found = set(known)
    return [name for name in names if name not in found]


def _unknown_errors(actor: Actor, metadata: ClientMetadata, unknown: list[str]) -> list[FieldError]:
    listed = [scope.name for scope in list_scopes(actor)]
    names = ", ".join(listed[:_MOST_NAMED]) + (", …" if len(listed) > _MOST_NAMED else "")
    message = f"This organization does not know this scope. It knows: {names}."
    return [_at(metadata, name, "unknown_scope", message) for name in unknown]


def _at(metadata: ClientMetadata, scope: str, code: str, message: str) -> FieldError:
    return FieldError(f"scopes[{metadata.scopes.index(scope)}]", code, message)
