"""Offer and make the one change that lets a rejected request succeed. The cause decides which one it is.

Anyone who knows a client's id can send a request with any value, so an offer is what the ordinary form would accept,
and no more: a scope must exist, and management scopes are never offered.
"""

from __future__ import annotations

from msgspec import Struct

from app.operations.audit.failed_requests import FailedRequestRecord, get_failed_request
from app.operations.clients.client_records import ClientRecord
from app.operations.clients.clients import check_client_update, get_client, update_client
from app.operations.directory.lookups import get_organization_by_id
from app.operations.organizations.settings import get_settings, update_settings
from app.rules.actor import Actor
from app.rules.audit.request_fixes import CLIENT, SECRET, SETTING, Fix, propose_fix
from app.rules.clients.redirect_uris import get_display_host
from app.rules.errors import Conflict, Forbidden, InvalidInput, NotFound

PKCE_FOR_PUBLIC_CLIENTS = "public_clients"


class FixOffer(Struct, frozen=True):
    """A change and the version that it applies to.

    ``missing_permissions`` are those that the reader lacks. ``problem`` says why the rules refuse the change.
    ``unfamiliar_host`` is the host of a URI that no registered URI of the client has.
    """

    fix: Fix
    version: int
    missing_permissions: tuple[str, ...] = ()
    problem: str | None = None
    unfamiliar_host: str | None = None


def find_request_client(actor: Actor, entry: FailedRequestRecord) -> ClientRecord | None:
    """Return the client as it is registered now, or None if it was deleted or the actor may not read it."""
    try:
        return get_client(actor, entry.client_id)
    except (NotFound, Forbidden):
        return None


def find_fix(actor: Actor, entry: FailedRequestRecord, client: ClientRecord | None) -> FixOffer | None:
    """Return the change that would let the request succeed, or None if there is none or it was made."""
    fix = propose_fix(entry.cause, client, entry.received) if client is not None else None
    if client is None or fix is None:
        return None
    missing = tuple(
        permission
        for permission in fix.permissions
        if not actor.has_permission(permission, owner_id=client.owner_id)
    )
    if fix.target == SETTING:
        return _setting_offer(actor, client, fix, missing)
    problem = None
    if fix.target == CLIENT and not missing:
        try:
            check_client_update(actor, client.client_id, fix.changes)
        except (InvalidInput, Conflict, Forbidden) as error:
            problem = " ".join(dict.fromkeys(one.message for one in error.errors)) or str(error.description)
    return FixOffer(fix, client.version, missing, problem, _unfamiliar_host(client, fix))


def apply_fix(actor: Actor, failed_request_id: str, *, expected_version: int | None) -> FailedRequestRecord:
    """Make the change that the entry's page offers, with the operation that its form uses. Return the entry.

    Raises NotFound, Forbidden, Conflict if there is nothing to change, and the errors of ``update_client`` and
    ``update_settings``. Audit: ``client.updated`` or ``settings.updated``.
    """
    entry = get_failed_request(actor, failed_request_id)
    client = get_client(actor, entry.client_id)
    fix = propose_fix(entry.cause, client, entry.received)
    if fix is None or fix.target == SECRET:
        actor.require("clients:write", owner_id=client.owner_id)
        raise Conflict(
            "There is nothing to change here. The client's registration may have changed meanwhile."
        )
    for permission in fix.permissions:
        actor.require(permission, owner_id=client.owner_id)
    if fix.target == SETTING:
        organization = get_organization_by_id(actor.organization_id)
        update_settings(actor, organization.slug, fix.changes, expected_version=expected_version)
        return entry
    check_client_update(actor, entry.client_id, fix.changes)
    update_client(actor, entry.client_id, fix.changes, expected_version=expected_version)
    return entry


def _setting_offer(actor: Actor, client: ClientRecord, fix: Fix, missing: tuple[str, ...]) -> FixOffer | None:
    organization = get_organization_by_id(actor.organization_id, fresh=False)
    is_relaxed = organization.settings["oauth"]["pkce"] == PKCE_FOR_PUBLIC_CLIENTS
    if is_relaxed or client.require_pkce or client.security_profile is not None:
        return None
    if missing or not actor.has_permission("settings:read"):
        return FixOffer(fix, 0, missing or ("settings:read",))
    return FixOffer(fix, get_settings(actor, organization.slug).version)


def _unfamiliar_host(client: ClientRecord, fix: Fix) -> str | None:
    """Return the host, or the scheme of an app's own URI, that no registered URI of the client has."""
    for field in ("redirect_uris", "post_logout_redirect_uris"):
        if field in fix.changes:
            host = get_display_host(fix.changes[field][-1])
            known = {
                get_display_host(uri) for uri in (*client.redirect_uris, *client.post_logout_redirect_uris)
            }
            return host if host not in known else None
    return None
