"""Check who may change a client's scopes, trust, approval, APIs and token exchange.

Users cannot give a client scopes or trust that they do not have themselves (TN-11).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any
from uuid import UUID

from sqlalchemy import or_, select

from app.extensions import db
from app.models.client import ACTIVE, Client, Resource, Scope
from app.operations.clients.client_access import hold_resource
from app.operations.clients.scopes import add_scopes, list_offered_scopes
from app.operations.sign_in.reauthentication import require_fresh_user_sign_in
from app.rules.actor import Actor
from app.rules.clients.client_metadata import ClientMetadata, changed_fields
from app.rules.clients.client_types import ALLOWED, PRE_APPROVED, UNVERIFIED, uses_grants_without_consent
from app.rules.directory.permissions import ALL_PERMISSIONS, PERMISSIONS, ROOT_ONLY, missing_permissions
from app.rules.errors import Conflict, FieldError, Forbidden, InvalidInput
from app.rules.languages.translation import lazy_gettext
from app.rules.scopes import IDENTITY_SCOPES

_APPROVAL_FIELDS = ("approval", "approved_scopes")
_MAX_LISTED_SCOPES = 30
_AUTHENTICATION_FIELDS = frozenset({"jwks", "jwks_uri", "token_endpoint_auth_method"})
# Fields that a developer can change in a trusted client, because they do not affect consent.
_UNAFFECTED_BY_TRUST = frozenset({"description", "contacts", "metadata", "status", "trust", "app_roles"})
# Fields that a metadata document cannot set.
_NOT_IN_DOCUMENT = frozenset(
    {
        *("description", "metadata", "status", "trust", "resources", "optional_scopes"),
        *("access_token_format", "token_exchange", "approval", "approved_scopes", "require_pkce"),
        *("id_token_claims", "app_roles", "claim_mappings"),
    }
)


def resolve_client_scopes(
    actor: Actor,
    metadata: ClientMetadata,
    *,
    before: Iterable[str],
    is_root: bool,
    granted: Collection[str] = (),
) -> list[str]:
    """Check that the organization knows the client's scopes and the actor can grant them.

    Returns warnings for the caller. Management scopes need ``clients:trust``, and the actor must have them.
    For a caller with ``resources:write`` unknown scopes are added to the organization. Otherwise InvalidInput
    lists the existing ones. Scopes that the client had ``before`` are not checked again. ``granted`` are
    scopes that it has access to: those of an API for listed clients are unknown to other clients.
    """
    new = [scope for scope in metadata.scopes if scope not in frozenset(before)]
    management = [scope for scope in new if scope in ALL_PERMISSIONS]
    _require_grant_permission(actor, metadata, management, is_root=is_root)
    named = [scope for scope in new if scope not in ALL_PERMISSIONS and scope not in IDENTITY_SCOPES]
    unknown = _find_unknown(actor, named, granted)
    if not unknown:
        return []
    if not actor.has_permission("resources:write"):
        raise InvalidInput.of(_unknown_scope_errors(actor, metadata, unknown))
    added = add_scopes(actor, unknown)
    return [
        f'The scope "{name}" is new in this organization. Add a title for the consent page.' for name in added
    ]


def require_known_scopes(
    actor: Actor, metadata: ClientMetadata, *, before: Iterable[str], granted: Collection[str] = ()
) -> None:
    """Raise InvalidInput for new scopes that the organization does not know, and for management scopes."""
    new = [name for name in metadata.scopes if name not in frozenset(before) and name not in IDENTITY_SCOPES]
    unknown = _find_unknown(actor, new, granted)
    if unknown:
        raise InvalidInput.of(_unknown_scope_errors(actor, metadata, unknown))


def grantable_permissions(actor: Actor) -> Mapping[str, str]:
    """Return the management scopes, with descriptions, that the actor can offer to a client."""
    return PERMISSIONS if actor.has_permission("clients:trust") else {}


def require_trust_permission(actor: Actor, before: str, after: str) -> None:
    """Raise Forbidden if ``trust`` changes and the actor cannot change it."""
    if before != after and not actor.has_permission("clients:trust"):
        raise Forbidden(
            "You need the permission clients:trust to change the trust of a client.",
            permission="clients:trust",
            field="trust",
        )


def require_approval_permission(actor: Actor, before: ClientMetadata, after: ClientMetadata) -> None:
    """Raise Forbidden if the administrators' approval changes and the actor cannot change it."""
    changed = [name for name in changed_fields(before, after) if name in _APPROVAL_FIELDS]
    if changed and not actor.has_permission("clients:trust"):
        raise Forbidden(
            "You need the permission clients:trust to change the approval of a client.",
            permission="clients:trust",
            errors=[
                FieldError(name, "not_allowed", "You need the permission clients:trust.") for name in changed
            ],
        )


def is_trusted(client: ClientMetadata) -> bool:
    """Return whether somebody with ``clients:trust`` decided that users or apps can rely on the client."""
    return client.trust != UNVERIFIED or client.approval in (ALLOWED, PRE_APPROVED)


def require_trusted_client_permission(actor: Actor, before: ClientMetadata, after: ClientMetadata) -> None:
    """Raise Forbidden if the actor cannot change this trusted client or enable this disabled one.

    Trust was given to this name, these redirect URIs and these scopes. With others, codes would be issued
    without consent to an unverified client. A disabled client can be enabled only with full
    ``clients:write``.
    """
    changed = [name for name in changed_fields(before, after) if name not in _UNAFFECTED_BY_TRUST]
    if is_trusted(before) and changed and not actor.has_permission("clients:trust"):
        raise Forbidden(
            lazy_gettext(
                "This client is trusted. You need the permission clients:trust to change its %(changed)s.",
                changed=", ".join(changed),
            ),
            permission="clients:trust",
            errors=[
                FieldError(name, "trusted", "You need the permission clients:trust.") for name in changed
            ],
        )
    if before.status != ACTIVE and after.status == ACTIVE and not actor.has_permission("clients:write"):
        raise Forbidden(
            "This client is disabled. You need the permission clients:write for all clients to enable it.",
            permission="clients:write",
            field="status",
        )


def require_not_in_metadata_document(actor: Actor, row: Client, changed: Iterable[str]) -> None:
    """Raise Conflict if a user changes fields that the client's metadata document sets.

    The next refresh of the document would overwrite them.
    """
    fixed = [name for name in changed if name not in _NOT_IN_DOCUMENT]
    if row.metadata_document_uri is not None and actor.kind in ("user", "client") and fixed:
        raise Conflict(
            lazy_gettext(
                "These fields are set by the client's metadata document: %(fixed)s.", fixed=", ".join(fixed)
            ),
            code="in_metadata_document",
            errors=[
                FieldError(name, "in_metadata_document", "This is set by the client's metadata document.")
                for name in fixed
            ],
        )


def require_token_exchange_permission(actor: Actor, before: str | None, after: str | None) -> None:
    """Raise Forbidden if the actor lets the client exchange tokens without the permission to trust clients.

    The client could then obtain tokens of users who never consented.
    """
    if after is not None and before != after and not actor.has_permission("clients:trust"):
        raise Forbidden(
            "You need the permission clients:trust to let a client exchange tokens.",
            permission="clients:trust",
            field="token_exchange",
        )


def require_resources_permission(actor: Actor, before: Iterable[str], after: Iterable[str]) -> None:
    """Raise Forbidden if the actor adds resources but may neither trust clients nor manage resources.

    A resource's audience decides who can read the tokens.
    """
    new = frozenset(after) - frozenset(before)
    if new and not actor.has_permission("clients:trust") and not actor.has_permission("resources:write"):
        raise Forbidden(
            "You need the permission resources:write or clients:trust to add resources to a client.",
            permission="resources:write",
            field="resources",
        )


def require_shared_scope_permission(actor: Actor, before: ClientMetadata, after: ClientMetadata) -> None:
    """Raise Forbidden if the actor lets the client use scopes of no API for itself, but may not decide about them.

    Such a scope fits every API, so only those who manage all APIs or trust clients may give it to a client that gets
    tokens without a user's consent.
    """
    if not uses_grants_without_consent(after.grant_types):
        return
    if actor.has_permission("resources:write") or actor.has_permission("clients:trust"):
        return
    known = before.scopes if uses_grants_without_consent(before.grant_types) else ()
    new = [scope for scope in after.scopes if scope not in known]
    shared = set(
        db.session.scalars(
            select(Scope.name).where(
                Scope.organization_id == actor.organization_id,
                Scope.name.in_(new),
                Scope.resource_id.is_(None),
                Scope.is_identity.is_(False),
            )
        )
    )
    if shared:
        message = "This scope belongs to no API. It needs the permission resources:write or clients:trust."
        raise Forbidden(
            "Only those who manage all APIs can give a client that acts without users scopes of no API. "
            "Ask an administrator to add them.",
            permission="resources:write",
            errors=[_scope_error(after, name, "not_allowed", message) for name in new if name in shared],
        )


def require_client_within_permissions(actor: Actor, row: Any) -> None:
    """Raise Forbidden if the client, a row with name and document, has management scopes that the actor lacks.

    Anyone who can change the client's secrets or redirect URIs could use those scopes.
    """
    scopes = [scope for scope in row.document.get("scopes", ()) if scope in ALL_PERMISSIONS]
    missing = [] if actor.kind == "system" else missing_permissions(actor.permissions, scopes)
    if missing:
        raise Forbidden(
            lazy_gettext(
                "%(name)s has permissions that you don't have: %(missing)s.",
                name=row.name,
                missing=", ".join(missing),
            ),
            permission=missing[0],
        )


def require_fresh_sign_in_for_management_scopes(
    actor: Actor, before: ClientMetadata, after: ClientMetadata
) -> None:
    """Require a fresh sign-in of a user who gives a client management scopes, or lets it use them without a user.

    The client then acts for itself, and no sign-in is required of it. Raises FreshSignInRequired.
    """
    acts_alone = uses_grants_without_consent(after.grant_types)
    known = () if acts_alone and not uses_grants_without_consent(before.grant_types) else before.scopes
    if any(scope in ALL_PERMISSIONS and scope not in known for scope in after.scopes):
        require_fresh_user_sign_in(actor)


def require_fresh_sign_in_for_authentication(actor: Actor, changed: Iterable[str]) -> None:
    """Require a fresh sign-in of a user who changes how a client authenticates, because it replaces its credential.

    Raises FreshSignInRequired.
    """
    if not _AUTHENTICATION_FIELDS.isdisjoint(changed):
        require_fresh_user_sign_in(actor)


def hold_managed_resources(
    actor: Actor, scopes: Collection[str], identifiers: Collection[str]
) -> list[tuple[Resource, list[str]]]:
    """Hold the resources among these, and those of the scopes, that the actor may manage. Return each with its scopes.

    ``grant_access`` then gives a client access to what the actor adds to it. Call this before the transaction writes
    scopes or clients.
    """
    if not (scopes or identifiers) or not actor.has_permission_for_own("resources:write"):
        return []
    rows = db.session.execute(
        select(Resource, Scope.name)
        .outerjoin(
            Scope,
            (Scope.organization_id == Resource.organization_id)
            & (Scope.resource_id == Resource.id)
            & Scope.name.in_(list(scopes)),
        )
        .where(
            Resource.organization_id == actor.organization_id,
            or_(Scope.name.is_not(None), Resource.identifier.in_(list(identifiers))),
        )
        .order_by(Resource.id)
    )
    managed: dict[UUID, tuple[Resource, list[str]]] = {}
    for resource, scope in rows:
        if actor.has_permission("resources:write", owner_id=resource.owner_id):
            names = managed.setdefault(resource.id, (resource, []))[1]
            names += [] if scope is None else [scope]
    for resource, _ in managed.values():
        hold_resource(resource)
    return list(managed.values())


def _require_grant_permission(
    actor: Actor, metadata: ClientMetadata, scopes: list[str], *, is_root: bool
) -> None:
    if not scopes:
        return
    if not actor.has_permission("clients:trust"):
        raise Forbidden(
            lazy_gettext(
                "To grant a client %(scopes)s you need the permission clients:trust.",
                scopes=", ".join(scopes),
            ),
            permission="clients:trust",
            errors=[_scope_error(metadata, scopes[0], "not_allowed", "This scope manages the organization.")],
        )
    if not is_root and any(scope in ROOT_ONLY for scope in scopes):
        errors = [
            _scope_error(
                metadata, scope, "invalid_scope", "Only clients of the root organization can have this scope."
            )
            for scope in scopes
            if scope in ROOT_ONLY
        ]
        raise InvalidInput.of(errors)
    missing = [] if actor.kind == "system" else missing_permissions(actor.permissions, scopes)
    if missing:
        raise Forbidden(
            lazy_gettext(
                "You can't grant permissions that you don't have: %(missing)s.", missing=", ".join(missing)
            ),
            permission=missing[0],
            errors=[
                _scope_error(metadata, missing[0], "not_allowed", "You do not have this permission yourself.")
            ],
        )


def _find_unknown(actor: Actor, names: list[str], granted: Collection[str]) -> list[str]:
    if not names:
        return []
    found = {scope.name for scope in list_offered_scopes(actor, also=granted)}
    return [name for name in names if name not in found]


def _unknown_scope_errors(actor: Actor, metadata: ClientMetadata, unknown: list[str]) -> list[FieldError]:
    listed = [scope.name for scope in list_offered_scopes(actor)]
    names = ", ".join(listed[:_MAX_LISTED_SCOPES]) + (", …" if len(listed) > _MAX_LISTED_SCOPES else "")
    message = f"This scope does not exist in the organization. Existing scopes: {names}."
    return [_scope_error(metadata, name, "unknown_scope", message) for name in unknown]


def _scope_error(metadata: ClientMetadata, scope: str, code: str, message: str) -> FieldError:
    return FieldError(f"scopes[{metadata.scopes.index(scope)}]", code, message)
